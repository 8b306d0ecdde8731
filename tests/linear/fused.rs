//! Fused products of one token, one after the other, as in a layer.

use strata::base::Rng;
use strata::gpu::kernels::linear::{
    ActivationForm, ConvertActivations, ConvertedSlices, FusedMatvec, FusedOutput, FusedSlices, Fusion, LinearActivation,
    LinearSpec, WeightFormat,
};
use strata::gpu::{FeatureOverrides, Gpu, GpuOptions, Recorder, Slice, Tuning};
use strata::reference;

use super::blocks::{Weights, random_weights};
use super::common::{gpu, nmse};
use super::{QUANTIZED_MAX, download_f32, random, reference_activation, upload};

const EPS: f32 = 1e-5;
/// Each product rounds its input again, so errors add up.
const STAGES: f64 = 3.0;

/// Form that products with weights of `format` read.
fn form_of(format: WeightFormat) -> ActivationForm {
    let even_odd = !matches!(format, WeightFormat::Q8_0 | WeightFormat::I8G16);
    ActivationForm::Bytes { even_odd }
}

struct Buffers {
    values: Slice,
    scales: Slice,
}

impl Buffers {
    /// Of `n` columns, filled with NaN.
    fn new(gpu: &Gpu, n: usize) -> Buffers {
        let (values, scales) = ActivationForm::Bytes { even_odd: false }.bytes(n, 1);
        let nan = |bytes: u64| upload(gpu, &vec![f32::NAN; bytes as usize / 4]);
        Buffers { values: nan(values), scales: nan(scales) }
    }

    fn slices(&self) -> ConvertedSlices<'_> {
        ConvertedSlices { values: &self.values, scales: &self.scales }
    }
}

/// A product of the chain: its weights on the device and as values.
struct Product {
    spec: LinearSpec,
    n_rows: usize,
    weights: [Slice; 2],
    values: Vec<f32>,
    bias: Vec<f32>,
}

impl Product {
    fn new(gpu: &Gpu, rng: &mut Rng, spec: LinearSpec, n_rows: usize) -> Product {
        let Weights { quants, scales, values } = random_weights(rng, spec.format, n_rows, spec.cols);
        Product { spec, n_rows, weights: [upload(gpu, &quants), upload(gpu, &scales)], values, bias: random(rng, n_rows) }
    }

    /// The result for `x`, which is quantized first.
    fn reference(&self, x: &[f32]) -> Vec<f32> {
        let x = reference::quantize_activations(x);
        let bias = self.spec.bias.then_some(&self.bias[..]);
        reference::matmul(&x, &self.values, self.spec.cols, bias, reference_activation(self.spec.activation))
    }
}

/// x += W1 attn; y = W3 swiglu(W2 norm(x)): x and y of the device and of the reference.
fn chain(gpu: &Gpu, formats: [WeightFormat; 3], bias: bool) -> [[Vec<f32>; 2]; 2] {
    let mut rng = Rng::new(9);
    let spec = |format, cols, activation, residual| LinearSpec { format, cols, activation, bias, residual };
    let (q_dim, hidden, ffn, n_out) = (256, 512, 256, 40);
    let first = Product::new(gpu, &mut rng, spec(formats[0], q_dim, LinearActivation::None, true), hidden);
    let second = Product::new(gpu, &mut rng, spec(formats[1], hidden, LinearActivation::SwiGlu, false), 2 * ffn);
    let third = Product::new(gpu, &mut rng, spec(formats[2], ffn, LinearActivation::None, false), n_out);
    let (attn, before, norm) = (random(&mut rng, q_dim), random(&mut rng, hidden), random(&mut rng, hidden));

    let (bytes, hidden_bytes) = (Buffers::new(gpu, 512), Buffers::new(gpu, 512));
    let (attn_slice, x, y) = (upload(gpu, &attn), upload(gpu, &before), upload(gpu, &vec![f32::NAN; n_out]));
    let (norm_slice, squares) = (upload(gpu, &norm), upload(gpu, &vec![f32::NAN; hidden / 32]));
    let mut recorder = Recorder::new();
    let convert = ConvertActivations::new(gpu, form_of(formats[0]), q_dim).unwrap().unwrap();
    convert.record(&mut recorder, &convert.bind(gpu, &attn_slice, bytes.slices()).unwrap(), 1, q_dim);
    let steps = [
        (&first, FusedOutput::Normed(form_of(formats[1])), false, &bytes, &x, &hidden_bytes),
        (&second, FusedOutput::Converted(form_of(formats[2])), true, &hidden_bytes, &y, &bytes),
        (&third, FusedOutput::Plain, false, &bytes, &y, &hidden_bytes),
    ];
    for (product, output, divides_by_rms, x, y, out) in steps {
        let fusion = Fusion { divides_by_rms, output };
        assert!(fusion.allows(&product.spec, product.n_rows), "{fusion:?}");
        let op = FusedMatvec::new(gpu, product.spec, fusion, EPS).unwrap();
        let bias_slice = upload(gpu, &product.bias);
        let slices = FusedSlices {
            weights: [&product.weights[0], &product.weights[1]],
            x: x.slices(),
            y,
            bias: bias.then_some(&bias_slice),
            squares: &squares,
            out: out.slices(),
            next_norm: Some([&norm_slice, &squares]),
        };
        op.record(&mut recorder, &op.bind(gpu, slices).unwrap(), 0, product.n_rows);
    }
    gpu.submit(&mut recorder).unwrap();

    let want_x: Vec<f32> = before.iter().zip(first.reference(&attn)).map(|(before, v)| before + v).collect();
    let mean = want_x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / hidden as f64;
    let scale = 1.0 / (mean + f64::from(EPS)).sqrt();
    let normed: Vec<f32> = want_x.iter().zip(&norm).map(|(v, w)| (f64::from(v * w) * scale) as f32).collect();
    let want_y = third.reference(&second.reference(&normed));
    [[download_f32(gpu, &x, hidden), want_x], [download_f32(gpu, &y, n_out), want_y]]
}

#[test]
fn fused_products_of_every_format_match_reference() {
    use WeightFormat::{I8G16, Q4_0, Q4K, Q5K, Q6K, Q8_0};
    let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
    // A device of its own, as the tuning is that of the device.
    drop(gpu("fused_products_of_every_format_match_reference", overrides));
    let Ok(gpu) = Gpu::open(&GpuOptions { adapter: None, overrides }) else { return };
    let mut lanes = [512, 1024, 256].into_iter().cycle();
    for formats in [[Q4_0; 3], [Q4K; 3], [Q5K; 3], [Q6K; 3], [Q8_0; 3], [I8G16; 3], [Q8_0, Q4_0, Q6K], [Q4K, Q8_0, I8G16]] {
        for bias in [false, true] {
            gpu.set_tuning(Tuning { fused_lanes: lanes.next().unwrap_or(512), ..Tuning::default() });
            for (what, [got, want]) in ["x", "y"].into_iter().zip(chain(&gpu, formats, bias)) {
                let (error, worst) = nmse(&got, &want);
                let rms = (want.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / want.len() as f64).sqrt();
                let (max_nmse, max_worst) = (QUANTIZED_MAX.0 * STAGES.powi(2), QUANTIZED_MAX.1 * STAGES);
                let is_close = error <= max_nmse && worst <= max_worst * rms;
                assert!(is_close, "{what} {formats:?} {bias}: NMSE {error:.2e}, worst {worst:.2e} of rms {rms:.2e}");
            }
        }
    }
}

#[test]
fn fusion_allows_only_what_the_kernels_compute() {
    let spec =
        LinearSpec { format: WeightFormat::Q4_0, cols: 64, activation: LinearActivation::None, bias: false, residual: true };
    let form = ActivationForm::Bytes { even_odd: true };
    let normed = Fusion { divides_by_rms: false, output: FusedOutput::Normed(form) };
    assert!(normed.allows(&spec, 128));
    // The next product reads 64 columns at a time.
    assert!(!normed.allows(&spec, 96));
    assert!(!normed.allows(&LinearSpec { residual: false, ..spec }, 128));
    assert!(!normed.allows(&LinearSpec { format: WeightFormat::F16, ..spec }, 128));
    let halves = Fusion { output: FusedOutput::Normed(ActivationForm::Halves), ..normed };
    assert!(!halves.allows(&spec, 128));
    let swiglu = LinearSpec { activation: LinearActivation::SwiGlu, residual: false, ..spec };
    let converted = Fusion { divides_by_rms: true, output: FusedOutput::Converted(form) };
    assert!(converted.allows(&swiglu, 128) && !converted.allows(&swiglu, 192));
}
