use strata::base::Rng;
use strata::gpu::kernels::KvFormat;
use strata::gpu::kernels::selection::{
    SegmentFrames, SelectionBuffers, SelectionCapacity, SelectionPlace, SelectionSizes, TokenSelection,
};
use strata::gpu::{FeatureOverrides, Gpu, Recorder, Slice};
use strata::reference;

use super::common::gpu;
use super::page_abstracts::Pool;
use super::{random, upload};

const N_SPLITS: usize = 7;
const N_TAIL: usize = 2;
const N_LAYERS: usize = 3;

/// A context of one layer, as its kernels see it.
struct Case {
    /// R, H, G, D
    shape: (usize, usize, usize, usize),
    element: KvFormat,
    sizes: SelectionSizes,
    pool: Pool,
    /// f32 `[R, H, D]`
    q: Vec<f32>,
    /// raw bounds `[R, H, P]`
    bounds: Vec<[f32; 2]>,
    /// `[R, H, N_SPLITS]`
    tails: Vec<[f32; 2]>,
    first_in_ram: Option<usize>,
}

/// State of a step for the next one.
struct Known {
    /// by query head: bound slack
    slacks: Vec<f32>,
    /// by KV head: least gap between the bound and the best token of a page, and of a page with much attention so far
    gaps: Vec<f32>,
    peaks: Vec<f32>,
}

/// Log weight of much attention, and how much tighter than those seen so far a bound may be.
const LN_MUCH: f32 = -4.605;
const GAP_MARGIN: f32 = 3.0;

/// What a step left in the buffers.
struct Outcome {
    pages: Vec<Vec<usize>>,
    table: Vec<Vec<u32>>,
    /// scored pages, those in RAM, selected tokens in RAM
    counters: [u32; 3],
    /// selected tokens by page
    uses: Vec<u32>,
}

fn words(gpu: &Gpu, slice: &Slice) -> Vec<u32> {
    bytemuck::pod_collect_to_vec(&gpu.download(slice).unwrap())
}

impl Case {
    fn new(rng: &mut Rng, shape: (usize, usize, usize, usize), element: KvFormat, sizes: SelectionSizes) -> Case {
        let (r, h, g, d) = shape;
        let pool = Pool::new(rng, g, d, element, sizes.n_pages);
        let q = random(rng, r * h * d, 4.0 / (d as f32).sqrt());
        let mut case = Case { shape, element, sizes, pool, q, bounds: Vec::new(), tails: Vec::new(), first_in_ram: None };
        for head in 0..r * h {
            for page in 0..sizes.n_pages {
                let scores = case.scores(head, page);
                let [lower, upper] =
                    [scores.iter().fold(f32::MAX, |a, b| a.min(*b)), scores.iter().fold(f32::MIN, |a, b| a.max(*b))];
                case.bounds.push([upper + rng.next_signed().abs(), lower - rng.next_signed().abs()]);
            }
            case.tails.extend((0..N_SPLITS).map(|i| {
                if i < N_TAIL { [rng.next_signed() * 3.0, 1.0 + 20.0 * rng.next_signed().abs()] } else { [f32::NAN; 2] }
            }));
        }
        case
    }

    fn group(&self) -> usize {
        self.shape.1 / self.shape.2
    }

    /// Scores of the tokens of a page for query head `head` of all rows.
    fn scores(&self, head: usize, page: usize) -> Vec<f32> {
        let (_, h, g, d) = self.shape;
        let keys: Vec<f32> =
            (0..4).flat_map(|b| self.pool.keys(self.pool.slot(head % h / (h / g), 4 * page + b)).to_vec()).collect();
        reference::qk_scores(&self.q[head * d..(head + 1) * d], &keys).iter().map(|s| *s as f32).collect()
    }

    /// Frames of the pages in each layer; only the last layer is used.
    fn frames(&self) -> Vec<u32> {
        let frame = |page: usize| self.pool.slot(0, 4 * page) / (4 * self.shape.2 as u32);
        let of_layer: Vec<u32> = (0..self.sizes.n_pages).map(frame).collect();
        [vec![77; (N_LAYERS - 1) * self.sizes.n_pages], of_layer].concat()
    }

    /// Records a step in segments of the given number of frames.
    fn run(&self, gpu: &Gpu, op: &TokenSelection, b: &SelectionBuffers, segments: &[usize]) -> Outcome {
        let (r, _, g, d) = self.shape;
        gpu.upload(&b.bounds, bytemuck::cast_slice(self.bounds.as_slice())).unwrap();
        gpu.upload(&b.frames, bytemuck::cast_slice(&self.frames())).unwrap();
        let states = upload(gpu, self.tails.as_flattened());
        let bindings = op.bind(gpu, b, &states).unwrap();
        let first_in_ram = self.first_in_ram;
        let place = SelectionPlace { layer: N_LAYERS - 1, n_rows: r, n_splits: N_SPLITS, n_tail: N_TAIL, first_in_ram };
        let mut recorder = Recorder::new();
        op.record_candidates(&mut recorder, &bindings, b, place, self.sizes);
        let (q, page_bytes) = (upload(gpu, &self.q), self.element.page_bytes(g, d) as usize);
        let mut first = 0;
        for n in segments.iter().copied() {
            let pages = upload(gpu, &self.pool.bytes[first * page_bytes..(first + n) * page_bytes]);
            let binding = op.bind_scores(gpu, b, [&q, &pages]).unwrap();
            op.record_scores(&mut recorder, &binding, b, place, self.sizes, SegmentFrames { first, n });
            first += n;
        }
        op.record_list(&mut recorder, &bindings, b, place, self.sizes);
        gpu.submit(&mut recorder).unwrap();
        let (n_listed, n_table, n_lists) = (self.sizes.n_listed(), self.sizes.n_table(), r * g);
        let pages = words(gpu, &b.listed_pages());
        let of_list = |list: &[u32]| list[1..=list[0] as usize].iter().map(|page| *page as usize).collect();
        Outcome {
            pages: pages.chunks_exact(1 + n_listed).take(n_lists).map(of_list).collect(),
            table: words(gpu, &b.table).chunks_exact(n_table).take(n_lists).map(<[u32]>::to_vec).collect(),
            counters: words(gpu, &b.counters()).try_into().unwrap(),
            uses: words(gpu, &b.uses())[(N_LAYERS - 1) * b.capacity.n_pages..].to_vec(),
        }
    }

    /// Log-sum-exp of the scores of listed pages and the tail.
    fn total(&self, head: usize, pages: &[usize]) -> f32 {
        let tail = self.tails[head * N_SPLITS..][..N_TAIL].iter().map(|[max, sum]| f64::from(*sum) * f64::from(*max).exp());
        let scored = pages.iter().flat_map(|page| self.scores(head, *page)).map(|s| f64::from(s).exp());
        (tail.sum::<f64>() + scored.sum::<f64>()).ln() as f32
    }

    fn is_in_ram(&self) -> Vec<bool> {
        let frames = &self.frames()[(N_LAYERS - 1) * self.sizes.n_pages..];
        frames.iter().map(|frame| self.first_in_ram.is_some_and(|first| *frame as usize >= first)).collect()
    }

    /// Checks a step after one that left `last`, if there was one. Returns its own state.
    fn check(&self, outcome: &Outcome, last: Option<&Known>, what: &str) -> Known {
        let (s, group) = (self.sizes, self.group());
        let free = s.n_sink..s.n_pages - s.n_recent;
        let (mut slacks, mut gaps, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
        let is_in_ram = self.is_in_ram();
        let mut uses = vec![0; s.n_pages];
        for (list, (pages, table)) in outcome.pages.iter().zip(&outcome.table).enumerate() {
            let heads = list * group..(list + 1) * group;
            let upper: Vec<Vec<f32>> =
                heads.clone().map(|head| self.bounds[head * s.n_pages..][..s.n_pages].iter().map(|b| b[0]).collect()).collect();
            let highest: Vec<f32> = upper.iter().map(|head| reference::highest_bound(head)).collect();
            let before: Vec<f32> =
                heads.clone().zip(&highest).map(|(head, top)| top - last.map_or(0.0, |last| last.slacks[head])).collect();
            let rows: Vec<&[f32]> = upper.iter().map(|head| &head[free.clone()]).collect();
            let least = last.map(|last| s.least + last.gaps[list]);
            let mut weights = reference::page_weights(&rows, &before);
            if let Some(last) = last {
                weights = reference::eligible(&weights, s.n_best, LN_MUCH - GAP_MARGIN + last.peaks[list]);
            }
            let want = reference::page_candidates(&weights, s.n_candidates, least);
            let always = (0..s.n_sink).chain(s.n_pages - s.n_recent..s.n_pages);
            let want: Vec<usize> = always.chain(want.iter().map(|page| page + s.n_sink)).collect();
            assert_eq!(pages, &want, "{what}, list {list}");

            let totals: Vec<f32> = heads.clone().map(|head| self.total(head, pages)).collect();
            let scores: Vec<Vec<f32>> =
                heads.clone().map(|head| pages.iter().flat_map(|p| self.scores(head, *p)).collect()).collect();
            let key = |i: usize| reference::token_key(&scores.iter().map(|head| head[i]).collect::<Vec<_>>(), &totals);
            let n_always = s.n_always() * 64;
            let keys: Vec<u32> = (n_always..pages.len() * 64).map(key).collect();
            let tokens = |i: &usize| {
                let slot = self.pool.slot(list % self.shape.2, 4 * pages[i / 64] + i % 64 / 16);
                slot * 16 + (i % 16) as u32
            };
            let selected: Vec<usize> =
                table.iter().map(|entry| (0..pages.len() * 64).find(|i| tokens(i) == *entry).unwrap()).collect();
            assert!(selected.windows(2).all(|pair| pair[0] < pair[1]), "{what}, list {list}: not in order");
            assert_eq!(selected[..n_always], (0..n_always).collect::<Vec<_>>(), "{what}, list {list}");
            // Sums in f32 move a key by a few steps.
            let wanted = reference::select_tokens(&keys, s.n_wanted);
            let last_key = wanted.iter().map(|i| keys[*i]).min().unwrap_or(0);
            for i in selected[n_always..].iter().map(|i| i - n_always) {
                assert!(keys[i] + 4 >= last_key, "{what}, list {list}: token {i} has key {} of {last_key}", keys[i]);
            }
            let n_same = selected[n_always..].iter().filter(|i| wanted.binary_search(&(*i - n_always)).is_ok()).count();
            assert!(n_same + s.n_wanted / 50 + 1 >= s.n_wanted, "{what}, list {list}: {n_same} of {}", s.n_wanted);
            slacks.extend(highest.iter().zip(&totals).map(|(highest, total)| highest - total));
            let all: Vec<&[f32]> = upper.iter().map(Vec::as_slice).collect();
            let weights = reference::page_weights(&all, &totals);
            let gap = |(i, page): (usize, &usize)| {
                let best =
                    (0..group).flat_map(|h| scores[h][64 * i..64 * (i + 1)].iter().map(|s| *s - totals[h]).collect::<Vec<_>>());
                weights[*page] - best.fold(f32::NEG_INFINITY, f32::max)
            };
            let of_pages: Vec<f32> = pages.iter().enumerate().skip(s.n_always()).map(gap).collect();
            let reaches = |(gap, page): &(&f32, &usize)| weights[**page] - **gap >= LN_MUCH;
            let of_peaks = of_pages.iter().zip(&pages[s.n_always()..]).filter(reaches).map(|(gap, _)| *gap);
            peaks.push(of_peaks.fold(last.map_or(3.0e38, |last| last.peaks[list]), f32::min));
            gaps.push(of_pages.iter().copied().fold(3.0e38, f32::min));
            selected.iter().for_each(|i| uses[pages[i / 64]] += 1);
        }
        let scored = || outcome.pages.iter().flatten();
        let n_selected_in_ram = uses.iter().zip(&is_in_ram).filter(|(_, is_in_ram)| **is_in_ram).map(|(n, _)| *n).sum();
        let counters = [scored().count() as u32, scored().filter(|page| is_in_ram[**page]).count() as u32, n_selected_in_ram];
        assert_eq!(outcome.counters, counters, "{what}: pages scored, in RAM, tokens in RAM");
        if self.first_in_ram.is_some() {
            assert_eq!(outcome.uses[..s.n_pages], uses, "{what}: selected tokens of pages");
        }
        Known { slacks, gaps, peaks }
    }
}

#[test]
fn device_selection_matches_the_reference_step_by_step() {
    use KvFormat::{F16, F32, Q4, Q8};
    let mut rng = Rng::new(41);
    let no_immediates = FeatureOverrides { no_immediates: true, ..FeatureOverrides::default() };
    let plain = FeatureOverrides::default();
    let sizes = |n_pages, n_candidates, n_wanted, least| SelectionSizes {
        n_pages,
        n_sink: 1,
        n_recent: 1,
        n_candidates,
        n_best: n_candidates[0] + 2,
        n_wanted,
        least,
    };
    for (shape, element, sizes, overrides) in [
        ((1, 4, 2, 64), F16, sizes(40, [4, 16], 200, -4.0), plain),
        ((1, 1, 1, 8), F32, sizes(12, [10, 10], 640, -4.0), plain),
        ((3, 9, 3, 80), Q4, sizes(30, [3, 20], 129, -3.0), plain),
        ((2, 7, 1, 64), Q8, sizes(66, [1, 64], 1, -9.0), no_immediates),
        ((1, 2, 2, 128), F16, sizes(20, [0, 0], 0, 0.0), plain),
        ((1, 2, 1, 64), F16, sizes(300, [40, 160], 2500, -2.0), plain),
        ((1, 2, 1, 64), F16, SelectionSizes { n_sink: 2, n_recent: 3, ..sizes(25, [5, 9], 300, -2.0) }, plain),
    ] {
        let Some(gpu) = gpu("device_selection_matches_the_reference_step_by_step", overrides) else { return };
        let (r, h, g, d) = shape;
        let op = TokenSelection::new(&gpu, h, g, d, element).unwrap();
        // Buffers are larger than this selection.
        let capacity = SelectionCapacity {
            n_layers: N_LAYERS,
            n_rows: r,
            n_pages: sizes.n_pages,
            n_listed: sizes.n_listed() + 3,
            n_table: sizes.n_table() + 5,
        };
        let b = SelectionBuffers::new(&gpu, capacity, h, g).unwrap();
        for step in 0..4 {
            let mut case = Case::new(&mut rng, shape, element, sizes);
            // In the last two, some pages are in RAM, as far as the selection is concerned.
            case.first_in_ram = (step > 1).then_some(sizes.n_pages / 3);
            let what = format!("{shape:?} in {element:?}, {sizes:?}, step {step}");
            // Candidates depend on the last step, so each way to divide the frames begins with the same one.
            b.reset(&gpu);
            let n_frames = sizes.n_pages + 2;
            let whole = case.run(&gpu, &op, &b, &[n_frames]);
            let own = case.check(&whole, None, &what);
            b.reset(&gpu);
            let divided = case.run(&gpu, &op, &b, &[n_frames / 3, n_frames - n_frames / 3]);
            assert_eq!(whole.table, divided.table, "{what}: in two segments");
            let mut next = Case::new(&mut rng, shape, element, sizes);
            next.first_in_ram = case.first_in_ram;
            let mut outcome = next.run(&gpu, &op, &b, &[n_frames]);
            outcome.counters.iter_mut().zip(divided.counters).for_each(|(n, before)| *n -= before);
            outcome.uses.iter_mut().zip(&divided.uses).for_each(|(n, before)| *n -= before);
            next.check(&outcome, Some(&own), &format!("{what}, next"));
        }
    }
}

#[test]
fn of_equal_tokens_the_device_selects_the_earliest() {
    let Some(gpu) = gpu("of_equal_tokens_the_device_selects_the_earliest", FeatureOverrides::default()) else { return };
    let (n_pages, n_wanted) = (70, 2100);
    let sizes = SelectionSizes { n_pages, n_sink: 1, n_recent: 1, n_candidates: [68; 2], n_best: 68, n_wanted, least: 0.0 };
    let mut case = Case::new(&mut Rng::new(42), (1, 2, 1, 64), KvFormat::F16, sizes);
    // Every score is zero.
    case.q.fill(0.0);
    let op = TokenSelection::new(&gpu, 2, 1, 64, KvFormat::F16).unwrap();
    let capacity =
        SelectionCapacity { n_layers: N_LAYERS, n_rows: 1, n_pages, n_listed: sizes.n_listed(), n_table: sizes.n_table() };
    let b = SelectionBuffers::new(&gpu, capacity, 2, 1).unwrap();
    b.reset(&gpu);
    let outcome = case.run(&gpu, &op, &b, &[n_pages + 2]);
    // Sinks and recent pages, then the tokens from page 1 on.
    let token = |i: usize| {
        let page = [0, n_pages - 1].into_iter().chain(1..).nth(i / 64).unwrap();
        case.pool.slot(0, 4 * page + i % 64 / 16) * 16 + (i % 16) as u32
    };
    assert_eq!(outcome.table[0], (0..128 + n_wanted).map(token).collect::<Vec<_>>());
}
