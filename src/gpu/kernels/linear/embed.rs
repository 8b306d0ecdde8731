//! Embedding lookup: rows of the embedding table by token id; see [`super`].

use std::sync::Arc;

use super::WeightFormat;
use crate::gpu::{Binding, Gpu, GpuError, Kernel, KernelKey, Recorder, Slice};

/// The compiled embedding lookup.
pub struct Embed {
    kernel: Arc<Kernel>,
    cols: usize,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    n_cols: u32,
    first_row: u32,
    n_rows: u32,
    id_offset: u32,
}

fn key(format: WeightFormat, add: bool) -> KernelKey {
    let mut defines = vec![(format.define(), String::new())];
    if add {
        defines.push(("ADD", String::new()));
    }
    KernelKey::new("linear/embed", &defines)
}

pub(super) fn variants() -> Vec<KernelKey> {
    WeightFormat::ALL.into_iter().flat_map(|format| [key(format, false), key(format, true)]).collect()
}

impl Embed {
    /// Compiles the variant for a table of width `cols`; with `add`, rows are added to y (learned positions).
    ///
    /// # Errors
    /// A kernel that does not compile, or a lost device.
    pub fn new(gpu: &Gpu, format: WeightFormat, cols: usize, add: bool) -> Result<Embed, GpuError> {
        Ok(Embed { kernel: gpu.kernel(&key(format, add))?, cols })
    }

    /// Binds ids u32 `[T]`, one slab of the table, and y f32 `[T, C]`.
    ///
    /// # Errors
    /// Buffers the device refuses to bind.
    pub fn bind(&self, gpu: &Gpu, ids: &Slice, quants: &Slice, scales: &Slice, y: &Slice) -> Result<Binding, GpuError> {
        gpu.bind(&self.kernel, &[quants, scales, ids, y])
    }

    /// Records the lookup of `n_tokens` ids in the slab with rows `first_row .. first_row + n_rows`. `id_offset` is
    /// first added to every id (OPT positions start at row 2). Ids outside the slab are handled by the dispatches of
    /// other slabs.
    pub fn record(&self, recorder: &mut Recorder, binding: &Binding, n_tokens: usize, slab: [usize; 2], id_offset: usize) {
        let params =
            Params { n_cols: self.cols as u32, first_row: slab[0] as u32, n_rows: slab[1] as u32, id_offset: id_offset as u32 };
        let blocks = self.cols.div_ceil(32).div_ceil(64);
        recorder.dispatch(&self.kernel, binding, &params, [blocks as u32, n_tokens as u32, 1]);
    }
}
