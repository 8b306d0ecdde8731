//! Weight repacking: from GGUF block order to the tiles of the kernels; see [`super::format`] for the layout.
//!
//! Lengths are checked first, so every index follows from the shape.

use super::format::{COL_GROUP, ROW_TILE, WeightFormat};
use crate::gpu::GpuError;

impl WeightFormat {
    /// Repacks raw rows of a file into the two bindings.
    ///
    /// # Errors
    /// A wrong length, columns that are not whole blocks, or [`WeightFormat::I8G16`], which no file has.
    pub fn repack(self, rows: usize, cols: usize, raw: &[u8], quants: &mut [u8], scales: &mut [u8]) -> Result<(), GpuError> {
        self.check(rows, cols, quants, scales)?;
        let Some(block_bytes) = self.raw_block_bytes() else {
            let reason = "no file has such blocks".to_owned();
            return Err(GpuError::Rejected { what: format!("repacking {self:?} weights"), reason });
        };
        let expected = rows as u64 * (cols / self.block_cols()) as u64 * block_bytes as u64;
        self.check_length("raw bytes", expected, raw.len())?;
        from_raw(self, rows, cols, raw, quants, scales);
        Ok(())
    }

    /// Repacks groups of 16 (`w[i] = scale[i / 16] * q[i] + offset[i / 16]`) into the two bindings of
    /// [`WeightFormat::I8G16`].
    ///
    /// # Errors
    /// A wrong length, or columns that are not a multiple of 16.
    pub fn repack_i8_groups(
        rows: usize,
        cols: usize,
        q: &[i8],
        scale: &[f32],
        offset: &[f32],
        quants: &mut [u8],
        scales: &mut [u8],
    ) -> Result<(), GpuError> {
        let format = WeightFormat::I8G16;
        format.check(rows, cols, quants, scales)?;
        let n = rows as u64 * cols as u64;
        format.check_length("integers", n, q.len())?;
        format.check_length("group scales", n / 16, scale.len())?;
        format.check_length("group offsets", n / 16, offset.len())?;
        from_i8_groups(rows, cols, q, scale, offset, quants, scales);
        Ok(())
    }

    fn check(self, rows: usize, cols: usize, quants: &[u8], scales: &[u8]) -> Result<(), GpuError> {
        if !cols.is_multiple_of(self.block_cols()) {
            let reason = format!("{cols} columns are not whole blocks of {}", self.block_cols());
            return Err(GpuError::Rejected { what: format!("repacking {self:?} weights"), reason });
        }
        self.check_length("quants", self.quants_bytes(rows, cols), quants.len())?;
        self.check_length("scales", self.scales_bytes(rows, cols), scales.len())
    }

    fn check_length(self, what: &str, expected: u64, got: usize) -> Result<(), GpuError> {
        if expected != got as u64 {
            let reason = format!("{what}: {got} elements where the shape needs {expected}");
            return Err(GpuError::Rejected { what: format!("repacking {self:?} weights"), reason });
        }
        Ok(())
    }
}

/// Output bindings of a matrix.
struct WeightTarget<'a> {
    format: WeightFormat,
    cols: usize,
    quants: &'a mut [u8],
    scales: &'a mut [u8],
}

impl WeightTarget<'_> {
    fn group_base(&self, row: usize, group: usize) -> usize {
        let (chunks, high_bytes) = self.format.group_parts();
        (row / ROW_TILE * self.cols.div_ceil(COL_GROUP) + group) * ROW_TILE * (chunks * 32 + high_bytes)
    }

    fn write_chunk(&mut self, row: usize, group: usize, chunk: usize, bytes: &[u8]) {
        let at = self.group_base(row, group) + chunk * 32 * ROW_TILE + row % ROW_TILE * 32;
        self.quants[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn write_high_bits(&mut self, row: usize, group: usize, words: &[u32]) {
        let at = self.group_base(row, group) + 32 * ROW_TILE + row % ROW_TILE * words.len() * 4;
        write_words(&mut self.quants[at..], words);
    }

    fn write_group_scales(&mut self, row: usize, group: usize, words: &[u32]) {
        let step = row / ROW_TILE * self.cols.div_ceil(COL_GROUP) + group;
        write_words(&mut self.scales[(step * ROW_TILE + row % ROW_TILE) * words.len() * 4..], words);
    }

    /// K-quants: `first` once per 256 columns, then `groups` per 64.
    fn write_block_scales(&mut self, row: usize, block: usize, first: u32, groups: [u32; 4]) {
        let base = (row / ROW_TILE * self.cols.div_ceil(256) + block) * 5 * ROW_TILE + row % ROW_TILE;
        for (i, word) in [first].into_iter().chain(groups).enumerate() {
            write_words(&mut self.scales[(base + i * ROW_TILE) * 4..], &[word]);
        }
    }
}

fn write_words(target: &mut [u8], words: &[u32]) {
    for (to, word) in target.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
}

/// Eight nibbles per word, weight j in bits 4j; `flip` flips the top bit (see `shaders/common/nibbles.wgsl`).
fn nibble_chunk(levels: &[u8; 64], flip: bool) -> [u8; 32] {
    let mut out = [0; 32];
    for (i, (byte, pair)) in out.iter_mut().zip(levels.chunks_exact(2)).enumerate() {
        *byte = (pair[0] & 15) | (pair[1] << 4);
        if flip && i % 4 == 3 {
            *byte ^= 0x80;
        }
    }
    out
}

fn from_raw(format: WeightFormat, rows: usize, cols: usize, raw: &[u8], quants: &mut [u8], scales: &mut [u8]) {
    quants.fill(0);
    scales.fill(0);
    let row_bytes = raw.len().checked_div(rows).unwrap_or(0);
    if row_bytes == 0 {
        return;
    }
    let mut target = WeightTarget { format, cols, quants, scales };
    for (row, bytes) in raw.chunks_exact(row_bytes).enumerate() {
        match format {
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => {
                let (chunks, _) = format.group_parts();
                for (i, chunk) in bytes.chunks(32).enumerate() {
                    target.write_chunk(row, i / chunks, i % chunks, chunk);
                }
            }
            WeightFormat::Q8_0 => q8_0_row(&mut target, row, bytes),
            WeightFormat::Q4_0 => q4_0_row(&mut target, row, bytes),
            WeightFormat::Q4K => {
                for (block, bytes) in bytes.as_chunks::<144>().0.iter().enumerate() {
                    q45k_block(&mut target, row, block, bytes, None, &bytes[16..]);
                }
            }
            WeightFormat::Q5K => {
                for (block, bytes) in bytes.as_chunks::<176>().0.iter().enumerate() {
                    q45k_block(&mut target, row, block, bytes, Some(&bytes[16..48]), &bytes[48..]);
                }
            }
            WeightFormat::Q6K => {
                for (block, bytes) in bytes.as_chunks::<210>().0.iter().enumerate() {
                    q6k_block(&mut target, row, block, bytes);
                }
            }
            // I8G16 has no raw form.
            WeightFormat::I8G16 => {}
        }
    }
}

fn half_bits(bytes: &[u8]) -> u32 {
    u32::from(bytes[0]) | u32::from(bytes[1]) << 8
}

fn q8_0_row(target: &mut WeightTarget<'_>, row: usize, bytes: &[u8]) {
    for (group, blocks) in bytes.chunks(2 * 34).enumerate() {
        let mut d = 0;
        for (half, block) in blocks.chunks_exact(34).enumerate() {
            d |= half_bits(block) << (16 * half);
            target.write_chunk(row, group, half, &block[2..]);
        }
        target.write_group_scales(row, group, &[d]);
    }
}

fn q4_0_row(target: &mut WeightTarget<'_>, row: usize, bytes: &[u8]) {
    for (group, blocks) in bytes.chunks(2 * 18).enumerate() {
        let (mut d, mut levels) = (0, [0; 64]);
        for (half, block) in blocks.chunks_exact(18).enumerate() {
            d |= half_bits(block) << (16 * half);
            for (i, byte) in block[2..].iter().enumerate() {
                levels[32 * half + i] = byte & 15;
                levels[32 * half + 16 + i] = byte >> 4;
            }
        }
        target.write_chunk(row, group, 0, &nibble_chunk(&levels, true));
        target.write_group_scales(row, group, &[d]);
    }
}

/// The 6-bit (scale, minimum) `j` of a K-quant block's 12 bytes.
fn scale_min(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        ((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4, (packed[j + 4] >> 4) | (packed[j] >> 6) << 4)
    }
}

fn q45k_block(target: &mut WeightTarget<'_>, row: usize, block: usize, bytes: &[u8], high: Option<&[u8]>, low: &[u8]) {
    let packed = &bytes[4..16];
    let mut words = [0; 4];
    for (g, (word, low)) in words.iter_mut().zip(low.chunks_exact(32)).enumerate() {
        let ((s0, m0), (s1, m1)) = (scale_min(packed, 2 * g), scale_min(packed, 2 * g + 1));
        *word = u32::from_le_bytes([s0, s1, m0, m1]);
        let mut levels = [0; 64];
        for (i, byte) in low.iter().enumerate() {
            levels[i] = byte & 15;
            levels[32 + i] = byte >> 4;
        }
        let group = block * 4 + g;
        target.write_chunk(row, group, 0, &nibble_chunk(&levels, high.is_none()));
        if let Some(high) = high {
            let mut bits = [0u32; 2];
            for (k, byte) in high.iter().enumerate() {
                // Weight k = 8i + 2b + e at bit 8b + 2i + e.
                let at = k % 8 / 2 * 8 + k / 8 * 2 + k % 2;
                bits[0] |= u32::from(byte >> (2 * g) & 1) << at;
                bits[1] |= u32::from(byte >> (2 * g + 1) & 1) << at;
            }
            target.write_high_bits(row, group, &bits);
        }
    }
    target.write_block_scales(row, block, half_bits(bytes) | half_bits(&bytes[2..]) << 16, words);
}

fn q6k_block(target: &mut WeightTarget<'_>, row: usize, block: usize, bytes: &[u8; 210]) {
    let (low, high, scales) = (&bytes[..128], &bytes[128..192], &bytes[192..208]);
    for g in 0..4 {
        let (mut levels, mut bits) = ([0; 64], [0u32; 4]);
        for (k, level) in levels.iter_mut().enumerate() {
            // Position within the half block of 128 weights: quarter 0..4 of 32.
            let (n, quarter, l) = (g / 2, g % 2 * 2 + k / 32, k % 32);
            *level = low[64 * n + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
            let two = u32::from(high[32 * n + l] >> (2 * quarter) & 3);
            // Weight k = 16h + 8i + 2b + e at bits 8b + 4i + 2e of word h.
            bits[k / 16] |= two << (k % 8 / 2 * 8 + k % 16 / 8 * 4 + k % 2 * 2);
        }
        target.write_chunk(row, block * 4 + g, 0, &nibble_chunk(&levels, false));
        target.write_high_bits(row, block * 4 + g, &bits);
    }
    let words = [0, 4, 8, 12].map(|i| u32::from_le_bytes([scales[i], scales[i + 1], scales[i + 2], scales[i + 3]]));
    let d = half::f16::from_le_bytes([bytes[208], bytes[209]]).to_f32();
    target.write_block_scales(row, block, d.to_bits(), words);
}

fn from_i8_groups(rows: usize, cols: usize, q: &[i8], scale: &[f32], offset: &[f32], quants: &mut [u8], scales: &mut [u8]) {
    quants.fill(0);
    scales.fill(0);
    let mut target = WeightTarget { format: WeightFormat::I8G16, cols, quants, scales };
    let sixteens = cols / 16;
    for row in 0..rows {
        let row_q: &[u8] = bytemuck::cast_slice(&q[row * cols..(row + 1) * cols]);
        for (i, chunk) in row_q.chunks(32).enumerate() {
            target.write_chunk(row, i / 2, i % 2, chunk);
        }
        for group in 0..cols.div_ceil(COL_GROUP) {
            let mut words = [0; 8];
            for (i, pair) in words.chunks_exact_mut(2).enumerate().take(sixteens - group * 4) {
                let at = row * sixteens + group * 4 + i;
                pair[0] = scale[at].to_bits();
                pair[1] = offset[at].to_bits();
            }
            target.write_group_scales(row, group, &words);
        }
    }
}
