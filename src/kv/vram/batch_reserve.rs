//! VRAM reserve for the tails of a batch of sequences.
//!
//! ```text
//! budget ─► fixed parts of the plan │ frames: at least half of them │ tails of the sequences: the rest
//! ```
//! Invariant: the number of frames shrinks for as long as the model is loaded. A pool that is already larger is
//! reallocated.
//!
//! Owner: the engine thread. Units: bytes.

use crate::kv::layout::VramPlan;
use crate::kv::residency::Residency;
use crate::kv::vram::VramCache;

impl VramCache {
    /// Bytes of `budget` available for tails.
    pub fn tail_room(&self, budget: u64) -> u64 {
        let frames = self.plan.max_frames as u64 * VramPlan::frame_bytes(&self.spec);
        budget.saturating_sub(self.plan.bytes(&self.spec) - frames / 2)
    }

    /// Limits the frames so that `bytes` of `budget` remain for tails. False if too many frames are allocated; then the
    /// context, and the pool with it, must be dropped first.
    pub fn reserve_for_batch(&mut self, budget: u64, bytes: u64) -> bool {
        let frame = VramPlan::frame_bytes(&self.spec);
        let fixed = self.plan.bytes(&self.spec) - self.plan.max_frames as u64 * frame;
        let most = (budget.saturating_sub(fixed + bytes) / frame) as usize;
        let n_allocated = self.shapes().last().map_or(0, |shape| shape.end_frame());
        if n_allocated > most {
            return false;
        }
        self.residency.shrink_to(most);
        true
    }

    /// Frees the pool of a dropped context. Bind groups of segments must be created again.
    pub fn drop_pool(&mut self) {
        self.residency = Residency::new(self.spec.n_layer, self.residency.max_frames());
        self.pool.clear();
    }

    /// Sets the bytes of tails in use.
    pub fn count_tails(&mut self, bytes: u64) {
        self.tails_bytes = bytes;
        self.peak_bytes = self.peak_bytes.max(self.bytes());
    }
}
