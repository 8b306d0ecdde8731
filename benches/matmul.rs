//! Matrix kernel benchmark, relative to the peaks of the GPU: `cargo bench --bench matmul [-- FORMAT ...]`.
//!
//! The output of every kernel is first compared with the simplest variant. Then: weight bytes read per second (T = 1)
//! and FLOP/s (T = 32, 128), as fractions of the streaming read and the plain GEMM of the same run. CPU figures are per
//! CPU-second of this process, which is stable on a shared machine; on a real GPU use the wall-clock figures.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and fails by panicking")]

use std::time::Instant;

use strata::gpu::kernels::linear::{
    ConvertedSlices, Linear, LinearActivation, LinearShape, LinearSlices, LinearSpec, LinearVariant, Precision, WeightFormat,
    bench,
};
use strata::gpu::{Gpu, GpuOptions, Recorder, Slice};

/// CPU seconds of this process over all threads (Linux); elsewhere wall time.
fn cpu_secs(since: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok());
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => (user + system) / 100.0,
        _ => since.elapsed().as_secs_f64(),
    }
}

/// Best wall seconds and mean CPU seconds of one submit, after a warm-up.
fn time(gpu: &Gpu, mut record: impl FnMut(&mut Recorder)) -> (f64, f64) {
    let mut run = || {
        let mut recorder = Recorder::new();
        record(&mut recorder);
        let submitted = gpu.submit(&mut recorder).unwrap();
        gpu.wait(&submitted).unwrap();
    };
    run();
    let began = Instant::now();
    let cpu = cpu_secs(began);
    let (mut best, mut n) = (f64::INFINITY, 0);
    while n < 3 || cpu_secs(began) - cpu < 0.5 {
        let t = Instant::now();
        run();
        best = best.min(t.elapsed().as_secs_f64());
        n += 1;
    }
    (best, (cpu_secs(began) - cpu) / f64::from(n))
}

struct Bench {
    gpu: Gpu,
    quants: Slice,
    scales: Slice,
    x: Slice,
    x_values: Slice,
    x_scales: Slice,
    y: Slice,
}

impl Bench {
    fn new() -> Bench {
        let gpu = Gpu::open(&GpuOptions::default()).unwrap();
        // Small positive f16 values: finite as weights and as scales in every format.
        let mut state = 1u32;
        let halves: Vec<u16> = (0..64usize << 20)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (0x2800 | (state >> 22)) as u16
            })
            .collect();
        let filled = |what: &str| {
            let slice = gpu.buffer(what, 128 << 20).unwrap().all();
            gpu.upload(&slice, bytemuck::cast_slice(&halves)).unwrap();
            slice
        };
        let (quants, scales) = (filled("quants"), filled("scales"));
        let x = gpu.buffer("x", 64 << 20).unwrap().all();
        let values: Vec<f32> = (0..16usize << 20).map(|i| (i % 1013) as f32 * 1e-3 - 0.5).collect();
        gpu.upload(&x, bytemuck::cast_slice(&values)).unwrap();
        let y = gpu.buffer("y", 64 << 20).unwrap().all();
        let x_values = gpu.buffer("converted activations", 4 << 20).unwrap().all();
        let x_scales = gpu.buffer("activation scales", 1 << 20).unwrap().all();
        Bench { gpu, quants, scales, x, x_values, x_scales, y }
    }

    fn op(&self, format: WeightFormat, cols: usize, variant: LinearVariant) -> Linear {
        let spec = LinearSpec { format, cols, activation: LinearActivation::None, bias: false, residual: false };
        Linear::with_variant(&self.gpu, spec, variant).unwrap()
    }

    fn record(&self, recorder: &mut Recorder, op: &Linear, format: WeightFormat, [n, k, t]: [usize; 3]) -> LinearShape {
        let quants = self.quants.buffer.slice(0, format.quants_bytes(n, k));
        let scales = self.scales.buffer.slice(0, format.scales_bytes(n, k));
        let converted = Some(ConvertedSlices { values: &self.x_values, scales: &self.x_scales });
        let slices = LinearSlices { x: &self.x, quants: &quants, scales: &scales, bias: None, y: &self.y, converted };
        let binding = op.bind(&self.gpu, slices).unwrap();
        let shape = LinearShape { n_tokens: t, n_rows: n, x_stride: k, y_stride: n, y_offset: 0, bias_offset: 0 };
        op.record_convert(recorder, &binding, shape);
        op.record(recorder, &binding, shape);
        shape
    }

    fn outputs(&self, op: &Linear, format: WeightFormat, shape: [usize; 3]) -> Vec<f32> {
        let mut recorder = Recorder::new();
        self.record(&mut recorder, op, format, shape);
        self.gpu.submit(&mut recorder).unwrap();
        let bytes = self.gpu.download(&self.y.buffer.slice(0, (shape[0] * shape[2] * 4) as u64)).unwrap();
        bytemuck::pod_collect_to_vec(&bytes)
    }

    fn row(&self, format: WeightFormat, variant: LinearVariant, stream: f64, gemm: f64) {
        for (k, t) in [(1024, 1), (4864, 1), (1024, 32), (1024, 128)] {
            let row_bytes = format.quants_bytes(32, k) + format.scales_bytes(32, k);
            let n = if t == 1 { (96 << 20) / row_bytes as usize * 32 } else { 4864 };
            let op = self.op(format, k, variant);
            let plain = self.op(format, k, LinearVariant::Fallback);
            let check = [256, k, t.min(8)];
            for (got, want) in self.outputs(&op, format, check).iter().zip(self.outputs(&plain, format, check)) {
                assert!((got - want).abs() <= 1e-3 * want.abs().max(1.0), "{variant:?} {format:?}: {got} {want}");
            }
            let mut shape = None;
            let (best, cpu) = time(&self.gpu, |r| shape = Some(self.record(r, &op, format, [n, k, t])));
            let cost = op.cost(&shape.unwrap());
            let (gb, gf) = (cost.weight_bytes / cpu * 1e-9, cost.flops / cpu * 1e-9);
            println!(
                "| {variant:?} | {format:?} | {t} | {k} | {n} | {:.2} | {gb:.2} | {:.2} | {:.2} | {gf:.2} | {:.2} |",
                cost.weight_bytes / best * 1e-9,
                gb / stream,
                cost.flops / best * 1e-9,
                gf / gemm
            );
        }
    }
}

fn main() {
    let requested: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let b = Bench::new();
    let mut read_bytes = 0;
    let (best, cpu) = time(&b.gpu, |r| read_bytes = bench::record_stream_read(&b.gpu, r, &b.quants, &b.y).unwrap());
    let stream = read_bytes as f64 / cpu * 1e-9;
    println!("{} ({})", b.gpu.info().name, b.gpu.info().driver_info);
    println!("streaming read: {:.2} GB/s, {stream:.2} per CPU-second", read_bytes as f64 / best * 1e-9);
    let mut flops = 0.0;
    let (best, cpu) = time(&b.gpu, |r| flops = bench::record_gemm(&b.gpu, r, [&b.x, &b.scales, &b.y], 1024).unwrap());
    let gemm = flops / cpu * 1e-9;
    println!("plain GEMM: {:.2} GFLOP/s, {gemm:.2} per CPU-second", flops / best * 1e-9);
    println!("| variant | format | T | K | N | GB/s | per CPU-s | of read | GFLOP/s | per CPU-s | of GEMM |");
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let variant = LinearVariant::for_gpu(&b.gpu, Precision::Fast);
    for format in WeightFormat::ALL {
        if requested.is_empty() || requested.iter().any(|w| w.eq_ignore_ascii_case(&format!("{format:?}"))) {
            b.row(format, variant, stream, gemm);
        }
    }
}
