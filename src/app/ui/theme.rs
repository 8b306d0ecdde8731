//! Theme: all colors, sizes and spacings of the window.
//!
//! ```text
//! Theme (light, dark) ──► Tokens (meaning of each color) ──► egui Style (use by widgets)
//! ```
//! Invariants: 1. No other file of the window names a color. 2. Spacings are multiples of [`GRID`].
//! 3. Text has a contrast of 4.5 to 1 on every surface, and every tier color has a label.
//!
//! Three text sizes ([`SMALL`], [`BODY`], [`TITLE`]) and two weights: the bundled typeface comes in one cut, so the
//! second weight is ink ([`Tokens::strong`] against [`Tokens::text`]).
//!
//! Source of the tier colors: Okabe and Ito's palette for color-blind readers.

use std::sync::Arc;

use egui::style::{Selection, WidgetVisuals};
use egui::{
    Color32, CornerRadius, FontData, FontDefinitions, FontFamily, FontId, Margin, Shadow, Stroke, TextStyle, Theme, Visuals, vec2,
};

/// Every spacing is a multiple of this, points.
pub const GRID: f32 = 4.0;
/// Between things that belong to different groups, points.
pub const GUTTER: f32 = 12.0;
/// Around the chat column and between exchanges, points.
pub const SECTION: f32 = 24.0;
/// Captions and figures, points.
pub const SMALL: f32 = 12.0;
/// Everything that is read, points.
pub const BODY: f32 = 15.0;
/// One per view, points.
pub const TITLE: f32 = 24.0;
/// Width of the sidebar, points.
pub const SIDEBAR_WIDTH: f32 = 240.0;
/// Widest text column, points.
pub const COLUMN_WIDTH: f32 = 760.0;
/// Height of buttons, rows and fields, points.
pub const CONTROL: f32 = 32.0;
/// Height of the status line, points.
pub const STATUS_HEIGHT: f32 = 28.0;
/// Corner radius of controls, points.
pub const RADIUS: u8 = 6;
/// Corner radius of cards, bubbles and the composer, points.
pub const RADIUS_LARGE: u8 = 10;
/// Height of progress bars and meters, points.
pub const METER: f32 = 4.0;

/// Meaning of each color, for one theme.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tokens {
    /// dark theme
    pub dark: bool,
    /// behind the chat
    pub page: Color32,
    /// behind the sidebar and the status line
    pub panel: Color32,
    /// cards, bubbles, the composer, menus
    pub raised: Color32,
    /// under the pointer, and the selected row
    pub hover: Color32,
    /// 1 px separators and outlines
    pub line: Color32,
    /// captions
    pub weak: Color32,
    /// running text
    pub text: Color32,
    /// emphasized text
    pub strong: Color32,
    /// the one accent: the next action, and the focus
    pub accent: Color32,
    /// on the accent
    pub on_accent: Color32,
    /// the accent as a surface
    pub accent_soft: Color32,
    /// an error or a broken budget, as a mark
    pub error: Color32,
    /// an error, as text
    pub error_text: Color32,
    /// bytes in VRAM
    pub vram: Color32,
    /// bytes in RAM
    pub ram: Color32,
    /// bytes on disk
    pub disk: Color32,
    /// recomputed
    pub recomputed: Color32,
    /// the empty part of a bar, waiting
    pub idle: Color32,
}

const fn rgb(hex: u32) -> Color32 {
    Color32::from_rgb((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

/// The dark theme.
pub const DARK: Tokens = Tokens {
    dark: true,
    page: rgb(0x17_19_1D),
    panel: rgb(0x10_12_15),
    raised: rgb(0x20_23_29),
    hover: rgb(0x2A_2E_36),
    line: rgb(0x2C_30_38),
    weak: rgb(0x97_9F_AC),
    text: rgb(0xD3_D7_DE),
    strong: rgb(0xFA_FB_FC),
    accent: rgb(0x8C_9B_FF),
    on_accent: rgb(0x10_12_15),
    accent_soft: rgb(0x25_2A_45),
    error: rgb(0xD5_5E_00),
    error_text: rgb(0xFF_A0_5C),
    vram: rgb(0x00_72_B2),
    ram: rgb(0x00_9E_73),
    disk: rgb(0xE6_9F_00),
    recomputed: rgb(0xCC_79_A7),
    idle: rgb(0x3A_3F_49),
};

/// The light theme.
pub const LIGHT: Tokens = Tokens {
    dark: false,
    page: rgb(0xFF_FF_FF),
    panel: rgb(0xF5_F6_F8),
    raised: rgb(0xF3_F4_F7),
    hover: rgb(0xE7_E9_EE),
    line: rgb(0xDD_E0_E6),
    weak: rgb(0x5C_64_71),
    text: rgb(0x2E_33_3B),
    strong: rgb(0x0A_0C_0F),
    accent: rgb(0x45_50_C8),
    on_accent: rgb(0xFF_FF_FF),
    accent_soft: rgb(0xE6_E9_FB),
    error: rgb(0xD5_5E_00),
    error_text: rgb(0xA2_3F_00),
    vram: rgb(0x00_72_B2),
    ram: rgb(0x00_9E_73),
    disk: rgb(0xE6_9F_00),
    recomputed: rgb(0xCC_79_A7),
    idle: rgb(0xD5_D9_E0),
};

/// The tokens of the theme in force.
pub fn tokens(ui: &egui::Ui) -> &'static Tokens {
    of(ui.visuals().dark_mode)
}

/// The tokens of one theme.
pub const fn of(dark: bool) -> &'static Tokens {
    if dark { &DARK } else { &LIGHT }
}

/// Captions.
pub fn small() -> FontId {
    FontId::new(SMALL, FontFamily::Proportional)
}

/// Running text.
pub fn body() -> FontId {
    FontId::new(BODY, FontFamily::Proportional)
}

/// Titles.
pub fn title() -> FontId {
    FontId::new(TITLE, FontFamily::Proportional)
}

/// The bundled fonts, with room between the lines for reading: [`LEADING`] goes above and below every line.
fn fonts() -> FontDefinitions {
    let mut fonts = FontDefinitions::default();
    let names = fonts.families.get(&FontFamily::Proportional).cloned().unwrap_or_default();
    if let Some(data) = names.first().and_then(|name| fonts.font_data.get_mut(name)) {
        let mut bytes = data.bytes().to_vec();
        if add_leading(&mut bytes, LEADING).is_some() {
            *data = Arc::new(FontData { font: Arc::new(bytes), ..(**data).clone() });
        }
    }
    fonts
}

/// Added above and below every line of the text face, in thousandths of its size.
const LEADING: i16 = 120;

/// Raises the ascender and lowers the descender in the `hhea` table of an OpenType file.
/// None, without a change, if there is no such table.
fn add_leading(font: &mut [u8], per_mille: i16) -> Option<()> {
    const RECORD: usize = 16;
    let n_tables = usize::from(u16::from_be_bytes(font.get(4..6)?.try_into().ok()?));
    let records = font.get(12..12 + n_tables * RECORD)?;
    let hhea = records.chunks_exact(RECORD).find(|r| r.starts_with(b"hhea"))?;
    let offset = usize::try_from(u32::from_be_bytes(hhea.get(8..12)?.try_into().ok()?)).ok()?;
    for (at, change) in [(offset + 4, per_mille), (offset + 6, -per_mille)] {
        let field = font.get_mut(at..at + 2)?;
        let value = i16::from_be_bytes([*field.first()?, *field.last()?]).saturating_add(change);
        field.copy_from_slice(&value.to_be_bytes());
    }
    Some(())
}

/// Gives both themes to egui.
pub fn install(ctx: &egui::Context) {
    ctx.set_fonts(fonts());
    for (theme, tokens) in [(Theme::Dark, &DARK), (Theme::Light, &LIGHT)] {
        ctx.style_mut_of(theme, |style| {
            style.visuals = visuals(tokens);
            style.text_styles = [
                (TextStyle::Small, small()),
                (TextStyle::Body, body()),
                (TextStyle::Button, body()),
                (TextStyle::Heading, FontId::new(20.0, FontFamily::Proportional)),
                (TextStyle::Monospace, FontId::new(13.0, FontFamily::Monospace)),
            ]
            .into();
            style.animation_time = 0.0;
            style.scroll_animation = egui::style::ScrollAnimation::none();
            style.interaction.tooltip_delay = 0.3;
            style.interaction.selectable_labels = true;
            let spacing = &mut style.spacing;
            spacing.item_spacing = vec2(2.0 * GRID, GRID);
            spacing.button_padding = vec2(GUTTER, GRID);
            spacing.interact_size = vec2(CONTROL, CONTROL);
            spacing.menu_margin = Margin::same(4);
            spacing.window_margin = Margin::same(12);
            spacing.menu_width = 320.0;
            spacing.icon_width = 16.0;
            spacing.scroll = egui::style::ScrollStyle { bar_width: 8.0, ..egui::style::ScrollStyle::floating() };
        });
    }
}

fn visuals(t: &Tokens) -> Visuals {
    let radius = CornerRadius::same(RADIUS);
    let state = |fill: Color32, stroke: Color32, ink: Color32| WidgetVisuals {
        bg_fill: fill,
        weak_bg_fill: fill,
        bg_stroke: Stroke::new(1.0, stroke),
        corner_radius: radius,
        fg_stroke: Stroke::new(1.0, ink),
        expansion: 0.0,
    };
    let mut v = if t.dark { Visuals::dark() } else { Visuals::light() };
    v.widgets.noninteractive = state(t.page, t.line, t.text);
    v.widgets.inactive = state(t.raised, t.line, t.text);
    v.widgets.hovered = state(t.hover, t.line, t.strong);
    v.widgets.active = state(t.hover, t.accent, t.strong);
    v.widgets.open = state(t.hover, t.line, t.strong);
    v.selection = Selection { bg_fill: t.accent_soft, stroke: Stroke::new(1.0, t.accent) };
    v.weak_text_color = Some(t.weak);
    v.hyperlink_color = t.accent;
    v.faint_bg_color = t.panel;
    v.extreme_bg_color = t.panel;
    v.code_bg_color = t.raised;
    v.warn_fg_color = t.error_text;
    v.error_fg_color = t.error_text;
    v.panel_fill = t.page;
    v.window_fill = t.page;
    v.window_stroke = Stroke::new(1.0, t.line);
    v.window_corner_radius = CornerRadius::same(RADIUS_LARGE);
    v.menu_corner_radius = CornerRadius::same(RADIUS_LARGE);
    let shade = Color32::from_black_alpha(if t.dark { 110 } else { 34 });
    v.popup_shadow = Shadow { offset: [0, 6], blur: 20, spread: 0, color: shade };
    v.window_shadow = v.popup_shadow;
    v.text_cursor.blink = false;
    v.text_cursor.stroke = Stroke::new(1.5, t.accent);
    v.button_frame = true;
    v.striped = false;
    v
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance(c: Color32) -> f32 {
        let channel = |v: u8| {
            let v = f32::from(v) / 255.0;
            if v <= 0.040_45 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(c.r()) + 0.7152 * channel(c.g()) + 0.0722 * channel(c.b())
    }

    fn contrast(a: Color32, b: Color32) -> f32 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_on_every_surface_of_both_themes_is_legible() {
        for t in [&DARK, &LIGHT] {
            for surface in [t.page, t.panel, t.raised, t.hover] {
                for ink in [t.weak, t.text, t.strong, t.error_text] {
                    assert!(contrast(ink, surface) >= 4.5, "{ink:?} on {surface:?}: {:.2}", contrast(ink, surface));
                }
            }
            assert!(contrast(t.on_accent, t.accent) >= 4.5);
            assert!(contrast(t.strong, t.accent_soft) >= 4.5);
            assert!(contrast(t.accent, t.page) >= 3.0, "the focus ring must show");
        }
    }

    #[test]
    fn text_lines_have_room_between_them() {
        let mut fonts = egui::epaint::text::Fonts::new(Default::default(), fonts());
        let height = fonts.with_pixels_per_point(1.0).row_height(&body());
        assert!((20.0..=23.0).contains(&height), "{height}");
        assert_eq!(add_leading(&mut [0; 40], 100), None, "not a font");
    }

    #[test]
    fn tier_colors_are_the_same_in_both_themes() {
        for t in [&DARK, &LIGHT] {
            assert_eq!((t.vram, t.ram, t.disk, t.recomputed), (DARK.vram, DARK.ram, DARK.disk, DARK.recomputed));
            assert_eq!(t.error, rgb(0xD5_5E_00));
        }
    }
}
