//! Model fingerprint: identifies a model in milliseconds, whatever the size of its files.
//!
//! ```text
//! header or config bytes ─┐
//! name, type, shape, samples of each tensor ─┴─► BLAKE3 ─► 32 bytes          settings of a plan ─► BLAKE3 ─► 32 bytes
//! ```
//! 1. The same files give the same fingerprint on every machine and for every context size.
//! 2. Each part is hashed after its length, so different lists of parts never hash the same bytes.
//!
//! Limits: only [`SAMPLE_BYTES`] at the beginning, middle and end of a tensor are hashed. Training changes all of a tensor; a
//! manual edit elsewhere is not detected.

use super::arch::plan::{ModelPlan, PositionPlan, RopeStyle};
use super::tensors::TensorEntry;

/// Bytes of each of the three samples of a tensor.
const SAMPLE_BYTES: usize = 4096;

/// A hash in progress.
pub(super) struct Fingerprint(blake3::Hasher);

impl Fingerprint {
    /// Begins a hash of a `kind`; equal parts of different kinds hash differently.
    pub fn new(kind: &str) -> Self {
        Fingerprint(blake3::Hasher::new()).with(kind.as_bytes())
    }

    /// Adds one part.
    pub fn with(mut self, part: &[u8]) -> Self {
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    /// Adds a tensor's name, type and shape.
    pub fn with_tensor(self, name: &str, entry: &TensorEntry) -> Self {
        let ty = match &entry.ty {
            Ok(ty) => ty.to_string(),
            Err(foreign) => foreign.clone(),
        };
        let shape: Vec<u8> = entry.shape.iter().flat_map(|d| (*d as u64).to_le_bytes()).collect();
        self.with(name.as_bytes()).with(ty.as_bytes()).with(&shape)
    }

    /// Adds samples of a tensor's data.
    pub fn with_samples(self, data: &[u8]) -> Self {
        let last = data.len().saturating_sub(SAMPLE_BYTES);
        [0, last / 2, last].into_iter().fold(self, |hash, start| {
            let sample = data.get(start..).unwrap_or_default();
            hash.with(sample.get(..SAMPLE_BYTES).unwrap_or(sample))
        })
    }

    /// Finishes the hash.
    pub fn finish(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

impl ModelPlan {
    /// Fingerprint of all settings that affect K and V, weights excluded. LongRoPE factors depend on the context size.
    pub fn settings_fingerprint(&self) -> [u8; 32] {
        let floats = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let hash = Fingerprint::new("settings")
            .with(format!("{:?} {:?} {:?} {:?}", self.dims, self.norm, self.activation, self.sliding_window).as_bytes())
            .with(&floats(&[self.attn_scale]));
        match &self.position {
            PositionPlan::Rope(rope) => {
                let style: &[u8] = match rope.style {
                    RopeStyle::Adjacent => b"adjacent",
                    RopeStyle::Half => b"half",
                };
                hash.with(style).with(&floats(&rope.inv_freq)).with(&floats(&[rope.magnitude])).finish()
            }
            PositionPlan::Learned { offset, .. } => hash.with(b"learned").with(&(*offset as u64).to_le_bytes()).finish(),
        }
    }
}
