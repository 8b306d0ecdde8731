//! Linear kernel tests: compared with their references over formats, variants, shapes, epilogues and slabs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod blocks;
mod embed;
mod fused;

use blocks::{Weights, random_weights};
use common::{assert_close, gpu, nmse};
use strata::base::Rng;
use strata::gpu::kernels::linear::{
    ActivationForm, ConvertedSlices, Linear, LinearActivation, LinearOp, LinearShape, LinearSlices, LinearSpec, LinearVariant,
    Precision, ROW_TILE, WeightFormat,
};
use strata::gpu::{FeatureOverrides, Gpu, GpuOptions, MatmulKernel, Recorder, Slice, Tuning, TuningPart};
use strata::reference;

/// Only the order of f32 sums differs. Maximum NMSE relative to f64 sums over the same weights, and maximum error
/// relative to the root mean square of the output.
const MAX_NMSE: f64 = 1e-11;
const MAX_WORST: f64 = 2e-5;
/// The same if activations are quantized first, as the reference does: a division that is not correctly rounded changes a code.
const QUANTIZED_MAX: (f64, f64) = (1e-9, 2e-4);
/// The same if operands are f16, as those of the reference: a device may round a weight to the other neighbor.
const HALVES_MAX: (f64, f64) = (1e-8, 1e-3);

fn upload<T: bytemuck::NoUninit>(gpu: &Gpu, values: &[T]) -> Slice {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let slice = gpu.buffer("test", bytes.len() as u64).unwrap().all();
    gpu.upload(&slice, bytes).unwrap();
    slice
}

fn download_f32(gpu: &Gpu, slice: &Slice, n: usize) -> Vec<f32> {
    let bytes = gpu.download(slice).unwrap();
    bytemuck::pod_collect_to_vec::<u8, f32>(&bytes[..4 * n])
}

fn random(rng: &mut Rng, n: usize) -> Vec<f32> {
    (0..n).map(|_| rng.next_signed()).collect()
}

#[derive(Clone, Copy)]
struct Case {
    format: WeightFormat,
    n_tokens: usize,
    n_rows: usize,
    n_cols: usize,
    activation: LinearActivation,
    bias: bool,
    residual: bool,
}

impl Case {
    fn plain(format: WeightFormat, n_tokens: usize, n_rows: usize, n_cols: usize) -> Case {
        Case { format, n_tokens, n_rows, n_cols, activation: LinearActivation::None, bias: false, residual: false }
    }
}

fn reference_activation(a: LinearActivation) -> reference::Activation {
    match a {
        LinearActivation::None => reference::Activation::None,
        LinearActivation::SwiGlu => reference::Activation::SwiGlu,
        LinearActivation::GeluTanh => reference::Activation::GeluTanh,
        LinearActivation::Gelu => reference::Activation::Gelu,
        LinearActivation::Relu => reference::Activation::Relu,
    }
}

/// Runs one case with non-dense strides and offsets, and NaN in all memory that must not be used. Returns y.
fn check(gpu: &Gpu, case: Case, variant: LinearVariant, op: LinearOp) -> Vec<f32> {
    let Case { format, n_tokens, n_rows, n_cols, activation, bias, residual } = case;
    let mut rng = Rng::new((n_rows * 31 + n_cols * 7 + n_tokens) as u64);
    let Weights { quants, scales, values } = random_weights(&mut rng, format, n_rows, n_cols);
    let outputs = if activation == LinearActivation::SwiGlu { n_rows / 2 } else { n_rows };
    let (x_stride, y_stride, y_offset, bias_offset) = (n_cols + 8, outputs + 3, 2, 5);
    let mut x = vec![f32::NAN; n_tokens * x_stride];
    for x in x.chunks_exact_mut(x_stride) {
        x[..n_cols].copy_from_slice(&random(&mut rng, n_cols));
    }
    let mut dense: Vec<f32> = x.chunks_exact(x_stride).flat_map(|x| &x[..n_cols]).copied().collect();
    let biases = random(&mut rng, bias_offset + n_rows);
    let before = random(&mut rng, y_offset + n_tokens * y_stride);

    let spec = LinearSpec { format, cols: n_cols, activation, bias, residual };
    let linear = Linear::with_variant(gpu, spec, variant).unwrap();
    let (x, y, b) = (upload(gpu, &x), upload(gpu, &before), upload(gpu, &biases));
    let (quants, scales) = (upload(gpu, &quants), upload(gpu, &scales));
    let form = variant.input(op, &spec);
    let bytes = ActivationForm::Bytes { even_odd: false }.bytes(n_cols, n_tokens);
    let halves = ActivationForm::Halves.bytes(n_cols, n_tokens);
    let (value_bytes, scale_bytes) = (bytes.0.max(halves.0), bytes.1.max(halves.1));
    let nan = |bytes: u64| upload(gpu, &vec![f32::NAN; bytes as usize / 4]);
    let (x_values, x_scales) = (nan(value_bytes), nan(scale_bytes));
    let converted = Some(ConvertedSlices { values: &x_values, scales: &x_scales });
    let slices = LinearSlices { x: &x, quants: &quants, scales: &scales, bias: bias.then_some(&b), y: &y, converted };
    let binding = linear.bind(gpu, slices).unwrap();
    let shape = LinearShape { n_tokens, n_rows, x_stride, y_stride, y_offset, bias_offset };
    let mut recorder = Recorder::new();
    linear.record_convert_for(&mut recorder, &binding, shape, op);
    linear.record_for(&mut recorder, &binding, shape, op);
    gpu.submit(&mut recorder).unwrap();
    let got = download_f32(gpu, &y, before.len());

    let bias_values = bias.then_some(&biases[bias_offset..]);
    let mut values = values;
    let (max_nmse, max_worst) = match form {
        ActivationForm::Bytes { .. } => {
            dense = dense.chunks(n_cols).flat_map(reference::quantize_activations).collect();
            QUANTIZED_MAX
        }
        ActivationForm::Halves => {
            dense = dense.chunks(n_cols).flat_map(reference::halve_activations).collect();
            if op == LinearOp::Matmul {
                values.iter_mut().for_each(|w| *w = half::f16::from_f32(*w).to_f32());
            }
            HALVES_MAX
        }
        ActivationForm::F32 => (MAX_NMSE, MAX_WORST),
    };
    let product = reference::matmul(&dense, &values, n_cols, bias_values, reference_activation(activation));
    let mut want = before.clone();
    for (t, row) in product.chunks_exact(outputs).enumerate() {
        for (o, &v) in row.iter().enumerate() {
            let at = y_offset + t * y_stride + o;
            want[at] = if residual { before[at] + v } else { v };
        }
    }
    let what = format!("{variant:?} {op:?} {format:?} T {n_tokens} N {n_rows} K {n_cols} {activation:?} {bias} {residual}");
    let (error, worst) = nmse(&got, &want);
    let rms = (want.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / want.len() as f64).sqrt();
    assert!(error <= max_nmse && worst <= max_worst * rms, "{what}: NMSE {error:.2e}, worst {worst:.2e} of rms {rms:.2e}");
    for (i, (g, b)) in got.iter().zip(&before).enumerate() {
        let inside = i >= y_offset && (i - y_offset) % y_stride < outputs;
        assert!(inside || g == b, "{what}: wrote outside its range, at {i}");
    }
    got
}

fn each_variant(test: &str, run: impl Fn(&Gpu, LinearVariant, LinearOp)) {
    // A software device opens with cooperative matrices only for the kernels of real GPUs.
    let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
    let Some(gpu) = gpu(test, overrides) else { return };
    let variants = LinearVariant::all_on(&gpu);
    if !variants.iter().any(|v| matches!(v, LinearVariant::GpuCooperative(_))) {
        eprintln!("skipped: {test}: cooperative matrices on {}", gpu.info().name);
    }
    for variant in variants {
        for op in [LinearOp::Matvec, LinearOp::Matmul] {
            run(&gpu, variant, op);
        }
    }
}

#[test]
fn linear_every_format_matches_reference() {
    each_variant("linear_every_format_matches_reference", |gpu, variant, op| {
        for format in WeightFormat::ALL {
            for (n_tokens, n_rows, k) in [(1, 32, 1), (3, 33, 3), (9, 100, 2)] {
                // 256 is the widest block; the others also get an odd number of groups of 64.
                let n_cols = if format.block_cols() == 256 { 256 * k } else { 64 * k };
                check(gpu, Case::plain(format, n_tokens, n_rows, n_cols), variant, op);
            }
        }
    });
}

#[test]
fn linear_every_shape_matches_reference() {
    each_variant("linear_every_shape_matches_reference", |gpu, variant, op| {
        let shapes =
            [(1, 1, 32), (1, 31, 96), (2, 65, 160), (7, 2, 864), (8, 64, 896), (63, 17, 64), (65, 129, 32), (17, 40, 4896)];
        for (n_tokens, n_rows, n_cols) in shapes {
            for format in [WeightFormat::Q4_0, WeightFormat::F16] {
                check(gpu, Case::plain(format, n_tokens, n_rows, n_cols), variant, op);
            }
        }
        for (n_tokens, n_rows, n_cols) in [(1, 5, 1), (2, 33, 4), (9, 6, 7), (3, 34, 61), (1, 3, 100), (2, 2, 129)] {
            check(gpu, Case::plain(WeightFormat::F32, n_tokens, n_rows, n_cols), variant, op);
        }
        for (n_tokens, n_rows, n_cols) in [(2, 33, 16), (9, 5, 48), (1, 2, 112)] {
            check(gpu, Case::plain(WeightFormat::I8G16, n_tokens, n_rows, n_cols), variant, op);
        }
    });
}

#[test]
fn linear_every_shape_of_a_tuned_matvec_matches_reference() {
    let test = "linear_every_shape_of_a_tuned_matvec_matches_reference";
    // A device of its own: its tuning changes.
    let Some(gpu) = gpu(test, FeatureOverrides { hardware_kernels: true, no_immediates: true, ..FeatureOverrides::default() })
    else {
        return;
    };
    if !LinearVariant::GpuDot4.runs_on(&gpu) {
        return eprintln!("skipped: {test}: no subgroups");
    }
    for tuning in TuningPart::Matvec.candidates(Tuning::default()) {
        gpu.set_tuning(tuning);
        for (n_tokens, n_rows, n_cols) in [(1, 1, 64), (2, 31, 512), (5, 65, 896), (8, 100, 4864)] {
            for format in [WeightFormat::Q4_0, WeightFormat::Q8_0, WeightFormat::F16] {
                check(&gpu, Case::plain(format, n_tokens, n_rows, n_cols), LinearVariant::GpuDot4, LinearOp::Matvec);
            }
        }
    }
    gpu.set_tuning(Tuning::default());
}

#[test]
fn linear_every_epilogue_matches_reference() {
    use LinearActivation::{Gelu, GeluTanh, None, Relu, SwiGlu};
    each_variant("linear_every_epilogue_matches_reference", |gpu, variant, op| {
        for activation in [None, SwiGlu, GeluTanh, Gelu, Relu] {
            for (bias, residual) in [(false, false), (true, false), (false, true), (true, true)] {
                for (n_tokens, n_rows) in [(1, 38), (9, 66)] {
                    let plain = Case::plain(WeightFormat::F32, n_tokens, n_rows, 64);
                    check(gpu, Case { activation, bias, residual, ..plain }, variant, op);
                }
            }
        }
    });
}

#[test]
fn linear_fallbacks_match_reference() {
    for overrides in [
        FeatureOverrides { no_immediates: true, ..FeatureOverrides::default() },
        FeatureOverrides { no_subgroups: true, ..FeatureOverrides::default() },
        FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() },
    ] {
        let Some(gpu) = gpu("linear_fallbacks_match_reference", overrides) else { return };
        let variant = LinearVariant::for_gpu(&gpu, Precision::Fast);
        for op in [LinearOp::Matvec, LinearOp::Matmul] {
            for format in [WeightFormat::Q4_0, WeightFormat::Q6K, WeightFormat::F32] {
                check(&gpu, Case::plain(format, 5, 70, 512), variant, op);
            }
        }
    }
}

#[test]
fn run_time_checks_on_and_off_give_the_same_bytes() {
    let test = "run_time_checks_on_and_off_give_the_same_bytes";
    let checked = FeatureOverrides { checked_shaders: true, hardware_kernels: true, ..FeatureOverrides::default() };
    let results: Vec<Vec<Vec<f32>>> = [FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() }, checked]
        .into_iter()
        .filter_map(|overrides| {
            let gpu = gpu(test, overrides)?;
            assert_eq!(gpu.checks_shaders(), overrides.checked_shaders);
            let ops = LinearVariant::all_on(&gpu)
                .into_iter()
                .flat_map(|variant| [(variant, LinearOp::Matvec), (variant, LinearOp::Matmul)]);
            let one = |(variant, op)| WeightFormat::ALL.map(|format| check(&gpu, Case::plain(format, 5, 70, 512), variant, op));
            Some(ops.flat_map(one).collect())
        })
        .collect();
    if let [off, on] = &results[..] {
        let bits = |all: &[Vec<f32>]| all.iter().flatten().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(off), bits(on));
    }
}

#[test]
fn linear_extreme_activations_stay_finite() {
    each_variant("linear_extreme_activations_stay_finite", |gpu, variant, op| {
        let mut raw = Vec::new();
        for v in [1e4f32, 1e4, -1e4, 1e4] {
            raw.extend([v; 8].iter().flat_map(|v| v.to_le_bytes()));
        }
        let format = WeightFormat::F32;
        let mut quants = vec![0; format.quants_bytes(4, 8) as usize];
        let mut scales = vec![0; format.scales_bytes(4, 8) as usize];
        format.repack(4, 8, &raw, &mut quants, &mut scales).unwrap();
        for activation in [LinearActivation::SwiGlu, LinearActivation::GeluTanh, LinearActivation::Gelu] {
            let spec = LinearSpec { format, cols: 8, activation, bias: false, residual: false };
            let linear = Linear::with_variant(gpu, spec, variant).unwrap();
            let (x, y) = (upload(gpu, &[1.0f32; 8]), upload(gpu, &[7.0f32; 4]));
            let (quants, scales) = (upload(gpu, &quants), upload(gpu, &scales));
            let slices = LinearSlices { x: &x, quants: &quants, scales: &scales, bias: None, y: &y, converted: None };
            let binding = linear.bind(gpu, slices).unwrap();
            let shape = LinearShape { n_tokens: 1, n_rows: 4, x_stride: 8, y_stride: 4, y_offset: 0, bias_offset: 0 };
            let mut recorder = Recorder::new();
            linear.record_convert_for(&mut recorder, &binding, shape, op);
            linear.record_for(&mut recorder, &binding, shape, op);
            gpu.submit(&mut recorder).unwrap();
            let (got, want) = match activation {
                LinearActivation::SwiGlu => (download_f32(gpu, &y, 2), vec![6.4e9, 0.0]),
                _ => (download_f32(gpu, &y, 4), vec![8e4, 8e4, 0.0, 8e4]),
            };
            assert_close(&format!("{variant:?} {activation:?}"), &got, &want, MAX_NMSE);
        }
    });
}

#[test]
fn repack_slab_is_a_slice_of_the_whole() {
    let mut rng = Rng::new(3);
    for format in WeightFormat::ALL {
        if format == WeightFormat::I8G16 {
            continue;
        }
        let (rows, cols) = (70, 512);
        let n = rows * (cols / format.block_cols()) * format.raw_block_bytes().unwrap();
        let raw: Vec<u8> = (0..n).map(|_| rng.next_u32() as u8).collect();
        let pack = |first: usize, n_rows: usize| {
            let row_bytes = raw.len() / rows;
            let mut quants = vec![0; format.quants_bytes(n_rows, cols) as usize];
            let mut scales = vec![0; format.scales_bytes(n_rows, cols) as usize];
            let raw = &raw[first * row_bytes..(first + n_rows) * row_bytes];
            format.repack(n_rows, cols, raw, &mut quants, &mut scales).unwrap();
            (quants, scales)
        };
        let whole = pack(0, rows);
        let (head, tail) = (pack(0, ROW_TILE), pack(ROW_TILE, rows - ROW_TILE));
        assert_eq!(whole.0, [head.0, tail.0].concat(), "{format:?}");
        if format.scales_bytes(64, cols) > 16 {
            assert_eq!(whole.1, [head.1, tail.1].concat(), "{format:?}");
        }
        let raw_bytes = (4864 * 4864 / format.block_cols() * format.raw_block_bytes().unwrap()) as f64;
        let stored = (format.quants_bytes(4864, 4864) + format.scales_bytes(4864, 4864)) as f64;
        assert!((0.99..1.03).contains(&(stored / raw_bytes)), "{format:?} {}", stored / raw_bytes);
    }
}

#[test]
fn repack_wrong_lengths_are_refused() {
    let format = WeightFormat::Q4_0;
    let (mut quants, mut scales) = (vec![0; 1024], vec![0; 128]);
    assert!(format.repack(32, 32, &[0; 32 * 18], &mut quants, &mut scales).is_ok());
    assert!(format.repack(32, 32, &[0; 31 * 18], &mut quants, &mut scales).is_err());
    assert!(format.repack(32, 48, &[0; 32 * 18], &mut quants, &mut scales).is_err());
    assert!(format.repack(33, 32, &[0; 33 * 18], &mut quants, &mut scales).is_err());
    assert!(WeightFormat::I8G16.repack(1, 16, &[0; 16], &mut [0; 2048], &mut [0; 1024]).is_err());
}

/// Tiles of 128 x 128, which a software device uses only if it is told to.
#[test]
fn linear_large_tiles_match_reference() {
    let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
    let gpu = Gpu::open(&GpuOptions { adapter: None, overrides });
    let Ok(gpu) = gpu else { return eprintln!("skipped: linear_large_tiles_match_reference: no device") };
    gpu.set_tuning(Tuning { matmul: MatmulKernel::F32Tiles128, ..Tuning::default() });
    for format in WeightFormat::ALL {
        let cols = format.block_cols().max(32) * 2;
        check(&gpu, Case::plain(format, 100, 160, cols), LinearVariant::Gpu, LinearOp::Matmul);
    }
    let plain = Case::plain(WeightFormat::Q4_0, 129, 321, 96);
    check(&gpu, Case { bias: true, residual: true, ..plain }, LinearVariant::Gpu, LinearOp::Matmul);
    let swiglu = Case { activation: LinearActivation::SwiGlu, n_rows: 320, ..plain };
    check(&gpu, swiglu, LinearVariant::Gpu, LinearOp::Matmul);
    check(&gpu, Case { n_cols: 4, ..Case::plain(WeightFormat::F32, 65, 40, 4) }, LinearVariant::Gpu, LinearOp::Matmul);
}
