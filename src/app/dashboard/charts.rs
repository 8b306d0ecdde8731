//! Charts that several panels of the dock share: headings, sparklines, bars of parts, and hatching for missing data.
//!
//! Measured values are filled, estimates are lines, missing ones are hatched: distinct without color.

use egui::{
    Align2, Color32, CornerRadius, Mesh, Painter, Pos2, Rect, Role, Sense, Shape, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2,
};

use crate::app::dashboard::rates::Known;
use crate::app::ui::theme::{self, GRID, GUTTER, Tokens};
use crate::engine::Tier;
use crate::telemetry::Link;

/// Between two lines of a hatching, points.
const HATCH: f32 = 6.0;

/// A link has the color of its slower end.
pub fn link_color(t: &Tokens, link: Link) -> Color32 {
    match link {
        Link::DiskToRam | Link::RamToDisk => t.disk,
        Link::RamToVram | Link::VramToRam => t.ram,
    }
}

/// The color of a tier.
pub fn tier_color(t: &Tokens, tier: Tier) -> Color32 {
    match tier {
        Tier::Vram => t.vram,
        Tier::Ram => t.ram,
        Tier::Disk => t.disk,
    }
}

/// Heading of a group of rows: its name, and a note at the right.
pub fn heading(ui: &mut Ui, name: &str, note: &str) {
    let t = theme::tokens(ui);
    let is_first = ui.cursor().top() <= ui.min_rect().top() + 1.0;
    ui.add_space(if is_first { 0.0 } else { GUTTER });
    ui.horizontal(|ui| {
        ui.set_height(20.0);
        ui.label(egui::RichText::new(name).font(theme::small()).color(t.strong));
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            ui.label(egui::RichText::new(note).font(theme::small()).color(t.weak));
        });
    });
    let rule = ui.cursor().top();
    ui.painter().hline(ui.max_rect().x_range(), rule, Stroke::new(1.0, t.line));
    ui.add_space(GRID);
}

/// `45 %`, `<1 %`
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 0.5 => "<1 %".to_owned(),
        p => format!("{p:.0} %"),
    }
}

/// Text at the right end of a row.
pub fn right(painter: &Painter, at: Pos2, text: &str, color: Color32) -> Rect {
    painter.text(at, Align2::RIGHT_CENTER, text, theme::small(), color)
}

/// Diagonal lines over `rect`.
pub fn hatch(painter: &Painter, rect: Rect, color: Color32) {
    let painter = painter.with_clip_rect(rect.intersect(painter.clip_rect()));
    let mut x = rect.left() - rect.height();
    while x < rect.right() {
        painter.line_segment([pos2(x, rect.bottom()), pos2(x + rect.height(), rect.top())], Stroke::new(1.0, color));
        x += HATCH;
    }
}

/// Values over time: `columns` against `top`, drawn as measured, estimated or missing.
pub fn sparkline(painter: &Painter, rect: Rect, columns: &[f32], top: f32, color: Color32, known: Known<f64>) {
    let t = theme::of(painter.ctx().global_style().visuals.dark_mode);
    if known == Known::Missing || columns.is_empty() {
        hatch(painter, rect, t.idle);
        return;
    }
    painter.hline(rect.x_range(), rect.bottom(), Stroke::new(1.0, t.idle));
    let top = columns.iter().copied().fold(top, f32::max).max(f32::MIN_POSITIVE);
    let width = rect.width() / columns.len() as f32;
    let y = |value: f32| rect.bottom() - rect.height() * (value / top).clamp(0.0, 1.0);
    if let Known::Estimated(_) = known {
        let points = columns.iter().enumerate().map(|(i, value)| pos2(rect.left() + (i as f32 + 0.5) * width, y(*value)));
        painter.add(Shape::line(points.collect(), Stroke::new(1.5, color)));
        return;
    }
    let mut mesh = Mesh::default();
    for (i, value) in columns.iter().enumerate().filter(|(_, value)| **value > 0.0) {
        let left = rect.left() + i as f32 * width;
        // A value above 0 is visible, however small it is.
        let top = y(*value).min(rect.bottom() - 1.0);
        mesh.add_colored_rect(Rect::from_min_max(pos2(left, top), pos2(left + width - 0.5, rect.bottom())), color);
    }
    painter.add(mesh);
}

/// A part of a whole.
#[derive(Debug, Clone)]
pub struct Part {
    /// how much of it
    pub amount: f64,
    /// its color
    pub color: Color32,
    /// hatched rather than filled
    pub hatched: bool,
}

/// Parts side by side, each as wide as its share, and their rects. A part above 0 is at least two points wide.
pub fn parts_bar(ui: &mut Ui, parts: &[Part], height: f32) -> (Rect, Vec<Rect>) {
    const LEAST: f32 = 2.0;
    let t = theme::tokens(ui);
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), height), Sense::hover());
    ui.painter().rect_filled(rect, CornerRadius::same(2), t.idle);
    let total: f64 = parts.iter().map(|part| part.amount).sum();
    let n_there = parts.iter().filter(|part| part.amount > 0.0).count() as f32;
    let room = (rect.width() - LEAST * n_there).max(0.0);
    let mut left = rect.left();
    let mut places = Vec::with_capacity(parts.len());
    for part in parts {
        let share = if total > 0.0 { (part.amount / total) as f32 } else { 0.0 };
        let width = if part.amount > 0.0 { LEAST + room * share } else { 0.0 };
        let place = Rect::from_min_size(pos2(left, rect.top()), vec2(width, height));
        if part.hatched {
            ui.painter().rect_stroke(place, 0.0, Stroke::new(1.0, part.color), StrokeKind::Inside);
            hatch(ui.painter(), place, part.color);
        } else if width > 0.0 {
            ui.painter().rect_filled(place.with_max_x((place.right() - 1.0).max(left + 1.0)), 0.0, part.color);
        }
        places.push(place);
        left += width;
    }
    (rect, places)
}

/// An entry of a legend.
#[derive(Debug, Clone)]
pub struct Entry {
    /// of its square
    pub color: Color32,
    /// hatched rather than filled
    pub hatched: bool,
    /// its meaning
    pub text: String,
}

/// A legend that wraps.
pub fn keys(ui: &mut Ui, entries: &[Entry]) {
    const SQUARE: f32 = 10.0;
    const LINE: f32 = 18.0;
    let t = theme::tokens(ui);
    let width = ui.available_width();
    let mut places = Vec::with_capacity(entries.len());
    let (mut x, mut y) = (0.0, 0.0);
    for entry in entries {
        let galley = ui.painter().layout_no_wrap(entry.text.clone(), theme::small(), t.text);
        let room = SQUARE + 1.5 * GRID + galley.size().x;
        if x > 0.0 && x + room > width {
            (x, y) = (0.0, y + LINE);
        }
        places.push((vec2(x, y), galley));
        x += room + GUTTER;
    }
    let (rect, response) = ui.allocate_exact_size(vec2(width, y + LINE), Sense::hover());
    let label = entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>().join(", ");
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &label));
    for ((at, galley), entry) in places.into_iter().zip(entries) {
        let at = rect.min + at;
        let square = Rect::from_min_size(at + vec2(0.0, (LINE - SQUARE) / 2.0), vec2(SQUARE, SQUARE));
        swatch(ui.painter(), square, entry.color, entry.hatched);
        let text = at + vec2(SQUARE + 1.5 * GRID, (LINE - galley.size().y) / 2.0);
        ui.painter().galley(text, galley, t.text);
    }
}

/// A color, filled or hatched.
pub fn swatch(painter: &Painter, rect: Rect, color: Color32, hatched: bool) {
    if hatched {
        painter.rect_stroke(rect, 0.0, Stroke::new(1.0, color), StrokeKind::Inside);
        hatch(painter, rect, color);
    } else {
        painter.rect_filled(rect, CornerRadius::same(2), color);
    }
}
