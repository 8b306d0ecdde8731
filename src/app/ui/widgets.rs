//! Widgets that egui lacks in the window's style. Each has an accessible name.

use egui::{
    Align2, Color32, CornerRadius, Pos2, Rect, Response, Role, Sense, Stroke, StrokeKind, Ui, UiBuilder, Vec2, WidgetInfo, pos2,
    vec2,
};

use crate::app::ui::icon::{self, Icon};
use crate::app::ui::theme::{self, GRID, Tokens};

/// Emphasis of a button.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// the next action; at most one in view
    Primary,
    /// outlined
    Plain,
    /// only text until the pointer is over it
    Quiet,
}

/// Draws the focus ring around `rect`.
pub fn focus_ring(ui: &Ui, response: &Response, rect: Rect, radius: u8) {
    if response.has_focus() {
        let stroke = Stroke::new(2.0, theme::tokens(ui).accent);
        ui.painter().rect_stroke(rect, CornerRadius::same(radius), stroke, StrokeKind::Inside);
    }
}

/// A button with an icon only; `label` is its name and its tooltip.
pub fn icon_button(ui: &mut Ui, icon: Icon, label: &str) -> Response {
    icon_button_sized(ui, icon, label, 28.0)
}

/// [`icon_button`] with a side in points.
pub fn icon_button_sized(ui: &mut Ui, icon: Icon, label: &str, side: f32) -> Response {
    let (rect, response) = ui.allocate_exact_size(Vec2::splat(side), Sense::click());
    let enabled = ui.is_enabled();
    response.widget_info(|| WidgetInfo::labeled(Role::Button, enabled, label));
    if ui.is_rect_visible(rect) {
        let t = theme::tokens(ui);
        let lit = response.hovered() || response.has_focus();
        if lit {
            ui.painter().rect_filled(rect, CornerRadius::same(theme::RADIUS), t.hover);
        }
        let ink = if lit { t.strong } else { t.weak };
        icon::paint(ui.painter(), icon, rect.shrink((side - 16.0) / 2.0), ink);
        focus_ring(ui, &response, rect, theme::RADIUS);
    }
    response.on_hover_text(label)
}

/// The round button that sends, or stops.
pub fn round_button(ui: &mut Ui, icon: Icon, label: &str, enabled: bool) -> Response {
    let sense = if enabled { Sense::click() } else { Sense::hover() };
    let (rect, response) = ui.allocate_exact_size(Vec2::splat(theme::CONTROL), sense);
    response.widget_info(|| WidgetInfo::labeled(Role::Button, enabled, label));
    let t = theme::tokens(ui);
    let (fill, ink) = if enabled { (t.accent, t.on_accent) } else { (t.idle, t.weak) };
    let radius = rect.height() / 2.0;
    ui.painter().circle_filled(rect.center(), radius, fill);
    icon::paint(ui.painter(), icon, rect.shrink(8.0), ink);
    if response.has_focus() {
        ui.painter().circle_stroke(rect.center(), radius + 2.0, Stroke::new(2.0, t.accent));
    }
    response.on_hover_text(label)
}

/// A button with text and perhaps an icon.
pub fn button(ui: &mut Ui, weight: Weight, icon: Option<Icon>, text: &str) -> Response {
    let t = theme::tokens(ui);
    let ink = ink_of(t, weight, false);
    let galley = ui.painter().layout_no_wrap(text.to_owned(), theme::body(), ink);
    let (pad, icon_width) = (theme::GUTTER, if icon.is_some() { 16.0 + 2.0 * GRID } else { 0.0 });
    let size = vec2(galley.size().x + icon_width + 2.0 * pad, theme::CONTROL);
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let enabled = ui.is_enabled();
    response.widget_info(|| WidgetInfo::labeled(Role::Button, enabled, text));
    if ui.is_rect_visible(rect) {
        let lit = response.hovered();
        let ink = ink_of(t, weight, lit);
        let radius = CornerRadius::same(theme::RADIUS);
        match weight {
            Weight::Primary => {
                ui.painter().rect_filled(rect, radius, if lit { t.accent.gamma_multiply(0.9) } else { t.accent });
            }
            Weight::Plain => {
                ui.painter().rect_filled(rect, radius, if lit { t.hover } else { Color32::TRANSPARENT });
                ui.painter().rect_stroke(rect, radius, Stroke::new(1.0, t.line), StrokeKind::Inside);
            }
            Weight::Quiet if lit => {
                ui.painter().rect_filled(rect, radius, t.hover);
            }
            Weight::Quiet => {}
        }
        let mut x = rect.left() + pad;
        if let Some(icon) = icon {
            let square = Rect::from_min_size(pos2(x, rect.center().y - 8.0), Vec2::splat(16.0));
            icon::paint(ui.painter(), icon, square, ink);
            x += icon_width;
        }
        ui.painter().galley_with_override_text_color(pos2(x, rect.center().y - galley.size().y / 2.0), galley, ink);
        focus_ring(ui, &response, if weight == Weight::Primary { rect.expand(3.0) } else { rect }, theme::RADIUS);
    }
    response
}

fn ink_of(t: &Tokens, weight: Weight, lit: bool) -> Color32 {
    match weight {
        Weight::Primary => t.on_accent,
        Weight::Plain => t.strong,
        Weight::Quiet if lit => t.strong,
        Weight::Quiet => t.text,
    }
}

/// One row of a list: icon, title, and a short note at the right. `label` is its accessible name.
pub fn row(ui: &mut Ui, icon: Option<Icon>, title: &str, note: &str, selected: bool, label: &str) -> Response {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), theme::CONTROL), Sense::click());
    let enabled = ui.is_enabled();
    response.widget_info(|| WidgetInfo::selected(Role::Button, enabled, selected, label));
    if !ui.is_rect_visible(rect) {
        return response;
    }
    let t = theme::tokens(ui);
    let lit = selected || response.hovered() || response.has_focus();
    if lit {
        ui.painter().rect_filled(rect, CornerRadius::same(theme::RADIUS), t.hover);
    }
    let ink = if lit { t.strong } else { t.text };
    let mut left = rect.left() + 2.0 * GRID;
    if let Some(icon) = icon {
        let square = Rect::from_center_size(pos2(left + 8.0, rect.center().y), Vec2::splat(16.0));
        icon::paint(ui.painter(), icon, square, if lit { t.text } else { t.weak });
        left += 16.0 + 2.0 * GRID;
    }
    let mut right = rect.right() - 2.0 * GRID;
    if !note.is_empty() {
        let at = pos2(right, rect.center().y);
        right = ui.painter().text(at, Align2::RIGHT_CENTER, note, theme::small(), t.weak).left() - 2.0 * GRID;
    }
    text_in(ui, Rect::from_min_max(pos2(left, rect.top()), pos2(right, rect.bottom())), title, theme::body(), ink);
    focus_ring(ui, &response, rect, theme::RADIUS);
    response
}

/// A clickable question: one line of a list with hair lines between.
pub fn offer(ui: &mut Ui, text: &str) -> Response {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 40.0), Sense::click());
    let enabled = ui.is_enabled();
    response.widget_info(|| WidgetInfo::labeled(Role::Button, enabled, text));
    let t = theme::tokens(ui);
    let lit = response.hovered() || response.has_focus();
    ui.painter().hline(rect.x_range(), rect.top(), Stroke::new(1.0, t.line));
    let arrow = Rect::from_center_size(pos2(rect.right() - 8.0, rect.center().y), Vec2::splat(14.0));
    icon::paint(ui.painter(), Icon::Next, arrow, if lit { t.accent } else { t.weak });
    let words = Rect::from_min_max(rect.min, pos2(arrow.left() - 2.0 * GRID, rect.bottom()));
    text_in(ui, words, text, theme::body(), if lit { t.accent } else { t.text });
    focus_ring(ui, &response, rect.expand2(vec2(2.0 * GRID, 0.0)), theme::RADIUS);
    response
}

/// A figure below its name.
pub fn figure(ui: &mut Ui, name: &str, value: &str) {
    let t = theme::tokens(ui);
    ui.vertical(|ui| {
        ui.spacing_mut().item_spacing.y = 2.0;
        caption(ui, name);
        ui.label(egui::RichText::new(value).color(t.strong));
    });
}

/// One line of text in `rect`, vertically centered, cut with an ellipsis if it is too long.
pub fn text_in(ui: &Ui, rect: Rect, text: &str, font: egui::FontId, color: Color32) -> Rect {
    let mut job = egui::text::LayoutJob::simple_singleline(text.to_owned(), font, color);
    job.wrap = egui::text::TextWrapping::truncate_at_width(rect.width().max(0.0));
    let galley = ui.painter().layout_job(job);
    let at = pos2(rect.left(), rect.center().y - galley.size().y / 2.0);
    let drawn = Rect::from_min_size(at, galley.size());
    ui.painter().galley(at, galley, color);
    drawn
}

/// A bar filled to `share`. `label` has its meaning and its value.
pub fn meter(ui: &mut Ui, share: f32, fill: Color32, width: f32, label: &str) -> Response {
    let (rect, response) = ui.allocate_exact_size(vec2(width, theme::METER), Sense::hover());
    response.widget_info(|| {
        let mut info = WidgetInfo::labeled(Role::ProgressIndicator, true, label);
        info.value = Some(f64::from(share.clamp(0.0, 1.0)));
        info
    });
    let t = theme::tokens(ui);
    let radius = CornerRadius::same(2);
    ui.painter().rect_filled(rect, radius, t.idle);
    let mut filled = rect;
    filled.set_width(rect.width() * share.clamp(0.0, 1.0));
    if filled.width() > 0.0 {
        ui.painter().rect_filled(filled, radius, fill);
    }
    response
}

/// A circle of 12 points, filled from the bottom to `share`; empty and quiet at 0.
pub fn share_mark(ui: &Ui, center: Pos2, share: f32, color: Color32) {
    const RADIUS: f32 = 6.0;
    let t = theme::tokens(ui);
    let square = Rect::from_center_size(center, Vec2::splat(2.0 * RADIUS + 2.0));
    ui.painter().circle_stroke(center, RADIUS - 0.75, Stroke::new(1.5, if share > 0.0 { color } else { t.weak }));
    if share > 0.0 {
        let top = square.bottom() - square.height() * share.clamp(0.0, 1.0);
        let filled = Rect::from_min_max(pos2(square.left(), top), square.max);
        ui.painter().with_clip_rect(filled).circle_filled(center, RADIUS, color);
    }
}

/// A caption.
pub fn caption(ui: &mut Ui, text: impl Into<String>) -> Response {
    let t = theme::tokens(ui);
    ui.label(egui::RichText::new(text).font(theme::small()).color(t.weak))
}

/// A heading over a list, small and quiet.
pub fn list_heading(ui: &mut Ui, text: &str) -> Response {
    let t = theme::tokens(ui);
    ui.label(egui::RichText::new(text).font(theme::small()).color(t.weak))
}

/// A card: a raised frame with a margin.
pub fn card<R>(ui: &mut Ui, add: impl FnOnce(&mut Ui) -> R) -> R {
    let t = theme::tokens(ui);
    egui::Frame::NONE
        .fill(t.raised)
        .corner_radius(CornerRadius::same(theme::RADIUS_LARGE))
        .inner_margin(16)
        .show(ui, |ui| {
            ui.set_width(ui.available_width());
            add(ui)
        })
        .inner
}

/// The centered text column, as high as its contents.
pub fn column<R>(ui: &mut Ui, add: impl FnOnce(&mut Ui) -> R) -> R {
    let space = ui.available_rect_before_wrap();
    let width = (space.width() - 2.0 * theme::SECTION).clamp(120.0, theme::COLUMN_WIDTH);
    let left = (space.center().x - width / 2.0).round();
    let rect = Rect::from_min_size(pos2(left, space.top()), vec2(width, space.height()));
    let layout = egui::Layout::top_down(egui::Align::Min);
    ui.scope_builder(UiBuilder::new().max_rect(rect).layout(layout), |ui| {
        ui.set_width(width);
        add(ui)
    })
    .inner
}

/// An error message, with a mark that does not depend on color.
pub fn error_sentence(ui: &mut Ui, sentence: &str) -> Response {
    let t = theme::tokens(ui);
    ui.horizontal_top(|ui| {
        let (mark, _) = ui.allocate_exact_size(vec2(16.0, 20.0), Sense::hover());
        icon::paint(ui.painter(), Icon::Warning, mark, t.error_text);
        ui.add(egui::Label::new(egui::RichText::new(sentence).color(t.error_text)).wrap())
    })
    .inner
}
