//! Dashboard state between frames, and the commands that the dock sends to the engine.
//!
//! Units: nanoseconds of [`crate::telemetry::now`], bytes.

pub(in crate::app::dashboard) mod kv_map;
pub(in crate::app::dashboard) mod ledger;
pub(in crate::app::dashboard) mod runs;

use std::sync::Arc;

use crate::app::answer::citations::SourceLocation;
use crate::app::dashboard::overhead::Cost;
use crate::app::dashboard::rates::{Figures, Window};
use crate::app::dashboard::timeline::{INGEST_LANE, TimelineState};
use crate::app::state::ViewState;
use crate::app::state::chat::{Exchange, Outcome};
use crate::app::state::viewer::Viewer;
use crate::engine::{EngineCommand, EngineEvent, KernelPeaks, LinkBandwidth, PageMap, WorkShape};
use crate::telemetry::overlap::Interval;
use crate::telemetry::{Event, EventKind, History, Track};
use kv_map::KvMapState;
use ledger::LedgerState;
use runs::{OpenRun, RunsState};

/// Tabs of the dock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tab {
    /// links, utilization, budgets
    #[default]
    Activity,
    /// every event on one time axis
    Timeline,
    /// the tier of each page of the context
    KvMap,
    /// pages read by each step, and their origin
    Ledger,
    /// attention mass that a policy skipped
    Fidelity,
}

impl Tab {
    /// All tabs, in their order on screen.
    pub const ALL: [Tab; 5] = [Tab::Activity, Tab::Timeline, Tab::KvMap, Tab::Ledger, Tab::Fidelity];

    /// Label of the tab.
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
    /// width beside the chat, points; None before it was opened
    pub width: Option<f32>,
    /// the selected tab
    pub tab: Tab,
    /// the step that every panel highlights: when it began, nanoseconds
    pub selected_step: Option<u64>,
    /// every event from the engine
    pub history: History,
    /// ingest events since the last snapshot of the engine
    pub ingest_events: Vec<Event>,
    /// state of the timeline
    pub timeline: TimelineState,
    /// state of the ledger
    pub ledger: LedgerState,
    /// saved and compared runs
    pub runs: RunsState,
    /// the newest page map of the engine
    pub pages: Option<Arc<PageMap>>,
    /// peak bandwidth of the links, once measured
    pub peaks: Option<LinkBandwidth>,
    /// peaks of the device for kernels and the shape of the model, once measured
    pub kernel_peaks: Option<(KernelPeaks, WorkShape)>,
    /// state of the KV map
    pub kv_map: KvMapState,
    /// the document that is open below the map
    pub reader: Option<Viewer>,
    /// cost of frames
    pub cost: Cost,
    /// the request that ended last
    last_turn: Option<Interval>,
    figures: Option<(u64, Window, Figures)>,
    is_measuring: bool,
    showed_map: bool,
}

impl DashboardState {
    /// Opens the dock beside the chat, or closes it.
    pub fn toggle(&mut self) {
        self.open = !self.open;
        self.fills = false;
    }

    /// Opens the text of a page below the map.
    pub fn show_page_text(&mut self, spot: SourceLocation) {
        (self.open, self.tab, self.reader) = (true, Tab::KvMap, Some(Viewer::at(spot)));
    }

    /// Selects a step for every panel, and shows it on the timeline.
    pub fn show_step(&mut self, begin_ns: u64) {
        (self.open, self.tab, self.selected_step) = (true, Tab::Timeline, Some(begin_ns));
    }

    /// Shows a saved run beside this session, on the timeline.
    pub fn show_run(&mut self, run: OpenRun) {
        (self.open, self.tab, self.selected_step) = (true, Tab::Timeline, None);
        self.runs.open(run);
        self.timeline.reset();
    }

    /// Handles the dashboard's part of an event. Returns the event if other parts of the window need it too.
    pub fn apply(&mut self, event: EngineEvent) -> Option<EngineEvent> {
        match event {
            EngineEvent::Telemetry(snapshot) => {
                for event in self.ingest_events.drain(..) {
                    self.history.add_events(INGEST_LANE, &[event]);
                }
                self.history.add(&snapshot);
            }
            EngineEvent::Pages(pages) => self.pages = Some(pages),
            EngineEvent::Links(peaks) => self.peaks = Some(peaks),
            EngineEvent::Kernels(peaks, shape) => self.kernel_peaks = Some((peaks, shape)),
            EngineEvent::Finished { request, summary } => {
                let (began, ended) = (summary.phases.began_ns, summary.phases.ended_ns);
                self.last_turn = (began < ended).then_some((began, ended)).or(self.last_turn);
                return Some(EngineEvent::Finished { request, summary });
            }
            EngineEvent::ModelLoaded(info) => {
                // Another device or folder: earlier measurements do not apply.
                (self.peaks, self.is_measuring, self.pages, self.showed_map) = (None, false, None, false);
                self.kernel_peaks = None;
                return Some(EngineEvent::ModelLoaded(info));
            }
            event => return Some(event),
        }
        None
    }

    /// True if the map is on screen.
    pub fn shows_map(&self) -> bool {
        self.open && self.tab == Tab::KvMap
    }

    /// Commands for the engine: one measurement of the links, and a page map if none arrives by itself.
    pub fn commands(&mut self, view: &ViewState) -> Vec<EngineCommand> {
        let mut commands = Vec::new();
        let (idle, ready) = (view.engine.running.is_none(), view.info().is_some());
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

    /// The step that produced token `token` (from 0) of the answer of `exchange`. None if the history no longer has it.
    pub fn step_of(&self, exchange: &Exchange, token: usize) -> Option<u64> {
        let Outcome::Done(summary) = &exchange.outcome else { return None };
        let (began, ended) = (summary.phases.began_ns, summary.phases.ended_ns);
        // A step is named by its first input token, and produces the token after it.
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

    /// Figures of the activity panel, cached for a version of the history.
    pub fn figures(&mut self, runs: bool) -> Option<(&Window, &Figures)> {
        let window = Window::of(&self.history, runs, self.last_turn)?;
        let version = self.history.version();
        let is_stale = self.figures.as_ref().is_none_or(|(v, w, _)| (*v, *w) != (version, window));
        if is_stale {
            self.figures = Some((version, window, Figures::of(&self.history, window)));
        }
        self.figures.as_ref().map(|(_, window, figures)| (window, figures))
    }

    /// Memory of events, map and images, bytes.
    pub fn bytes(&self) -> u64 {
        let map = self.pages.as_ref().map_or(0, |pages| pages.occupancy.copies.len() * size_of::<u32>() * 2);
        self.history.bytes().0 + map as u64 + self.kv_map.bytes()
    }
}
