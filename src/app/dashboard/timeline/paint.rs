//! Timeline painting: lanes, axis and marks, with one mesh for all bars.
//!
//! ```text
//! few events in view:   ▐█▌ ▐██▌ ▌        each as long as its event, one point at least
//! many:                 ▃▅█▅▃▂▁ and ‾     utilization of each column, and a mark as high as its longest event
//! ```

use egui::{Align2, Color32, Mesh, Painter, Rect, Stroke, pos2, vec2};

use crate::app::dashboard::charts::hatch;
use crate::app::dashboard::timeline::labels;
use crate::app::dashboard::timeline::lanes::{Lane, LaneStyle};
use crate::app::dashboard::timeline::view::View;
use crate::app::ui::theme::{self, GRID, Tokens};
use crate::telemetry::history::Column;
use crate::telemetry::{Event, EventKind, History, Track};

/// Height of the axis, points.
pub const AXIS: f32 = 20.0;
/// Height range of one run's part of a lane, points.
const PART: std::ops::RangeInclusive<f32> = 10.0..=24.0;
/// Between two lanes, points.
const GAP: f32 = 4.0;
/// Least height of a bar, points.
const LEAST: f32 = 2.0;

/// A run on the axis.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// its name
    pub name: &'a str,
    /// its events
    pub run: &'a History,
    /// offset from its times to the axis, so that runs are aligned
    pub shift_ns: i64,
}

impl Source<'_> {
    /// A window of the axis in the run's own time.
    pub fn window(&self, view: View) -> (u64, u64) {
        (self.own_ns(view.from_ns), self.own_ns(view.to_ns))
    }

    /// A moment of the axis in the run's own time.
    pub fn own_ns(&self, ns: u64) -> u64 {
        ns.saturating_add_signed(self.shift_ns.saturating_neg())
    }

    /// A moment of the run on the axis.
    pub fn shown_ns(&self, ns: u64) -> u64 {
        ns.saturating_add_signed(self.shift_ns)
    }

    /// The step of the run at a moment of the axis, with its times on the axis.
    pub fn step_at(&self, at_ns: u64) -> Option<Event> {
        let own_ns = self.own_ns(at_ns);
        let steps = self.run.of(Track::Step).flat_map(|series| series.within(own_ns, own_ns + 1));
        let step = steps.max_by_key(|step| step.begin_ns)?;
        Some(Event { begin_ns: self.shown_ns(step.begin_ns), ..*step })
    }
}

/// Rects of the lanes, one below the other, each with a part for every run.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// rect of all lanes
    pub area: Rect,
    n_sources: usize,
    /// height of a part
    part: f32,
}

impl Rows {
    /// Height of a part so that `n_lanes` fit into `room` points, if possible.
    pub fn part_height(room: f32, n_lanes: usize, n_sources: usize) -> f32 {
        let lane = (room - AXIS) / n_lanes.max(1) as f32 - GAP;
        (lane / n_sources.max(1) as f32).floor().clamp(*PART.start(), *PART.end())
    }

    /// Height of all lanes, without the axis.
    pub fn height(part: f32, n_lanes: usize, n_sources: usize) -> f32 {
        (part * n_sources.max(1) as f32 + GAP) * n_lanes as f32
    }

    /// Rows from the top of `area`.
    pub fn new(area: Rect, part: f32, n_sources: usize) -> Rows {
        Rows { area, n_sources: n_sources.max(1), part }
    }

    /// Part `source` of lane `lane`.
    pub fn part(&self, lane: usize, source: usize) -> Rect {
        let top = self.area.top() + Rows::height(self.part, lane, self.n_sources) + self.part * source as f32;
        Rect::from_min_size(pos2(self.area.left(), top), vec2(self.area.width(), self.part - 1.0))
    }

    /// All parts of lane `lane`.
    pub fn lane(&self, lane: usize) -> Rect {
        self.part(lane, 0).union(self.part(lane, self.n_sources - 1))
    }

    /// Lane and part at a height.
    pub fn at(&self, y: f32) -> (usize, usize) {
        let lane = ((y - self.area.top()).max(0.0) / Rows::height(self.part, 1, self.n_sources)) as usize;
        let part = ((y - self.part(lane, 0).top()).max(0.0) / self.part) as usize;
        (lane, part.min(self.n_sources - 1))
    }
}

/// Draws `lanes` of all `sources`.
pub fn lanes(painter: &Painter, rows: &Rows, view: View, lanes: &[Lane], sources: &[Source<'_>], t: &Tokens) {
    let painter = painter.with_clip_rect(rows.area.intersect(painter.clip_rect()));
    let mut mesh = Mesh::default();
    for (i, lane) in lanes.iter().enumerate() {
        for (j, source) in sources.iter().enumerate() {
            let rect = rows.part(i, j);
            if rect.bottom() < painter.clip_rect().top() || rect.top() > painter.clip_rect().bottom() {
                continue;
            }
            bars(&mut mesh, rect, view, *lane, source, t);
        }
    }
    painter.add(mesh);
    for (i, lane) in lanes.iter().enumerate() {
        let rect = rows.lane(i);
        if lane.style(t).hatched {
            hatch(&painter, rect, t.panel);
        }
        painter.hline(rect.x_range(), rect.bottom() + GAP / 2.0, Stroke::new(1.0, t.line));
    }
    for (i, lane) in lanes.iter().enumerate() {
        for (j, source) in sources.iter().enumerate() {
            draw_names(&painter, rows.part(i, j), view, *lane, source, t);
        }
    }
}

fn bars(mesh: &mut Mesh, rect: Rect, view: View, lane: Lane, source: &Source<'_>, t: &Tokens) {
    let style = lane.style(t);
    let n_columns = rect.width().max(1.0) as usize;
    let window = source.window(view);
    let draws_each = lane != Lane::Unattributed && lane.n_events(source.run, window) * 2 <= n_columns;
    if !draws_each {
        let columns = lane.columns(source.run, window, n_columns);
        return envelope(mesh, rect, view.span_ns(), &columns, style, t.strong);
    }
    for event in lane.within(source.run, window) {
        let x = |ns: u64| rect.left() + rect.width() * view.place(source.shown_ns(ns)).clamp(0.0, 1.0) as f32;
        let (left, right) = (x(event.begin_ns), x(event.end_ns()));
        // Neighbors stay apart as long as there is room.
        let right = if right - left > 3.0 { right - 1.0 } else { right.max(left + 1.0) };
        mesh.add_colored_rect(Rect::from_min_max(pos2(left, rect.top()), pos2(right, rect.bottom())), style.color);
    }
}

/// Columns as bars of their utilization, equal neighbors as one; and a mark as high as the longest event is.
fn envelope(mesh: &mut Mesh, rect: Rect, span_ns: u64, columns: &[Column], style: LaneStyle, mark: Color32) {
    let column_ns = span_ns as f64 / columns.len().max(1) as f64;
    let longest_ns = columns.iter().map(|c| c.longest_ns).max().unwrap_or(0).max(1) as f32;
    let height = |column: &Column| match column.is_empty() {
        true => 0.0,
        false => (rect.height() * (column.sum.busy_ns as f64 / column_ns) as f32).round().clamp(LEAST, rect.height()),
    };
    let reach = |column: &Column| (rect.height() * column.longest_ns as f32 / longest_ns).round();
    let width = rect.width() / columns.len().max(1) as f32;
    let mut left = rect.left();
    for run in columns.chunk_by(|a, b| height(a) == height(b) && reach(a) == reach(b)) {
        let right = left + width * run.len() as f32;
        let (height, reach) = run.first().map_or((0.0, 0.0), |column| (height(column), reach(column)));
        if height > 0.0 {
            let bar = Rect::from_min_max(pos2(left, rect.bottom() - height), pos2(right, rect.bottom()));
            mesh.add_colored_rect(bar, style.color);
        }
        if reach > 0.0 {
            let top = rect.bottom() - reach;
            mesh.add_colored_rect(Rect::from_min_max(pos2(left, top), pos2(right, top + 1.0)), mark);
        }
        left = right;
    }
}

/// Names of steps and phases, if there is room.
fn draw_names(painter: &Painter, rect: Rect, view: View, lane: Lane, source: &Source<'_>, t: &Tokens) {
    const LEAST_WIDTH: f32 = 48.0;
    if !matches!(lane, Lane::Of(Track::Phase | Track::Step)) {
        return;
    }
    let window = source.window(view);
    if lane.n_events(source.run, window) > (rect.width() / LEAST_WIDTH) as usize * 4 {
        return;
    }
    for event in lane.within(source.run, window) {
        let x = |ns: u64| rect.left() + rect.width() * view.place(source.shown_ns(ns)).clamp(0.0, 1.0) as f32;
        let room = Rect::from_x_y_ranges(x(event.begin_ns)..=x(event.end_ns()), rect.y_range());
        let name = match event.kind {
            EventKind::Phase(phase) => phase.name(),
            EventKind::Step { kind, .. } => kind.name(),
            _ => continue,
        };
        if room.width() >= LEAST_WIDTH {
            let at = pos2(room.left() + GRID, room.center().y);
            painter.with_clip_rect(room.intersect(painter.clip_rect())).text(at, Align2::LEFT_CENTER, name, small(), t.text);
        }
    }
}

/// The axis, with times since `origin_ns`, and its marks down through the lanes.
pub fn axis(painter: &Painter, axis: Rect, bottom: f32, view: View, origin_ns: u64, t: &Tokens) {
    const MARK: f32 = 88.0;
    let tick_ns = view.tick_ns((axis.width() / MARK).max(1.0) as u64);
    let first = view.from_ns.saturating_sub(origin_ns).div_ceil(tick_ns);
    for i in first.. {
        let since_ns = i.saturating_mul(tick_ns);
        let place = view.place(origin_ns.saturating_add(since_ns));
        if !(0.0..=1.0).contains(&place) {
            break;
        }
        let x = axis.left() + axis.width() * place as f32;
        painter.vline(x, axis.bottom()..=bottom, Stroke::new(1.0, t.line));
        painter.text(
            pos2(x + GRID / 2.0, axis.center().y),
            Align2::LEFT_CENTER,
            labels::mark(since_ns, tick_ns),
            small(),
            t.weak,
        );
    }
}

/// A highlighted span: the selected step, or the ruler.
pub fn band(painter: &Painter, area: Rect, view: View, (from_ns, to_ns): (u64, u64), color: Color32) {
    let x = |ns: u64| area.left() + area.width() * view.place(ns).clamp(-0.1, 1.1) as f32;
    let rect = Rect::from_x_y_ranges(x(from_ns)..=x(to_ns).max(x(from_ns) + 1.0), area.y_range());
    let painter = painter.with_clip_rect(area.intersect(painter.clip_rect()));
    painter.rect_filled(rect, 0.0, color.gamma_multiply(0.16));
    painter.vline(rect.left(), area.y_range(), Stroke::new(1.0, color));
    painter.vline(rect.right(), area.y_range(), Stroke::new(1.0, color));
}

fn small() -> egui::FontId {
    egui::FontId::new(theme::SMALL - 1.0, egui::FontFamily::Proportional)
}
