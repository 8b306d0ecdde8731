//! Legend: the meaning of every mark of the dashboard, for the help page.

use egui::{Rect, Sense, Ui, vec2};

use crate::app::dashboard::charts;
use crate::app::dashboard::rates::Known;
use crate::app::ui::theme::{self, GRID};
use crate::engine::Tier;

/// Width and height of a mark, points.
const MARK: egui::Vec2 = vec2(28.0, 16.0);

/// One line for each mark.
pub fn legend_ui(ui: &mut Ui) {
    let t = theme::tokens(ui);
    line(ui, "recomputed instead of fetched", |painter, rect| charts::swatch(painter, square(rect), t.recomputed, false));
    line(ui, "skipped by a policy, waiting, or unattributed time", |painter, rect| {
        charts::swatch(painter, square(rect), t.weak, true);
    });
    let tiers = [
        (Tier::Vram, 1.0, "KV map: a page that attention reads from VRAM, as high as its row"),
        (Tier::Ram, 2.0 / 3.0, "KV map: from RAM, two thirds"),
        (Tier::Disk, 1.0 / 3.0, "KV map: from the disk, one third"),
    ];
    for (tier, share, meaning) in tiers {
        line(ui, meaning, |painter, rect| {
            let cell = square(rect);
            painter.rect_filled(cell, 0.0, t.idle);
            painter.rect_filled(cell.with_min_y(cell.bottom() - cell.height() * share), 0.0, charts::tier_color(t, tier));
        });
    }
    let known = [
        (Known::Measured(0.0), "measured"),
        (Known::Estimated(0.0), "estimated, as is a figure after ~"),
        (Known::Missing, "not measured: N/A, never drawn as 0"),
    ];
    for (known, meaning) in known {
        line(ui, meaning, |painter, rect| {
            let columns = [0.3, 0.6, 0.4, 0.9, 0.7, 1.0, 0.5];
            charts::sparkline(painter, rect.shrink2(vec2(0.0, 2.0)), &columns, 1.0, t.ram, known);
        });
    }
}

fn square(rect: Rect) -> Rect {
    Rect::from_min_size(rect.min + vec2(0.0, 2.0), vec2(12.0, 12.0))
}

fn line(ui: &mut Ui, meaning: &str, mark: impl FnOnce(&egui::Painter, Rect)) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 2.0 * GRID;
        let (rect, _) = ui.allocate_exact_size(MARK, Sense::hover());
        mark(ui.painter(), rect);
        ui.label(meaning);
    });
}
