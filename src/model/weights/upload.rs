//! Weight upload: allocates the arenas of a [`WeightLayout`] and fills them from the model file.
//!
//! ```text
//! the system reads ahead ─► threads: file rows ─► kernel format ─► slot of the ring ─► this thread: copies ─► arena
//! ```
//! 1. Reading, packing and copying overlap. The order of pieces does not change the bytes.
//! 2. RAM: the slots of the ring, and one packed piece with its rows for each thread.
//! 3. Of several faults of the file, the first in the order of pieces is reported.
//!
//! Owner: the thread of the device, which records all copies.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select, unbounded};

use super::layout::{WeightLayout, WeightSlice};
use super::pieces::{self, PIECE_BYTES, PackedPieces, PackedRange, PieceGroup};
use crate::gpu::{Buffer, Gpu, Slice, UploadCopy, UploadRing};
use crate::model::ModelError;
use crate::model::file::ModelFile;

/// Threads that pack, at most.
const MAX_THREADS: usize = 8;
/// Slots that the device copies while each thread fills another.
const SPARE_SLOTS: usize = 2;
/// Interval for polling completed copies.
const POLL_EVERY: Duration = Duration::from_millis(1);

/// Weights of a model in VRAM.
pub struct Weights {
    /// slice of every tensor
    pub layout: WeightLayout,
    arenas: Vec<Buffer>,
}

impl Weights {
    /// Allocates the arenas of `layout` and fills them from `file`. `progress` gets the share done, and returns false to
    /// cancel.
    ///
    /// # Errors
    /// Out of VRAM, a lost GPU, a tensor that cannot be read, or [`ModelError::Cancelled`].
    pub fn upload(
        gpu: &Gpu,
        file: &ModelFile,
        layout: WeightLayout,
        progress: &mut dyn FnMut(f32) -> bool,
    ) -> Result<Weights, ModelError> {
        let arenas = layout.arena_bytes.iter().map(|&size| gpu.buffer("weights", size)).collect::<Result<Vec<_>, _>>()?;
        let weights = Weights { layout, arenas };
        let groups = pieces::groups(&weights.layout, PIECE_BYTES);
        let n_threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS).min(groups.len()).max(1);
        let slot_bytes = groups.iter().map(PieceGroup::max_bytes).max().unwrap_or(0);
        let ring = UploadRing::new(gpu, n_threads + SPARE_SLOTS, slot_bytes)?;
        Loading { file, groups: &groups, ring: &ring, next: AtomicUsize::new(0), n_threads }.run(gpu, &weights, progress)?;
        gpu.wait_idle()?;
        Ok(weights)
    }

    /// Binding of a slice.
    pub fn slice(&self, of: WeightSlice) -> Slice {
        self.arenas[of.arena].slice(of.offset, of.size)
    }
}

/// A slot with packed pieces, and their ranges.
type FilledSlot = (usize, Vec<PackedRange>);

/// Groups of pieces, and the next one that no thread has taken.
struct Loading<'a> {
    file: &'a ModelFile,
    groups: &'a [PieceGroup<'a>],
    ring: &'a UploadRing,
    next: AtomicUsize,
    n_threads: usize,
}

impl Loading<'_> {
    /// Starts the threads and copies what they pack until all is done, the file has a fault, or `progress` returns false.
    fn run(&self, gpu: &Gpu, weights: &Weights, progress: &mut dyn FnMut(f32) -> bool) -> Result<(), ModelError> {
        let total = weights.layout.total_bytes().max(1);
        // Dropped at the end of this function, which ends the threads.
        let (_stop, stopped) = bounded::<Infallible>(0);
        std::thread::scope(|scope| {
            // Dropped before the threads are joined.
            let _stop = _stop;
            let (sender, filled) = unbounded();
            for i in 0..self.n_threads {
                let (sender, stopped) = (sender.clone(), stopped.clone());
                let thread = std::thread::Builder::new().name(format!("strata-pack-{i}"));
                match thread.spawn_scoped(scope, move || self.pack_all(&sender, &stopped)) {
                    Err(error) if i == 0 => return Err(ModelError::NoThread(error.to_string())),
                    _ => {}
                }
            }
            drop(sender);
            let (mut done, mut fault): (u64, Option<(usize, ModelError)>) = (0, None);
            loop {
                gpu.poll()?;
                match filled.recv_timeout(POLL_EVERY) {
                    Ok((_, Ok((slot, ranges)))) => {
                        let copies = ranges.iter().map(|range| copy_of(weights, range)).collect::<Vec<_>>();
                        self.ring.copy(gpu, slot, &copies)?;
                        done += ranges.iter().map(|range| range.n_bytes as u64).sum::<u64>();
                        if !progress((done as f32 / total as f32).min(1.0)) {
                            return Err(ModelError::Cancelled);
                        }
                    }
                    Ok((i, Err(error))) => {
                        // No more groups are taken; those before this one end, and may have an earlier fault.
                        self.next.store(self.groups.len(), Ordering::Relaxed);
                        if fault.as_ref().is_none_or(|(first, _)| i < *first) {
                            fault = Some((i, error));
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return fault.map_or(Ok(()), |(_, error)| Err(error)),
                }
            }
        })
    }

    /// Packs groups until none is left, or the other side is gone.
    fn pack_all(&self, filled: &Sender<(usize, Result<FilledSlot, ModelError>)>, stopped: &Receiver<Infallible>) {
        let mut packed = PackedPieces::default();
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(group) = self.groups.get(i) else { return };
            if let Some(later) = self.groups.get(i + self.n_threads) {
                later.read_ahead(self.file);
            }
            let result = match group.pack(self.file, &mut packed) {
                Err(error) => Err(error),
                Ok(()) => {
                    let slot = select! {
                        recv(self.ring.free()) -> slot => slot,
                        recv(stopped) -> _ => return,
                    };
                    let Ok(slot) = slot else { return };
                    let written = self.ring.write(slot, &packed.bytes);
                    written.map(|()| (slot, std::mem::take(&mut packed.ranges))).map_err(ModelError::from)
                }
            };
            if filled.send((i, result)).is_err() {
                return;
            }
        }
    }
}

fn copy_of(weights: &Weights, range: &PackedRange) -> UploadCopy {
    let of = weights.slice(range.target);
    let n_bytes = range.n_bytes.next_multiple_of(4) as u64;
    UploadCopy { offset: range.from as u64, target: of.buffer.slice(of.offset + range.skip, n_bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::FeatureOverrides;
    use crate::gpu::testing::gpu_with;
    use crate::model::weights::layout::lay_out;

    fn files() -> Vec<ModelFile> {
        let built_in = include_bytes!("../../../assets/demo-model/strata-quote-Q8_0.gguf");
        let synthetic = |name, ty| ModelFile::synthetic(name, ty, 3).unwrap();
        // Interleaved rows, tied and separate outputs, conversions.
        vec![
            ModelFile::from_static(built_in).unwrap(),
            synthetic("tiny", "Q4_0"),
            synthetic("tiny", "Q4_K"),
            synthetic("tiny", "F16"),
        ]
    }

    /// Bytes of the arenas, packed one piece after the other, in smaller pieces than those of the upload.
    fn expected(file: &ModelFile, layout: &WeightLayout) -> Vec<Vec<u8>> {
        let mut arenas: Vec<Vec<u8>> = layout.arena_bytes.iter().map(|size| vec![0; *size as usize]).collect();
        let mut packed = PackedPieces::default();
        for group in pieces::groups(layout, 100_000) {
            group.pack(file, &mut packed).unwrap();
            for range in &packed.ranges {
                let to = (range.target.offset + range.skip) as usize;
                let bytes = &packed.bytes[range.from..range.from + range.n_bytes];
                arenas[range.target.arena][to..to + bytes.len()].copy_from_slice(bytes);
            }
        }
        arenas
    }

    #[test]
    fn arenas_have_the_bytes_of_packing_one_piece_after_the_other() {
        let test = "arenas_have_the_bytes_of_packing_one_piece_after_the_other";
        for file in files() {
            let mut want = None;
            for no_host_memory in [false, true] {
                let overrides = FeatureOverrides { no_host_memory, ..FeatureOverrides::default() };
                let Some(gpu) = gpu_with(test, overrides) else { return };
                let layout = lay_out(&file, gpu.max_binding_bytes()).unwrap();
                let want = want.get_or_insert_with(|| expected(&file, &layout));
                let mut shares = Vec::new();
                let weights = Weights::upload(&gpu, &file, layout, &mut |share| {
                    shares.push(share);
                    true
                });
                let weights = weights.unwrap();
                for (arena, want) in weights.arenas.iter().zip(&*want) {
                    assert!(gpu.download(&arena.slice(0, want.len() as u64)).unwrap() == *want, "{:?}", file.info().name);
                }
                assert!(shares.is_sorted() && shares.last().is_some_and(|last| *last > 0.9 && *last <= 1.0), "{shares:?}");
                assert_eq!(gpu.host_bytes(), 0, "the ring is freed");
            }
        }
    }

    #[test]
    fn cancelled_upload_ends_its_threads_and_frees_everything() {
        let test = "cancelled_upload_ends_its_threads_and_frees_everything";
        let Some(gpu) = gpu_with(test, FeatureOverrides::default()) else { return };
        let file = ModelFile::synthetic("qwen2.5-0.5b", "Q4_0", 3).unwrap();
        let layout = lay_out(&file, gpu.max_binding_bytes()).unwrap();
        let mut n_calls = 0;
        let cancelled = Weights::upload(&gpu, &file, layout, &mut |_| {
            n_calls += 1;
            n_calls < 4
        });
        assert!(matches!(cancelled, Err(ModelError::Cancelled)));
        assert_eq!(n_calls, 4);
        assert_eq!((gpu.allocated_bytes(), gpu.host_bytes()), (0, 0));
    }

    #[test]
    fn upload_to_a_lost_device_fails() {
        let Some(gpu) = gpu_with("upload_to_a_lost_device_fails", FeatureOverrides::default()) else { return };
        let file = ModelFile::synthetic("tiny", "Q4_0", 3).unwrap();
        let layout = lay_out(&file, gpu.max_binding_bytes()).unwrap();
        let lost = Weights::upload(&gpu, &file, layout, &mut |_| {
            gpu.lose();
            true
        });
        assert!(matches!(lost, Err(ModelError::Gpu(crate::gpu::GpuError::Lost(_)))));
    }
}
