//! Ledger: a table of steps with the pages each read, how they arrived and their cost, and details of the selected step.
//!
//! ```text
//! telemetry::ledger ─► newest steps, one row each ─► click, arrows ─► selected step (also of the timeline)
//! ```
//! N/A marks what was not forecast or not measured. Rows outside the view cost nothing.

use egui::{Align2, Rect, Role, ScrollArea, Sense, Stroke, Ui, WidgetInfo, pos2, vec2};

use crate::app::dashboard::DashboardState;
use crate::app::dashboard::timeline::labels;
use crate::app::panels::Action;
use crate::app::ui::theme::{self, GRID, GUTTER, Tokens};
use crate::app::ui::{format, widgets};
use crate::base::Bytes;
use crate::telemetry::ledger::{Forecast, LedgerEntry, Share, entry_at};

/// Height of a row, points.
const ROW: f32 = 22.0;
/// Titles and shares of the width.
const COLUMNS: [(&str, f32); 8] = [
    ("step", 0.18),
    ("took", 0.12),
    ("resident", 0.115),
    ("fetched", 0.11),
    ("recomp.", 0.115),
    ("skipped", 0.12),
    ("waited", 0.12),
    ("regret", 0.12),
];

/// Draws the panel.
pub fn show(ui: &mut Ui, state: &mut DashboardState) -> Vec<Action> {
    let DashboardState { history, ledger, runs, selected_step, .. } = state;
    let run = runs.sources(history).first().map_or(&*history, |source| source.run);
    let entries = ledger.entries(run);
    let Some(newest) = entries.last() else {
        empty_ui(ui);
        return Vec::new();
    };
    let shown = selected_step.and_then(|at| entry_at(run, at)).unwrap_or(*newest);
    detail_ui(ui, &shown, selected_step.is_none());
    ui.add_space(GUTTER);
    head_ui(ui);
    ui.spacing_mut().item_spacing.y = 0.0;
    ScrollArea::vertical().id_salt("ledger").auto_shrink(false).stick_to_bottom(true).show_rows(
        ui,
        ROW,
        entries.len(),
        |ui, rows| {
            for entry in entries.get(rows).unwrap_or_default() {
                if row_ui(ui, entry, *selected_step == Some(entry.step.begin_ns)).clicked() {
                    *selected_step = Some(entry.step.begin_ns);
                }
            }
        },
    );
    Vec::new()
}

/// Resident, fetched, recomputed and skipped pages of a step with their bytes and times, and its forecast.
fn detail_ui(ui: &mut Ui, entry: &LedgerEntry, is_newest: bool) {
    let t = theme::tokens(ui);
    let which = if is_newest { "Newest step" } else { "Selected step" };
    let token = format::count(entry.first_token as usize);
    let title = format!("{which}: {} {token}, {}", entry.kind.name(), labels::duration(entry.step.duration_ns));
    ui.label(egui::RichText::new(title).font(theme::small()).color(t.strong));
    ui.add_space(GRID);
    let ways = [
        ("resident", t.vram, entry.resident, "no time"),
        ("fetched", t.ram, entry.fetched, ""),
        ("recomputed", t.recomputed, entry.recomputed, ""),
        ("skipped", t.idle, entry.skipped, "no time"),
    ];
    for (name, color, share, no_time) in ways {
        let sentence = format!("{name}: {}", share_label(&share, no_time));
        let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW - 2.0), Sense::hover());
        response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &sentence));
        let square = Rect::from_center_size(pos2(rect.left() + 5.0, rect.center().y), vec2(10.0, 10.0));
        ui.painter().rect_filled(square, 2.0, color);
        let cells = [share_pages(&share), share_bytes(&share), share_time(&share, no_time)];
        ui.painter().text(pos2(rect.left() + 4.0 * GRID, rect.center().y), Align2::LEFT_CENTER, name, theme::small(), t.text);
        for (i, cell) in cells.iter().enumerate() {
            let right = rect.left() + rect.width() * (0.48 + 0.26 * i as f32);
            ui.painter().text(pos2(right, rect.center().y), Align2::RIGHT_CENTER, cell, theme::small(), t.text);
        }
    }
    widgets::caption(ui, forecast_label(entry.forecast.as_ref(), entry.waited_ns));
}

fn share_pages(share: &Share) -> String {
    format!("{} {}", format::count(share.n_pages as usize), if share.n_pages == 1 { "page" } else { "pages" })
}

fn share_bytes(share: &Share) -> String {
    share.bytes.map_or_else(|| "N/A".to_owned(), |bytes| Bytes(bytes).to_string())
}

fn share_time(share: &Share, no_time: &str) -> String {
    if no_time.is_empty() { labels::duration(share.ns) } else { no_time.to_owned() }
}

fn share_label(share: &Share, no_time: &str) -> String {
    format!("{}, {}, {}", share_pages(share), share_bytes(share), share_time(share, no_time))
}

fn forecast_label(forecast: Option<&Forecast>, waited_ns: u64) -> String {
    let waited = labels::duration(waited_ns);
    let Some(f) = forecast else { return format!("Forecast N/A: no policy predicted this step. Waited for pages {waited}.") };
    format!(
        "Forecast over {} layers: moving ~{} was {}, computing ~{} was {}, regret {}. Waited for pages {waited}.",
        f.n_layers,
        labels::duration(f.expected_io_ns),
        labels::duration(f.io_ns),
        labels::duration(f.expected_compute_ns),
        labels::duration(f.compute_ns),
        labels::duration(f.regret_ns),
    )
}

fn head_ui(ui: &mut Ui) {
    let t = theme::tokens(ui);
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::hover());
    cells_ui(ui, rect, &COLUMNS.map(|(title, _)| title.to_owned()), t.weak);
    ui.painter().hline(rect.x_range(), rect.bottom(), Stroke::new(1.0, t.line));
}

fn row_ui(ui: &mut Ui, entry: &LedgerEntry, selected: bool) -> egui::Response {
    let t = theme::tokens(ui);
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::click());
    let cells = [
        format!("{} {}", entry.kind.name(), format::count(entry.first_token as usize)),
        labels::duration(entry.step.duration_ns),
        format::count(entry.resident.n_pages as usize),
        format::count(entry.fetched.n_pages as usize),
        format::count(entry.recomputed.n_pages as usize),
        format::count(entry.skipped.n_pages as usize),
        labels::duration(entry.waited_ns),
        entry.forecast.map_or_else(|| "N/A".to_owned(), |f| labels::duration(f.regret_ns)),
    ];
    let enabled = ui.is_enabled();
    response.widget_info(|| {
        let said: Vec<String> = COLUMNS.iter().zip(&cells).map(|((title, _), cell)| format!("{title} {cell}")).collect();
        WidgetInfo::selected(Role::Row, enabled, selected, said.join(", "))
    });
    fill(ui, rect, t, selected, response.hovered());
    cells_ui(ui, rect, &cells, if selected { t.strong } else { t.text });
    widgets::focus_ring(ui, &response, rect, 2);
    response
}

fn fill(ui: &Ui, rect: Rect, t: &Tokens, selected: bool, hovered: bool) {
    if selected || hovered {
        ui.painter().rect_filled(rect, 2.0, if selected { t.accent_soft } else { t.hover });
    }
}

/// The first cell from the left, all others against the right of their columns.
fn cells_ui(ui: &Ui, rect: Rect, cells: &[String], color: egui::Color32) {
    let font = egui::FontId::proportional(theme::SMALL - 1.0);
    let mut left = rect.left();
    for (i, ((_, share), cell)) in COLUMNS.iter().zip(cells).enumerate() {
        let right = left + rect.width() * share;
        let (x, align) = if i == 0 { (left + GRID, Align2::LEFT_CENTER) } else { (right - GRID, Align2::RIGHT_CENTER) };
        ui.painter().text(pos2(x, rect.center().y), align, cell, font.clone(), color);
        left = right;
    }
}

fn empty_ui(ui: &mut Ui) {
    let t = theme::tokens(ui);
    ui.add_space(GUTTER);
    ui.label(egui::RichText::new("No step yet").color(t.strong));
    ui.add_space(GRID);
    let text = "Every step of an answer gets a line here: how many pages of the context were in VRAM already, were fetched from RAM \
                or NVMe, were recomputed, or were skipped by the policy; what that cost; and the forecast.";
    ui.label(egui::RichText::new(text).color(t.weak));
}
