//! Batch row tests: each row of a batch equals the same row alone.

use std::ops::Range;

use half::f16;
use strata::base::Rng;
use strata::gpu::kernels::KvFormat;
use strata::gpu::kernels::attention_decode::{
    AttentionDecode, DecodeKernel, DecodeVariant, PAD, SegmentEntries, SegmentKeys, SplitRows, TokenSlot,
};
use strata::gpu::kernels::linear::ActivationForm;
use strata::gpu::kernels::page_bounds::PageBoundsKernel;
use strata::gpu::kernels::qk_scores::QkScores;
use strata::gpu::{FeatureOverrides, Gpu, Recorder, Slice};
use strata::reference;

use super::common::{assert_close, gpu};
use super::page_abstracts::{Pool, listed, page, whole_block};
use super::{decode_kernels, download_f32, empty, random, upload};

const LIMIT: f64 = 1e-10;
const N_ROWS: usize = 3;

type Shape = (usize, usize, usize);

/// Lists of the KV heads of every row, padded to the longest: table and row stride.
fn padded(lists: &[Vec<u32>]) -> (Vec<u32>, usize) {
    let n_listed = lists.iter().map(Vec::len).max().unwrap();
    let padding = |n| std::iter::repeat_n(PAD, n);
    let row = |list: &Vec<u32>| -> Vec<u32> { list.iter().copied().chain(padding(n_listed - list.len())).collect() };
    (lists.iter().flat_map(row).collect(), n_listed)
}

fn entries(lists: &[Vec<TokenSlot>]) -> Vec<Vec<u32>> {
    lists.iter().map(|list| list.iter().map(|token| token.entry()).collect()).collect()
}

/// All blocks of a pool in order, for each KV head.
fn whole(pool: &Pool, g: usize, n_pages: usize) -> Vec<Vec<u32>> {
    (0..g).map(|head| (0..4 * n_pages).map(|b| pool.slot(head, b)).collect()).collect()
}

/// Same for the dense kernel: table and row stride.
fn dense_table(pool: &Pool, g: usize, n_pages: usize) -> (Vec<u32>, usize) {
    (whole(pool, g, n_pages).concat(), 4 * n_pages)
}

struct Case {
    element: KvFormat,
    shared: Pool,
    n_shared_pages: usize,
    selected: Pool,
    /// `[R * G]`
    lists: Vec<Vec<TokenSlot>>,
    /// private pages of each row, and the number of their keys
    tails: Vec<(Pool, usize)>,
}

fn case(rng: &mut Rng, (_, g, d): Shape, element: KvFormat) -> Case {
    let selected = Pool::new(rng, g, d, element, 12);
    let list = |rng: &mut Rng, head: usize, n: usize| -> Vec<TokenSlot> {
        let mut blocks: Vec<usize> = (0..48).collect();
        (0..n).for_each(|i| blocks.swap(i, i + rng.uniform((48 - i) as u32) as usize));
        blocks[..n].iter().flat_map(|&b| listed(rng, selected.slot(head, b))).collect()
    };
    // One row reads two splits, one a single block, one nothing.
    let lists = [20, 1, 0].iter().flat_map(|&n| (0..g).map(move |head| (head, n))).map(|(head, n)| list(rng, head, n)).collect();
    let tails = [5, 64, 300].map(|n: usize| (Pool::new(rng, g, d, KvFormat::F16, n.div_ceil(64)), n)).into_iter().collect();
    Case { element, shared: Pool::new(rng, g, d, element, 5), n_shared_pages: 5, selected, lists, tails }
}

fn decode(gpu: &Gpu, (h, g, d): Shape, case: &Case, q: &[f32], kernel: DecodeKernel) -> Vec<f32> {
    let op =
        |element, selective| AttentionDecode::with_variant(gpu, h, g, d, element, DecodeVariant { kernel, selective }).unwrap();
    let (dense, selective, own) = (op(case.element, false), op(case.element, true), op(KvFormat::F16, false));
    let n_keys = case.n_shared_pages * 64;
    let (table, n_selected) = padded(&entries(&case.lists));
    let longest_tail = case.tails.iter().map(|(_, n)| *n).max().unwrap();
    let split_keys = dense.split_keys(n_keys + n_selected + longest_tail);
    let [n_shared, n_listed, n_own] = [n_keys, n_selected, longest_tail].map(|n| n.div_ceil(split_keys));
    let n_splits = n_shared + n_listed + n_own;
    // NaN reveals unwritten results.
    let garbage = |bytes: u64| -> Slice { upload(gpu, &vec![0xffff_ffffu32; bytes as usize / 4]) };
    let (acc, state) = (garbage(N_ROWS as u64 * dense.acc_bytes(n_splits)), garbage(N_ROWS as u64 * dense.state_bytes(n_splits)));
    let (out, q) = (empty(gpu, (N_ROWS * h * d * 4) as u64), upload(gpu, q));
    let mut recorder = Recorder::new();
    let mut record = |op: &AttentionDecode, pool: &Pool, table: &[u32], keys: SegmentKeys, rows: SplitRows| {
        let (kv, table) = (upload(gpu, &pool.bytes), upload(gpu, table));
        op.record_rows(&mut recorder, &op.bind_split(gpu, [&q, &kv, &table, &acc, &state]).unwrap(), keys, rows);
    };
    let (shared, n_blocks) = dense_table(&case.shared, g, case.n_shared_pages);
    let all = |n_splits| SplitRows { first: 0, n: N_ROWS, n_splits };
    record(
        &dense,
        &case.shared,
        &shared,
        SegmentKeys { n_keys, n_blocks, first_split: 0, n_splits, split_keys, entries: SegmentEntries::ALL },
        all(n_shared),
    );
    let keys = SegmentKeys {
        n_keys: n_selected,
        n_blocks: n_selected,
        first_split: n_shared,
        n_splits,
        split_keys,
        entries: SegmentEntries::ALL,
    };
    record(&selective, &case.selected, &table, keys, all(n_listed));
    for (i, (pool, n_keys)) in case.tails.iter().enumerate() {
        let (table, n_blocks) = dense_table(pool, g, n_keys.div_ceil(64));
        let keys = SegmentKeys {
            n_keys: *n_keys,
            n_blocks,
            first_split: n_shared + n_listed,
            n_splits,
            split_keys,
            entries: SegmentEntries::ALL,
        };
        record(&own, pool, &table, keys, SplitRows { first: i, n: 1, n_splits: n_own });
    }
    let binding = dense.bind_merge(gpu, [&acc, &state, &out], None).unwrap();
    dense.record_merge_rows(&mut recorder, &binding, n_splits, N_ROWS, ActivationForm::F32);
    gpu.submit(&mut recorder).unwrap();
    download_f32(gpu, &out, N_ROWS * h * d)
}

fn expected((h, g, d): Shape, case: &Case, q: &[f32]) -> Vec<f32> {
    let of_head = |row: usize, head: usize| -> Vec<f32> {
        let kv_head = head / (h / g);
        let (pool, n_own) = &case.tails[row];
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        let mut read = |pool: &Pool, list: &[TokenSlot]| {
            let (of_keys, of_values) = pool.listed(list);
            keys.extend(of_keys);
            values.extend(of_values);
        };
        let all = |pool: &Pool, n_pages| -> Vec<TokenSlot> {
            whole(pool, g, n_pages)[kv_head].iter().flat_map(|slot| whole_block(*slot)).collect()
        };
        read(&case.shared, &all(&case.shared, case.n_shared_pages));
        read(&case.selected, &case.lists[row * g + kv_head]);
        read(pool, &all(pool, n_own.div_ceil(64)));
        // The tail is last; memory after its last key is unused.
        let n = keys.len() / d - (n_own.next_multiple_of(64) - n_own);
        reference::attention(&q[(row * h + head) * d..][..d], &keys[..n * d], &values[..n * d])
    };
    (0..N_ROWS).flat_map(|row| (0..h).flat_map(move |head| [(row, head)])).flat_map(|(row, head)| of_head(row, head)).collect()
}

#[test]
fn rows_attend_to_shared_pages_and_private_lists_and_tails() {
    let Some(gpu) = gpu("rows_attend_to_shared_pages_and_private_lists_and_tails", FeatureOverrides::default()) else {
        return;
    };
    let mut rng = Rng::new(41);
    for (shape, element) in
        [((4, 2, 64), KvFormat::F16), ((7, 1, 64), KvFormat::Q8), ((9, 3, 80), KvFormat::Q4), ((2, 2, 128), KvFormat::F32)]
    {
        let (h, _, d) = shape;
        let case = case(&mut rng, shape, element);
        let q = random(&mut rng, N_ROWS * h * d, 2.0 / (d as f32).sqrt());
        let want = expected(shape, &case, &q);
        for kernel in decode_kernels(&gpu) {
            let what = format!("{shape:?} ({kernel:?}) of {element:?}");
            assert_close(&what, &decode(&gpu, shape, &case, &q, kernel), &want, LIMIT);
        }
    }
}

#[test]
fn page_bounds_of_several_rows_equal_those_of_each_row() {
    let Some(gpu) = gpu("page_bounds_of_several_rows_equal_those_of_each_row", FeatureOverrides::default()) else { return };
    let mut rng = Rng::new(42);
    for ((h, g, d), n_pages) in [((4, 4, 64), 63), ((14, 2, 64), 70), ((6, 2, 80), 3)] {
        let q = random(&mut rng, N_ROWS * h * d, 1.0 / (d as f32).sqrt());
        let abstracts: Vec<f16> = (0..n_pages).flat_map(|_| reference::page_abstracts(&page(&mut rng, g, d), g, d)).collect();
        let abstracts = upload(&gpu, &abstracts);
        let op = PageBoundsKernel::new(&gpu, h, g, d).unwrap();
        let score = |q: &[f32], n_rows: usize| -> Vec<f32> {
            let bounds = empty(&gpu, n_rows as u64 * op.bounds_bytes(n_pages));
            let binding = op.bind(&gpu, [&upload(&gpu, q), &abstracts, &bounds]).unwrap();
            let mut recorder = Recorder::new();
            op.record(&mut recorder, &binding, n_pages, n_rows);
            gpu.submit(&mut recorder).unwrap();
            download_f32(&gpu, &bounds, n_rows * h * n_pages * 2)
        };
        let together = score(&q, N_ROWS);
        for (row, (q, got)) in q.chunks_exact(h * d).zip(together.chunks_exact(h * n_pages * 2)).enumerate() {
            assert_eq!(got, score(q, 1), "{h} heads on {g} of {d}, row {row}");
        }
    }
}

#[test]
fn token_scores_of_several_rows_equal_those_of_each_row() {
    let Some(gpu) = gpu("token_scores_of_several_rows_equal_those_of_each_row", FeatureOverrides::default()) else { return };
    let mut rng = Rng::new(43);
    for (shape, element) in [((4, 2, 64), KvFormat::F16), ((9, 3, 80), KvFormat::Q4)] {
        let (h, g, d) = shape;
        let case = case(&mut rng, shape, element);
        let q = random(&mut rng, N_ROWS * h * d, 1.0);
        let op = QkScores::new(&gpu, h, g, d, element).unwrap();
        let slots = |list: &Vec<TokenSlot>| -> Vec<u32> { list.iter().map(|token| token.entry() / 16).collect() };
        let (table, n_blocks) = padded(&case.lists.iter().map(slots).collect::<Vec<_>>());
        let kv = upload(&gpu, &case.selected.bytes);
        let score = |q: &[f32], table: &[u32], rows: Range<usize>| -> Vec<f32> {
            let n_rows = rows.len();
            let scores = empty(&gpu, n_rows as u64 * op.scores_bytes(16 * n_blocks));
            let binding = op.bind(&gpu, [&upload(&gpu, q), &kv, &upload(&gpu, table), &scores]).unwrap();
            let mut recorder = Recorder::new();
            op.record_rows(&mut recorder, &binding, 16 * n_blocks, n_blocks, rows);
            gpu.submit(&mut recorder).unwrap();
            download_f32(&gpu, &scores, n_rows * h * 16 * n_blocks)
        };
        let together = score(&q, &table, 0..N_ROWS);
        let lists = table.chunks_exact(g * n_blocks).zip(together.chunks_exact(h * 16 * n_blocks));
        for (row, (table, together)) in lists.enumerate() {
            let alone = score(&q[row * h * d..(row + 1) * h * d], table, 0..1);
            assert_eq!(together, alone, "{shape:?} of {element:?}, row {row}");
            assert_eq!(score(&q, table, row..row + 1), alone, "{shape:?} of {element:?}, row {row} by its row index");
        }
    }
}
