//! Engine events: their effect on the state of the window.
//!
//! ```text
//! EngineEvent ─► apply() ─► model, running request, exchanges, tiers, library, notices
//! ```
//! Invariants: 1. Events of a request that does not run change nothing. 2. The state of the context is the engine's last report.
//! Owner thread: the UI thread; nothing here waits.

use crate::app::answer::exact_check::mass_kept;
use crate::app::answer::message_text::in_window;
use crate::app::answer::page_attention::AttendedPages;
use crate::app::state::chat::{ChatId, DocId, Exchange, OpenDocument, Outcome};
use crate::app::state::{KvUse, ModelState, Phase, ViewState};
use crate::engine::{EngineEvent, ModelInfo, RequestId, RequestSummary, ReusedDocument};

impl ViewState {
    /// Applies an event of the engine.
    pub fn apply(&mut self, event: EngineEvent) {
        match event {
            EngineEvent::ModelLoading { share, what } => {
                self.clear_cached_tokens(None);
                self.measured.kv = None;
                self.engine.model = ModelState::Loading { share: share.clamp(0.0, 1.0), what };
            }
            EngineEvent::ModelLoaded(info) => self.model_loaded(info),
            EngineEvent::ModelFailed { sentence, .. } => {
                self.clear_cached_tokens(None);
                self.measured.kv = None;
                self.engine.model = ModelState::Failed(in_window(&sentence));
            }
            EngineEvent::ModelUnloaded => {
                self.clear_cached_tokens(None);
                self.measured.kv = None;
                self.engine.model = ModelState::Absent;
            }
            EngineEvent::RequestStarted { request, prompt_tokens, cached_tokens } => {
                if let Some(chat) = self.running_chat(request) {
                    self.record_resumed(chat, cached_tokens);
                    self.clear_cached_tokens(Some(chat));
                    self.progress(request, Phase::Prefill { done: cached_tokens, total: prompt_tokens, tokens_per_s: 0.0 });
                    self.cached(chat, cached_tokens);
                    self.set_approximate(chat, &[]);
                    self.chats.list.iter_mut().filter(|c| c.id == chat).for_each(|c| c.prompt_tokens = prompt_tokens);
                    self.engine.pending_stop = self.engine.running.is_some_and(|r| r.stopping);
                }
            }
            EngineEvent::Prefill { request, done, total, tokens_per_s } => {
                if let Some(chat) = self.running_chat(request) {
                    self.progress(request, Phase::Prefill { done, total, tokens_per_s });
                    self.cached(chat, done);
                    if tokens_per_s > 0.0 {
                        self.measured.last_prefill = Some(tokens_per_s);
                    }
                }
            }
            EngineEvent::Approximate { request, documents } => {
                if let Some(chat) = self.running_chat(request) {
                    self.set_approximate(chat, &documents);
                }
            }
            EngineEvent::Token { request, text, n, tokens_per_s, context_used } => {
                if let Some(chat) = self.running_chat(request) {
                    self.progress(request, Phase::Decode { n, tokens_per_s });
                    if !self.is_checking() {
                        self.measured.last_speed = Some(tokens_per_s);
                    }
                    self.cached(chat, context_used);
                    if let Some((answer, _)) = self.running_answer() {
                        answer.push_str(&text);
                    }
                    self.record_token_end(n);
                    self.save_answer_piece(text);
                }
            }
            EngineEvent::PageAttention { request, page_attention } => {
                if let Some(chat) = self.running_chat(request).filter(|_| !self.is_checking())
                    && let Some(chat) = self.chats.list.iter().find(|c| c.id == chat)
                {
                    let attended_pages = AttendedPages::of(chat.docs(&self.documents.list), &page_attention);
                    if let Some(exchange) = self.running_exchange() {
                        exchange.attended_pages = attended_pages;
                    }
                }
            }
            EngineEvent::Finished { request, summary } => {
                if let Some(chat) = self.running_chat(request) {
                    self.finished(chat, summary);
                }
            }
            EngineEvent::Failed { request, sentence, .. } => {
                self.engine.counting.remove(&request);
                self.fail(request, in_window(&sentence));
            }
            EngineEvent::Counted { request, tokens, positions } => self.counted(request, tokens, &positions),
            EngineEvent::Notice(text) => self.notice(in_window(&text), false),
            EngineEvent::KvUse { used, budgets } => self.measured.kv = Some(KvUse { used, budgets }),
            EngineEvent::Library(documents) => self.library = Some(documents),
            EngineEvent::Device(device) => self.engine.device = Some(*device),
            EngineEvent::Pages(_) | EngineEvent::Links(_) | EngineEvent::Kernels(..) | EngineEvent::Telemetry(_) => {}
            EngineEvent::LogitsRows { .. } | EngineEvent::BenchResult { .. } => {}
        }
    }

    fn finished(&mut self, chat: ChatId, summary: Box<RequestSummary>) {
        self.cached(chat, summary.context_used);
        if let ModelState::Ready(info) = &mut self.engine.model {
            info.vram_bytes = summary.vram_bytes;
        }
        if summary.io.read_bytes > 0 && summary.io.read_ms > 0.0 {
            self.measured.disk_speed = Some(summary.io.read_bytes as f64 / (summary.io.read_ms / 1000.0));
        }
        if !self.is_checking() {
            (self.measured.attention, self.measured.mass_kept) = (Some(summary.attention), mass_kept(&summary));
            if summary.generated_tokens > 1 && summary.tokens_per_s > 0.0 {
                self.measured.last_speed = Some(summary.tokens_per_s);
            }
        }
        if let Some((_, outcome)) = self.running_answer() {
            *outcome = Outcome::Done(summary);
        }
        self.request_citations();
        self.save_answer();
        self.request_ended();
    }

    fn request_ended(&mut self) {
        self.engine.running = None;
        self.send_deferred();
    }

    /// Records resumed tokens: cached tokens at the start of a request whose chat had none, so they are from the library.
    fn record_resumed(&mut self, chat: ChatId, cached_tokens: usize) {
        let chat = self.chats.list.iter().find(|c| c.id == chat);
        let resumed = chat.is_some_and(|c| c.cached_tokens == 0 && self.saved_prefix_of(c).is_some());
        let is_check = self.is_checking();
        if let Some(exchange) = self.running_exchange().filter(|_| resumed && !is_check) {
            exchange.resumed_tokens = cached_tokens;
        }
    }

    fn model_loaded(&mut self, info: Box<ModelInfo>) {
        self.clear_cached_tokens(None);
        (self.measured.last_speed, self.measured.last_prefill, self.measured.attention, self.measured.mass_kept) =
            (None, None, None, None);
        for note in &info.notes {
            self.notice(note.clone(), false);
        }
        self.engine.model = ModelState::Ready(info);
        self.record_model(true);
        self.apply_model_sampling();
        self.engine.counting.clear();
        let ids: Vec<DocId> = self.documents.list.iter().map(|d| d.id).collect();
        for doc in &mut self.documents.list {
            (doc.n_tokens, doc.token_range) = (None, None);
        }
        self.chats.list.iter_mut().for_each(|chat| chat.token_ranges.clear());
        ids.into_iter().for_each(|id| self.count_document(id));
        self.count_chat();
    }

    pub(in crate::app) fn fail(&mut self, request: RequestId, sentence: String) {
        if self.running_chat(request).is_none() {
            return;
        }
        match self.running_answer() {
            Some((_, outcome)) => *outcome = Outcome::Failed(sentence),
            None => self.notice(sentence, true),
        }
        self.save_answer();
        self.request_ended();
    }

    fn running_chat(&self, request: RequestId) -> Option<ChatId> {
        self.engine.running.filter(|r| r.request == request).map(|r| r.chat)
    }

    fn running_exchange(&mut self) -> Option<&mut Exchange> {
        let running = self.engine.running?;
        let chat = self.chats.list.iter_mut().find(|c| c.id == running.chat)?;
        chat.all_exchanges_mut().find(|e| running.is_for(e.id))
    }

    /// Records the end of token `n` in the answer. Tokens without text of their own end where the next one does.
    fn record_token_end(&mut self, n: usize) {
        let is_check = self.is_checking();
        if let Some(exchange) = self.running_exchange().filter(|_| !is_check) {
            let end = u32::try_from(exchange.answer.len()).unwrap_or(u32::MAX);
            exchange.token_ends.resize(n, end);
            exchange.token_ends.last_mut().into_iter().for_each(|last| *last = end);
        }
    }

    /// Text and outcome that the running request writes to.
    fn running_answer(&mut self) -> Option<(&mut String, &mut Outcome)> {
        let is_check = self.is_checking();
        let exchange = self.running_exchange()?;
        if is_check {
            return exchange.check.as_mut().map(|check| (&mut check.answer, &mut check.outcome));
        }
        Some((&mut exchange.answer, &mut exchange.outcome))
    }

    fn progress(&mut self, request: RequestId, phase: Phase) {
        if let Some(running) = self.engine.running.as_mut().filter(|r| r.request == request) {
            running.phase = phase;
        }
    }

    fn cached(&mut self, chat: ChatId, tokens: usize) {
        if let Some(chat) = self.chats.list.iter_mut().find(|c| c.id == chat) {
            chat.cached_tokens = tokens;
        }
    }

    /// Records the documents of a chat of which the context has KV from another position.
    fn set_approximate(&mut self, chat: ChatId, reused: &[ReusedDocument]) {
        let Some(chat) = self.chats.list.iter_mut().find(|c| c.id == chat) else { return };
        let is_reused = |doc: &&OpenDocument| reused.iter().any(|r| r.content_hash == doc.content_hash.0);
        chat.approximate = chat.docs(&self.documents.list).filter(is_reused).map(|doc| doc.id).collect();
    }

    fn clear_cached_tokens(&mut self, except: Option<ChatId>) {
        for chat in self.chats.list.iter_mut().filter(|c| Some(c.id) != except) {
            (chat.cached_tokens, chat.prompt_tokens) = (0, 0);
            chat.approximate.clear();
        }
    }
}
