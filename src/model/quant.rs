//! Tensor types: block sizes, and decoding of quantized blocks.
//!
//! ```text
//! block bytes ──► q: i8 per weight, scale: f32 per 16, offset: f32 per 16 ──► w = scale * q + offset
//! ```
//! Invariants: 1. Every quantized type decodes through this form, and `w` (one rounded product, one rounded sum) is
//! bit-equal to the type's own formula. So the form "I8G16" is lossless for types without a kernel of their own.
//! 2. Types without an offset use -0.0, because x + -0.0 is x for every x, signed zeros included.
//! A kernel that contracts the product and the sum into one FMA is within half an ulp of the larger of the two.
//! Sizes: blocks of 32 or 256 weights; a row is a whole number of blocks. Source: the GGUF specification.

use half::{bf16, f16};

use super::ModelError;

/// Element type of a stored tensor.
#[allow(non_camel_case_types, missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub enum TensorType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
}

use TensorType::*;

/// Weights per scale and offset in the decoded form.
pub const GROUP: usize = 16;

/// Every supported type.
pub const TENSOR_TYPES: [TensorType; 15] =
    [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS];

/// Names of ggml types without a decoder, for error messages.
const UNSUPPORTED_TYPES: [(u32, &str); 19] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

impl TensorType {
    /// (ggml type number, weights per block, bytes per block, name)
    const fn facts(self) -> (u32, usize, usize, &'static str) {
        match self {
            F32 => (0, 1, 4, "F32"),
            F16 => (1, 1, 2, "F16"),
            BF16 => (30, 1, 2, "BF16"),
            Q4_0 => (2, 32, 18, "Q4_0"),
            Q4_1 => (3, 32, 20, "Q4_1"),
            Q5_0 => (6, 32, 22, "Q5_0"),
            Q5_1 => (7, 32, 24, "Q5_1"),
            Q8_0 => (8, 32, 34, "Q8_0"),
            Q2_K => (10, 256, 84, "Q2_K"),
            Q3_K => (11, 256, 110, "Q3_K"),
            Q4_K => (12, 256, 144, "Q4_K"),
            Q5_K => (13, 256, 176, "Q5_K"),
            Q6_K => (14, 256, 210, "Q6_K"),
            IQ4_NL => (20, 32, 18, "IQ4_NL"),
            IQ4_XS => (23, 256, 136, "IQ4_XS"),
        }
    }

    /// Type number in a GGUF tensor header.
    pub const fn ggml_id(self) -> u32 {
        self.facts().0
    }

    /// Weights per block; 1 for floats.
    pub const fn block_elems(self) -> usize {
        self.facts().1
    }

    /// Bytes per block.
    pub const fn block_bytes(self) -> usize {
        self.facts().2
    }

    /// `Q4_0`, `F16`, ...
    pub const fn name(self) -> &'static str {
        self.facts().3
    }

    /// True for F32, F16 and BF16, whose elements can be moved one by one.
    pub const fn is_float(self) -> bool {
        matches!(self, F32 | F16 | BF16)
    }

    /// Bytes of one row of `cols` weights; None if blocks do not divide it, or on overflow.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.block_elems()) {
            return None;
        }
        (cols / self.block_elems()).checked_mul(self.block_bytes())
    }

    /// The type with this number.
    pub fn from_ggml_id(id: u32) -> Option<TensorType> {
        TENSOR_TYPES.into_iter().find(|ty| ty.ggml_id() == id)
    }

    /// The type with this name, in any case.
    pub fn from_name(name: &str) -> Option<TensorType> {
        TENSOR_TYPES.into_iter().find(|ty| ty.name().eq_ignore_ascii_case(name))
    }

    /// Names of all supported types, for messages.
    pub fn supported() -> String {
        TENSOR_TYPES.map(TensorType::name).join(", ")
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Name of any ggml type number, supported or not.
pub fn ggml_type_name(id: u32) -> String {
    match TensorType::from_ggml_id(id) {
        Some(ty) => ty.name().to_owned(),
        None => UNSUPPORTED_TYPES
            .iter()
            .find(|(n, _)| *n == id)
            .map_or_else(|| format!("number {id}"), |(_, name)| (*name).to_owned()),
    }
}

fn f16_at(block: &[u8], i: usize) -> f32 {
    f16::from_le_bytes([block[i], block[i + 1]]).to_f32()
}

/// Decodes whole blocks to floats: `out.len()` weights.
///
/// # Errors
/// `bytes` is not exactly the blocks of `out.len()` weights.
pub fn dequantize(ty: TensorType, bytes: &[u8], out: &mut [f32]) -> Result<(), ModelError> {
    check_sizes("dequantize", ty, bytes.len(), out.len())?;
    match ty {
        F32 => bytes.chunks_exact(4).zip(out).for_each(|(b, w)| *w = f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        F16 => bytes.chunks_exact(2).zip(out).for_each(|(b, w)| *w = f16_at(b, 0)),
        BF16 => bytes.chunks_exact(2).zip(out).for_each(|(b, w)| *w = bf16::from_le_bytes([b[0], b[1]]).to_f32()),
        _ => {
            let (mut q, mut scale, mut offset) = ([0i8; 256], [0f32; 16], [0f32; 16]);
            let n = ty.block_elems();
            for (block, out) in bytes.chunks_exact(ty.block_bytes()).zip(out.chunks_exact_mut(n)) {
                unpack(ty, block, &mut q[..n], &mut scale[..n / GROUP], &mut offset[..n / GROUP]);
                for (g, out) in out.chunks_exact_mut(GROUP).enumerate() {
                    for (w, &q) in out.iter_mut().zip(&q[g * GROUP..]) {
                        *w = scale[g] * f32::from(q) + offset[g];
                    }
                }
            }
        }
    }
    Ok(())
}

/// Decodes whole quantized blocks to the form "I8G16": `w[i] = scale[i / 16] * q[i] + offset[i / 16]`. The result is
/// bit-equal to [`dequantize`] if product and sum are rounded separately. `q` has one element per weight; `scale` and
/// `offset` one per 16.
///
/// # Errors
/// Lengths that do not match, or a float type.
pub fn to_i8_groups(ty: TensorType, bytes: &[u8], q: &mut [i8], scale: &mut [f32], offset: &mut [f32]) -> Result<(), ModelError> {
    check_sizes("to_i8_groups", ty, bytes.len(), q.len())?;
    let n = ty.block_elems();
    if ty.is_float() || scale.len() != q.len() / GROUP || offset.len() != scale.len() {
        return Err(ModelError::Sizes {
            op: "to_i8_groups",
            got: format!("{ty}, {} scales and {} offsets", scale.len(), offset.len()),
            expected: format!("a quantized type and {} of each", q.len() / GROUP),
        });
    }
    let groups = scale.chunks_exact_mut(n / GROUP).zip(offset.chunks_exact_mut(n / GROUP));
    for ((block, q), (scale, offset)) in bytes.chunks_exact(ty.block_bytes()).zip(q.chunks_exact_mut(n)).zip(groups) {
        unpack(ty, block, q, scale, offset);
    }
    Ok(())
}

fn check_sizes(op: &'static str, ty: TensorType, n_bytes: usize, n_weights: usize) -> Result<(), ModelError> {
    if ty.row_bytes(n_weights) == Some(n_bytes) {
        return Ok(());
    }
    let expected = match ty.row_bytes(n_weights) {
        Some(bytes) => format!("{bytes} bytes"),
        None => format!("a multiple of {} weights", ty.block_elems()),
    };
    Err(ModelError::Sizes { op, got: format!("{n_bytes} bytes for {n_weights} weights of {ty}"), expected })
}

const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Decodes one block. The callers guarantee the lengths of the slices, and no float types.
fn unpack(ty: TensorType, b: &[u8], q: &mut [i8], scale: &mut [f32], offset: &mut [f32]) {
    offset.fill(-0.0);
    match ty {
        F32 | F16 | BF16 => {}
        Q4_0 => {
            scale.fill(f16_at(b, 0));
            nibbles(&b[2..], q, |v| v as i8 - 8);
        }
        Q4_1 => {
            scale.fill(f16_at(b, 0));
            offset.fill(f16_at(b, 2));
            nibbles(&b[4..], q, |v| v as i8);
        }
        Q5_0 => {
            scale.fill(f16_at(b, 0));
            nibbles(&b[6..], q, |v| v as i8 - 16);
            fifth_bits(&b[2..6], q);
        }
        Q5_1 => {
            scale.fill(f16_at(b, 0));
            offset.fill(f16_at(b, 2));
            nibbles(&b[8..], q, |v| v as i8);
            fifth_bits(&b[4..8], q);
        }
        Q8_0 => {
            scale.fill(f16_at(b, 0));
            q.iter_mut().zip(&b[2..]).for_each(|(q, &v)| *q = v as i8);
        }
        Q2_K => unpack_q2_k(b, q, scale, offset),
        Q3_K => unpack_q3_k(b, q, scale),
        Q4_K | Q5_K => unpack_q45_k(ty, b, q, scale, offset),
        Q6_K => unpack_q6_k(b, q, scale),
        IQ4_NL => {
            scale.fill(f16_at(b, 0));
            nibbles(&b[2..], q, |v| IQ4_VALUES[usize::from(v & 15)]);
        }
        IQ4_XS => unpack_iq4_xs(b, q, scale),
    }
}

/// Low nibbles are the first half, high nibbles the second.
fn nibbles(bytes: &[u8], q: &mut [i8], value: impl Fn(u8) -> i8) {
    let (low, high) = q.split_at_mut(bytes.len());
    for ((low, high), &v) in low.iter_mut().zip(high).zip(bytes) {
        *low = value(v & 15);
        *high = value(v >> 4);
    }
}

fn fifth_bits(bits: &[u8], q: &mut [i8]) {
    for (i, q) in q.iter_mut().enumerate() {
        *q += ((bits[i / 8] >> (i % 8)) & 1) as i8 * 16;
    }
}

/// scales[16] (low nibble scale, high nibble minimum), qs[64], d, dmin
fn unpack_q2_k(b: &[u8], q: &mut [i8], scale: &mut [f32], offset: &mut [f32]) {
    let (d, dmin) = (f16_at(b, 80), f16_at(b, 82));
    for g in 0..16 {
        scale[g] = d * f32::from(b[g] & 15);
        offset[g] = -(dmin * f32::from(b[g] >> 4));
    }
    let qs = &b[16..80];
    for (i, q) in q.iter_mut().enumerate() {
        *q = ((qs[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4))) & 3) as i8;
    }
}

/// hmask[32], qs[64], scales[12] (six bits each), d
fn unpack_q3_k(b: &[u8], q: &mut [i8], scale: &mut [f32]) {
    let (hmask, qs, scales, d) = (&b[..32], &b[32..96], &b[96..108], f16_at(b, 108));
    for (g, scale) in scale.iter_mut().enumerate() {
        let low = (scales[g % 8] >> (4 * (g / 8))) & 15;
        let high = (scales[8 + g % 4] >> (2 * (g / 4))) & 3;
        *scale = d * f32::from((low | high << 4) as i8 - 32);
    }
    for (i, q) in q.iter_mut().enumerate() {
        let low = ((qs[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4))) & 3) as i8;
        // A cleared mask bit subtracts 4.
        *q = low - 4 * (1 - ((hmask[i % 32] >> (i / 32)) & 1) as i8);
    }
}

/// d, dmin, scales[12] (six bits each for eight scales and eight minima), qh[32] (Q5_K only), qs[128]
fn unpack_q45_k(ty: TensorType, b: &[u8], q: &mut [i8], scale: &mut [f32], offset: &mut [f32]) {
    let (d, dmin, packed) = (f16_at(b, 0), f16_at(b, 2), &b[4..16]);
    for j in 0..8 {
        let (sc, m) = match j {
            0..4 => (packed[j] & 63, packed[j + 4] & 63),
            _ => (packed[j + 4] & 15 | (packed[j - 4] >> 6) << 4, packed[j + 4] >> 4 | (packed[j] >> 6) << 4),
        };
        scale[2 * j..2 * j + 2].fill(d * f32::from(sc));
        offset[2 * j..2 * j + 2].fill(-(dmin * f32::from(m)));
    }
    let (qh, qs) = if ty == Q5_K { (Some(&b[16..48]), &b[48..]) } else { (None, &b[16..]) };
    for (j, q) in q.chunks_exact_mut(64).enumerate() {
        nibbles(&qs[32 * j..32 * j + 32], q, |v| v as i8);
    }
    if let Some(qh) = qh {
        for (i, q) in q.iter_mut().enumerate() {
            *q += ((qh[i % 32] >> (i / 32)) & 1) as i8 * 16;
        }
    }
}

/// ql[128], qh[64], scales[16] (i8), d
fn unpack_q6_k(b: &[u8], q: &mut [i8], scale: &mut [f32]) {
    let (ql, qh, scales, d) = (&b[..128], &b[128..192], &b[192..208], f16_at(b, 208));
    for (scale, &sc) in scale.iter_mut().zip(scales) {
        *scale = d * f32::from(sc as i8);
    }
    for (i, q) in q.iter_mut().enumerate() {
        let (half, k, l) = (i / 128, i / 32 % 4, i % 32);
        let low = (ql[64 * half + 32 * (k % 2) + l] >> (4 * (k / 2))) & 15;
        let high = (qh[32 * half + l] >> (2 * k)) & 3;
        *q = (low | high << 4) as i8 - 32;
    }
}

/// d, scales_h (u16), scales_l[4], qs[128]
fn unpack_iq4_xs(b: &[u8], q: &mut [i8], scale: &mut [f32]) {
    let (d, high, low, qs) = (f16_at(b, 0), u16::from_le_bytes([b[2], b[3]]), &b[4..8], &b[8..136]);
    for j in 0..8 {
        let sc = (low[j / 2] >> (4 * (j % 2))) & 15 | (((high >> (2 * j)) & 3) as u8) << 4;
        scale[2 * j..2 * j + 2].fill(d * f32::from(sc as i8 - 32));
        nibbles(&qs[16 * j..16 * j + 16], &mut q[32 * j..32 * j + 32], |v| IQ4_VALUES[usize::from(v & 15)]);
    }
}

/// Encodes weights as F32, F16, BF16, Q8_0 or Q4_0, with the reference rounding of llama.cpp.
///
/// # Errors
/// `weights` is not a whole number of blocks, or `ty` has no encoder.
pub fn quantize(ty: TensorType, weights: &[f32]) -> Result<Vec<u8>, ModelError> {
    let no_encoder = || ModelError::Sizes {
        op: "quantize",
        got: format!("{} weights as {ty}", weights.len()),
        expected: format!("F32, F16, BF16, Q8_0 or Q4_0, and a multiple of {} weights", ty.block_elems()),
    };
    let n_bytes = ty.row_bytes(weights.len()).ok_or_else(no_encoder)?;
    let mut out = Vec::with_capacity(n_bytes);
    match ty {
        F32 => weights.iter().for_each(|w| out.extend(w.to_le_bytes())),
        F16 => weights.iter().for_each(|w| out.extend(f16::from_f32(*w).to_le_bytes())),
        BF16 => weights.iter().for_each(|w| out.extend(bf16::from_f32(*w).to_le_bytes())),
        Q8_0 => {
            for block in weights.chunks_exact(32) {
                let d = block.iter().fold(0f32, |m, w| m.max(w.abs())) / 127.0;
                let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
                out.extend(f16::from_f32(d).to_le_bytes());
                out.extend(block.iter().map(|w| (w * inverse).round() as i8 as u8));
            }
        }
        Q4_0 => {
            for block in weights.chunks_exact(32) {
                let extreme = block.iter().fold(0f32, |m, &w| if w.abs() > m.abs() { w } else { m });
                let d = extreme / -8.0;
                let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
                out.extend(f16::from_f32(d).to_le_bytes());
                let q = |w: f32| ((w * inverse + 8.5) as u8).min(15);
                out.extend((0..16).map(|i| q(block[i]) | q(block[i + 16]) << 4));
            }
        }
        _ => return Err(no_encoder()),
    }
    Ok(out)
}
