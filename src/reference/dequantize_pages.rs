//! Reference of `kv/dequantize_pages`: the numbers of a quantized page as f16.

use half::f16;

use super::quantize_pages::{PageShape, clamp_finite, dequantize_page};

/// Numbers of a quantized page in slot order, each the nearest f16. A scale that was rounded up may exceed the range of
/// f16 by a step; such a number is clamped.
pub fn dequantize_page_as_f16(bytes: &[u8], shape: PageShape) -> Vec<f16> {
    dequantize_page(bytes, shape).into_iter().map(|x| f16::from_f32(clamp_finite(x))).collect()
}
