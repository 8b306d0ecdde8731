//! Twin of `kv/dequantize_pages`: the numbers of a quantized page as f16.

use half::f16;

use super::quantize_pages::{PageShape, dequantize_page, finite};

/// The numbers of a quantized page in slot order, each the nearest f16. A scale rounded up may lead past the range of f16 by a
/// step: such a number is the end of it.
pub fn dequantize_page_as_f16(bytes: &[u8], shape: PageShape) -> Vec<f16> {
    dequantize_page(bytes, shape).into_iter().map(|x| f16::from_f32(finite(x))).collect()
}
