//! Passes through the layers: a chunk of one sequence's tokens, or the next token of every sequence of a batch.
//!
//! ```text
//! chunk [T]:  n_context tokens in complete pages ─► prefill attention ◄─ tail of the sequence, with the chunk
//! rows [R]:   n_context tokens in complete pages ─► decode attention  ◄─ tail of each row, with its token
//! ```
//! 1. A single sequence appends to the tail of the context; a sequence of a batch has its own tail.
//! 2. A single answer is a batch of one row.
//!
//! Owner: the engine thread.

use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::runner::executor::{Executor, TailOps};
use crate::engine::scheduler::sequence_tail::SequenceTail;
use crate::engine::selection::sequence_policy::SequencePolicy;
use crate::gpu::kernels::attention_decode::{AttentionDecode, SegmentEntries, SegmentKeys, SplitRows};
use crate::gpu::kernels::rope_append::AppendRange;

/// Destination of the new tokens of a sequence.
pub(in crate::engine) enum SequenceKv<'a> {
    /// the tail of the context, whose complete pages are sealed
    Context,
    /// its own tail, after the pages that all sequences share
    Own(&'a mut SequenceTail),
}

/// Source of the next token of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum NextToken {
    /// its id
    Known(u32),
    /// chosen by the GPU for the same row of the last pass, and not yet known to the CPU
    OnDevice,
}

/// The next token of a sequence.
pub(in crate::engine) struct Row<'a> {
    pub token: NextToken,
    pub kv: SequenceKv<'a>,
    /// None if attention reads every page
    pub policy: Option<&'a mut SequencePolicy>,
}

/// One pass through all layers.
pub(in crate::engine) enum Pass<'p, 'a> {
    /// the next tokens of one sequence, at least two
    Chunk(&'p [u32], &'p mut SequenceKv<'a>),
    /// one token per sequence
    Rows(&'p mut [Row<'a>]),
}

/// Keys of one block table.
pub(in crate::engine) struct KeyRun {
    pub n_keys: usize,
    /// logical blocks (row stride of the table)
    pub n_blocks: usize,
    /// keys visible to the first token; each later token has one more
    pub mask_from: usize,
}

/// Splits of decode attention of several rows: the shared pages, and the tail of each row.
pub(in crate::engine) struct Splits {
    pub n_rows: usize,
    /// splits per row
    pub n_splits: usize,
    /// splits of the longest tail
    n_tail: usize,
    /// keys of each split
    split_keys: usize,
    next: usize,
    /// first split of the tails, if they come first
    tails_at: Option<usize>,
}

impl SequenceKv<'_> {
    /// Bind groups of the tail of a layer.
    pub fn ops<'m>(&'m self, exec: &'m Executor, layer: usize) -> &'m TailOps {
        match self {
            SequenceKv::Context => &exec.tails[layer],
            SequenceKv::Own(tail) => &tail.ops[layer],
        }
    }

    /// Tokens in the tail of a sequence with `n_context` tokens before it.
    pub fn n_tokens(&self, n_context: usize) -> usize {
        match self {
            SequenceKv::Context => n_context % KV_PAGE_TOKENS,
            SequenceKv::Own(tail) => tail.n_tokens,
        }
    }

    /// Position of the next token.
    pub fn position(&self, n_context: usize) -> usize {
        match self {
            SequenceKv::Context => n_context,
            SequenceKv::Own(tail) => n_context + tail.n_tokens,
        }
    }

    fn n_blocks(&self, exec: &Executor) -> usize {
        match self {
            SequenceKv::Context => exec.kv.tail_blocks(),
            SequenceKv::Own(tail) => tail.n_blocks(),
        }
    }

    /// Slots of the next `n` tokens, which are rows `first_token ..` of the pass.
    pub fn append(&self, exec: &Executor, n_context: usize, first_token: usize, n: usize) -> AppendRange {
        AppendRange { first_token, n_tokens: n, first_slot: self.n_tokens(n_context), n_blocks: self.n_blocks(exec) }
    }

    /// Keys of the tail visible to the next `n` tokens.
    pub fn run(&self, exec: &Executor, n_context: usize, n: usize) -> KeyRun {
        let n_tokens = self.n_tokens(n_context);
        KeyRun { n_keys: n_tokens + n, n_blocks: self.n_blocks(exec), mask_from: n_tokens + 1 }
    }

    /// Counts the tokens of a pass in a tail. The context counts its own.
    fn advance(&mut self, n: usize) {
        if let SequenceKv::Own(tail) = self {
            tail.n_tokens += n;
        }
    }
}

impl<'a> Pass<'_, 'a> {
    /// Number of tokens: T of a chunk, R rows.
    pub fn n_tokens(&self) -> usize {
        match self {
            Pass::Chunk(tokens, _) => tokens.len(),
            Pass::Rows(rows) => rows.len(),
        }
    }

    /// Ids of the tokens. None if they are on the device.
    pub fn ids(&self) -> Option<Vec<u32>> {
        let id_of = |row: &Row| match row.token {
            NextToken::Known(id) => Some(id),
            NextToken::OnDevice => None,
        };
        match self {
            Pass::Chunk(tokens, _) => Some(tokens.to_vec()),
            Pass::Rows(rows) => rows.iter().map(id_of).collect(),
        }
    }

    /// Position of each token.
    pub fn positions(&self, n_context: usize) -> Vec<usize> {
        match self {
            Pass::Chunk(tokens, kv) => (kv.position(n_context)..).take(tokens.len()).collect(),
            Pass::Rows(rows) => rows.iter().map(|row| row.kv.position(n_context)).collect(),
        }
    }

    /// Parts of the pass by tail: first token, number of tokens, tail.
    pub fn parts(&self) -> Vec<(usize, usize, &SequenceKv<'a>)> {
        match self {
            Pass::Chunk(tokens, kv) => vec![(0, tokens.len(), &**kv)],
            Pass::Rows(rows) => rows.iter().enumerate().map(|(i, row)| (i, 1, &row.kv)).collect(),
        }
    }

    /// True if the pass appends to the tail of the context.
    pub fn is_context(&self) -> bool {
        self.parts().iter().any(|(_, _, kv)| matches!(kv, SequenceKv::Context))
    }

    /// True if a policy selects the tokens that attention reads.
    pub fn is_selective(&self) -> bool {
        matches!(self, Pass::Rows(rows) if rows.iter().any(|row| row.policy.is_some()))
    }

    /// Counts the tokens and the step of a finished pass.
    pub fn advance(&mut self) {
        match self {
            Pass::Chunk(tokens, kv) => kv.advance(tokens.len()),
            Pass::Rows(rows) => {
                for row in rows.iter_mut() {
                    row.kv.advance(1);
                    row.policy.iter_mut().for_each(|policy| policy.step += 1);
                }
            }
        }
    }
}

impl KeyRun {
    /// Run of complete pages, visible to every token.
    pub fn of_pages(n_pages: usize, n_blocks: usize) -> KeyRun {
        KeyRun { n_keys: n_pages * KV_PAGE_TOKENS, n_blocks, mask_from: n_pages * KV_PAGE_TOKENS }
    }
}

impl Splits {
    /// Splits of the runs that all rows read, with `shared` keys each, plus those of the longest tail.
    pub fn new(decode: &AttentionDecode, rows: &[Row], n_context: usize, shared: &[usize]) -> Splits {
        let tail_keys = rows.iter().map(|row| row.kv.n_tokens(n_context) + 1).max().unwrap_or(0);
        let split_keys = decode.split_keys(shared.iter().sum::<usize>() + tail_keys);
        let n_shared: usize = shared.iter().map(|keys| keys.div_ceil(split_keys)).sum();
        let n_tail = tail_keys.div_ceil(split_keys);
        Splits { n_rows: rows.len(), n_splits: n_shared + n_tail, n_tail, split_keys, next: 0, tails_at: None }
    }

    /// The same with the tails first, so that their scores are known before those of the runs.
    pub fn tails_first(self) -> Splits {
        Splits { next: self.n_tail, tails_at: Some(0), ..self }
    }

    /// Splits of the tail of each row.
    pub fn n_tail(&self) -> usize {
        self.n_tail
    }

    /// Splits of the next `n_keys` keys, visible to all rows.
    pub fn next(&mut self, n_keys: usize, n_blocks: usize) -> (SegmentKeys, SplitRows) {
        let (n_splits, split_keys) = (self.n_splits, self.split_keys);
        let n_here = n_keys.div_ceil(split_keys);
        let keys = SegmentKeys { n_keys, n_blocks, first_split: self.next, n_splits, split_keys, entries: SegmentEntries::ALL };
        self.next += n_here;
        (keys, SplitRows { first: 0, n: self.n_rows, n_splits: n_here })
    }

    /// Splits of the tails of all rows: keys and row of each.
    pub fn tails(&mut self, runs: impl Iterator<Item = KeyRun>) -> Vec<(SegmentKeys, SplitRows)> {
        let (n_splits, n_tail, split_keys) = (self.n_splits, self.n_tail, self.split_keys);
        let first_split = self.tails_at.unwrap_or(self.next);
        if self.tails_at.is_none() {
            self.next += n_tail;
        }
        let of_row = |(first, run): (usize, KeyRun)| {
            let keys = SegmentKeys {
                n_keys: run.n_keys,
                n_blocks: run.n_blocks,
                first_split,
                n_splits,
                split_keys,
                entries: SegmentEntries::ALL,
            };
            (keys, SplitRows { first, n: 1, n_splits: n_tail })
        };
        runs.enumerate().map(of_row).collect()
    }
}
