//! Twin of `attention/open_pages`: the numbers of a quantised page as f16.

use half::f16;

use super::seal_pages::{PageShape, finite, open_page};

/// The numbers of a quantised page in slot order, each the nearest f16. A scale rounded up may lead past the range of f16 by a
/// step: such a number is the end of it.
pub fn open_page_as_f16(bytes: &[u8], shape: PageShape) -> Vec<f16> {
    open_page(bytes, shape).into_iter().map(|x| f16::from_f32(finite(x))).collect()
}
