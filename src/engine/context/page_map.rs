//! Where every page of the context is, as a front end shows it: told while somebody watches, and when it is asked for.
//!
//! ```text
//! kv census, mass of pages, bytes of text ─► PageMap ─► EngineEvent::Pages, twice a second at most
//! ```
//! 1. Nothing is counted while nobody watches. 2. What was not measured is not there, rather than 0.
//!
//! Owner thread: the engine. Shapes: L layers, P complete pages, row by row.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::Tiers;
use crate::base::limits::KV_PAGE_TOKENS;
use crate::engine::api::{EngineEvent, Message, PageMap, Role};
use crate::engine::handle::EnginePort;
use crate::engine::runner::ModelRunner;
use crate::telemetry;
use crate::token::Tokenizer;

/// Between two maps of a turn: counting takes milliseconds where the context is long.
const MAP_EVERY: Duration = Duration::from_millis(500);
/// Where the text of the first message begins is looked for in so much of the prompt, bytes.
const HEAD_BYTES: usize = 8192;
/// By its first bytes.
const KEY_BYTES: usize = 48;

/// What is remembered from one map to the next.
#[derive(Debug, Default)]
pub(in crate::engine) struct PageView {
    /// bytes of the prompt before the first user message; none where it was not found
    head_bytes: Option<usize>,
    /// tokens that are all of those
    n_head: usize,
    /// of the pages so far, in the prompt
    ends: Vec<usize>,
    shown: Option<Instant>,
}

impl PageView {
    /// The context begins with another prompt, in which the first user message says `text`.
    pub(in crate::engine) fn begin(&mut self, tokenizer: &Tokenizer, prompt: &[u32], text: &str) {
        self.ends.clear();
        self.head_bytes = find_text(tokenizer, prompt, text);
        let mut left = self.head_bytes.unwrap_or(0);
        let is_head = |id: &&u32| {
            let n_bytes = tokenizer.token_bytes(**id).map_or(0, |bytes| bytes.len());
            let fits = left > 0 && n_bytes <= left;
            left = left.saturating_sub(n_bytes);
            fits
        };
        self.n_head = prompt.iter().take_while(is_head).count();
    }

    /// Tokens of the prompt before the first user message.
    pub(in crate::engine) fn n_head(&self) -> usize {
        self.n_head
    }

    /// Where pages begin in the first user message, up to where the last of `n_pages` ends.
    fn first_bytes(&mut self, tokenizer: &Tokenizer, tokens: &[u32], n_pages: usize) -> Vec<u32> {
        let Some(head) = self.head_bytes else { return Vec::new() };
        let mut end = self.ends.last().copied().unwrap_or(0);
        for page in tokens.chunks_exact(KV_PAGE_TOKENS).take(n_pages).skip(self.ends.len()) {
            end += page.iter().map(|id| tokenizer.token_bytes(*id).map_or(0, |bytes| bytes.len())).sum::<usize>();
            self.ends.push(end);
        }
        let ends = std::iter::once(0).chain(self.ends.iter().copied()).take(n_pages + 1);
        ends.map(|byte| u32::try_from(byte.saturating_sub(head)).unwrap_or(u32::MAX)).collect()
    }
}

/// Bytes of the prompt before `text`; none where its beginning is not near that of the prompt.
pub(super) fn find_text(tokenizer: &Tokenizer, prompt: &[u32], text: &str) -> Option<usize> {
    let mut head = Vec::new();
    for id in prompt {
        if head.len() > HEAD_BYTES {
            break;
        }
        head.extend(tokenizer.token_bytes(*id).ok()?);
    }
    let key = text.as_bytes().get(..KEY_BYTES.min(text.len())).filter(|key| !key.is_empty())?;
    head.windows(key.len()).position(|window| window == key)
}

impl ModelRunner {
    /// The context is going to be that of `prompt`, which these messages gave.
    pub(in crate::engine) fn begin_text(&mut self, prompt: &[u32], messages: &[Message]) {
        let first = messages.iter().find(|m| m.role == Role::User).map_or("", |m| m.content.as_str());
        if let Ok(side) = self.text() {
            let tokenizer = side.tokenizer.clone();
            self.page_view.begin(&tokenizer, prompt, first);
        }
    }

    /// Tells where all pages are, if somebody watches and it was not told just now.
    pub(in crate::engine) fn show_pages(&mut self, port: &EnginePort) {
        let is_due = self.page_view.shown.is_none_or(|at| at.elapsed() >= MAP_EVERY);
        if port.watches_pages() && is_due {
            self.emit_pages(port);
        }
    }

    /// Tells where all pages are when a turn has ended, if somebody watches.
    pub(in crate::engine) fn show_last_pages(&mut self, port: &EnginePort) {
        if port.watches_pages() {
            self.emit_pages(port);
        }
    }

    /// Tells where all pages are, and then what the tiers hold.
    pub(in crate::engine) fn emit_pages(&mut self, port: &EnginePort) {
        let map = self.page_map();
        port.emit(EngineEvent::Pages(Arc::new(map)));
        self.emit_usage(port);
        self.page_view.shown = Some(Instant::now());
    }

    /// What the KV tiers hold, bytes.
    pub(in crate::engine) fn tiers_used(&self) -> Tiers<u64> {
        let (kv, usage) = (&self.model.kv, self.model.kv.report().usage);
        Tiers { vram: kv.bytes(), ram: usage.ram.now.0 + kv.staging_bytes(), disk: usage.disk.now.0 }
    }

    /// Tells what the KV tiers hold.
    pub(in crate::engine) fn emit_usage(&self, port: &EnginePort) {
        port.emit(EngineEvent::KvUse { used: self.tiers_used(), budgets: self.below.setup.budgets });
    }

    /// Where the text of each of `n_pages` begins in the first user message, and where that of the last ends; empty where the
    /// context has no text.
    pub(in crate::engine) fn first_bytes(&mut self, n_pages: usize) -> Vec<u32> {
        let Ok(side) = self.text() else { return Vec::new() };
        let tokenizer = side.tokenizer.clone();
        self.page_view.first_bytes(&tokenizer, &self.tokens, n_pages)
    }

    fn page_map(&mut self) -> PageMap {
        let kv = &self.model.kv;
        let selective = self.model.selector.as_ref();
        let census = kv.occupancy(selective.map(|s| s.last_step()));
        let by_layer = selective.map(|s| s.page_mass()).unwrap_or_default();
        let mass = match by_layer.is_empty() {
            true => Vec::new(),
            false => {
                let of_layer = |layer: usize| by_layer.get(layer).map_or(&[] as &[f32], Vec::as_slice);
                let page = |layer: usize, page: usize| of_layer(layer).get(page).copied().unwrap_or(f32::NAN);
                (0..census.n_layer).flat_map(|l| (0..census.n_pages).map(move |p| (l, p))).map(|(l, p)| page(l, p)).collect()
            }
        };
        let (page_bytes, n_pages, dtype) = (kv.spec().page_bytes(), census.n_pages, self.below.dtype());
        let first_byte = self.first_bytes(n_pages);
        PageMap { taken_ns: telemetry::now(), census, n_tokens: self.tokens.len(), page_bytes, dtype, mass, first_byte }
    }
}
