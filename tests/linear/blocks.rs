//! Random valid blocks of every weight format, and their values by the block definitions.

use half::{bf16, f16};
use strata::base::Rng;
use strata::gpu::kernels::linear::WeightFormat;

/// A random matrix: the bytes of its two bindings, and its weights.
pub struct Weights {
    pub quants: Vec<u8>,
    pub scales: Vec<u8>,
    pub values: Vec<f32>,
}

pub fn random_weights(rng: &mut Rng, format: WeightFormat, rows: usize, cols: usize) -> Weights {
    // Nonzero, so that bytes missed by repacking are detected.
    let mut quants = vec![0xa5; format.quants_bytes(rows, cols) as usize];
    let mut scales = vec![0xa5; format.scales_bytes(rows, cols) as usize];
    let mut values = Vec::with_capacity(rows * cols);
    if format == WeightFormat::I8G16 {
        let q: Vec<i8> = (0..rows * cols).map(|_| rng.next_u32() as i8).collect();
        let scale: Vec<f32> = (0..rows * cols / 16).map(|_| rng.next_signed() * 0.01).collect();
        let offset: Vec<f32> = (0..rows * cols / 16).map(|_| rng.next_signed() * 0.3).collect();
        values.extend(q.iter().enumerate().map(|(i, &q)| scale[i / 16] * f32::from(q) + offset[i / 16]));
        WeightFormat::repack_i8_groups(rows, cols, &q, &scale, &offset, &mut quants, &mut scales).unwrap();
    } else {
        let mut raw = Vec::new();
        for _ in 0..rows * (cols / format.block_cols()) {
            let block = random_block(rng, format);
            values.extend(block_values(format, &block));
            raw.extend(block);
        }
        format.repack(rows, cols, &raw, &mut quants, &mut scales).unwrap();
    }
    assert_eq!(values.len(), rows * cols);
    Weights { quants, scales, values }
}

fn random_block(rng: &mut Rng, format: WeightFormat) -> Vec<u8> {
    let n = format.raw_block_bytes().unwrap();
    let mut bytes: Vec<u8> = (0..n).map(|_| rng.next_u32() as u8).collect();
    let mut small = |scale: f32| f16::from_f32(rng.next_signed() * scale).to_le_bytes();
    match format {
        WeightFormat::F32 => bytes.copy_from_slice(&rng.next_signed().to_le_bytes()),
        WeightFormat::F16 => bytes.copy_from_slice(&small(1.0)),
        WeightFormat::Bf16 => bytes.copy_from_slice(&bf16::from_f32(rng.next_signed()).to_le_bytes()),
        WeightFormat::Q8_0 => bytes[..2].copy_from_slice(&small(0.01)),
        WeightFormat::Q4_0 => bytes[..2].copy_from_slice(&small(0.1)),
        WeightFormat::Q4K | WeightFormat::Q5K => {
            bytes[..2].copy_from_slice(&small(0.002));
            bytes[2..4].copy_from_slice(&small(0.01));
        }
        WeightFormat::Q6K => bytes[208..].copy_from_slice(&small(0.0005)),
        WeightFormat::I8G16 => unreachable!("it has no blocks"),
    }
    bytes
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

fn block_values(format: WeightFormat, b: &[u8]) -> Vec<f32> {
    match format {
        WeightFormat::F32 => vec![f32::from_le_bytes([b[0], b[1], b[2], b[3]])],
        WeightFormat::F16 => vec![half_at(b, 0)],
        WeightFormat::Bf16 => vec![bf16::from_le_bytes([b[0], b[1]]).to_f32()],
        WeightFormat::Q8_0 => b[2..].iter().map(|&q| half_at(b, 0) * f32::from(q as i8)).collect(),
        WeightFormat::Q4_0 => {
            let nibble = |i: usize| if i < 16 { b[2 + i] & 15 } else { b[2 + i - 16] >> 4 };
            (0..32).map(|i| half_at(b, 0) * (f32::from(nibble(i)) - 8.0)).collect()
        }
        WeightFormat::Q4K | WeightFormat::Q5K => (0..256).map(|i| q45k_value(format, b, i)).collect(),
        WeightFormat::Q6K => (0..256).map(|i| q6k_value(b, i)).collect(),
        WeightFormat::I8G16 => unreachable!("it has no blocks"),
    }
}

fn q45k_value(format: WeightFormat, b: &[u8], i: usize) -> f32 {
    let (d, dmin, s, j) = (half_at(b, 0), half_at(b, 2), &b[4..16], i / 32);
    let (scale, min) = if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        ((s[j + 4] & 15) | ((s[j - 4] >> 6) << 4), (s[j + 4] >> 4) | ((s[j] >> 6) << 4))
    };
    let low = if format == WeightFormat::Q4K { 16 } else { 48 };
    let byte = b[low + i / 64 * 32 + i % 32];
    let mut q = if j % 2 == 0 { byte & 15 } else { byte >> 4 };
    if format == WeightFormat::Q5K {
        q |= ((b[16 + i % 32] >> j) & 1) << 4;
    }
    d * f32::from(scale) * f32::from(q) - dmin * f32::from(min)
}

fn q6k_value(b: &[u8], i: usize) -> f32 {
    let (n, quarter, l) = (i / 128, i % 128 / 32, i % 32);
    let low = (b[64 * n + 32 * (quarter % 2) + l] >> (4 * (quarter / 2))) & 15;
    let high = (b[128 + 32 * n + l] >> (2 * quarter)) & 3;
    let q = f32::from(low | (high << 4)) - 32.0;
    half_at(b, 208) * f32::from(b[192 + i / 16] as i8) * q
}
