//! Tuning: which of the kernel variants that exist a device uses, and the candidates of each part.
//!
//! Every kernel asks [`Tuning`] in one place. The default is the fastest on the card that the kernels were written on. A value that
//! a device cannot run has no effect: variants check features first.

use serde::{Deserialize, Serialize};

/// Kernels for products of many tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatmulKernel {
    /// cooperative matrices, tiles of up to 128 x 128
    Matrices128,
    /// cooperative matrices, tiles of up to 64 x 64
    Matrices64,
    /// f32 tiles of 128 x 128
    F32Tiles128,
    /// f32 tiles of 64 x 64
    F32,
}

impl MatmulKernel {
    /// True if it needs matrix units.
    pub const fn uses_matrices(self) -> bool {
        matches!(self, MatmulKernel::Matrices128 | MatmulKernel::Matrices64)
    }
}

/// Kernels for the attention of prefill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrefillKernel {
    /// cooperative matrices
    Matrices,
    /// f32 tiles
    F32,
}

/// Workgroups of a matvec with converted activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatvecShape {
    /// rows of weights per workgroup: 4 or 8
    pub rows: usize,
    /// lanes of a workgroup
    pub lanes: usize,
}

/// Kernel variants of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// products of many tokens
    pub matmul: MatmulKernel,
    /// attention of prefill
    pub prefill_attention: PrefillKernel,
    /// splits into which the keys of decode attention are divided, unless they are too few or too many
    pub decode_splits: usize,
    /// products of few tokens
    pub matvec: MatvecShape,
    /// lanes of a workgroup of a fused product that computes a whole block of the next product's input
    pub fused_lanes: usize,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            matmul: MatmulKernel::Matrices128,
            prefill_attention: PrefillKernel::Matrices,
            decode_splits: 64,
            matvec: MatvecShape { rows: 4, lanes: 128 },
            // Several workgroups fit a multiprocessor of 1536 lanes.
            fused_lanes: 512,
        }
    }
}

/// A part of a tuning that is measured by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuningPart {
    /// [`Tuning::matmul`]
    Matmul,
    /// [`Tuning::prefill_attention`]
    PrefillAttention,
    /// [`Tuning::decode_splits`]
    DecodeAttention,
    /// [`Tuning::matvec`]
    Matvec,
    /// [`Tuning::fused_lanes`]
    FusedMatvec,
}

impl TuningPart {
    /// All parts, those that gain most first.
    pub const ALL: [TuningPart; 5] = [
        TuningPart::Matmul,
        TuningPart::PrefillAttention,
        TuningPart::DecodeAttention,
        TuningPart::Matvec,
        TuningPart::FusedMatvec,
    ];

    /// Name for people.
    pub const fn name(self) -> &'static str {
        match self {
            TuningPart::Matmul => "products of many tokens",
            TuningPart::PrefillAttention => "attention of prefill",
            TuningPart::DecodeAttention => "attention of decode",
            TuningPart::Matvec => "products of few tokens",
            TuningPart::FusedMatvec => "fused products of one token",
        }
    }

    /// Every value of this part, in tunings that otherwise equal `base`; that of [`Tuning::default`] first.
    pub fn candidates(self, base: Tuning) -> Vec<Tuning> {
        match self {
            TuningPart::Matmul => {
                let kernels = [MatmulKernel::Matrices128, MatmulKernel::Matrices64, MatmulKernel::F32Tiles128, MatmulKernel::F32];
                kernels.map(|matmul| Tuning { matmul, ..base }).to_vec()
            }
            TuningPart::PrefillAttention => {
                let kernels = [PrefillKernel::Matrices, PrefillKernel::F32];
                kernels.map(|prefill_attention| Tuning { prefill_attention, ..base }).to_vec()
            }
            TuningPart::DecodeAttention => [64, 128, 32].map(|decode_splits| Tuning { decode_splits, ..base }).to_vec(),
            TuningPart::Matvec => {
                let shapes = [(4, 128), (4, 64), (8, 128), (8, 256)];
                shapes.map(|(rows, lanes)| Tuning { matvec: MatvecShape { rows, lanes }, ..base }).to_vec()
            }
            TuningPart::FusedMatvec => [512, 1024, 256].map(|fused_lanes| Tuning { fused_lanes, ..base }).to_vec(),
        }
    }

    /// The value of this part in `tuning`, for people.
    pub fn value(self, tuning: &Tuning) -> String {
        match self {
            TuningPart::Matmul => match tuning.matmul {
                MatmulKernel::Matrices128 => "matrix units, tiles of 128".to_owned(),
                MatmulKernel::Matrices64 => "matrix units, tiles of 64".to_owned(),
                MatmulKernel::F32Tiles128 => "f32 tiles of 128".to_owned(),
                MatmulKernel::F32 => "f32 tiles of 64".to_owned(),
            },
            TuningPart::PrefillAttention => match tuning.prefill_attention {
                PrefillKernel::Matrices => "matrix units".to_owned(),
                PrefillKernel::F32 => "f32 tiles".to_owned(),
            },
            TuningPart::DecodeAttention => format!("{} splits", tuning.decode_splits),
            TuningPart::Matvec => format!("{} rows by {} lanes", tuning.matvec.rows, tuning.matvec.lanes),
            TuningPart::FusedMatvec => format!("{} lanes", tuning.fused_lanes),
        }
    }
}

impl Tuning {
    /// True if every part has the value of a candidate.
    pub fn is_known(&self) -> bool {
        TuningPart::ALL.into_iter().all(|part| part.candidates(*self).contains(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_differ_in_their_part_only_and_begin_with_the_default() {
        let base = Tuning::default();
        for part in TuningPart::ALL {
            let all = part.candidates(base);
            assert_eq!(all[0], base, "{part:?}");
            let mut values: Vec<String> = all.iter().map(|tuning| part.value(tuning)).collect();
            values.sort();
            values.dedup();
            assert_eq!(values.len(), all.len(), "{part:?}");
            for other in TuningPart::ALL.into_iter().filter(|other| *other != part) {
                assert!(all.iter().all(|tuning| other.value(tuning) == other.value(&base)), "{part:?} changes {other:?}");
            }
            assert!(all.iter().all(Tuning::is_known));
        }
        assert!(!Tuning { decode_splits: 65, ..base }.is_known());
        assert!(!Tuning { matvec: MatvecShape { rows: 3, lanes: 128 }, ..base }.is_known());
    }
}
