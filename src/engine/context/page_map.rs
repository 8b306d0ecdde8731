//! Page map: where every KV page of the context is, for display.
//!
//! ```text
//! tier occupancy, mass per page, text offsets ─► PageMap ─► EngineEvent::Pages, at most twice a second
//! ```
//! 1. A map is made only if the front end requests it. 2. An unmeasured mass is NaN or absent, not 0.
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

/// Minimum interval between two maps of a request. A map of a long context takes milliseconds.
const MAP_EVERY: Duration = Duration::from_millis(500);
/// Maximum offset in the prompt at which the text of the first user message may begin, bytes.
const HEAD_BYTES: usize = 8192;
/// Bytes of the text that are searched for.
const KEY_BYTES: usize = 48;

/// State between two maps.
#[derive(Debug, Default)]
pub(in crate::engine) struct PageView {
    /// bytes of the prompt before the first user message; None if not found
    head_bytes: Option<usize>,
    /// tokens of those bytes
    n_head: usize,
    /// end of each page so far, bytes of the prompt
    ends: Vec<usize>,
    shown: Option<Instant>,
}

impl PageView {
    /// Begins another prompt, whose first user message is `text`.
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

    /// Byte offsets of `n_pages` pages in the first user message, and the end of the last.
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

/// Bytes of the prompt before `text`. None if it does not begin near the start of the prompt.
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
    /// Begins the context of `prompt`, encoded from these messages.
    pub(in crate::engine) fn begin_text(&mut self, prompt: &[u32], messages: &[Message]) {
        let first = messages.iter().find(|m| m.role == Role::User).map_or("", |m| m.content.as_str());
        if let Ok(side) = self.text() {
            let tokenizer = side.tokenizer.clone();
            self.page_view.begin(&tokenizer, prompt, first);
        }
    }

    /// Emits a page map if the front end requests maps and one is due.
    pub(in crate::engine) fn show_pages(&mut self, port: &EnginePort) {
        let is_due = self.page_view.shown.is_none_or(|at| at.elapsed() >= MAP_EVERY);
        if port.watches_pages() && is_due {
            self.emit_pages(port);
        }
    }

    /// Emits a page map at the end of a request, if the front end requests maps.
    pub(in crate::engine) fn show_last_pages(&mut self, port: &EnginePort) {
        if port.watches_pages() {
            self.emit_pages(port);
        }
    }

    /// Emits a page map, then the use of the tiers.
    pub(in crate::engine) fn emit_pages(&mut self, port: &EnginePort) {
        let map = self.page_map();
        port.emit(EngineEvent::Pages(Arc::new(map)));
        self.emit_usage(port);
        self.page_view.shown = Some(Instant::now());
    }

    /// Use of the KV tiers, bytes.
    pub(in crate::engine) fn tiers_used(&self) -> Tiers<u64> {
        let (kv, usage) = (&self.exec.kv, self.exec.kv.report().usage);
        Tiers { vram: kv.bytes(), ram: usage.ram.now.0 + kv.staging_bytes(), disk: usage.disk.now.0 }
    }

    /// Emits the use of the KV tiers.
    pub(in crate::engine) fn emit_usage(&self, port: &EnginePort) {
        port.emit(EngineEvent::KvUse { used: self.tiers_used(), budgets: self.below.setup.budgets });
    }

    /// Byte offsets of `n_pages` pages in the first user message, and the end of the last. Empty if the context has no text.
    pub(in crate::engine) fn first_bytes(&mut self, n_pages: usize) -> Vec<u32> {
        let Ok(side) = self.text() else { return Vec::new() };
        let tokenizer = side.tokenizer.clone();
        self.page_view.first_bytes(&tokenizer, &self.tokens, n_pages)
    }

    fn page_map(&mut self) -> PageMap {
        let kv = &self.exec.kv;
        let selective = self.exec.selector.as_ref();
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
