//! What the dock remembers from frame to frame, and what it asks the engine for.
//!
//! Units: nanoseconds of [`crate::telemetry::now`], bytes.

use std::sync::Arc;

use crate::app::answer::citations::SourceLocation;
use crate::app::dashboard::kv_map::KvMapState;
use crate::app::dashboard::ledger::LedgerState;
use crate::app::dashboard::overhead::Cost;
use crate::app::dashboard::rates::{Figures, Window};
use crate::app::dashboard::timeline::{INGEST_LANE, TimelineState};
use crate::app::dashboard::traces::{OpenRun, RunsState};
use crate::app::panels::document::document_view::Viewer;
use crate::app::state::ViewState;
use crate::app::state::chat::{Exchange, Outcome};
use crate::engine::{EngineCommand, EngineEvent, LinkBandwidth, PageMap};
use crate::telemetry::overlap::Interval;
use crate::telemetry::{Event, EventKind, History, Track};

/// What the dock shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tab {
    /// links, utilization, budgets
    #[default]
    Activity,
    /// every event on one axis of time
    Timeline,
    /// where each page of the context is
    KvMap,
    /// what each step read, and how it came by it
    Ledger,
    /// what was left out, and what that cost
    Fidelity,
}

impl Tab {
    /// All, as they stand side by side.
    pub const ALL: [Tab; 5] = [Tab::Activity, Tab::Timeline, Tab::KvMap, Tab::Ledger, Tab::Fidelity];

    /// As it is written on the tab.
    pub const fn name(self) -> &'static str {
        match self {
            Tab::Activity => "Activity",
            Tab::Timeline => "Timeline",
            Tab::KvMap => "KV map",
            Tab::Ledger => "Ledger",
            Tab::Fidelity => "Fidelity",
        }
    }
}

/// Everything the dock shows.
#[derive(Debug, Default)]
pub struct DashboardState {
    /// beside the chat, or in its place
    pub open: bool,
    /// in place of the chat
    pub fills: bool,
    /// how wide it is beside the chat, points; none where it was never open
    pub width: Option<f32>,
    /// what it shows
    pub tab: Tab,
    /// the step that every panel points at: when it began, nanoseconds
    pub selected_step: Option<u64>,
    /// every event that the engine handed on
    pub history: History,
    /// documents that were read since the engine spoke last
    pub ingested: Vec<Event>,
    /// the timeline's own
    pub timeline: TimelineState,
    /// the ledger's own
    pub ledger: LedgerState,
    /// saved and compared runs
    pub runs: RunsState,
    /// where every page of the context was when the engine last said it
    pub pages: Option<Arc<PageMap>>,
    /// what links can carry, once that was measured
    pub peaks: Option<LinkBandwidth>,
    /// the map's own
    pub kv_map: KvMapState,
    /// text of the document that is open below the map
    pub reader: Option<Viewer>,
    /// what frames cost
    pub cost: Cost,
    /// the turn that ended last
    last_turn: Option<Interval>,
    figures: Option<(u64, Window, Figures)>,
    is_measuring: bool,
    showed_map: bool,
}

impl DashboardState {
    /// Opens the dock beside the chat, or shuts it.
    pub fn toggle(&mut self) {
        self.open = !self.open;
        self.fills = false;
    }

    /// Opens the text of a document.
    pub fn read(&mut self, spot: SourceLocation) {
        (self.open, self.tab, self.reader) = (true, Tab::KvMap, Some(Viewer::at(spot)));
    }

    /// Points every panel at a step, and shows it on the timeline.
    pub fn show_step(&mut self, begin_ns: u64) {
        (self.open, self.tab, self.selected_step) = (true, Tab::Timeline, Some(begin_ns));
    }

    /// Lays a saved run beside this session, on the timeline.
    pub fn show_run(&mut self, run: OpenRun) {
        (self.open, self.tab, self.selected_step) = (true, Tab::Timeline, None);
        self.runs.open(run);
        self.timeline.reset();
    }

    /// Takes what is the dashboard's of an event; what is the rest of the window's comes back.
    pub fn take(&mut self, event: EngineEvent) -> Option<EngineEvent> {
        match event {
            EngineEvent::Telemetry(snapshot) => {
                for event in self.ingested.drain(..) {
                    self.history.add_events(INGEST_LANE, &[event]);
                }
                self.history.add(&snapshot);
            }
            EngineEvent::Pages(pages) => self.pages = Some(pages),
            EngineEvent::Links(peaks) => self.peaks = Some(peaks),
            EngineEvent::Finished { turn, summary } => {
                let (began, ended) = (summary.phases.began_ns, summary.phases.ended_ns);
                self.last_turn = (began < ended).then_some((began, ended)).or(self.last_turn);
                return Some(EngineEvent::Finished { turn, summary });
            }
            EngineEvent::ModelLoaded(info) => {
                // Another device, or another folder: what was measured is not of these.
                (self.peaks, self.is_measuring, self.pages, self.showed_map) = (None, false, None, false);
                return Some(EngineEvent::ModelLoaded(info));
            }
            event => return Some(event),
        }
        None
    }

    /// The map is on the screen.
    pub fn shows_map(&self) -> bool {
        self.open && self.tab == Tab::KvMap
    }

    /// What is to be asked of the engine: peaks of the links once, and the map where none comes by itself.
    pub fn commands(&mut self, view: &ViewState) -> Vec<EngineCommand> {
        let mut commands = Vec::new();
        let (idle, ready) = (view.running.is_none(), view.info().is_some());
        if self.open && ready && idle && !self.is_measuring {
            self.is_measuring = true;
            commands.push(EngineCommand::MeasureLinks);
        }
        let shows = self.shows_map() && ready;
        if shows && !self.showed_map && idle {
            commands.push(EngineCommand::ShowPages);
        }
        self.showed_map = shows;
        commands
    }

    /// The step that made token `token` (from 0) of the answer of `exchange`; none where it is not known any more.
    pub fn step_of(&self, exchange: &Exchange, token: usize) -> Option<u64> {
        let Outcome::Done(summary) = &exchange.outcome else { return None };
        let (began, ended) = (summary.phases.began_ns, summary.phases.ended_ns);
        // A step is named by what it reads, and makes the token after that.
        let position = u32::try_from(summary.prompt_tokens + token).ok()?.checked_sub(1)?;
        let mut steps = self.history.of(Track::Step).flat_map(|series| series.within(began, ended));
        let makes = |kind: &EventKind| match *kind {
            EventKind::Step { first_token, n_tokens, .. } => {
                (first_token..first_token.saturating_add(n_tokens)).contains(&position)
            }
            _ => false,
        };
        steps.find(|step| makes(&step.kind)).map(|step| step.begin_ns)
    }

    /// What the activity panel says, worked out once for what is known.
    pub fn figures(&mut self, runs: bool) -> Option<(&Window, &Figures)> {
        let window = Window::of(&self.history, runs, self.last_turn)?;
        let version = self.history.version();
        let is_stale = self.figures.as_ref().is_none_or(|(v, w, _)| (*v, *w) != (version, window));
        if is_stale {
            self.figures = Some((version, window, Figures::of(&self.history, window)));
        }
        self.figures.as_ref().map(|(_, window, figures)| (window, figures))
    }

    /// Memory that the dock takes for what it shows.
    pub fn bytes(&self) -> u64 {
        let map = self.pages.as_ref().map_or(0, |pages| pages.census.copies.len() * size_of::<u32>() * 2);
        self.history.bytes().0 + map as u64 + self.kv_map.bytes()
    }
}
