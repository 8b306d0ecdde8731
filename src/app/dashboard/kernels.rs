//! Kernel rows of the activity panel: share of a step, rate, and share of the device's peak, by family.
//!
//! ```text
//! StepKernels (times of a step that was timed by part) ─┐
//! WorkShape, KernelPeaks (measured once) ───────────────┴─► KernelProfile ─► a row per family
//! ```
//! A rate is of the bytes or operations that a family must do, so a slow kernel has a long bar and a small share.

use egui::{Color32, CornerRadius, Rect, Role, Sense, Ui, WidgetInfo, pos2, vec2};

use crate::app::dashboard::charts::{self, percent};
use crate::app::dashboard::step_kernels::StepKernels;
use crate::app::ui::format;
use crate::app::ui::theme::{self, GRID};
use crate::engine::{FamilyProfile, KernelPeaks, KernelProfile, Limit, WorkShape};

/// Height of a row, points.
const ROW: f32 = 24.0;
/// Width of names, of the share of the step, of rates and of the share of the peak, points.
const NAMES: f32 = 128.0;
const STEP: f32 = 44.0;
const RATE: f32 = 92.0;
const SHARE: f32 = 52.0;

/// One row.
struct Row {
    name: &'static str,
    of_step: f64,
    /// time without a kernel
    is_idle: bool,
    rate: String,
    of_peak: String,
    /// for a screen reader and the tooltip
    label: String,
}

/// Draws the rows of the newest step that was timed by part. Without peaks or such a step, nothing.
pub(super) fn kernels_ui(ui: &mut Ui, peaks: Option<(KernelPeaks, WorkShape)>, step: Option<&StepKernels>) {
    let (Some((peaks, shape)), Some(step)) = (peaks, step) else { return };
    let profile = step.profile(&shape);
    let about = if step.is_estimated { "~" } else { "" };
    let kind = if profile.is_prefill { "prefill" } else { "decode" };
    let wall = format::millis(profile.wall_ns as f64 / 1e6);
    charts::heading(ui, "Kernels", &format!("of a {kind} step of {about}{wall}: share, rate, of peak"));
    for row in rows(&profile, &peaks) {
        row_ui(ui, &row);
    }
}

fn rows(profile: &KernelProfile, peaks: &KernelPeaks) -> Vec<Row> {
    let mut rows: Vec<Row> = profile.families.iter().map(|family| row_of(profile, family, peaks)).collect();
    let idle = profile.idle_share();
    let label = format!("no kernel: {} of the step", percent(idle));
    rows.push(Row { name: "no kernel", of_step: idle, is_idle: true, rate: String::new(), of_peak: String::new(), label });
    rows
}

fn row_of(profile: &KernelProfile, family: &FamilyProfile, peaks: &KernelPeaks) -> Row {
    let (name, of_step) = (family.family.name(profile.is_prefill), profile.share(family));
    let unknown = || "N/A".to_owned();
    let (rate, unit) = match family.limit {
        Limit::Memory => (family.bytes_per_s().map(|rate| amount(rate, "B/s")), "streaming read"),
        Limit::F32 => (family.flops_per_s().map(|rate| amount(rate, "FLOP/s")), "best f32 matrix product"),
        Limit::Matrices => (family.flops_per_s().map(|rate| amount(rate, "FLOP/s")), "peak of the matrix units"),
    };
    let (rate, of_peak) = (rate.unwrap_or_else(unknown), family.of_peak(peaks).map_or_else(unknown, percent));
    let label = format!("{name}: {} of the step; {rate}, {of_peak} of the {unit} measured on this machine", percent(of_step));
    Row { name, of_step, is_idle: false, rate, of_peak, label }
}

/// `12.3 GB/s`, `1.20 TFLOP/s`: three digits.
fn amount(value: f64, unit: &str) -> String {
    let (value, prefix) = match value {
        v if v >= 1e12 => (v / 1e12, "T"),
        v if v >= 1e9 => (v / 1e9, "G"),
        v => (v / 1e6, "M"),
    };
    let decimals = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {prefix}{unit}")
}

fn row_ui(ui: &mut Ui, row: &Row) {
    let t = theme::tokens(ui);
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::hover());
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &row.label));
    let (y, painter) = (rect.center().y, ui.painter());
    painter.text(pos2(rect.left(), y), egui::Align2::LEFT_CENTER, row.name, theme::small(), t.text);
    let ink = |text: &str| if text == "N/A" { t.weak } else { t.strong };
    let mut right = rect.right();
    charts::right(painter, pos2(right, y), &row.of_peak, ink(&row.of_peak));
    right -= SHARE;
    charts::right(painter, pos2(right, y), &row.rate, ink(&row.rate));
    right -= RATE;
    charts::right(painter, pos2(right, y), &percent(row.of_step), t.strong);
    right -= STEP;
    let bar = Rect::from_min_max(pos2(rect.left() + NAMES, y - GRID), pos2(right, y + GRID));
    if bar.width() > 24.0 {
        bar_ui(painter, bar, row, [t.idle, if row.is_idle { t.weak } else { t.vram }]);
    }
    response.on_hover_text(&row.label);
}

fn bar_ui(painter: &egui::Painter, bar: Rect, row: &Row, [back, color]: [Color32; 2]) {
    painter.rect_filled(bar, CornerRadius::same(2), back);
    // A share above 0 is visible, however small it is.
    let width = if row.of_step > 0.0 { (bar.width() * row.of_step.min(1.0) as f32).max(1.0) } else { 0.0 };
    charts::swatch(painter, bar.with_max_x(bar.left() + width), color, row.is_idle);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::KernelFamily;

    #[test]
    fn rows_name_the_share_of_the_step_and_of_the_peak_and_what_is_unknown() {
        let shape = WorkShape { layer_bytes: 500_000, n_layer_weights: 1_000_000, ..WorkShape::default() };
        let peaks = KernelPeaks { read_bytes_per_s: 1e9, f32_flops: 1e9, matrix_flops: None };
        let times = [(KernelFamily::Linear, 1_000_000), (KernelFamily::Evaluation, 500_000)];
        let profile = KernelProfile::new(&shape, false, (2_000_000, 1), &times, &shape.decode(1, 0));
        let labels: Vec<String> = rows(&profile, &peaks).into_iter().map(|row| row.label).collect();
        assert_eq!(
            labels,
            [
                "linear decode: 50 % of the step; 500 MB/s, 50 % of the streaming read measured on this machine",
                "selection: 25 % of the step; N/A, N/A of the streaming read measured on this machine",
                "no kernel: 25 % of the step",
            ]
        );
        let prefill = KernelProfile::new(&shape, true, (2_000_000, 1), &times, &shape.prefill(0, 1));
        assert!(!rows(&prefill, &peaks)[0].label.contains("N/A"));
        let units = WorkShape { linear_prefill: Limit::Matrices, ..shape };
        let prefill = KernelProfile::new(&units, true, (2_000_000, 1), &times, &units.prefill(0, 1));
        assert!(rows(&prefill, &peaks)[0].label.contains("2.00 GFLOP/s, N/A of the peak of the matrix units"));
    }
}
