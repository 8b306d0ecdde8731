//! VRAM that is set aside for the tails of questions that are answered at once.
//!
//! ```text
//! budget ─► fixed parts of the plan │ frames: half of them at least │ tails of branches: what is left
//! ```
//! 1. Frames give way, for as long as the model is loaded; a pool that is larger already has to be made anew.
//!
//! Owner: the engine thread. Units: bytes.

use crate::kv::layout::VramPlan;
use crate::kv::residency::Residency;
use crate::kv::vram::VramCache;

impl VramCache {
    /// Bytes that tails may have of `budget`.
    pub fn tail_room(&self, budget: u64) -> u64 {
        let frames = self.plan.max_frames as u64 * VramPlan::frame_bytes(&self.spec);
        budget.saturating_sub(self.plan.bytes(&self.spec) - frames / 2)
    }

    /// Sees to it that frames leave `bytes` of `budget` to tails. False where too many are allocated: then the context has to
    /// be forgotten, and the pool dropped, before.
    pub fn reserve_for_batch(&mut self, budget: u64, bytes: u64) -> bool {
        let frame = VramPlan::frame_bytes(&self.spec);
        let fixed = self.plan.bytes(&self.spec) - self.plan.max_frames as u64 * frame;
        let most = (budget.saturating_sub(fixed + bytes) / frame) as usize;
        let n_allocated = self.shapes.last().map_or(0, |shape| shape.end_frame());
        if n_allocated > most {
            return false;
        }
        self.residency.shrink_to(most);
        true
    }

    /// Gives up the frames of a context that was forgotten. Bind groups of segments must follow.
    pub fn drop_pool(&mut self) {
        self.residency = Residency::new(self.spec.n_layer, self.residency.max_frames());
        self.pool.clear();
        self.shapes.clear();
    }

    /// Counts `bytes` of tails from now on.
    pub fn count_tails(&mut self, bytes: u64) {
        self.tails_bytes = bytes;
        self.peak_bytes = self.peak_bytes.max(self.bytes());
    }
}
