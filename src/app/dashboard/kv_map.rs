//! KV map: every page of the context, by the tier that attention would read it from.
//!
//! ```text
//! PageMap ─► map_image (one texture) ─► axes, pointer ─► tooltip of a page │ Action::ShowPageText
//! ```
//! 1. The image is drawn again only for a new map, view or size. 2. Figures of tiers are the engine's own sums.
//!
//! Pages of 64 tokens across, layers down, with the pages of the document over them.

use egui::{Align2, Color32, CornerRadius, Rect, Response, Role, Sense, Stroke, StrokeKind, TextureOptions, Ui};
use egui::{EventFilter, WidgetInfo, pos2, vec2};

use crate::app::dashboard::map_image::{Frame, Palette, paint};
use crate::app::dashboard::page_text::cached_chat;
use crate::app::dashboard::page_tooltip::{page_lines, page_range};
use crate::app::dashboard::state::kv_map::KvMapState;
use crate::app::dashboard::{DashboardState, charts, page_text};
use crate::app::panels::Action;
use crate::app::panels::document::document_view::pages_ui;
use crate::app::state::ViewState;
use crate::app::state::chat::Chat;
use crate::app::state::viewer::Viewer;
use crate::app::ui::shortcuts::{self, Shortcut};
use crate::app::ui::theme::{self, GRID, GUTTER, Tokens};
use crate::app::ui::{format, widgets};
use crate::engine::{PageMap, Tier, TierUsage};

/// Room for the numbers of layers, points.
const GUTTER_LEFT: f32 = 30.0;
/// Room for the pages of the document, points.
const AXIS: f32 = 22.0;
/// Least and greatest height of a row, points.
const ROWS: [f32; 2] = [6.0, 40.0];
/// Between two numbers of an axis, points.
const LABELS: f32 = 44.0;
/// A step of the keyboard, or of the wheel.
const ZOOM_STEP: f64 = 1.25;

/// Draws the panel, with the text of the open page below the map.
pub fn kv_map_ui(ui: &mut Ui, view: &ViewState, state: &mut DashboardState) -> Vec<Action> {
    let Some(map) = state.pages.clone().filter(|map| map.occupancy.n_pages > 0) else {
        empty_ui(ui);
        return Vec::new();
    };
    tiers_ui(ui, &map);
    ui.add_space(GUTTER);
    let open = state.reader.is_some();
    let room = ui.available_height() * if open { 0.5 } else { 1.0 } - AXIS - 48.0;
    let actions = map_ui(ui, view, &map, &mut state.kv_map, room);
    ui.add_space(GRID);
    let rest = map.n_tokens.saturating_sub(map.occupancy.n_pages * 64);
    let selected = state.kv_map.selected.filter(|(layer, page)| map.occupancy.index(*layer, *page).is_some());
    let words = match selected {
        Some((layer, page)) => page_lines(view, &map, layer..layer + 1, page).join(" · "),
        None => format!(
            "{} pages of {} layers; {} newer tokens, in VRAM, fill no page yet. Click a page to read it; scroll to zoom.",
            format::count(map.occupancy.n_pages),
            map.occupancy.n_layer,
            format::count(rest),
        ),
    };
    let t = theme::tokens(ui);
    ui.add(egui::Label::new(egui::RichText::new(words).font(theme::small()).color(t.weak)).wrap());
    let doc = |viewer: &Viewer| view.documents.list.iter().find(|doc| doc.id == viewer.doc);
    if let Some(mut viewer) = state.reader.take()
        && let Some(doc) = doc(&viewer)
    {
        ui.add_space(2.0 * GRID);
        ui.painter().hline(ui.max_rect().x_range(), ui.cursor().top(), Stroke::new(1.0, t.line));
        ui.add_space(GRID);
        let name = cached_chat(view).document_name(&view.documents.list, doc);
        if !pages_ui(ui, doc, &name, &mut viewer) {
            state.reader = Some(viewer);
        }
    }
    actions
}

fn empty_ui(ui: &mut Ui) {
    let t = theme::tokens(ui);
    ui.add_space(GUTTER);
    ui.label(egui::RichText::new("No page is in the cache yet").color(t.strong));
    ui.add_space(GRID);
    let text = "When a document is read, each of its pages appears here for every layer: a full bar in VRAM, two thirds in RAM, one \
                third on the disk only. Point at a page for its facts, and click to read it.";
    ui.add(egui::Label::new(egui::RichText::new(text).font(theme::small()).color(t.weak)).wrap());
}

/// Usage of each tier, and the key of the map.
fn tiers_ui(ui: &mut Ui, map: &PageMap) {
    let t = theme::tokens(ui);
    let tiers = map.occupancy.tiers;
    let width = ui.available_width() / 3.0;
    let (row, _) = ui.allocate_exact_size(vec2(ui.available_width(), 52.0), Sense::hover());
    for (i, (tier, name, held)) in
        [(Tier::Vram, "VRAM", tiers.vram), (Tier::Ram, "RAM", tiers.ram), (Tier::Disk, "Disk", tiers.disk)]
            .into_iter()
            .enumerate()
    {
        let rect = Rect::from_min_size(pos2(row.left() + i as f32 * width, row.top()), vec2(width, row.height()));
        tier_ui(ui, rect, t, tier, name, &held);
    }
}

fn tier_ui(ui: &Ui, rect: Rect, t: &Tokens, tier: Tier, name: &str, held: &TierUsage) {
    const KEY: f32 = 12.0;
    let response = ui.interact(rect, ui.scope_id().with(("tier", name)), Sense::hover());
    let pages = format!("{} pages", format::count(held.n_pages as usize));
    let (bytes, spare) = (format::bytes(held.page_bytes), format::bytes(held.spare_bytes));
    let label = format!("{name}: {pages}, {bytes}; {spare} of buffers and room to come; {} in all", format::bytes(held.bytes()));
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &label));
    let painter = ui.painter();
    let thirds = match tier {
        Tier::Vram => 3.0,
        Tier::Ram => 2.0,
        Tier::Disk => 1.0,
    };
    let key = Rect::from_min_size(rect.left_top() + vec2(0.0, 2.0), vec2(KEY, KEY));
    painter.rect_filled(key, CornerRadius::same(1), t.idle.gamma_multiply(0.5));
    painter.rect_filled(key.with_min_y(key.bottom() - KEY * thirds / 3.0), CornerRadius::same(1), charts::tier_color(t, tier));
    let line = |y: f32| rect.left_top() + vec2(KEY + 2.0 * GRID, y);
    painter.text(line(0.0), Align2::LEFT_TOP, format!("{name} · {pages}"), theme::small(), t.text);
    painter.text(line(17.0), Align2::LEFT_TOP, bytes, theme::small(), t.strong);
    painter.text(line(34.0), Align2::LEFT_TOP, format!("+ {spare} buffers"), theme::small(), t.weak);
    response.on_hover_text(label);
}

/// Layout of the map: the mapping from pages and layers to points.
struct Layout {
    /// rect of the image
    picture: Rect,
    /// pages in view
    pages: [f64; 2],
    /// height of a row, points
    row: f32,
    frame: Frame,
}

impl Layout {
    fn new(ui: &Ui, picture: Rect, pages: [f64; 2], row_layers: usize, row: f32) -> Layout {
        let scale = ui.pixels_per_point();
        let pixels = |points: f32| (points * scale).round().max(1.0) as usize;
        let frame = Frame {
            pages,
            row_layers,
            width: pixels(picture.width()),
            row_height: pixels(row),
            gap: if row < 8.0 { 1 } else { pixels(1.5) },
        };
        Layout { picture, pages, row, frame }
    }

    fn x_of(&self, page: f64) -> f32 {
        let share = (page - self.pages[0]) / (self.pages[1] - self.pages[0]);
        self.picture.left() + self.picture.width() * share as f32
    }

    fn page_at(&self, x: f32) -> f64 {
        let share = f64::from((x - self.picture.left()) / self.picture.width().max(1.0));
        self.pages[0] + (self.pages[1] - self.pages[0]) * share
    }

    fn hit(&self, at: egui::Pos2, map: &PageMap) -> Option<(usize, usize)> {
        let layer = ((at.y - self.picture.top()) / self.row).floor().max(0.0) as usize * self.frame.row_layers;
        let page = self.page_at(at.x).floor().max(0.0) as usize;
        (self.picture.contains(at) && map.occupancy.index(layer, page).is_some()).then_some((layer, page))
    }
}

fn map_ui(ui: &mut Ui, view: &ViewState, map: &PageMap, state: &mut KvMapState, room: f32) -> Vec<Action> {
    let (n_layer, n_pages) = (map.occupancy.n_layer, map.occupancy.n_pages);
    let row_layers = (1..).find(|k| n_layer.div_ceil(*k) as f32 * ROWS[0] <= room.max(6.0 * ROWS[0])).unwrap_or(n_layer);
    let n_rows = n_layer.div_ceil(row_layers);
    let row = (room / n_rows as f32).clamp(ROWS[0], ROWS[1]).floor();
    let height = n_rows as f32 * row;
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), AXIS + height), Sense::hover());
    let picture = Rect::from_min_max(rect.min + vec2(GUTTER_LEFT, AXIS), rect.max);
    let response = ui.interact(picture, ui.scope_id().with("kv map"), Sense::click_and_drag());
    let before = Layout::new(ui, picture, state.range(n_pages), row_layers, row);
    steer(ui, &response, &before, map, state);
    let layout = Layout { pages: state.range(n_pages), ..before };
    let layout = Layout::new(ui, layout.picture, layout.pages, row_layers, row);
    let label = label(map);
    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, &label));
    draw_picture(ui, map, &layout, state);
    draw_axes(ui, view, map, &layout);
    if let Some((layer, page)) = state.selected {
        mark(ui, &layout, layer, page);
    }
    widgets::focus_ring(ui, &response, picture.expand(2.0), 2);
    let pointed = response.hover_pos().and_then(|at| layout.hit(at, map));
    if let Some((layer, page)) = pointed {
        mark(ui, &layout, layer, page);
        let layers = layer..(layer + row_layers).min(n_layer);
        let words = page_lines(view, map, layers, page);
        response.clone().on_hover_ui_at_pointer(|ui| {
            ui.spacing_mut().item_spacing.y = 2.0;
            words.iter().for_each(|line| drop(ui.label(egui::RichText::new(line).font(theme::small()))));
        });
    }
    let clicked = response.clicked().then(|| response.interact_pointer_pos()).flatten().and_then(|at| layout.hit(at, map));
    let entered = (response.has_focus() && shortcuts::READ_PAGE.is_pressed(ui)).then_some(state.selected).flatten();
    state.selected = clicked.or(state.selected);
    clicked.or(entered).and_then(|(_, page)| open(view, map, page)).into_iter().collect()
}

fn label(map: &PageMap) -> String {
    let occupancy = &map.occupancy;
    let of = |tier: Tier, name: &str| {
        let n = occupancy.copies.iter().filter(|copies| copies.nearest() == Some(tier)).count();
        format!("{} read from {name}", format::count(n))
    };
    let tiers = [of(Tier::Vram, "VRAM"), of(Tier::Ram, "RAM"), of(Tier::Disk, "the disk")].join(", ");
    format!("KV map, {} pages of {} layers: {tiers}", format::count(occupancy.n_pages), occupancy.n_layer)
}

fn open(view: &ViewState, map: &PageMap, page: usize) -> Option<Action> {
    let range = page_range(map, page)?;
    page_text::source_location(cached_chat(view), &view.documents.list, range).map(Action::ShowPageText)
}

/// Zooms by wheel, pinch, + and -; pans by dragging and the arrows; 0 shows all pages.
fn steer(ui: &Ui, response: &Response, layout: &Layout, map: &PageMap, state: &mut KvMapState) {
    let n_pages = map.occupancy.n_pages;
    if let Some(at) = response.hover_pos() {
        let (wheel, pinch) = ui.input(|i| (i.smooth_scroll_delta().y, i.zoom_delta()));
        let factor = f64::from((-wheel / 200.0).exp() / pinch);
        if factor != 1.0 {
            state.zoom(n_pages, layout.page_at(at.x), factor);
        }
    }
    if response.dragged() {
        let per_point = (layout.pages[1] - layout.pages[0]) / f64::from(layout.picture.width().max(1.0));
        state.pan(n_pages, -f64::from(response.drag_delta().x) * per_point);
    }
    if !response.has_focus() {
        return;
    }
    let arrows = EventFilter { horizontal_arrows: true, vertical_arrows: true, ..EventFilter::default() };
    ui.memory_mut(|m| m.set_focus_lock_filter(response.id, arrows));
    let middle = (layout.pages[0] + layout.pages[1]) / 2.0;
    if shortcuts::ZOOM_IN.is_pressed(ui) {
        state.zoom(n_pages, middle, 1.0 / ZOOM_STEP);
    }
    if shortcuts::ZOOM_OUT.is_pressed(ui) {
        state.zoom(n_pages, middle, ZOOM_STEP);
    }
    if shortcuts::WHOLE_MAP.is_pressed(ui) {
        state.view = None;
    }
    let step = |less: Shortcut, more: Shortcut| i64::from(more.is_pressed(ui)) - i64::from(less.is_pressed(ui));
    let across = step(shortcuts::MAP_LEFT, shortcuts::MAP_RIGHT);
    let down = step(shortcuts::MAP_UP, shortcuts::MAP_DOWN);
    if across != 0 || down != 0 {
        let (layer, page) = state.selected.unwrap_or((0, layout.pages[0] as usize));
        let moved = |at: usize, by: i64, n: usize| at.saturating_add_signed(by as isize).min(n.saturating_sub(1));
        let page = moved(page, across, n_pages);
        state.selected = Some((moved(layer, down * layout.frame.row_layers as i64, map.occupancy.n_layer), page));
        let beyond = (page as f64 + 1.0 - layout.pages[1]).max(0.0) - (layout.pages[0] - page as f64).max(0.0);
        state.pan(n_pages, beyond);
    }
}

fn draw_picture(ui: &Ui, map: &PageMap, layout: &Layout, state: &mut KvMapState) {
    let t = theme::tokens(ui);
    let key = (map.taken_ns, layout.frame, t.dark);
    if state.picture.as_ref().is_none_or(|(of, _)| *of != key) {
        let ground = t.idle.gamma_multiply(0.45);
        let palette: Palette = [ground, t.vram, t.ram, t.disk];
        let image = paint(&map.occupancy, &layout.frame, palette);
        match &mut state.picture {
            Some((of, texture)) => {
                texture.set(image, TextureOptions::NEAREST);
                *of = key;
            }
            None => state.picture = Some((key, ui.ctx().load_texture("kv map", image, TextureOptions::NEAREST))),
        }
    }
    if let Some((_, texture)) = &state.picture {
        // Pixel for pixel.
        let scale = ui.pixels_per_point();
        let size = texture.size_vec2() / scale;
        let min = (layout.picture.min.to_vec2() * scale).round() / scale;
        let whole = Rect::from_min_max(pos2(0.0, 0.0), pos2(1.0, 1.0));
        ui.painter().image(texture.id(), Rect::from_min_size(min.to_pos2(), size), whole, Color32::WHITE);
    }
}

fn draw_axes(ui: &Ui, view: &ViewState, map: &PageMap, layout: &Layout) {
    let t = theme::tokens(ui);
    let (painter, top) = (ui.painter(), layout.picture.top());
    let n_rows = layout.frame.n_rows(map.occupancy.n_layer);
    let every = (1..).find(|k| layout.row * *k as f32 >= 12.0).unwrap_or(1);
    for row in (0..n_rows).step_by(every) {
        let at = pos2(layout.picture.left() - 2.0 * GRID, top + (row as f32 + 0.5) * layout.row);
        let text = (row * layout.frame.row_layers).to_string();
        painter.text(at, Align2::RIGHT_CENTER, text, theme::small(), t.weak);
    }
    let chat = cached_chat(view);
    let mut free_from = f32::MIN;
    for (number, at) in page_starts(view, chat, map) {
        let x = layout.x_of(at);
        if x < layout.picture.left() - 0.5 || x > layout.picture.right() - 8.0 {
            continue;
        }
        let labeled = x >= free_from;
        let length = if labeled { 5.0 } else { 2.0 };
        painter.vline(x, top - length..=top, Stroke::new(1.0, t.weak));
        if labeled {
            let text = if free_from == f32::MIN { format!("page {number}") } else { number.to_string() };
            painter.text(pos2(x, top - 6.0), Align2::LEFT_BOTTOM, text, theme::small(), t.weak);
            free_from = x + LABELS;
        }
    }
}

/// Pages of the documents, counted from 1 in each, and their positions on the map.
fn page_starts(view: &ViewState, chat: &Chat, map: &PageMap) -> Vec<(usize, f64)> {
    let mut begin = 0;
    let mut starts = Vec::new();
    for doc in chat.docs(&view.documents.list) {
        let pages = doc.pages.iter().enumerate();
        starts.extend(pages.filter_map(|(i, page)| Some((i + 1, position(map, begin + page.first_byte)?))));
        begin += doc.text.len() + crate::document::BLANK_LINE.len();
    }
    starts
}

/// Position of a byte of the text on the map. None beyond the last page.
fn position(map: &PageMap, byte: usize) -> Option<f64> {
    let byte = u32::try_from(byte).ok()?;
    let page = map.first_byte.partition_point(|first| *first <= byte).checked_sub(1)?;
    let (first, end) = (*map.first_byte.get(page)?, *map.first_byte.get(page + 1)?);
    Some(page as f64 + f64::from(byte - first) / f64::from((end - first).max(1)))
}

fn mark(ui: &Ui, layout: &Layout, layer: usize, page: usize) {
    let t = theme::tokens(ui);
    let (left, right) = (layout.x_of(page as f64), layout.x_of(page as f64 + 1.0));
    let column = Rect::from_x_y_ranges(left..=right.max(left + 2.0), layout.picture.y_range());
    let column = column.intersect(layout.picture.expand(1.0));
    if !column.is_positive() {
        return;
    }
    let row = (layer / layout.frame.row_layers) as f32;
    let top = layout.picture.top() + row * layout.row;
    let cell = Rect::from_x_y_ranges(column.x_range(), top..=top + layout.row - 1.0);
    ui.painter().rect_stroke(column.expand(1.0), 0.0, Stroke::new(1.0, t.weak), StrokeKind::Outside);
    ui.painter().rect_stroke(cell.expand(1.0), 0.0, Stroke::new(2.0, t.strong), StrokeKind::Outside);
}
