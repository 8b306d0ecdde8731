use half::f16;
use strata::base::Rng;
use strata::gpu::kernels::KvFormat;
use strata::gpu::kernels::attention_decode::TokenSlot;
use strata::reference::{self, PageShape};

use super::random;

pub fn page_shape(g: usize, d: usize, element: KvFormat) -> PageShape {
    PageShape { n_kv_head: g, head_dim: d, code_bits: if element == KvFormat::Q8 { 8 } else { 4 } }
}

pub fn f16_bits(values: &[f32]) -> Vec<u16> {
    values.iter().map(|&v| f16::from_f32(v).to_bits()).collect()
}

/// Numbers of a page in slot order, with a different magnitude and offset per key channel, as in real keys.
pub fn page(rng: &mut Rng, g: usize, d: usize) -> Vec<f32> {
    let channels: Vec<[f32; 2]> = (0..d).map(|_| [2f32.powf(rng.next_signed() * 2.0), rng.next_signed()]).collect();
    let mut numbers = random(rng, 4 * g * 32 * d, 1.0);
    for keys in numbers.chunks_exact_mut(32 * d).map(|slot| &mut slot[..16 * d]) {
        keys.iter_mut().zip(channels.iter().cycle()).for_each(|(x, [size, offset])| *x = *x * size + offset);
    }
    numbers
}

/// Pages of one format as stored in VRAM, in shuffled frames with garbage in between.
pub struct Pool {
    pub bytes: Vec<u8>,
    /// contents of the frames, f32 in slot order
    numbers: Vec<f32>,
    frames: Vec<usize>,
    g: usize,
    d: usize,
}

impl Pool {
    pub fn new(rng: &mut Rng, g: usize, d: usize, element: KvFormat, n_pages: usize) -> Pool {
        let mut frames: Vec<usize> = (0..n_pages + 2).collect();
        for i in (1..frames.len()).rev() {
            frames.swap(i, rng.uniform(i as u32 + 1) as usize);
        }
        let (page_bytes, page_numbers) = (element.page_bytes(g, d) as usize, 4 * g * 32 * d);
        // All ones is NaN in every format.
        let mut bytes = vec![0xffu8; frames.len() * page_bytes];
        let mut numbers = vec![f32::NAN; frames.len() * page_numbers];
        for &frame in &frames[..n_pages] {
            let (sealed, opened) = store(&page(rng, g, d), page_shape(g, d, element), element);
            bytes[frame * page_bytes..(frame + 1) * page_bytes].copy_from_slice(&sealed);
            numbers[frame * page_numbers..(frame + 1) * page_numbers].copy_from_slice(&opened);
        }
        Pool { bytes, numbers, frames, g, d }
    }

    /// Slot of logical block `block` of a head.
    pub fn slot(&self, head: usize, block: usize) -> u32 {
        (self.frames[block / 4] * 4 * self.g + block % 4 * self.g + head) as u32
    }

    /// Keys and values of the tokens of a list.
    pub fn listed(&self, list: &[TokenSlot]) -> (Vec<f32>, Vec<f32>) {
        let rows = |at: fn(&Pool, u32) -> &[f32]| -> Vec<f32> {
            let row = |token: &TokenSlot| {
                let (slot, t) = (token.entry() / 16, token.entry() as usize % 16);
                at(self, slot)[t * self.d..(t + 1) * self.d].to_vec()
            };
            list.iter().flat_map(row).collect()
        };
        (rows(Pool::keys), rows(Pool::values))
    }

    pub fn keys(&self, slot: u32) -> &[f32] {
        &self.numbers[slot as usize * 32 * self.d..][..16 * self.d]
    }

    pub fn values(&self, slot: u32) -> &[f32] {
        &self.numbers[(slot as usize * 32 + 16) * self.d..][..16 * self.d]
    }
}

/// All tokens of a block.
pub fn whole_block(slot: u32) -> Vec<TokenSlot> {
    (0..16).map(|t| TokenSlot::new(slot, t)).collect()
}

/// Random tokens of a block: all of them, one, or any subset.
pub fn listed(rng: &mut Rng, slot: u32) -> Vec<TokenSlot> {
    let tokens = match rng.uniform(3) {
        0 => 0xffff,
        1 => 1 << rng.uniform(16),
        _ => 1 + rng.uniform(0xffff),
    };
    whole_block(slot).into_iter().enumerate().filter(|(t, _)| tokens >> t & 1 == 1).map(|(_, token)| token).collect()
}

/// Bytes of a page in a format, and its numbers after rounding.
fn store(page: &[f32], shape: PageShape, element: KvFormat) -> (Vec<u8>, Vec<f32>) {
    match element {
        KvFormat::F32 => (bytemuck::cast_slice(page).to_vec(), page.to_vec()),
        KvFormat::F16 => {
            let bits = f16_bits(page);
            (bytemuck::cast_slice(&bits).to_vec(), bits.iter().map(|&b| f16::from_bits(b).to_f32()).collect())
        }
        KvFormat::Q8 | KvFormat::Q4 => {
            let bytes = reference::quantize_page(page, shape);
            let opened = reference::dequantize_page(&bytes, shape);
            (bytes, opened)
        }
    }
}
