//! Kernel check: the fast matrix products of a model against the exact ones, on its weights, before they are used.
//!
//! A driver may list a feature and compute nonsense with it. Each product of another kind (op, formats) is run with as many tokens
//! as reach each of its kernels, on the device that will run it.

use std::collections::HashSet;

use super::activations::Activations;
use super::bindings::LinearOp;
use super::model_ops::ModelOps;
use crate::base::{ModelDims, Rng};
use crate::gpu::kernels::linear::{ActivationForm, LinearVariant, MAX_MATVEC_TOKENS, Precision};
use crate::gpu::{Gpu, GpuError, Recorder, Slice};

/// Tokens that reach each kernel of an op: a matvec of 1, 4 and 8 tokens, and the small and the large tile of a matmul, ragged.
const TOKENS: [usize; 5] = [1, 3, 8, 40, 100];
/// Maximum squared error relative to the squared result. Rounding to f16 causes 1e-6 at most, a wrong kernel 1e-2 at least.
pub(super) const MAX_NMSE: f64 = 1e-4;

/// A product under check, with its buffers.
struct Case<'a> {
    what: &'static str,
    fast: &'a LinearOp,
    exact: &'a LinearOp,
    x: &'a Slice,
    y: &'a Slice,
    outputs: usize,
}

/// The ops of the fastest variant whose products agree with the exact ones on this device, and the variant. `notes` gets a
/// sentence for each that does not.
///
/// # Errors
/// A kernel that does not compile, or a lost device.
pub(super) fn checked_ops(
    gpu: &Gpu,
    dims: &ModelDims,
    act: &Activations,
    precision: Precision,
    notes: &mut Vec<String>,
    build: impl Fn(LinearVariant) -> Result<ModelOps, GpuError>,
) -> Result<(LinearVariant, ModelOps), GpuError> {
    let candidates = LinearVariant::candidates(gpu, precision);
    let exact_variant = candidates.last().copied().unwrap_or(LinearVariant::Gpu);
    let exact = build(exact_variant)?;
    for variant in candidates.into_iter().filter(|variant| *variant != exact_variant) {
        let reason = match build(variant) {
            Ok(mut ops) => match mismatch(gpu, dims, act, &ops, &exact)? {
                None => {
                    if let Some(reason) = fused_mismatch(gpu, dims, act, &ops, &exact)? {
                        ops.fused = None;
                        notes.push(format!("fused kernels are not used on {}: {reason}", gpu.info().name));
                    }
                    return Ok((variant, ops));
                }
                Some(reason) => reason,
            },
            Err(error @ GpuError::Shader { .. }) => error.to_string(),
            Err(error) => return Err(error),
        };
        notes.push(format!("{} are not used on {}: {reason}", variant.name(), gpu.info().name));
    }
    Ok((exact_variant, exact))
}

/// Compares the products of `fast` with those of `exact`, which has the same weights and buffers. None if they agree, otherwise
/// what is wrong.
///
/// # Errors
/// A lost device.
fn mismatch(
    gpu: &Gpu,
    dims: &ModelDims,
    act: &Activations,
    fast: &ModelOps,
    exact: &ModelOps,
) -> Result<Option<String>, GpuError> {
    let mut checked = HashSet::new();
    for case in cases(dims, act, fast, exact) {
        if !checked.insert((case.what, case.fast.formats())) {
            continue;
        }
        // There is one row of logits.
        let tokens = if case.what == "output" { &[1][..] } else { &TOKENS };
        for &n in tokens {
            let [got, want] = [case.fast, case.exact].map(|op| result(gpu, &case, op, n));
            let error = nmse(&got?, &want?);
            if error.is_none_or(|error| error > MAX_NMSE) {
                let size = if n <= MAX_MATVEC_TOKENS { "matvec" } else { "matmul" };
                return Ok(Some(format!("the {} {size} gives {}", case.what, relative(error))));
            }
        }
    }
    Ok(None)
}

/// Compares the fused products of layers with other formats than those before, up to the queries of the next layer or the logits,
/// with `exact`. None if they agree or there are none, otherwise what is wrong.
///
/// # Errors
/// A lost device.
fn fused_mismatch(
    gpu: &Gpu,
    dims: &ModelDims,
    act: &Activations,
    fast: &ModelOps,
    exact: &ModelOps,
) -> Result<Option<String>, GpuError> {
    let Some(fused) = &fast.fused else { return Ok(None) };
    let mut checked = HashSet::new();
    for (i, (layer, ops)) in fused.layers.iter().zip(&fast.layers).enumerate() {
        let next = fast.layers.get(i + 1).map_or(&fast.output, |next| &next.qkv);
        let products = [&ops.attn_output, &ops.ffn_up, &ops.ffn_down, next];
        if !checked.insert((i + 1 == fast.layers.len(), products.map(LinearOp::formats))) {
            continue;
        }
        let (y, n_out) = if i + 1 < fast.layers.len() { (&act.qkv, next.rows) } else { (&act.logits, dims.vocab_size) };
        let run = |record: &dyn Fn(&mut Recorder)| -> Result<Vec<f32>, GpuError> {
            let mut rng = Rng::new(i as u64);
            let mut random = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.next_signed()).collect() };
            gpu.upload(&act.attn, bytemuck::cast_slice(&random(dims.q_dim())))?;
            gpu.upload(&act.x, bytemuck::cast_slice(&random(dims.hidden_dim)))?;
            let mut recorder = Recorder::new();
            record(&mut recorder);
            gpu.submit(&mut recorder)?;
            let mut result: Vec<f32> = Vec::new();
            for (slice, n) in [(&act.x, dims.hidden_dim), (y, n_out)] {
                result.extend(bytemuck::pod_collect_to_vec::<u8, f32>(
                    &gpu.download(&slice.buffer.slice(slice.offset, 4 * n as u64))?,
                ));
            }
            Ok(result)
        };
        let got = run(&|recorder| {
            ops.attn_output.record_convert(recorder, 1);
            layer.record_mlp(recorder);
            match fused.layers.get(i + 1) {
                Some(next) => next.qkv.record(recorder),
                None => fused.output.record(recorder),
            }
        })?;
        let want = run(&|recorder| {
            let e = &exact.layers[i];
            record_product(recorder, &e.attn_output, 1, dims.hidden_dim);
            e.ffn_norm.record(recorder, &e.ffn_up, dims.hidden_dim, 0, 1);
            record_product(recorder, &e.ffn_up, 1, dims.ffn_dim);
            record_product(recorder, &e.ffn_down, 1, dims.hidden_dim);
            let next = exact.layers.get(i + 1).map_or((&exact.output_norm, &exact.output), |next| (&next.attn_norm, &next.qkv));
            next.0.record(recorder, next.1, dims.hidden_dim, 0, 1);
            record_product(recorder, next.1, 1, n_out);
        })?;
        let (got, want) = (got.split_at(dims.hidden_dim), want.split_at(dims.hidden_dim));
        for (what, got, want) in [("layer", got.0, want.0), ("product after its norm", got.1, want.1)] {
            let error = nmse(got, want);
            if error.is_none_or(|error| error > MAX_NMSE) {
                return Ok(Some(format!("the {what} gives {}", relative(error))));
            }
        }
    }
    Ok(None)
}

fn relative(error: Option<f64>) -> String {
    error.map_or_else(|| "not a number".to_owned(), |error| format!("a relative error of {:.1e}", error.sqrt()))
}

fn cases<'a>(dims: &ModelDims, act: &'a Activations, fast: &'a ModelOps, exact: &'a ModelOps) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    for (f, e) in fast.layers.iter().zip(&exact.layers) {
        let qkv = dims.q_dim() + 2 * dims.kv_dim();
        for (what, fast, exact, x, y, outputs) in [
            ("qkv", &f.qkv, &e.qkv, &act.h, &act.qkv, qkv),
            ("attn_output", &f.attn_output, &e.attn_output, &act.attn, &act.x, dims.hidden_dim),
            ("ffn_up", &f.ffn_up, &e.ffn_up, &act.h, &act.ff, dims.ffn_dim),
            ("ffn_down", &f.ffn_down, &e.ffn_down, &act.ff, &act.x, dims.hidden_dim),
        ] {
            cases.push(Case { what, fast, exact, x, y, outputs });
        }
    }
    let (fast, exact) = (&fast.output, &exact.output);
    cases.push(Case { what: "output", fast, exact, x: &act.h, y: &act.logits, outputs: dims.vocab_size });
    cases
}

/// Records every slab of a product of `n` tokens in f32.
fn record_product(recorder: &mut Recorder, op: &LinearOp, n: usize, outputs: usize) {
    for slab in 0..op.slabs.len() {
        op.record_slab(recorder, slab, n, (op.cols, ActivationForm::F32), outputs);
    }
}

/// The product of `n` tokens of a fixed pattern, f32 `[n, outputs]`.
fn result(gpu: &Gpu, case: &Case<'_>, op: &LinearOp, n: usize) -> Result<Vec<f32>, GpuError> {
    let mut rng = Rng::new(n as u64);
    // Some activations of real models are far larger than the others.
    let x: Vec<f32> = (0..n * op.cols).map(|i| rng.next_signed() * if i % 251 == 7 { 100.0 } else { 1.0 }).collect();
    let size = (n * case.outputs * 4) as u64;
    let y = case.y.buffer.slice(case.y.offset, size);
    gpu.upload(case.x, bytemuck::cast_slice(&x))?;
    gpu.upload(&y, &vec![0; size as usize])?;
    let mut recorder = Recorder::new();
    record_product(&mut recorder, op, n, case.outputs);
    gpu.submit(&mut recorder)?;
    Ok(bytemuck::pod_collect_to_vec(&gpu.download(&y)?))
}

/// Squared error relative to the squared `want`. None if `got` is not finite where `want` is.
pub(super) fn nmse(got: &[f32], want: &[f32]) -> Option<f64> {
    let (mut error, mut power) = (0.0f64, 0.0f64);
    for (&g, &w) in got.iter().zip(want).filter(|(_, w)| w.is_finite()) {
        error += (f64::from(g) - f64::from(w)).powi(2);
        power += f64::from(w).powi(2);
    }
    error.is_finite().then_some(if error == 0.0 { 0.0 } else { error / power.max(f64::MIN_POSITIVE) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::api::ModelSource;
    use crate::engine::runner::activations::tile_keys;
    use crate::engine::runner::bindings::Builder;
    use crate::engine::runner::open;
    use crate::gpu::FeatureOverrides;
    use crate::gpu::kernels::linear::LinearActivation;
    use crate::gpu::testing::gpu_with;
    use crate::model::weights::layout;
    use crate::model::weights::upload::Weights;

    #[test]
    fn variant_with_wrong_products_or_none_is_named_and_not_used() {
        let overrides = FeatureOverrides { hardware_kernels: true, ..FeatureOverrides::default() };
        let Some(gpu) = gpu_with("variant_with_wrong_products_or_none_is_named_and_not_used", overrides) else { return };
        let candidates = LinearVariant::candidates(&gpu, Precision::Fast);
        let exact = *candidates.last().unwrap();
        let file = open(&ModelSource::BuiltIn).unwrap();
        let dims = &file.plan().dims;
        let placed = layout::lay_out(&file, gpu.max_binding_bytes()).unwrap();
        let weights = Weights::upload(&gpu, &file, placed, &mut |_| true).unwrap();
        let act = Activations::allocate(&gpu, file.plan(), 128, tile_keys(dims, 128)).unwrap();
        let build = |variant| {
            let builder = Builder { gpu: &gpu, weights: &weights, act: &act, norm: (false, 1e-5), variant };
            builder.ops(LinearActivation::SwiGlu)
        };
        let check = |build: &dyn Fn(LinearVariant) -> Result<ModelOps, GpuError>| {
            let mut notes = Vec::new();
            let (variant, _) = checked_ops(&gpu, dims, &act, Precision::Fast, &mut notes, build).unwrap();
            (variant, notes)
        };
        assert_eq!(check(&build), (candidates[0], vec![]));
        let wrong = |variant| {
            let mut ops = build(variant)?;
            if variant != exact {
                ops.layers.swap(0, 1);
            }
            Ok(ops)
        };
        let (variant, notes) = check(&wrong);
        assert_eq!((variant, notes.len()), (exact, candidates.len() - 1));
        assert!(notes.iter().all(|note| note.contains("are not used on") && note.contains("the qkv matvec gives")), "{notes:?}");
        let wrong_fused = |variant| {
            let mut ops = build(variant)?;
            if let Some(fused) = &mut ops.fused {
                fused.layers.swap(0, 1);
            }
            Ok(ops)
        };
        let (variant, notes) = check(&wrong_fused);
        assert!(variant == candidates[0] && notes.len() == 1, "{notes:?}");
        assert!(notes[0].starts_with("fused kernels are not used on"), "{notes:?}");
        let refused = |variant| match variant == exact {
            true => build(variant),
            false => Err(GpuError::Shader { shader: "linear/any".into(), reason: "the driver failed".into() }),
        };
        let (variant, notes) = check(&refused);
        assert_eq!(variant, exact);
        assert!(notes.iter().all(|note| note.contains("the driver failed")), "{notes:?}");
    }

    #[test]
    fn nmse_separates_rounding_from_nonsense() {
        let want: Vec<f32> = (0..1000).map(|i| (i as f32).sin()).collect();
        let rounded: Vec<f32> = want.iter().map(|v| half::f16::from_f32(*v).to_f32()).collect();
        assert!(nmse(&rounded, &want).is_some_and(|e| e > 0.0 && e < 1e-6));
        let mut wrong = want.clone();
        wrong[500..532].fill(0.0);
        assert!(nmse(&wrong, &want).is_some_and(|e| e > MAX_NMSE));
        wrong[3] = f32::NAN;
        assert_eq!(nmse(&wrong, &want), None);
        assert_eq!(nmse(&[0.0; 4], &[0.0; 4]), Some(0.0));
        assert_eq!(nmse(&[0.0, 1.0], &[f32::NAN, 1.0]), Some(0.0));
    }
}
