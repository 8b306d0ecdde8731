//! Weight formats of the kernels: layout and sizes.
//!
//! ```text
//! raw rows (GGUF blocks) ─► repack ─► quants: [tile of 32 rows][group of 64 columns][32-byte chunk][row] + high bits
//!                                     scales: [tile][group][row] (K-quants: [tile][256 columns])
//! ```
//! 1. The layout is a pure function of (format, rows, cols). Rows are padded to [`ROW_TILE`], columns to 64, both with
//!    zero weights. `shaders/common/weights.wgsl` has the layout as the shaders read it.
//! 2. Rows `a .. b` of a matrix, `a` a multiple of [`ROW_TILE`], have the layout of a separate matrix. A matrix larger
//!    than the maximum binding is split into such slabs.
//! 3. Source of the block formats: ggml `block_q4_0`, `block_q8_0`, `block_q4_K`, `block_q5_K`, `block_q6_K`.

/// Rows per tile; slabs begin at multiples of it.
pub const ROW_TILE: usize = 32;
/// Columns per group.
pub const COL_GROUP: usize = 64;

/// Storage format of a matrix in VRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightFormat {
    /// single precision
    F32,
    /// half precision
    F16,
    /// bfloat16, the upper half of single precision
    Bf16,
    /// 8 bits, f16 scale per 32
    Q8_0,
    /// 4 bits, f16 scale per 32
    Q4_0,
    /// 4 bits, scale and minimum per 32, in blocks of 256
    Q4K,
    /// 5 bits, scale and minimum per 32, in blocks of 256
    Q5K,
    /// 6 bits, scale per 16, in blocks of 256
    Q6K,
    /// 8 bits, f32 scale and offset per 16; every type without its own kernel is converted to it
    I8G16,
}

impl WeightFormat {
    /// Every format.
    pub const ALL: [WeightFormat; 9] = [
        WeightFormat::F32,
        WeightFormat::F16,
        WeightFormat::Bf16,
        WeightFormat::Q8_0,
        WeightFormat::Q4_0,
        WeightFormat::Q4K,
        WeightFormat::Q5K,
        WeightFormat::Q6K,
        WeightFormat::I8G16,
    ];

    /// Shader define of this format.
    pub(super) fn define(self) -> &'static str {
        match self {
            WeightFormat::F32 => "F32",
            WeightFormat::F16 => "F16",
            WeightFormat::Bf16 => "BF16",
            WeightFormat::Q8_0 => "Q8_0",
            WeightFormat::Q4_0 => "Q4_0",
            WeightFormat::Q4K => "Q4K",
            WeightFormat::Q5K => "Q5K",
            WeightFormat::Q6K => "Q6K",
            WeightFormat::I8G16 => "I8G16",
        }
    }

    /// True for integer weights, whose products with quantized activations are integer dot products.
    pub fn is_integer(self) -> bool {
        !matches!(self, WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16)
    }

    /// True if weights are unpacked as even and odd columns (`shaders/common/dot4.wgsl`).
    pub(super) fn is_even_odd(self) -> bool {
        matches!(self, WeightFormat::Q4_0 | WeightFormat::Q4K | WeightFormat::Q5K | WeightFormat::Q6K)
    }

    /// The number of columns must be a multiple of this.
    pub fn block_cols(self) -> usize {
        match self {
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => 1,
            WeightFormat::Q8_0 | WeightFormat::Q4_0 => 32,
            WeightFormat::Q4K | WeightFormat::Q5K | WeightFormat::Q6K => 256,
            WeightFormat::I8G16 => 16,
        }
    }

    /// Bytes of one raw block of [`WeightFormat::block_cols`] columns in a file. None for [`WeightFormat::I8G16`].
    pub fn raw_block_bytes(self) -> Option<usize> {
        match self {
            WeightFormat::F32 => Some(4),
            WeightFormat::F16 | WeightFormat::Bf16 => Some(2),
            WeightFormat::Q8_0 => Some(34),
            WeightFormat::Q4_0 => Some(18),
            WeightFormat::Q4K => Some(144),
            WeightFormat::Q5K => Some(176),
            WeightFormat::Q6K => Some(210),
            WeightFormat::I8G16 => None,
        }
    }

    /// 32-byte chunks, and bytes of high bits, per row and group of 64 columns.
    pub(super) fn group_parts(self) -> (usize, usize) {
        match self {
            WeightFormat::F32 => (8, 0),
            WeightFormat::F16 | WeightFormat::Bf16 => (4, 0),
            WeightFormat::Q8_0 | WeightFormat::I8G16 => (2, 0),
            WeightFormat::Q4_0 | WeightFormat::Q4K => (1, 0),
            WeightFormat::Q5K => (1, 8),
            WeightFormat::Q6K => (1, 16),
        }
    }

    /// Bytes of the `quants` binding of a `[rows, cols]` matrix.
    pub fn quants_bytes(self, rows: usize, cols: usize) -> u64 {
        let (chunks, high_bytes) = self.group_parts();
        rows.next_multiple_of(ROW_TILE) as u64 * cols.div_ceil(COL_GROUP) as u64 * (chunks * 32 + high_bytes) as u64
    }

    /// Bytes of the `scales` binding of a `[rows, cols]` matrix; 16 unused ones for a format without scales.
    pub fn scales_bytes(self, rows: usize, cols: usize) -> u64 {
        let (rows, groups) = (rows.next_multiple_of(ROW_TILE) as u64, cols.div_ceil(COL_GROUP) as u64);
        match self {
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => 16,
            WeightFormat::Q8_0 | WeightFormat::Q4_0 => rows * groups * 4,
            WeightFormat::Q4K | WeightFormat::Q5K | WeightFormat::Q6K => rows * cols.div_ceil(256) as u64 * 20,
            WeightFormat::I8G16 => rows * groups * 32,
        }
    }

    /// Slabs of a matrix begin at multiples of this many rows.
    pub fn row_granularity(self) -> usize {
        ROW_TILE
    }
}
