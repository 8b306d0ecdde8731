//! Pages that travel as INT4: opened on the device, and what that costs, measured once.
//!
//! ```text
//! slot: q4 page, q4 page, ... ─ copy ─► codes ─ open_pages ─► area of all slots, f16
//! ```
//! Owner: the engine thread. One place for codes is enough: the device opens one slot after the other.
//!
//! Source: LeoAM, section 4.4: the decompression time is "determined by an offline hardware test".

use std::time::{Duration, Instant};

use crate::gpu::kernels::KvFormat;
use crate::gpu::kernels::dequantize_pages::DequantizePages;
use crate::gpu::{Binding, Gpu, GpuError, Recorder, Slice, StagingBuffer};
use crate::kv::layout::KvSpec;
use crate::kv::quantize_page::quantize_page;
use crate::kv::vram::{FilledStaging, StagingPool, TransferBatch};

/// Tries of which the best counts: the first compiles, and others may meet a busy machine.
const N_TRIES: usize = 4;

/// Speeds, unpacked bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodecRates {
    /// packed bytes by unpacked ones
    pub ratio: f64,
    /// on one thread
    pub quantize: f64,
    /// on the device
    pub dequantize: f64,
}

/// Opens what arrived packed.
pub(super) struct PageDequantizer {
    op: DequantizePages,
    codes: Slice,
    binding: Binding,
    int4_page_bytes: u64,
    pub codec_rates: CodecRates,
}

/// What streams have cost since the cache was made.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StreamCost {
    /// attention stood still for its next batch
    pub waited: Duration,
    /// filling slots: all of it, and the parts that waited for RAM to have the pages, carried plain bytes, and packed others
    pub filling: Duration,
    /// see `filling`
    pub fetching: Duration,
    /// see `filling`
    pub transferring: Duration,
    /// bytes carried plain
    pub transferred_bytes: u64,
    /// pages that traveled
    pub n_pages: u64,
    /// of them packed
    pub n_compressed_pages: u64,
}

impl StreamCost {
    /// A batch came, after attention had waited for it.
    pub(super) fn note(&mut self, waited: Duration, batch: &TransferBatch, filled: &FilledStaging, page_bytes: u64) {
        let n_pages = batch.groups.len() as u64;
        self.waited += waited;
        self.filling += Duration::from_nanos(filled.ended_ns.saturating_sub(filled.began_ns));
        self.fetching += filled.fetching;
        self.n_pages += n_pages;
        if batch.is_compressed {
            self.n_compressed_pages += n_pages;
        } else {
            self.transferring += filled.transferring;
            self.transferred_bytes += n_pages * page_bytes;
        }
    }
}

impl PageDequantizer {
    /// For up to `n_pages` at once, into `area`; none where pages have codes anyway.
    pub fn new(gpu: &Gpu, spec: &KvSpec, n_pages: usize, area: &Slice) -> Result<Option<PageDequantizer>, GpuError> {
        let Some(int4_page_bytes) = spec.int4_page_bytes() else { return Ok(None) };
        let op = DequantizePages::new(gpu, spec.n_kv_head, spec.head_dim, KvFormat::Q4)?;
        let codes = gpu.buffer("KV codes", n_pages as u64 * int4_page_bytes)?.all();
        let binding = op.bind(gpu, [&codes, area])?;
        let ratio = int4_page_bytes as f64 / spec.page_bytes() as f64;
        let bytes = n_pages as f64 * spec.page_bytes() as f64;
        let mut dequantize: f64 = 0.0;
        for _ in 0..N_TRIES {
            let mut recorder = Recorder::new();
            op.record(&mut recorder, &binding, 0, 0, n_pages);
            let began = Instant::now();
            let submitted = gpu.submit(&mut recorder)?;
            gpu.wait(&submitted)?;
            dequantize = dequantize.max(bytes / began.elapsed().as_secs_f64());
        }
        let codec_rates = CodecRates { ratio, quantize: measure_quantize(spec), dequantize };
        Ok(Some(PageDequantizer { op, codes, binding, int4_page_bytes, codec_rates }))
    }
}

/// Unpacked bytes per second that one thread packs.
fn measure_quantize(spec: &KvSpec) -> f64 {
    let page: Vec<u8> = (0..spec.page_bytes()).map(|i| if i % 2 == 0 { (i / 2) as u8 } else { 0x3c }).collect();
    let mut packed = vec![0; spec.int4_page_bytes().unwrap_or(0) as usize];
    let tries = (0..N_TRIES).map(|_| {
        let began = Instant::now();
        quantize_page(&page, spec.n_kv_head, spec.head_dim, &mut packed);
        page.len() as f64 / began.elapsed().as_secs_f64()
    });
    tries.fold(0.0, f64::max)
}

impl StagingPool {
    /// Records the way of packed pages from a slot to page `at` of the area.
    pub(super) fn record_dequantize(&self, recorder: &mut Recorder, upload: &StagingBuffer, at: u64, n_pages: usize) {
        let Some(PageDequantizer { op, codes, binding, int4_page_bytes, .. }) = &self.dequantizer else { return };
        let n_bytes = n_pages as u64 * int4_page_bytes;
        recorder.copy(&upload.slice(0, n_bytes), &codes.buffer.slice(0, n_bytes));
        op.record(recorder, binding, 0, at as usize, n_pages);
    }
}
