//! Compressed transfer: pages cross the link as INT4, and the GPU dequantizes them.
//!
//! ```text
//! staging buffer: q4 page, q4 page, ... ─ copy ─► codes ─ dequantize_pages ─► staging pool, f16
//! ```
//! Owner: the engine thread. One buffer for codes is enough: the GPU dequantizes one staging buffer after the other.
//!
//! Source: LeoAM §4.4 (the decompression time is "determined by an offline hardware test").

use std::time::Instant;

use crate::gpu::kernels::KvFormat;
use crate::gpu::kernels::dequantize_pages::DequantizePages;
use crate::gpu::{Binding, Gpu, GpuError, Recorder, Slice, StagingBuffer};
use crate::kv::quantize_page::quantize_page;
use crate::kv::spec::KvSpec;

/// Attempts; the best one counts. The first compiles the shader, others may run on a busy machine.
const N_TRIES: usize = 4;

/// Measured codec rates, in uncompressed bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodecRates {
    /// compressed bytes per uncompressed byte
    pub ratio: f64,
    /// quantization on one CPU thread
    pub quantize: f64,
    /// dequantization on the GPU
    pub dequantize: f64,
}

/// Dequantizes pages that arrive compressed.
pub(super) struct PageDequantizer {
    op: DequantizePages,
    codes: Slice,
    binding: Binding,
    int4_page_bytes: u64,
    pub codec_rates: CodecRates,
}

impl PageDequantizer {
    /// A dequantizer for up to `n_pages` at once into `staging`. None if the page format is quantized anyway.
    pub fn new(gpu: &Gpu, spec: &KvSpec, n_pages: usize, staging: &Slice) -> Result<Option<PageDequantizer>, GpuError> {
        let Some(int4_page_bytes) = spec.int4_page_bytes() else { return Ok(None) };
        let op = DequantizePages::new(gpu, spec.n_kv_head, spec.head_dim, KvFormat::Q4)?;
        let codes = gpu.buffer("KV codes", n_pages as u64 * int4_page_bytes)?.all();
        let binding = op.bind(gpu, [&codes, staging])?;
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

    /// Records the dequantization of pages from a staging buffer to page `at` of the staging pool.
    pub fn record(&self, recorder: &mut Recorder, upload: &StagingBuffer, at: u64, n_pages: usize) {
        let n_bytes = n_pages as u64 * self.int4_page_bytes;
        recorder.copy(&upload.slice(0, n_bytes), &self.codes.buffer.slice(0, n_bytes));
        self.op.record(recorder, &self.binding, 0, at as usize, n_pages);
    }
}

/// Uncompressed bytes per second that one CPU thread quantizes.
fn measure_quantize(spec: &KvSpec) -> f64 {
    let page: Vec<u8> = (0..spec.page_bytes()).map(|i| if i % 2 == 0 { (i / 2) as u8 } else { 0x3c }).collect();
    let mut compressed = vec![0; spec.int4_page_bytes().unwrap_or(0) as usize];
    let tries = (0..N_TRIES).map(|_| {
        let began = Instant::now();
        quantize_page(&page, spec.n_kv_head, spec.head_dim, &mut compressed);
        page.len() as f64 / began.elapsed().as_secs_f64()
    });
    tries.fold(0.0, f64::max)
}
