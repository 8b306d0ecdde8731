//! Report of the needle test: summary, table and heat map.
//!
//! ```text
//! Answer [n] ─► Score per length and depth, for first and second questions ─► JSON │ table │ HeatMap
//! ```

use serde::Serialize;

use super::answer::{Answer, Document, ascending};
use crate::base::Tiers;
use crate::cli::args::EvalNeedleArgs;
use crate::cli::eval::heatmap::{Cell, HeatMap};
use crate::cli::eval::results::Setting;
use crate::engine::{AttentionKind, SelectionSummary};

/// Number of questions and of right answers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Score {
    asked: usize,
    hits: usize,
    /// 0 to 1; null without questions
    share: Option<f64>,
}

/// A cell of the grid.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct CellScore {
    length: usize,
    depth: u32,
    #[serde(flatten)]
    score: Score,
}

/// Scores of all cells, and their total.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Grid {
    #[serde(flatten)]
    all: Score,
    cells: Vec<CellScore>,
}

/// Last line of `--json`, and beginning of `needle.json`.
#[derive(Debug, Serialize)]
pub struct Summary<'a> {
    event: &'static str,
    eval: &'static str,
    #[serde(flatten)]
    setting: &'a Setting,
    /// attention kind of the last answer
    attention: Option<AttentionKind>,
    lengths: Vec<usize>,
    depths: Vec<u32>,
    seeds: Vec<u64>,
    questions: usize,
    /// first questions of conversations
    first: Grid,
    /// second questions; null without them
    second: Option<Grid>,
    /// attention mass that the policy retained, by layer; null without `--mass`
    mass_kept: Option<Vec<f64>>,
    /// share of selected pages that were in VRAM already; null without a policy
    reuse: Option<f64>,
    prefill_ms: f64,
    generated_tokens: usize,
    decode_ms: f64,
    kv_peak_bytes: Tiers<u64>,
}

/// `needle.json`: the summary, all documents and all answers, so that other programs can answer the same questions and be
/// compared.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    #[serde(flatten)]
    pub summary: &'a Summary<'a>,
    pub documents: &'a [Document],
    pub answers: &'a [Answer],
}

impl Score {
    fn of<'a>(answers: impl Iterator<Item = &'a Answer>) -> Score {
        let (mut asked, mut hits) = (0, 0);
        for answer in answers {
            asked += 1;
            hits += usize::from(answer.hit);
        }
        Score { asked, hits, share: (asked > 0).then(|| hits as f64 / asked as f64) }
    }

    fn shown(&self) -> String {
        format!("{}/{}", self.hits, self.asked)
    }
}

impl Grid {
    fn of(answers: &[Answer], order: usize, lengths: &[usize], depths: &[u32]) -> Grid {
        let of_order = || answers.iter().filter(move |a| a.order == order);
        let cell = |length, depth| CellScore {
            length,
            depth,
            score: Score::of(of_order().filter(move |a| a.length == length && a.depth == depth)),
        };
        let cells = lengths.iter().flat_map(|length| depths.iter().map(move |depth| cell(*length, *depth))).collect();
        Grid { all: Score::of(of_order()), cells }
    }

    fn at(&self, length: usize, depth: u32) -> Option<&Score> {
        self.cells.iter().find(|c| c.length == length && c.depth == depth).map(|c| &c.score)
    }
}

impl<'a> Summary<'a> {
    pub fn new(args: &'a EvalNeedleArgs, setting: &'a Setting, answers: &[Answer]) -> Summary<'a> {
        let (lengths, depths) = (ascending(&args.lengths), ascending(&args.depths));
        let sum = |of: fn(&Answer) -> f64| answers.iter().map(of).sum::<f64>();
        let peak = |of: fn(&Tiers<u64>) -> u64| answers.iter().map(|a| of(&a.cost.kv_peak_bytes)).max().unwrap_or(0);
        Summary {
            event: "summary",
            eval: "needle",
            setting,
            attention: answers.last().map(|a| a.cost.attention),
            first: Grid::of(answers, 1, &lengths, &depths),
            second: args.two_questions.then(|| Grid::of(answers, 2, &lengths, &depths)),
            lengths,
            depths,
            seeds: ascending(&args.seeds),
            questions: args.questions,
            mass_kept: mass_kept(answers),
            reuse: reuse(answers),
            prefill_ms: sum(|a| a.cost.prefill_ms),
            generated_tokens: answers.iter().map(|a| a.cost.generated_tokens).sum(),
            decode_ms: sum(|a| a.cost.decode_ms),
            kv_peak_bytes: Tiers { vram: peak(|t| t.vram), ram: peak(|t| t.ram), disk: peak(|t| t.disk) },
        }
    }

    /// Table for the console: right answers of all questions.
    pub fn table(&self) -> String {
        let seeds = self.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let mut text = format!("{} · seeds {seeds}\n", self.setting.line());
        for (title, grid) in [("first question", Some(&self.first)), ("second question", self.second.as_ref())] {
            let Some(grid) = grid else { continue };
            let mut head = vec![title.to_owned()];
            head.extend(self.depths.iter().map(|depth| format!("{depth} %")));
            head.push("all".to_owned());
            let rule = head.iter().enumerate().map(|(i, _)| if i == 0 { "-".repeat(15) } else { "------:".to_owned() });
            text += &format!("\n{}{}", row(&head), row(&rule.collect::<Vec<_>>()));
            for &length in &self.lengths {
                let scores = self.depths.iter().filter_map(|depth| grid.at(length, *depth));
                let asked = scores.clone().map(|s| s.asked).sum();
                let all = Score { asked, hits: scores.clone().map(|s| s.hits).sum(), share: None };
                let cells = scores.chain([&all]).map(Score::shown);
                text += &row(&std::iter::once(format!("{length} tokens")).chain(cells).collect::<Vec<_>>());
            }
            text += &format!("{} of {} found\n", grid.all.hits, grid.all.asked);
        }
        if let Some(reuse) = self.reuse {
            text += &format!("{:.1} % of the selected pages were in VRAM already\n", reuse * 100.0);
        }
        if let Some(kept) = self.mass_kept.as_deref().filter(|layers| !layers.is_empty()) {
            let (mean, least) = (kept.iter().sum::<f64>() / kept.len() as f64, kept.iter().copied().fold(1.0, f64::min));
            text += &format!("{:.1} % of the attention retained, {:.1} % in the worst layer\n", mean * 100.0, least * 100.0);
        }
        text
    }

    /// Heat map of first questions: lengths to the right, depths downward.
    pub fn heat_map(&self) -> HeatMap {
        let cell = |length: usize, depth: u32| {
            let share = self.first.at(length, depth)?.share?;
            Some(Cell { shade: share, text: format!("{:.0} %", share * 100.0) })
        };
        let Score { asked, hits, .. } = self.first.all;
        HeatMap {
            title: format!("Facts found: {hits} of {asked}"),
            subtitle: self.setting.line(),
            caption: "context in tokens to the right, depth of the fact downward; dark: found".to_owned(),
            row_labels: self.depths.iter().map(|depth| format!("{depth} %")).collect(),
            column_labels: self.lengths.iter().map(usize::to_string).collect(),
            cells: self.depths.iter().map(|d| self.lengths.iter().map(|l| cell(*l, *d)).collect()).collect(),
        }
    }
}

/// Selection summaries of the answers that have one.
fn selections(answers: &[Answer]) -> impl Iterator<Item = &SelectionSummary> {
    answers.iter().filter_map(|a| a.cost.selection.as_ref())
}

/// Mean reuse over all decode steps.
fn reuse(answers: &[Answer]) -> Option<f64> {
    let n_steps: u64 = selections(answers).map(|c| c.steps).sum();
    (n_steps > 0).then(|| selections(answers).map(|c| c.reuse * c.steps as f64).sum::<f64>() / n_steps as f64)
}

/// Attention mass by layer: mean over the steps in which it was measured.
fn mass_kept(answers: &[Answer]) -> Option<Vec<f64>> {
    let n_steps: u64 = selections(answers).map(|c| c.mass_steps).sum();
    let mut kept: Vec<f64> = Vec::new();
    for (layers, n_here) in selections(answers).filter_map(|c| Some((c.mass.as_ref()?, c.mass_steps))) {
        kept.resize(kept.len().max(layers.len()), 0.0);
        for (sum, layer) in kept.iter_mut().zip(layers) {
            *sum += layer.kept * n_here as f64 / n_steps as f64;
        }
    }
    (n_steps > 0).then_some(kept)
}

/// Row of a Markdown table, aligned for terminals.
fn row(cells: &[String]) -> String {
    let (first, rest) = cells.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    let rest: String = rest.iter().map(|cell| format!(" {cell:>7} |")).collect();
    format!("| {first:<15} |{rest}\n")
}
