//! Pages that travel as INT4: opened on the device, and what that costs, measured once.
//!
//! ```text
//! slot: q4 page, q4 page, ... ─ copy ─► codes ─ open_pages ─► area of all slots, f16
//! ```
//! Owner: the engine thread. One place for codes is enough: the device opens one slot after the other.
//!
//! Source: LeoAM, section 4.4: the decompression time is "determined by an offline hardware test".

use std::time::{Duration, Instant};

use super::{Batch, Filled, Stage};
use crate::gpu::kernels::KvElement;
use crate::gpu::kernels::open_pages::OpenPages;
use crate::gpu::{Binding, Gpu, GpuError, HostBuffer, Recorder, Slice};
use crate::kv::layout::KvSpec;
use crate::kv::seal::seal_page;

/// Tries of which the best counts: the first compiles, and others may meet a busy machine.
const N_TRIES: usize = 4;

/// Speeds, unpacked bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Packing {
    /// packed bytes by unpacked ones
    pub ratio: f64,
    /// on one thread
    pub pack: f64,
    /// on the device
    pub open: f64,
}

/// Opens what arrived packed.
pub(super) struct Opener {
    op: OpenPages,
    codes: Slice,
    binding: Binding,
    packed_page_bytes: u64,
    pub packing: Packing,
}

/// What streams have cost since the cache was made.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StreamCost {
    /// attention stood still for its next batch
    pub waited: Duration,
    /// filling slots: all of it, and the parts that waited for RAM to have the pages, carried plain bytes, and packed others
    pub filling: Duration,
    /// see `filling`
    pub below: Duration,
    /// see `filling`
    pub carrying: Duration,
    /// bytes carried plain
    pub carried_bytes: u64,
    /// pages that travelled
    pub n_pages: u64,
    /// of them packed
    pub n_packed_pages: u64,
}

impl StreamCost {
    /// A batch came, after attention had waited for it.
    pub(super) fn note(&mut self, waited: Duration, batch: &Batch, filled: &Filled, page_bytes: u64) {
        let n_pages = batch.groups.len() as u64;
        self.waited += waited;
        self.filling += Duration::from_nanos(filled.ended_ns.saturating_sub(filled.began_ns));
        self.below += filled.below;
        self.n_pages += n_pages;
        if batch.is_packed {
            self.n_packed_pages += n_pages;
        } else {
            self.carrying += filled.carrying;
            self.carried_bytes += n_pages * page_bytes;
        }
    }
}

impl Opener {
    /// For up to `n_pages` at once, into `area`; none where pages have codes anyway.
    pub fn new(gpu: &Gpu, spec: &KvSpec, n_pages: usize, area: &Slice) -> Result<Option<Opener>, GpuError> {
        let Some(packed_page_bytes) = spec.packed_page_bytes() else { return Ok(None) };
        let op = OpenPages::new(gpu, spec.n_kv_head, spec.head_dim, KvElement::Q4)?;
        let codes = gpu.buffer("KV codes", n_pages as u64 * packed_page_bytes)?.all();
        let binding = op.bind(gpu, [&codes, area])?;
        let ratio = packed_page_bytes as f64 / spec.page_bytes() as f64;
        let bytes = n_pages as f64 * spec.page_bytes() as f64;
        let mut open: f64 = 0.0;
        for _ in 0..N_TRIES {
            let mut recorder = Recorder::new();
            op.record(&mut recorder, &binding, 0, 0, n_pages);
            let began = Instant::now();
            let submitted = gpu.submit(&mut recorder)?;
            gpu.wait(&submitted)?;
            open = open.max(bytes / began.elapsed().as_secs_f64());
        }
        let packing = Packing { ratio, pack: try_packing(spec), open };
        Ok(Some(Opener { op, codes, binding, packed_page_bytes, packing }))
    }
}

/// Unpacked bytes per second that one thread packs.
fn try_packing(spec: &KvSpec) -> f64 {
    let page: Vec<u8> = (0..spec.page_bytes()).map(|i| if i % 2 == 0 { (i / 2) as u8 } else { 0x3c }).collect();
    let mut packed = vec![0; spec.packed_page_bytes().unwrap_or(0) as usize];
    let tries = (0..N_TRIES).map(|_| {
        let began = Instant::now();
        seal_page(&page, spec.n_kv_head, spec.head_dim, &mut packed);
        page.len() as f64 / began.elapsed().as_secs_f64()
    });
    tries.fold(0.0, f64::max)
}

impl Stage {
    /// Records the way of packed pages from a slot to page `at` of the area.
    pub(super) fn record_open(&self, recorder: &mut Recorder, upload: &HostBuffer, at: u64, n_pages: usize) {
        let Some(Opener { op, codes, binding, packed_page_bytes, .. }) = &self.opener else { return };
        let n_bytes = n_pages as u64 * packed_page_bytes;
        recorder.copy(&upload.slice(0, n_bytes), &codes.buffer.slice(0, n_bytes));
        op.record(recorder, binding, 0, at as usize, n_pages);
    }
}
