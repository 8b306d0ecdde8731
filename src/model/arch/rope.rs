//! Rotary embedding (RoPE): frequencies with all scaling folded in.
//!
//! `angle(pos, i) = pos * inv_freq[i]`, `inv_freq[i] = base^(-2i / n_rot)`, then scaled. Computed in f64 and rounded once to
//! f32; Hugging Face computes in f32, so the last bit may differ. Sources: RoFormer (arXiv 2104.09864); YaRN (arXiv
//! 2309.00071); LongRoPE (arXiv 2402.13753); Llama 3.1's model card; `modeling_rope_utils.py` and llama.cpp for key names.

use std::f64::consts::PI;

use super::plan_builder::PlanBuilder;
use crate::model::ModelError;
use crate::model::arch::plan::{RopePlan, RopeStyle};

/// Scaling of a rotary embedding for longer contexts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scaling {
    None,
    /// divides all frequencies
    Linear(f64),
    /// divides each frequency by its own factor, and multiplies cos and sin
    Factors(Vec<f64>, f64),
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original: f64,
    },
    Yarn {
        factor: f64,
        original: f64,
        beta_fast: f64,
        beta_slow: f64,
        truncate: bool,
        attention_factor: f64,
    },
}

/// inv_freq `[n_rot / 2]`, and the factor on cos and sin.
pub(crate) fn inv_freq(base: f64, n_rot: usize, scaling: &Scaling) -> (Vec<f32>, f32) {
    let plain = (0..n_rot / 2).map(|i| base.powf(-(2.0 * i as f64) / n_rot as f64));
    let scaled: Vec<f64> = match scaling {
        Scaling::None => plain.collect(),
        Scaling::Linear(factor) => plain.map(|f| f / factor).collect(),
        Scaling::Factors(factors, _) => plain.zip(factors).map(|(f, factor)| f / factor).collect(),
        Scaling::Llama3 { factor, low, high, original } => plain.map(|f| llama3(f, *factor, *low, *high, *original)).collect(),
        Scaling::Yarn { factor, original, beta_fast, beta_slow, truncate, .. } => {
            let dim = n_rot as f64;
            let correction = |rotations: f64| dim * (original / (rotations * 2.0 * PI)).ln() / (2.0 * base.ln());
            let (mut from, mut to) = (correction(*beta_fast), correction(*beta_slow));
            if *truncate {
                (from, to) = (from.floor(), to.ceil());
            }
            (from, to) = (from.max(0.0), to.min(dim - 1.0));
            let width = if from == to { 0.001 } else { to - from };
            let blend = |(i, f): (usize, f64)| {
                let interpolated = ((i as f64 - from) / width).clamp(0.0, 1.0);
                f / factor * interpolated + f * (1.0 - interpolated)
            };
            plain.enumerate().map(blend).collect()
        }
    };
    let magnitude = match scaling {
        Scaling::Factors(_, magnitude) | Scaling::Yarn { attention_factor: magnitude, .. } => *magnitude,
        _ => 1.0,
    };
    (scaled.into_iter().map(|f| f as f32).collect(), magnitude as f32)
}

fn llama3(f: f64, factor: f64, low: f64, high: f64, original: f64) -> f64 {
    let wavelength = 2.0 * PI / f;
    if wavelength < original / high {
        f
    } else if wavelength > original / low {
        f / factor
    } else {
        let smooth = (original / wavelength - low) / (high - low);
        (1.0 - smooth) * f / factor + smooth * f
    }
}

/// YaRN's default factor on cos and sin.
fn yarn_magnitude(factor: f64, scale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 }
}

/// Rope of a model with heads of `head_dim`, of which a leading part rotates.
pub(crate) fn rope(
    builder: &PlanBuilder<'_>,
    style: RopeStyle,
    head_dim: usize,
    context_len: usize,
) -> Result<RopePlan, ModelError> {
    let hparams = builder.hparams;
    let theta_key = if hparams.json("rope_theta").is_some() { "rope_theta" } else { "rope_parameters.rope_theta" };
    let own = hparams.float("rope.freq_base", theta_key)?.unwrap_or(10_000.0);
    let base = builder.overrides.rope_base.unwrap_or(own);
    if base <= 1.0 {
        return Err(hparams.bad("rope.freq_base", theta_key, base, "above 1"));
    }
    let n_rot = match hparams.uint("rope.dimension_count", "")? {
        Some(n_rot) => n_rot,
        None => {
            let share = match hparams.float("", "partial_rotary_factor")? {
                Some(share) => share,
                None => hparams.float("", "rope_parameters.partial_rotary_factor")?.unwrap_or(1.0),
            };
            // Truncates like the reference; the check below catches a share out of range.
            (head_dim as f64 * share.clamp(0.0, 2.0)) as usize
        }
    };
    if n_rot == 0 || n_rot > head_dim || !n_rot.is_multiple_of(2) {
        let must = format!("even, and at most the head dimension {head_dim}");
        return Err(hparams.bad("rope.dimension_count", "partial_rotary_factor", n_rot, &must));
    }
    let scaling = if hparams.is_gguf() { gguf_scaling(builder, n_rot, context_len)? } else { hf_scaling(builder, context_len)? };
    if let Scaling::Factors(factors, _) = &scaling
        && (factors.len() != n_rot / 2 || factors.iter().any(|f| !f.is_finite() || *f <= 0.0))
    {
        let must = format!("{} positive numbers", n_rot / 2);
        return Err(hparams.bad("rope.scaling", "rope_scaling", format!("{} factors", factors.len()), &must));
    }
    let (inv_freq, magnitude) = inv_freq(base, n_rot, &scaling);
    if !magnitude.is_finite() || magnitude <= 0.0 || inv_freq.iter().any(|f| !f.is_finite()) {
        return Err(hparams.bad("rope.scaling", "rope_scaling", "out of range", "settings that give finite angles"));
    }
    Ok(RopePlan { style, inv_freq, magnitude })
}

/// LongRoPE: the long factors apply if the context exceeds the original one.
fn is_long(builder: &PlanBuilder<'_>, context_len: usize, original: usize) -> bool {
    builder.overrides.context.unwrap_or(context_len).min(context_len) > original
}

fn gguf_scaling(builder: &PlanBuilder<'_>, n_rot: usize, context_len: usize) -> Result<Scaling, ModelError> {
    let hparams = builder.hparams;
    let attention = hparams.float("rope.scaling.attn_factor", "")?.unwrap_or(1.0);
    let original = hparams.uint("rope.scaling.original_context_length", "")?.unwrap_or(context_len);
    // The file stores the factors once, or (split conversions) per layer name.
    let factors = |name: &str| -> Result<Option<Vec<f64>>, ModelError> {
        if !builder.tensors.has(name) {
            return Ok(None);
        }
        builder.tensors.require_shape(name, &[n_rot / 2])?;
        builder.mark_used(name);
        Ok(Some((builder.read)(name)?.into_iter().map(f64::from).collect()))
    };
    let (long, short) = (factors("rope_factors_long.weight")?, factors("rope_factors_short.weight")?);
    if let (Some(long), Some(short)) = (long, short) {
        return Ok(Scaling::Factors(if is_long(builder, context_len, original) { long } else { short }, attention));
    }
    if let Some(factors) = factors("rope_freqs.weight")? {
        return Ok(Scaling::Factors(factors, attention));
    }
    let kind = hparams.string("rope.scaling.type", "")?.unwrap_or("linear");
    let factor = match hparams.float("rope.scaling.factor", "")? {
        Some(factor) => Some(factor),
        None => hparams.float("rope.scale_linear", "")?,
    };
    // llama.cpp treats a factor of 0 as "none".
    let factor = factor.filter(|f| *f != 0.0).unwrap_or(1.0);
    if factor < 0.0 {
        return Err(hparams.bad("rope.scaling.factor", "", factor, "positive"));
    }
    match kind {
        "none" => Ok(Scaling::None),
        "linear" if factor == 1.0 => Ok(Scaling::None),
        "linear" => Ok(Scaling::Linear(factor)),
        "yarn" => Ok(Scaling::Yarn {
            factor,
            original: original as f64,
            beta_fast: hparams.float("rope.scaling.yarn_beta_fast", "")?.unwrap_or(32.0),
            beta_slow: hparams.float("rope.scaling.yarn_beta_slow", "")?.unwrap_or(1.0),
            truncate: true,
            attention_factor: attention * yarn_magnitude(factor, 1.0),
        }),
        other => Err(hparams.bad("rope.scaling.type", "", format!("'{other}'"), "none, linear or yarn")),
    }
}

fn hf_scaling(builder: &PlanBuilder<'_>, context_len: usize) -> Result<Scaling, ModelError> {
    let hparams = builder.hparams;
    // transformers 5 writes rope_parameters, earlier versions rope_scaling; "su" is an early name of LongRoPE.
    let place = if hparams.json("rope_scaling").is_some() { "rope_scaling" } else { "rope_parameters" };
    let at = |key: &str| format!("{place}.{key}");
    let number = |key: &str| hparams.float("", &at(key));
    let need = |key: &str| -> Result<f64, ModelError> {
        let value = hparams.require_float("", &at(key))?;
        if value > 0.0 { Ok(value) } else { Err(hparams.bad("", &at(key), value, "positive")) }
    };
    let kind = match hparams.string("", &at("rope_type"))? {
        Some(kind) => Some(kind),
        None => hparams.string("", &at("type"))?,
    };
    let original = || -> Result<usize, ModelError> {
        match hparams.uint("", &at("original_max_position_embeddings"))? {
            Some(n) => Ok(n),
            None => Ok(hparams.uint("", "original_max_position_embeddings")?.unwrap_or(context_len)),
        }
    };
    match kind.unwrap_or("default") {
        // Dynamic NTK changes nothing up to the trained context, and longer contexts are rejected.
        "default" | "none" | "dynamic" => Ok(Scaling::None),
        "linear" => Ok(Scaling::Linear(need("factor")?)),
        "llama3" => Ok(Scaling::Llama3 {
            factor: need("factor")?,
            low: need("low_freq_factor")?,
            high: need("high_freq_factor")?,
            original: need("original_max_position_embeddings")?,
        }),
        "yarn" => {
            let original = original()?;
            let factor = match number("factor")? {
                Some(_) => need("factor")?,
                None => context_len as f64 / original.max(1) as f64,
            };
            let attention_factor = match (number("attention_factor")?, number("mscale")?, number("mscale_all_dim")?) {
                (Some(given), _, _) => given,
                (None, Some(m), Some(all)) if m != 0.0 && all != 0.0 => yarn_magnitude(factor, m) / yarn_magnitude(factor, all),
                _ => yarn_magnitude(factor, 1.0),
            };
            Ok(Scaling::Yarn {
                factor,
                original: original as f64,
                beta_fast: number("beta_fast")?.filter(|b| *b > 0.0).unwrap_or(32.0),
                beta_slow: number("beta_slow")?.filter(|b| *b > 0.0).unwrap_or(1.0),
                truncate: hparams.hf_bool(&at("truncate"), true)?,
                attention_factor,
            })
        }
        "longrope" | "su" => {
            let original = original()?;
            let key = if is_long(builder, context_len, original) { "long_factor" } else { "short_factor" };
            let factors = hparams.hf_floats(&at(key))?;
            let Some(factors) = factors else { return Err(hparams.bad("", &at(key), "missing", "a list of numbers")) };
            let factor = number("factor")?.unwrap_or(context_len as f64 / original.max(1) as f64);
            let magnitude = match number("attention_factor")? {
                Some(given) => given,
                None if factor <= 1.0 => 1.0,
                None => (1.0 + factor.ln() / (original as f64).ln()).sqrt(),
            };
            Ok(Scaling::Factors(factors, magnitude))
        }
        other => {
            let must = "default, linear, dynamic, llama3, yarn or longrope";
            Err(hparams.bad("", &at("rope_type"), format!("'{other}'"), must))
        }
    }
}
