//! Kernel work: bytes that kernels must read and operations they must do in a step, by family, against the device's peaks.
//!
//! ```text
//! shape of a model, keys, tokens ─► Work by family ─┐
//! device times by family ───────────────────────────┼─► KernelProfile ─► share of the step, GB/s, TFLOP/s, share of the peak
//! KernelPeaks (measured) ───────────────────────────┘
//! ```
//! 1. Work is a lower bound from shapes: each weight and key is read once per pass, masked products are not done.
//! 2. A family has one limit: memory in decode, arithmetic in the products of prefill. Its share is work / time / peak.
//! 3. A share that cannot be computed is None, never 0.
//!
//! Units: bytes, floating-point operations, nanoseconds.

use crate::telemetry::KernelFamily;

/// Families of kernels with work of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkFamily {
    /// matrix products, with the conversion of their activations
    Linear,
    /// attention and its merge
    Attention,
    /// norms, rotation, append to the cache, quantization of pages
    Elementwise,
    /// reduction of logits to candidates
    Sampling,
    /// scores for a policy's selection
    Selection,
    /// embedding, copies, work without a mark
    Other,
}

impl WorkFamily {
    /// All families, in the order of the tables.
    pub const ALL: [WorkFamily; 6] = [
        WorkFamily::Linear,
        WorkFamily::Attention,
        WorkFamily::Elementwise,
        WorkFamily::Sampling,
        WorkFamily::Selection,
        WorkFamily::Other,
    ];

    /// The family of a compute pass.
    pub const fn of(family: KernelFamily) -> WorkFamily {
        match family {
            KernelFamily::Linear => WorkFamily::Linear,
            KernelFamily::Attention => WorkFamily::Attention,
            KernelFamily::Norm | KernelFamily::Rope | KernelFamily::Seal => WorkFamily::Elementwise,
            KernelFamily::Sample => WorkFamily::Sampling,
            KernelFamily::Evaluation => WorkFamily::Selection,
            KernelFamily::Copy | KernelFamily::Other => WorkFamily::Other,
        }
    }

    /// Name in tables, with the kind of step where the kernels differ.
    pub const fn name(self, is_prefill: bool) -> &'static str {
        match (self, is_prefill) {
            (WorkFamily::Linear, false) => "linear decode",
            (WorkFamily::Linear, true) => "linear prefill",
            (WorkFamily::Attention, false) => "attention decode",
            (WorkFamily::Attention, true) => "attention prefill",
            (WorkFamily::Elementwise, _) => "norm, rope, append",
            (WorkFamily::Sampling, _) => "sampling",
            (WorkFamily::Selection, _) => "selection",
            (WorkFamily::Other, _) => "other",
        }
    }
}

/// Unit of the device that limits a family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// reads of its memory
    #[default]
    Memory,
    /// f32 arithmetic
    F32,
    /// products of f16 matrices
    Matrices,
}

/// Work of one family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// bytes that must be read
    pub bytes: u64,
    /// floating-point operations that must be done
    pub flops: u64,
}

/// Work of every family, in the order of [`WorkFamily::ALL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FamilyWork([Work; WorkFamily::ALL.len()]);

impl FamilyWork {
    /// Work of one family.
    pub fn of(&self, family: WorkFamily) -> Work {
        self.0[family as usize]
    }

    /// Adds the work of another step.
    pub fn add(&mut self, other: &FamilyWork) {
        for (sum, work) in self.0.iter_mut().zip(other.0) {
            sum.bytes += work.bytes;
            sum.flops += work.flops;
        }
    }

    fn set(mut self, family: WorkFamily, bytes: u64, flops: u64) -> FamilyWork {
        self.0[family as usize] = Work { bytes, flops };
        self
    }
}

/// Shape of a loaded model, as far as its work depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkShape {
    /// L
    pub n_layer: u64,
    /// C
    pub hidden_dim: u64,
    /// H * D
    pub q_dim: u64,
    /// G * D
    pub kv_dim: u64,
    /// V
    pub vocab_size: u64,
    /// weights of the matrix products of all layers, bytes
    pub layer_bytes: u64,
    /// weights of the output projection, bytes
    pub output_bytes: u64,
    /// weights of the matrix products of all layers, number
    pub n_layer_weights: u64,
    /// keys and values of one token in all layers, bytes
    pub kv_token_bytes: u64,
    /// unit of the matrix products of prefill
    pub linear_prefill: Limit,
    /// unit of the attention of prefill
    pub attention_prefill: Limit,
}

const F32_BYTES: u64 = 4;

impl WorkShape {
    /// Work of a decode step: one token for each of `n_rows` sequences, whose attention reads `n_keys` keys.
    pub fn decode(&self, n_rows: usize, n_keys: usize) -> FamilyWork {
        let (rows, keys) = (n_rows as u64, n_keys as u64);
        let mut work = self.layers(rows);
        work = work.set(WorkFamily::Attention, rows * keys * self.kv_token_bytes, rows * self.attention_flops(keys));
        work.add(&self.sample(n_rows));
        work
    }

    /// Work of a prefill step: `n` tokens after the first `first` ones, without logits. The tokens see all earlier ones.
    pub fn prefill(&self, first: usize, n: usize) -> FamilyWork {
        let (first, n) = (first as u64, n as u64);
        let visible = n * first + n * (n + 1) / 2;
        self.layers(n).set(WorkFamily::Attention, (first + n) * self.kv_token_bytes, self.attention_flops(visible))
    }

    /// Work of the logits of `n_rows` tokens, and of sampling from them.
    pub fn sample(&self, n_rows: usize) -> FamilyWork {
        let rows = n_rows as u64;
        let flops = 2 * rows * self.hidden_dim * self.vocab_size;
        FamilyWork::default().set(WorkFamily::Linear, self.output_bytes, flops).set(
            WorkFamily::Sampling,
            rows * self.vocab_size * F32_BYTES,
            0,
        )
    }

    /// Unit that limits a family in a decode or a prefill step.
    pub fn limit(&self, family: WorkFamily, is_prefill: bool) -> Limit {
        match (family, is_prefill) {
            (WorkFamily::Linear, true) => self.linear_prefill,
            (WorkFamily::Attention, true) => self.attention_prefill,
            _ => Limit::Memory,
        }
    }

    /// Products, and the inputs of two norms and the rotation, of `n` tokens in all layers.
    fn layers(&self, n: u64) -> FamilyWork {
        let inputs = 2 * self.hidden_dim + self.q_dim + 2 * self.kv_dim;
        FamilyWork::default().set(WorkFamily::Linear, self.layer_bytes, 2 * n * self.n_layer_weights).set(
            WorkFamily::Elementwise,
            n * self.n_layer * inputs * F32_BYTES,
            0,
        )
    }

    /// q · k and the weighted sum of values, for `n` pairs of a token and a key.
    fn attention_flops(&self, n: u64) -> u64 {
        4 * n * self.q_dim * self.n_layer
    }
}

/// Measured peaks of the device for kernels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelPeaks {
    /// streaming read, bytes per second
    pub read_bytes_per_s: f64,
    /// best f32 matrix product, operations per second
    pub f32_flops: f64,
    /// matrix units; None if the device has none that kernels can use
    pub matrix_flops: Option<f64>,
}

/// Time and work of one family in a step or several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FamilyProfile {
    /// family
    pub family: WorkFamily,
    /// time of its passes
    pub ns: u64,
    /// work
    pub work: Work,
    /// unit that limits it
    pub limit: Limit,
}

/// Where the time of steps of one kind went.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelProfile {
    /// prefill rather than decode
    pub is_prefill: bool,
    /// time of the steps
    pub wall_ns: u64,
    /// tokens of the steps
    pub n_tokens: usize,
    /// families that took time, in the order of [`WorkFamily::ALL`]
    pub families: Vec<FamilyProfile>,
}

impl KernelProfile {
    /// The profile of steps with these times of passes, in nanoseconds.
    pub fn new(
        shape: &WorkShape,
        is_prefill: bool,
        (wall_ns, n_tokens): (u64, usize),
        times: &[(KernelFamily, u64)],
        work: &FamilyWork,
    ) -> KernelProfile {
        let of = |family: WorkFamily| {
            let ns = times.iter().filter(|(kernel, _)| WorkFamily::of(*kernel) == family).map(|(_, ns)| ns).sum();
            FamilyProfile { family, ns, work: work.of(family), limit: shape.limit(family, is_prefill) }
        };
        let families = WorkFamily::ALL.map(of).into_iter().filter(|profile| profile.ns > 0).collect();
        KernelProfile { is_prefill, wall_ns, n_tokens, families }
    }

    /// Share of a family in the time of the steps, 0 to 1.
    pub fn share(&self, family: &FamilyProfile) -> f64 {
        family.ns as f64 / self.wall_ns.max(1) as f64
    }

    /// Share of the time in which no kernel ran.
    pub fn idle_share(&self) -> f64 {
        (1.0 - self.families.iter().map(|family| self.share(family)).sum::<f64>()).max(0.0)
    }
}

impl FamilyProfile {
    /// Bytes per second. None if the bytes are not known.
    pub fn bytes_per_s(&self) -> Option<f64> {
        self.per_s(self.work.bytes)
    }

    /// Operations per second. None if there are none.
    pub fn flops_per_s(&self) -> Option<f64> {
        self.per_s(self.work.flops)
    }

    /// Share of the peak of the unit that limits the family.
    pub fn of_peak(&self, peaks: &KernelPeaks) -> Option<f64> {
        let (reached, peak) = match self.limit {
            Limit::Memory => (self.bytes_per_s()?, peaks.read_bytes_per_s),
            Limit::F32 => (self.flops_per_s()?, peaks.f32_flops),
            Limit::Matrices => (self.flops_per_s()?, peaks.matrix_flops?),
        };
        (peak > 0.0).then(|| reached / peak)
    }

    fn per_s(&self, amount: u64) -> Option<f64> {
        (amount > 0 && self.ns > 0).then(|| amount as f64 * 1e9 / self.ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two layers of C = 8, H * D = 8, G * D = 4, F such that a layer has 500 weights of one byte; V = 100.
    const SHAPE: WorkShape = WorkShape {
        n_layer: 2,
        hidden_dim: 8,
        q_dim: 8,
        kv_dim: 4,
        vocab_size: 100,
        layer_bytes: 1000,
        output_bytes: 800,
        n_layer_weights: 1000,
        kv_token_bytes: 32,
        linear_prefill: Limit::Matrices,
        attention_prefill: Limit::F32,
    };
    const PEAKS: KernelPeaks = KernelPeaks { read_bytes_per_s: 1e9, f32_flops: 2e9, matrix_flops: None };

    #[test]
    fn decode_reads_weights_once_and_the_keys_of_every_sequence() {
        let work = SHAPE.decode(3, 10);
        assert_eq!(work.of(WorkFamily::Linear), Work { bytes: 1800, flops: 3 * 2 * (1000 + 800) });
        assert_eq!(work.of(WorkFamily::Attention), Work { bytes: 3 * 10 * 32, flops: 3 * 10 * 4 * 8 * 2 });
        assert_eq!(work.of(WorkFamily::Elementwise).bytes, 3 * 2 * (16 + 8 + 8) * 4);
        assert_eq!(work.of(WorkFamily::Sampling).bytes, 3 * 400);
        assert_eq!(work.of(WorkFamily::Selection), Work::default());
    }

    #[test]
    fn prefill_counts_every_visible_pair_and_reads_each_key_once() {
        let work = SHAPE.prefill(5, 4);
        // Tokens 5 to 8 see 6, 7, 8 and 9 keys.
        assert_eq!(work.of(WorkFamily::Attention), Work { bytes: 9 * 32, flops: 30 * 4 * 8 * 2 });
        assert_eq!(work.of(WorkFamily::Linear), Work { bytes: 1000, flops: 4 * 2 * 1000 });
        // One token at a time sees as many, but reads the keys again for each.
        let mut one_by_one = FamilyWork::default();
        (5..9).for_each(|first| one_by_one.add(&SHAPE.prefill(first, 1)));
        assert_eq!(one_by_one.of(WorkFamily::Attention).flops, work.of(WorkFamily::Attention).flops);
        assert_eq!(one_by_one.of(WorkFamily::Attention).bytes, 30 * 32);
    }

    #[test]
    fn profile_has_shares_of_the_step_and_of_the_peak_of_the_limiting_unit() {
        let times = [(KernelFamily::Linear, 3600), (KernelFamily::Norm, 1000), (KernelFamily::Rope, 1000)];
        let decode = KernelProfile::new(&SHAPE, false, (10_000, 1), &times, &SHAPE.decode(1, 10));
        let [linear, elementwise] = decode.families[..] else { panic!("{decode:?}") };
        assert_eq!((linear.family, elementwise.family, elementwise.ns), (WorkFamily::Linear, WorkFamily::Elementwise, 2000));
        assert_eq!((decode.share(&linear), linear.bytes_per_s(), linear.of_peak(&PEAKS)), (0.36, Some(0.5e9), Some(0.5)));
        assert!((decode.idle_share() - 0.44).abs() < 1e-9);
        assert_eq!(elementwise.flops_per_s(), None, "unknown is not 0");
        let prefill = KernelProfile::new(&SHAPE, true, (10_000, 4), &times, &SHAPE.prefill(0, 4));
        assert_eq!(prefill.families[0].of_peak(&PEAKS), None, "the peak of the matrix units is not known");
        let peaks = KernelPeaks { matrix_flops: Some(8000.0 / 3.6e-6 * 4.0), ..PEAKS };
        assert!((prefill.families[0].of_peak(&peaks).unwrap() - 0.25).abs() < 1e-9);
    }
}
