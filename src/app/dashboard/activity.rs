//! Activity panel: link bandwidth, pages of the newest step, utilization of the machine, and budgets.
//!
//! Figures are those of the last second of the running request, and sparklines of its last twenty seconds. After its end,
//! both are of the whole request.

use egui::{Rect, Response, Role, ScrollArea, Sense, Ui, WidgetInfo, pos2, vec2};

use crate::app::dashboard::DashboardState;
use crate::app::dashboard::charts::{self, Entry, Part, percent};
use crate::app::dashboard::kernels;
use crate::app::dashboard::rates::{Figures, Known, LinkFigures, StepPages, Window};
use crate::app::panels::tiers::{TierBar, tiers_rows_ui};
use crate::app::state::{Phase, ViewState};
use crate::app::ui::format;
use crate::app::ui::theme::{self, GRID, GUTTER};
use crate::base::LinkLimits;
use crate::engine::LinkBandwidth;
use crate::telemetry::Link;

/// Height of a row, points.
const ROW: f32 = 28.0;
/// Width of names, points.
const NAMES: f32 = 92.0;
/// Width of a figure at the right, and of the share behind it, points.
const FIGURE: f32 = 92.0;
const SHARE: f32 = 52.0;

/// One row with a sparkline.
struct Row<'a> {
    name: &'a str,
    color: egui::Color32,
    known: Known<f64>,
    columns: &'a [f32],
    /// of the sparkline, unless it is higher
    top: f32,
    figure: String,
    share: String,
    /// for a screen reader and the tooltip
    label: String,
}

/// Draws the panel.
pub fn activity_ui(ui: &mut Ui, view: &ViewState, state: &mut DashboardState) {
    let runs = view.engine.running.is_some();
    let Some((window, figures)) = state.figures(runs) else { return empty_ui(ui, view, state) };
    let (window, figures) = (*window, figures.clone());
    ScrollArea::vertical().id_salt("activity").auto_shrink(false).show(ui, |ui| {
        ui.spacing_mut().item_spacing.y = 0.0;
        links_ui(ui, view, state.peaks, &figures, &window_label(window, runs));
        pages_ui(ui, figures.pages);
        utilization_ui(ui, view, &figures, state.cost.cpu);
        kernels::kernels_ui(ui, state.kernel_peaks, figures.kernels.as_ref());
        budgets_ui(ui, view);
        own_cost_ui(ui, state);
        ui.add_space(GUTTER);
    });
}

fn empty_ui(ui: &mut Ui, view: &ViewState, state: &DashboardState) {
    let t = theme::tokens(ui);
    ui.add_space(GUTTER);
    ui.label(egui::RichText::new("Nothing has moved yet").color(t.strong));
    ui.add_space(GRID);
    let text = "Ask a document something. This panel then shows the traffic of every link against its peak on this machine; \
                the pages that each step read: resident, fetched, recomputed or skipped; and how busy the \
                device was.";
    ui.add(egui::Label::new(egui::RichText::new(text).font(theme::small()).color(t.weak)).wrap());
    ui.spacing_mut().item_spacing.y = 0.0;
    budgets_ui(ui, view);
    own_cost_ui(ui, state);
}

fn window_label(window: Window, runs: bool) -> String {
    match runs {
        true => "the last second".to_owned(),
        false => format!("the last turn, {}", format::seconds((window.of.1.saturating_sub(window.of.0)) as f64 / 1e9)),
    }
}

fn links_ui(ui: &mut Ui, view: &ViewState, peaks: Option<LinkBandwidth>, figures: &Figures, note: &str) {
    let t = theme::tokens(ui);
    charts::heading(ui, "Links", note);
    let has_disk = view.info().is_none_or(|info| info.kv.kv_dir.is_some());
    for of_link in &figures.links {
        let is_disk = matches!(of_link.link, Link::DiskToRam | Link::RamToDisk);
        let known = if is_disk && !has_disk { Known::Missing } else { of_link.rate };
        let peak = peaks.and_then(|peaks| peak_of(peaks, of_link.link, view.engine.load.limits));
        let share = match (known, peak) {
            (Known::Missing, _) | (_, None) => "N/A".to_owned(),
            (_, Some(peak)) => percent(known.get().unwrap_or_default() / peak.bytes_per_s),
        };
        let figure = known.text(format::mib_per_s);
        let label = link_label(of_link, &figure, peak);
        let color = charts::link_color(t, of_link.link);
        row_ui(
            ui,
            &Row { name: link_name(of_link.link), color, known, columns: &of_link.columns, top: 0.0, figure, share, label },
        );
    }
    if peaks.is_none() {
        quiet(ui, "Shares appear once the links are measured.");
    }
}

/// Peak bandwidth of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Peak {
    bytes_per_s: f64,
    /// from `--limit`, not from a measurement
    is_limit: bool,
}

fn peak_of(peaks: LinkBandwidth, link: Link, limits: LinkLimits) -> Option<Peak> {
    let (measured, limit) = match link {
        Link::DiskToRam => (peaks.disk_to_ram?, limits.nvme),
        Link::RamToDisk => (peaks.ram_to_disk?, limits.nvme),
        Link::RamToVram => (peaks.ram_to_vram, limits.pcie),
        Link::VramToRam => (peaks.vram_to_ram, None),
    };
    let limit = limit.map(|limit| limit as f64).filter(|limit| *limit < measured);
    let bytes_per_s = limit.unwrap_or(measured);
    (bytes_per_s > 0.0).then_some(Peak { bytes_per_s, is_limit: limit.is_some() })
}

/// Name of a link in its row.
pub fn link_name(link: Link) -> &'static str {
    match link {
        Link::DiskToRam => "Disk to RAM",
        Link::RamToVram => "RAM to VRAM",
        Link::VramToRam => "VRAM to RAM",
        Link::RamToDisk => "RAM to disk",
    }
}

fn link_label(of_link: &LinkFigures, figure: &str, peak: Option<Peak>) -> String {
    let mut parts = vec![format!("{}: {figure}", of_link.link.name())];
    parts.push(match peak {
        None => "its peak is not measured".to_owned(),
        Some(peak) => {
            let share = of_link.rate.text(|rate| percent(rate / peak.bytes_per_s));
            let how = if peak.is_limit { "that --limit allows" } else { "measured on this machine" };
            format!("{share} of the {} {how}", format::mib_per_s(peak.bytes_per_s))
        }
    });
    parts.push(format!("{} since the start", format::bytes(of_link.total_bytes)));
    if let Some([half, most]) = of_link.latency_ns {
        let ms = |ns: u64| format::millis(ns as f64 / 1e6);
        parts.push(format!("half of all moves took up to {}, 99 % up to {}", ms(half), ms(most)));
    }
    parts.join("; ")
}

fn row_ui(ui: &mut Ui, row: &Row) -> Response {
    let t = theme::tokens(ui);
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::hover());
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &row.label));
    let (y, painter) = (rect.center().y, ui.painter());
    painter.text(pos2(rect.left(), y), egui::Align2::LEFT_CENTER, row.name, theme::small(), t.text);
    let mut right = rect.right();
    let ink = |text: &str| if text == "N/A" { t.weak } else { t.strong };
    charts::right(painter, pos2(right, y), &row.share, ink(&row.share));
    right -= SHARE;
    charts::right(painter, pos2(right, y), &row.figure, ink(&row.figure));
    right -= FIGURE;
    let spark = Rect::from_min_max(pos2(rect.left() + NAMES, rect.top() + GRID), pos2(right, rect.bottom() - GRID));
    if spark.width() > 24.0 {
        charts::sparkline(painter, spark, row.columns, row.top, row.color, row.known);
    }
    response.on_hover_text(&row.label)
}

fn pages_ui(ui: &mut Ui, pages: Option<StepPages>) {
    let t = theme::tokens(ui);
    charts::heading(ui, "Pages of the newest step", "64 tokens of one layer each");
    let Some(pages) = pages else { return quiet(ui, "N/A: no step has read pages yet.") };
    let kinds = [
        (pages.resident, t.vram, false, "resident"),
        (pages.fetched, t.ram, false, "fetched"),
        (pages.recomputed, t.recomputed, false, "recomputed"),
        (pages.skipped, t.weak, true, "skipped"),
    ];
    ui.add_space(2.0 * GRID);
    let part = |(n, color, hatched, _): (u32, egui::Color32, bool, &str)| Part { amount: f64::from(n), color, hatched };
    charts::parts_bar(ui, &kinds.map(part), 10.0);
    ui.add_space(GRID);
    charts::keys(
        ui,
        &kinds.map(|(n, color, hatched, name)| Entry { color, hatched, text: format!("{} {name}", format::count(n as usize)) }),
    );
}

fn utilization_ui(ui: &mut Ui, view: &ViewState, figures: &Figures, cpu: Known<f64>) {
    let t = theme::tokens(ui);
    charts::heading(ui, "Utilization", if view.info().is_some_and(|i| i.software) { "the device is this CPU" } else { "" });
    let as_percent = |known: Known<f64>| known.text(percent);
    let gpu = as_percent(figures.gpu);
    let clock = match figures.gpu {
        Known::Measured(_) => "by its own clock",
        Known::Estimated(_) => "an estimate: by the clock of the CPU",
        Known::Missing => "no pass was timed",
    };
    row_ui(
        ui,
        &Row {
            name: "Device busy",
            color: t.vram,
            known: figures.gpu,
            columns: &figures.gpu_columns,
            top: 1.0,
            label: format!("Device busy: {gpu}, {clock}"),
            figure: String::new(),
            share: gpu,
        },
    );
    let speed = match view.engine.running.map(|r| r.phase) {
        Some(Phase::Decode { tokens_per_s, .. } | Phase::Prefill { tokens_per_s, .. }) => Some(tokens_per_s),
        _ => view.measured.last_speed,
    };
    ui.add_space(2.0 * GRID);
    let n_cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cores = cpu.text(|n| format!("{n:.1} of {n_cores}"));
    figures_ui(
        ui,
        &[
            ("Tokens", speed.map_or_else(|| "N/A".to_owned(), format::speed), "tokens read or written in a second"),
            ("Overlap", as_percent(figures.overlap), "share of the shorter of transfer and compute that the other hid"),
            ("CPU cores", cores, "CPU cores that Strata keeps busy"),
        ],
    );
}

/// Figures side by side, each under its name.
fn figures_ui(ui: &mut Ui, figures: &[(&str, String, &str)]) {
    let t = theme::tokens(ui);
    let width = ui.available_width() / figures.len() as f32;
    let (row, _) = ui.allocate_exact_size(vec2(ui.available_width(), 40.0), Sense::hover());
    for (i, (name, value, what)) in figures.iter().enumerate() {
        let rect = Rect::from_min_size(pos2(row.left() + i as f32 * width, row.top()), vec2(width, 40.0));
        let response = ui.interact(rect, ui.scope_id().with(("figure", *name)), Sense::hover());
        let label = format!("{name}: {value}; {what}");
        response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &label));
        let painter = ui.painter();
        painter.text(rect.left_top(), egui::Align2::LEFT_TOP, name, theme::small(), t.weak);
        let ink = if value == "N/A" { t.weak } else { t.strong };
        painter.text(rect.left_top() + vec2(0.0, 18.0), egui::Align2::LEFT_TOP, value, theme::body(), ink);
        response.on_hover_text(*what);
    }
}

fn budgets_ui(ui: &mut Ui, view: &ViewState) {
    let t = theme::tokens(ui);
    charts::heading(ui, "Budgets", "KV cache");
    tiers_rows_ui(ui, &TierBar::all(t, view.measured.kv.map(|kv| kv.used), view.budgets()), ROW);
}

fn own_cost_ui(ui: &mut Ui, state: &DashboardState) {
    let (cost, history) = (&state.cost, &state.history);
    charts::heading(ui, "This dashboard", "its own cost");
    ui.add_space(2.0 * GRID);
    let memory = format::bytes_of(state.bytes(), history.cap().0);
    let own = format::millis(cost.dock_ms.into());
    let frame = if cost.frame_ms > 0.0 { format!("{own} of {}", format::millis(cost.frame_ms.into())) } else { own };
    figures_ui(
        ui,
        &[
            ("Frame", frame, FRAME),
            ("Frames", format!("{:.0}/s", cost.frames_per_s), "frames per second lately; none while nothing changes"),
            ("Memory", memory, "events and pictures that it keeps, and the cap on events"),
        ],
    );
    let (n_lost, n_forgotten) = (history.n_lost(), history.n_forgotten());
    if n_lost + n_forgotten > 0 {
        let (lost, forgotten) = (format::count(n_lost as usize), format::count(n_forgotten as usize));
        quiet(ui, &format!("{lost} events were lost to full rings, {forgotten} dropped to stay under the cap."));
    }
}

const FRAME: &str = "layout of this panel, of the whole frame, on the CPU";

fn quiet(ui: &mut Ui, text: &str) {
    let t = theme::tokens(ui);
    ui.add_space(GRID);
    ui.add(egui::Label::new(egui::RichText::new(text).font(theme::small()).color(t.weak)).wrap());
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;
    const PEAKS: LinkBandwidth =
        LinkBandwidth { ram_to_vram: 800.0 * MIB, vram_to_ram: 400.0 * MIB, disk_to_ram: Some(200.0 * MIB), ram_to_disk: None };

    #[test]
    fn peak_is_what_was_measured_or_what_a_limit_allows() {
        let none = LinkLimits::default();
        assert_eq!(peak_of(PEAKS, Link::RamToVram, none), Some(Peak { bytes_per_s: 800.0 * MIB, is_limit: false }));
        assert_eq!(peak_of(PEAKS, Link::RamToDisk, none), None, "not measured is not 0");
        let limits = LinkLimits { pcie: Some(100 << 20), nvme: Some(500 << 20) };
        assert_eq!(peak_of(PEAKS, Link::RamToVram, limits), Some(Peak { bytes_per_s: 100.0 * MIB, is_limit: true }));
        assert_eq!(peak_of(PEAKS, Link::DiskToRam, limits), Some(Peak { bytes_per_s: 200.0 * MIB, is_limit: false }));
    }

    #[test]
    fn link_shows_its_rate_its_share_and_what_is_not_known() {
        let rate = Known::Measured(50.0 * MIB);
        let of_link = LinkFigures { link: Link::DiskToRam, rate, columns: Vec::new(), total_bytes: 3 << 30, latency_ns: None };
        let figure = rate.text(format::mib_per_s);
        let peak = peak_of(PEAKS, Link::DiskToRam, LinkLimits::default());
        let label = link_label(&of_link, &figure, peak);
        assert_eq!(label, "disk to ram: 50.0 MiB/s; 25 % of the 200 MiB/s measured on this machine; 3.00 GiB since the start");
        assert!(link_label(&of_link, &figure, None).contains("its peak is not measured"));
        assert_eq!((percent(0.001), percent(0.0), percent(1.0)), ("<1 %".into(), "0 %".into(), "100 %".into()));
    }
}
