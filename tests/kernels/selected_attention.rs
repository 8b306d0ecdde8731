use strata::base::Rng;
use strata::gpu::kernels::KvFormat;
use strata::gpu::kernels::attention_decode::{
    AttentionDecode, DecodeKernel, DecodeVariant, PAD, SegmentEntries, SegmentKeys, TokenSlot,
};
use strata::gpu::{FeatureOverrides, Gpu, Recorder, Slice};
use strata::reference;

use super::common::{assert_close, gpu};
use super::page_abstracts::{Pool, listed, whole_block};
use super::{decode_kernels, download_f32, empty, random, upload};

/// Dequantized numbers are equal on both sides; only the order of f32 sums differs.
const LIMIT: f64 = 1e-10;
const N_PAGES: usize = 12;

/// A segment and the tokens that each KV head reads from it.
struct Segment {
    element: KvFormat,
    pool: Pool,
    lists: Vec<Vec<TokenSlot>>,
    /// otherwise every head reads the same number of whole blocks, with the dense kernel
    selective: bool,
}

impl Segment {
    fn n_keys(&self) -> usize {
        self.lists.iter().map(Vec::len).max().unwrap()
    }

    /// Table with rows longer than the longest list, by entries that must not be read.
    fn table(&self) -> (Vec<u32>, usize) {
        if !self.selective {
            let slots = |list: &Vec<TokenSlot>| list.chunks(16).map(|block| block[0].entry() / 16).collect::<Vec<_>>();
            return (self.lists.iter().flat_map(slots).collect(), self.n_keys() / 16);
        }
        let n_listed = self.n_keys() + 3;
        let row = |list: &Vec<TokenSlot>| -> Vec<u32> {
            let entries = list.iter().map(|token| token.entry());
            let padding = std::iter::repeat_n(PAD, self.n_keys() - list.len());
            entries.chain(padding).chain([TokenSlot::new(77_777, 5).entry(); 3]).collect()
        };
        (self.lists.iter().flat_map(row).collect(), n_listed)
    }
}

/// Lists of tokens of `lengths` blocks from anywhere in the pool, each block once; few are of the same page.
fn lists(rng: &mut Rng, pool: &Pool, lengths: &[usize]) -> Vec<Vec<TokenSlot>> {
    let list = |(head, &n): (usize, &usize)| {
        let mut blocks: Vec<usize> = (0..4 * N_PAGES).collect();
        (0..n).for_each(|i| blocks.swap(i, i + rng.uniform((4 * N_PAGES - i) as u32) as usize));
        blocks[..n].iter().flat_map(|&b| listed(rng, pool.slot(head, b))).collect()
    };
    lengths.iter().enumerate().map(list).collect()
}

fn decode(gpu: &Gpu, (h, g, d): (usize, usize, usize), segments: &[Segment], q: &[f32], kernel: DecodeKernel) -> Vec<f32> {
    let op =
        |element, selective| AttentionDecode::with_variant(gpu, h, g, d, element, DecodeVariant { kernel, selective }).unwrap();
    let merge = op(segments[0].element, segments[0].selective);
    let split_keys = merge.split_keys(segments.iter().map(Segment::n_keys).sum());
    let n_splits: usize = segments.iter().map(|s| s.n_keys().div_ceil(split_keys)).sum();
    // NaN reveals unwritten results.
    let garbage = |bytes: u64| -> Slice { upload(gpu, &vec![0xffff_ffffu32; bytes as usize / 4]) };
    let (acc, state) = (garbage(merge.acc_bytes(n_splits)), garbage(merge.state_bytes(n_splits)));
    let (out, q) = (empty(gpu, (h * d * 4) as u64), upload(gpu, q));
    let mut recorder = Recorder::new();
    let mut first_split = 0;
    for s in segments {
        let op = op(s.element, s.selective);
        let (table, n_blocks) = s.table();
        let (kv, table) = (upload(gpu, &s.pool.bytes), upload(gpu, &table));
        let binding = op.bind_split(gpu, [&q, &kv, &table, &acc, &state]).unwrap();
        let keys = SegmentKeys { n_keys: s.n_keys(), n_blocks, first_split, n_splits, split_keys, entries: SegmentEntries::ALL };
        op.record_split(&mut recorder, &binding, keys);
        first_split += s.n_keys().div_ceil(split_keys);
    }
    let binding = merge.bind_merge(gpu, [&acc, &state, &out], None).unwrap();
    merge.record_merge(&mut recorder, &binding, n_splits);
    gpu.submit(&mut recorder).unwrap();
    download_f32(gpu, &out, h * d)
}

fn run(gpu: &Gpu, rng: &mut Rng, shape: (usize, usize, usize), segments: &[Segment]) {
    let (h, g, d) = shape;
    let q = random(rng, h * d, 2.0 / (d as f32).sqrt());
    let want: Vec<f32> = (0..h)
        .flat_map(|head| {
            let read = segments.iter().map(|s| s.pool.listed(&s.lists[head / (h / g)]));
            let (keys, values): (Vec<_>, Vec<_>) = read.unzip();
            reference::attention(&q[head * d..(head + 1) * d], &keys.concat(), &values.concat())
        })
        .collect();
    for kernel in decode_kernels(gpu) {
        let lengths: Vec<Vec<usize>> = segments.iter().map(|s| s.lists.iter().map(Vec::len).collect()).collect();
        let what = format!("{shape:?} ({kernel:?}) of {:?}, {lengths:?} tokens", segments[0].element);
        assert_close(&what, &decode(gpu, shape, segments, &q, kernel), &want, LIMIT);
    }
}

#[test]
fn decode_over_selected_tokens_matches_reference() {
    let Some(gpu) = gpu("decode_over_selected_tokens_matches_reference", FeatureOverrides::default()) else { return };
    use KvFormat::{F16, F32, Q4, Q8};
    let mut rng = Rng::new(31);
    for (shape, element) in [
        ((1, 1, 8), F16),
        ((4, 2, 64), F16),
        ((2, 2, 80), F32),
        ((4, 2, 64), Q4),
        ((7, 1, 64), Q8),
        ((9, 3, 80), Q4),
        ((2, 2, 80), Q8),
        ((6, 2, 128), Q4),
        ((2, 1, 256), Q8),
    ] {
        let (_, g, d) = shape;
        // Lists end anywhere in a step; the last head reads much less, or nothing.
        for (first, last) in [(1, 1), (3, 2), (16, 15), (17, 1), (35, 0)] {
            let pool = Pool::new(&mut rng, g, d, element, N_PAGES);
            let lengths: Vec<usize> = (0..g).map(|head| if head == 0 || head + 1 < g { first } else { last }).collect();
            let lists = lists(&mut rng, &pool, &lengths);
            let mut segments = vec![Segment { element, pool, lists, selective: true }];
            run(&gpu, &mut rng, shape, &segments);
            // With a dense tail after it, as in a decode step.
            let pool = Pool::new(&mut rng, g, d, F16, 1);
            let tail = (0..g).map(|head| (0..3).flat_map(|b| whole_block(pool.slot(head, b))).collect()).collect();
            segments.push(Segment { element: F16, pool, lists: tail, selective: false });
            run(&gpu, &mut rng, shape, &segments);
        }
    }
}

#[test]
fn decode_reads_lists_of_any_length() {
    let no_immediates = FeatureOverrides { no_immediates: true, ..FeatureOverrides::default() };
    let Some(gpu) = gpu("decode_reads_lists_of_any_length", no_immediates) else { return };
    let mut rng = Rng::new(32);
    for element in [KvFormat::F16, KvFormat::Q4] {
        // Lengths around the 4 keys of a lane, the 32 of a step and the 256 of a split, beside a longer list.
        for n in [0, 1, 3, 4, 5, 31, 32, 33, 255, 256, 257, 511] {
            let pool = Pool::new(&mut rng, 2, 64, element, N_PAGES);
            let all: Vec<Vec<TokenSlot>> =
                (0..2).map(|head| (0..4 * N_PAGES).flat_map(|b| whole_block(pool.slot(head, b))).collect()).collect();
            let mut lists = vec![all[0][..520].to_vec(), all[1].clone()];
            (1..lists[1].len()).rev().for_each(|i| lists[1].swap(i, rng.uniform(i as u32 + 1) as usize));
            lists[1].truncate(n);
            // Otherwise a head reads nothing at all.
            let tail = Pool::new(&mut rng, 2, 64, KvFormat::F16, 1);
            let of_tail = (0..2).map(|head| whole_block(tail.slot(head, 0))).collect();
            let dense = Segment { element: KvFormat::F16, pool: tail, lists: of_tail, selective: false };
            run(&gpu, &mut rng, (4, 2, 64), &[Segment { element, pool, lists, selective: true }, dense]);
        }
    }
}
