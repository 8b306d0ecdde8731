//! Reference forward pass over a [`ModelPlan`] in plain loops: slow, simple, and the baseline of all faster code.
//!
//! Weights are decoded to f32; sums are accumulated in f64, so the result is nearer to the exact one than that of any f32
//! engine. It runs one token at a time, with a cache of keys and values.

#![allow(dead_code, clippy::unwrap_used)]

use strata::model::ModelFile;
use strata::model::arch::plan::{
    Activation, LayerPlan, Matrix, ModelPlan, NormKind, NormPlan, PositionPlan, RopePlan, RopeStyle,
};

/// `y = W x + b`, `[rows, cols]`.
struct Dense {
    weights: Vec<f32>,
    bias: Option<Vec<f32>>,
    cols: usize,
}

struct Norm {
    kind: NormKind,
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
}

struct Layer {
    attn_norm: Norm,
    qkv: Dense,
    q_norm: Option<Norm>,
    k_norm: Option<Norm>,
    attn_output: Dense,
    ffn_norm: Norm,
    ffn_up: Dense,
    ffn_down: Dense,
    /// `[T, G * D]` each
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// A model with its cache.
pub struct PlainModel {
    plan: ModelPlan,
    embedding: Vec<f32>,
    positions: Option<Vec<f32>>,
    layers: Vec<Layer>,
    output_norm: Norm,
    output: Option<Dense>,
    n_tokens: usize,
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32
}

impl Dense {
    fn load(file: &ModelFile, matrix: &Matrix) -> Dense {
        Dense { weights: file.matrix_f32(matrix).unwrap(), bias: file.bias(matrix).unwrap(), cols: matrix.cols }
    }

    fn apply(&self, x: &[f32]) -> Vec<f32> {
        assert_eq!(x.len(), self.cols);
        let bias = |row: usize| self.bias.as_ref().map_or(0.0, |b| b[row]);
        self.weights.chunks_exact(self.cols).enumerate().map(|(row, w)| dot(w, x) + bias(row)).collect()
    }
}

impl Norm {
    fn load(file: &ModelFile, kind: NormKind, plan: &NormPlan) -> Norm {
        let bias = plan.bias.as_ref().map(|name| file.vector(name).unwrap());
        Norm { kind, weight: file.vector(&plan.weight).unwrap(), bias }
    }

    fn apply(&self, x: &[f32]) -> Vec<f32> {
        assert_eq!(x.len(), self.weight.len());
        let n = x.len() as f64;
        let (mean, eps) = match self.kind {
            NormKind::Rms { eps } => (0.0, eps),
            NormKind::Layer { eps } => (x.iter().map(|v| f64::from(*v)).sum::<f64>() / n, eps),
        };
        let variance = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n;
        let scale = 1.0 / (variance + f64::from(eps)).sqrt();
        let shift = |i: usize| self.bias.as_ref().map_or(0.0, |b| f64::from(b[i]));
        let one = |(i, v): (usize, &f32)| ((f64::from(*v) - mean) * scale * f64::from(self.weight[i]) + shift(i)) as f32;
        x.iter().enumerate().map(one).collect()
    }
}

impl Layer {
    fn load(file: &ModelFile, kind: NormKind, plan: &LayerPlan) -> Layer {
        Layer {
            attn_norm: Norm::load(file, kind, &plan.attn_norm),
            qkv: Dense::load(file, &plan.qkv),
            q_norm: plan.q_norm.as_ref().map(|norm| Norm::load(file, kind, norm)),
            k_norm: plan.k_norm.as_ref().map(|norm| Norm::load(file, kind, norm)),
            attn_output: Dense::load(file, &plan.attn_output),
            ffn_norm: Norm::load(file, kind, &plan.ffn_norm),
            ffn_up: Dense::load(file, &plan.ffn_up),
            ffn_down: Dense::load(file, &plan.ffn_down),
            keys: Vec::new(),
            values: Vec::new(),
        }
    }
}

fn rotate(head: &mut [f32], pos: usize, rope: &RopePlan) {
    let n = rope.inv_freq.len();
    for (i, inv_freq) in rope.inv_freq.iter().enumerate() {
        let (a, b) = match rope.style {
            RopeStyle::Adjacent => (2 * i, 2 * i + 1),
            RopeStyle::Half => (i, i + n),
        };
        // The product is rounded to f32, as in the engines that serve as comparison.
        let (sin, cos) = f64::from(pos as f32 * inv_freq).sin_cos();
        let magnitude = f64::from(rope.magnitude);
        let (sin, cos) = (sin * magnitude, cos * magnitude);
        let (x, y) = (f64::from(head[a]), f64::from(head[b]));
        head[a] = (x * cos - y * sin) as f32;
        head[b] = (x * sin + y * cos) as f32;
    }
}

/// erf by its series, and for large arguments by its continued fraction (exact to f32).
fn erf(x: f64) -> f64 {
    if x.abs() > 3.0 {
        let mut f = 0.0;
        for k in (1..=60).rev() {
            f = f64::from(k) / 2.0 / (x.abs() + f);
        }
        return x.signum() * (1.0 - (-x * x).exp() / (std::f64::consts::PI.sqrt() * (x.abs() + f)));
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..80 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn activate(kind: Activation, up: &[f32]) -> Vec<f32> {
    let each = |f: fn(f64) -> f64| up.iter().map(|v| f(f64::from(*v)) as f32).collect();
    match kind {
        Activation::SwiGlu => {
            let pair = |p: &[f32]| {
                let (gate, up) = (f64::from(p[0]), f64::from(p[1]));
                (gate / (1.0 + (-gate).exp()) * up) as f32
            };
            up.chunks_exact(2).map(pair).collect()
        }
        Activation::Relu => each(|v| v.max(0.0)),
        Activation::Gelu => each(|v| 0.5 * v * (1.0 + erf(v / 2f64.sqrt()))),
        Activation::GeluTanh => {
            each(|v| 0.5 * v * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044_715 * v.powi(3))).tanh()))
        }
    }
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

impl PlainModel {
    /// Decodes all weights.
    pub fn load(file: &ModelFile) -> PlainModel {
        let plan = file.plan().clone();
        let positions = match &plan.position {
            PositionPlan::Learned { table, .. } => Some(file.matrix_f32(table).unwrap()),
            PositionPlan::Rope(_) => None,
        };
        PlainModel {
            embedding: file.matrix_f32(&plan.token_embedding).unwrap(),
            positions,
            layers: plan.layers.iter().map(|layer| Layer::load(file, plan.norm, layer)).collect(),
            output_norm: Norm::load(file, plan.norm, &plan.output_norm),
            output: (!plan.tied).then(|| Dense::load(file, &plan.output)),
            plan,
            n_tokens: 0,
        }
    }

    /// Clears the cache.
    pub fn clear(&mut self) {
        self.n_tokens = 0;
        for layer in &mut self.layers {
            layer.keys.clear();
            layer.values.clear();
        }
    }

    /// Appends one token; returns the hidden state `[C]` after the last layer.
    fn step(&mut self, token: u32) -> Vec<f32> {
        let (plan, pos) = (&self.plan, self.n_tokens);
        let width = plan.dims.hidden_dim;
        let at = token as usize * width;
        let mut x = self.embedding[at..at + width].to_vec();
        if let (Some(table), PositionPlan::Learned { offset, .. }) = (&self.positions, &plan.position) {
            let at = (pos + offset) * width;
            add(&mut x, &table[at..at + width]);
        }
        for layer in &mut self.layers {
            let attended = attention(plan, layer, &layer.attn_norm.apply(&x), pos);
            add(&mut x, &layer.attn_output.apply(&attended));
            let up = layer.ffn_up.apply(&layer.ffn_norm.apply(&x));
            add(&mut x, &layer.ffn_down.apply(&activate(plan.activation, &up)));
        }
        self.n_tokens += 1;
        x
    }

    fn logits_of(&self, x: &[f32]) -> Vec<f32> {
        let x = self.output_norm.apply(x);
        match &self.output {
            Some(output) => output.apply(&x),
            None => self.embedding.chunks_exact(x.len()).map(|w| dot(w, &x)).collect(),
        }
    }

    /// Appends tokens; returns logits `[n, V]` of all of them.
    pub fn logits(&mut self, tokens: &[u32]) -> Vec<Vec<f32>> {
        let all = tokens.iter().map(|token| {
            let x = self.step(*token);
            self.logits_of(&x)
        });
        all.collect()
    }

    /// Appends tokens; returns logits `[V]` of the last one.
    pub fn last_logits(&mut self, tokens: &[u32]) -> Vec<f32> {
        let mut x = Vec::new();
        for token in tokens {
            x = self.step(*token);
        }
        self.logits_of(&x)
    }
}

/// Causal attention of the newest token over all cached ones, itself included: `[H * D]`.
fn attention(plan: &ModelPlan, layer: &mut Layer, x: &[f32], pos: usize) -> Vec<f32> {
    let dims = &plan.dims;
    let (d, kv_dim) = (dims.head_dim, dims.kv_dim());
    let mut qkv = layer.qkv.apply(x);
    let (q, kv) = qkv.split_at_mut(dims.q_dim());
    let (k, v) = kv.split_at_mut(kv_dim);
    for (heads, norm) in [(&mut *q, &layer.q_norm), (&mut *k, &layer.k_norm)] {
        for head in heads.chunks_exact_mut(d) {
            if let Some(norm) = norm {
                head.copy_from_slice(&norm.apply(head));
            }
            if let PositionPlan::Rope(rope) = &plan.position {
                rotate(head, pos, rope);
            }
        }
    }
    layer.keys.extend_from_slice(k);
    layer.values.extend_from_slice(v);
    let first = plan.sliding_window.map_or(0, |window| (pos + 1).saturating_sub(window));
    let mut out = vec![0f32; dims.q_dim()];
    for (h, (q, out)) in q.chunks_exact(d).zip(out.chunks_exact_mut(d)).enumerate() {
        let at = |t: usize| t * kv_dim + h / dims.group_size() * d;
        let score = |t: usize| f64::from(dot(q, &layer.keys[at(t)..at(t) + d])) * f64::from(plan.attn_scale);
        let scores: Vec<f64> = (first..=pos).map(score).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (i, out) in out.iter_mut().enumerate() {
            let sum: f64 = weights.iter().zip(first..).map(|(w, t)| w * f64::from(layer.values[at(t) + i])).sum();
            *out = (sum / total) as f32;
        }
    }
    out
}
