//! Page map: the tiers of every KV page of the context, for display.
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
use crate::engine::api::{EngineEvent, Message, PageMap, Role};
use crate::engine::handle::EnginePort;
use crate::engine::runner::ModelRunner;
use crate::telemetry;

/// Minimum interval between two maps of a request. A map of a long context takes milliseconds.
const MAP_INTERVAL: Duration = Duration::from_millis(500);

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
        let is_due = self.page_view.shown.is_none_or(|at| at.elapsed() >= MAP_INTERVAL);
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
        port.emit(EngineEvent::KvUse { used: self.tiers_used(), budgets: self.storage.setup.budgets });
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
        let occupancy = kv.occupancy(selective.map(|s| s.last_step()));
        let by_layer = selective.map(|s| s.page_mass()).unwrap_or_default();
        let mass = match by_layer.is_empty() {
            true => Vec::new(),
            false => {
                let of_layer = |layer: usize| by_layer.get(layer).map_or(&[] as &[f32], Vec::as_slice);
                let page = |layer: usize, page: usize| of_layer(layer).get(page).copied().unwrap_or(f32::NAN);
                (0..occupancy.n_layer)
                    .flat_map(|l| (0..occupancy.n_pages).map(move |p| (l, p)))
                    .map(|(l, p)| page(l, p))
                    .collect()
            }
        };
        let (page_bytes, n_pages, dtype) = (kv.spec().page_bytes(), occupancy.n_pages, self.storage.dtype());
        let first_byte = self.first_bytes(n_pages);
        PageMap { taken_ns: telemetry::now(), occupancy, n_tokens: self.tokens.len(), page_bytes, dtype, mass, first_byte }
    }
}
