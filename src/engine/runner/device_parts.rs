//! Device parts: the model, the KV cache and the split buffers, which constructors of bind groups take together.

use crate::engine::error::EngineError;
use crate::engine::runner::gpu_model::GpuModel;
use crate::gpu::Slice;
use crate::gpu::kernels::attention_decode::MergeBindings;
use crate::kv::VramCache;

/// Buffers of the splits of decode attention until they are merged.
pub(in crate::engine) struct SplitBuffers {
    pub(in crate::engine) capacity: usize,
    pub(super) acc: Slice,
    pub(super) state: Slice,
    pub(in crate::engine) merge: MergeBindings,
}

/// Parts of an executor that bind groups refer to.
#[derive(Clone, Copy)]
pub(in crate::engine) struct DeviceParts<'a> {
    pub(in crate::engine) model: &'a GpuModel,
    pub(in crate::engine) kv: &'a VramCache,
    pub(super) splits: Option<&'a SplitBuffers>,
}

impl<'a> DeviceParts<'a> {
    /// Accumulators and softmax states of the splits of decode attention.
    ///
    /// # Errors
    /// The buffers do not exist yet.
    pub(in crate::engine) fn split_slices(&self) -> Result<(&'a Slice, &'a Slice), EngineError> {
        match self.splits {
            Some(splits) => Ok((&splits.acc, &splits.state)),
            None => Err(EngineError::Shape("the split buffers are missing".into())),
        }
    }
}
