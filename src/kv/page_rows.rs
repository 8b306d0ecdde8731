//! Rows of a stored page on the CPU: codes and numbers as f32, and the scales of quantized ones.
//!
//! Pure. `KvFormat` has the layout of a page.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::gpu::kernels::KvFormat;

/// Bytes of a scale: step and low, f16.
pub(in crate::kv) const SCALE_BYTES: usize = 4;

/// Decodes rows into `numbers` (codes if quantized). False if they cannot be decoded.
pub(in crate::kv) fn decode_rows(sealed: KvFormat, rows: &[u8], numbers: &mut [f32]) -> bool {
    match sealed {
        KvFormat::F16 => {
            let Ok(halves) = bytemuck::try_cast_slice::<u8, f16>(rows) else { return false };
            halves.convert_to_f32_slice(numbers);
        }
        KvFormat::F32 => {
            let Ok(floats) = bytemuck::try_cast_slice::<u8, f32>(rows) else { return false };
            numbers.copy_from_slice(floats);
        }
        KvFormat::Q8 => numbers.iter_mut().zip(rows).for_each(|(x, code)| *x = f32::from(*code)),
        KvFormat::Q4 => {
            let codes = rows.iter().flat_map(|both| [both & 15, both >> 4]);
            numbers.iter_mut().zip(codes).for_each(|(x, code)| *x = f32::from(code));
        }
    }
    true
}

/// Step and low of each scale.
pub(in crate::kv) fn scales(bytes: &[u8]) -> impl Iterator<Item = [f32; 2]> + Clone {
    let half = |a, b| f16::from_le_bytes([a, b]).to_f32();
    bytes.as_chunks::<SCALE_BYTES>().0.iter().map(move |&[a, b, c, d]| [half(a, b), half(c, d)])
}
