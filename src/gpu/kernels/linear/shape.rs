//! Shape of one product, and the parameters of its kernels.

use super::format::ROW_TILE;

/// One product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearShape {
    /// T
    pub n_tokens: usize,
    /// rows of this slab
    pub n_rows: usize,
    /// stride of tokens in x, elements; a multiple of 8 if the columns are
    pub x_stride: usize,
    /// stride of tokens in y, elements
    pub y_stride: usize,
    /// element of y (after the activation) for the first output of the slab
    pub y_offset: usize,
    /// element of the bias for the first row of the slab
    pub bias_offset: usize,
}

impl LinearShape {
    /// Tiles of [`ROW_TILE`] rows in the slab.
    pub fn n_tiles(&self) -> usize {
        self.n_rows.div_ceil(ROW_TILE)
    }

    /// Parameters of the kernels, for `n_cols` columns.
    pub(super) fn params(&self, n_cols: usize) -> Params {
        Params {
            n_cols: n_cols as u32,
            n_rows: self.n_rows as u32,
            n_tokens: self.n_tokens as u32,
            x_stride: self.x_stride as u32,
            y_offset: self.y_offset as u32,
            y_stride: self.y_stride as u32,
            bias_offset: self.bias_offset as u32,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Params {
    pub n_cols: u32,
    pub n_rows: u32,
    pub n_tokens: u32,
    pub x_stride: u32,
    pub y_offset: u32,
    pub y_stride: u32,
    pub bias_offset: u32,
}
