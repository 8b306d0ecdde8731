//! What tells one model from another in an instant, however large its files are.
//!
//! ```text
//! header or config bytes ─┐
//! name, type, shape, samples of each tensor ─┴─► BLAKE3 ─► 32 bytes          settings of a plan ─► BLAKE3 ─► 32 bytes
//! ```
//! 1. The same files give the same fingerprint on every machine and for every window that is asked for.
//! 2. A part is hashed behind its length, so that no two lists of parts are the same bytes.
//!
//! Limits: of a tensor's data only [`SAMPLE_BYTES`] at its beginning, middle and end are read. Training changes all of a
//! tensor; an edit by hand elsewhere in one is not seen.

use super::arch::plan::{ModelPlan, PositionPlan, RopeStyle};
use super::tensors::TensorEntry;

/// Bytes of each of the three samples of a tensor.
const SAMPLE_BYTES: usize = 4096;

/// A hash under way.
pub(super) struct Fingerprint(blake3::Hasher);

impl Fingerprint {
    /// Begins a hash of its own `kind`, so that one kind is never taken for another.
    pub fn new(kind: &str) -> Self {
        Fingerprint(blake3::Hasher::new()).with(kind.as_bytes())
    }

    /// One part.
    pub fn with(mut self, part: &[u8]) -> Self {
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    /// What the directory says of a tensor.
    pub fn with_tensor(self, name: &str, entry: &TensorEntry) -> Self {
        let ty = match &entry.ty {
            Ok(ty) => ty.to_string(),
            Err(foreign) => foreign.clone(),
        };
        let shape: Vec<u8> = entry.shape.iter().flat_map(|d| (*d as u64).to_le_bytes()).collect();
        self.with(name.as_bytes()).with(ty.as_bytes()).with(&shape)
    }

    /// Samples of a tensor's data.
    pub fn with_samples(self, data: &[u8]) -> Self {
        let last = data.len().saturating_sub(SAMPLE_BYTES);
        [0, last / 2, last].into_iter().fold(self, |hash, start| {
            let sample = data.get(start..).unwrap_or_default();
            hash.with(sample.get(..SAMPLE_BYTES).unwrap_or(sample))
        })
    }

    /// The hash.
    pub fn finish(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

impl ModelPlan {
    /// Of everything but weights that K and V depend on, as in force: LongRoPE models rotate differently in a small window.
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
