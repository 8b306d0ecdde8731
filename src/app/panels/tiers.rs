//! Tier bars: KV bytes of each tier against its budget, in the tier's color, with name and figures.
//!
//! Invariant: vermilion marks a passed budget, and the text has the word "over" too.

use egui::{RichText, Ui, vec2};

use crate::app::ui::theme::{self, GRID, Tokens};
use crate::app::ui::{format, widgets};
use crate::base::Tiers;

/// Width of the bars in the status line, points.
const STATUS_BAR: f32 = 40.0;

/// Least width of a column for the budget beside the used bytes, points.
const ROOMY: f32 = 160.0;

/// One tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TierBar {
    name: &'static str,
    color: egui::Color32,
    used: Option<u64>,
    budget: Option<u64>,
}

impl TierBar {
    /// The three tiers, fastest first. Missing figures are N/A.
    pub fn all(t: &Tokens, used: Option<Tiers<u64>>, budgets: Option<Tiers<u64>>) -> [TierBar; 3] {
        let bar = |name, color, of: fn(Tiers<u64>) -> u64| TierBar { name, color, used: used.map(of), budget: budgets.map(of) };
        [bar("VRAM", t.vram, |x| x.vram), bar("RAM", t.ram, |x| x.ram), bar("Disk", t.disk, |x| x.disk)]
    }

    fn over(&self) -> bool {
        matches!((self.used, self.budget), (Some(used), Some(budget)) if used > budget)
    }

    /// `1.91 of 2.00 GiB`, `not used`, `N/A`
    pub fn figures(&self) -> String {
        let text = match (self.used, self.budget) {
            (Some(0) | None, Some(0)) => "not used".to_owned(),
            (Some(used), Some(budget)) => format::bytes_of(used, budget),
            (Some(used), None) => format::bytes(used),
            (None, Some(budget)) => format!("N/A of {}", format::bytes(budget)),
            (None, None) => "N/A".to_owned(),
        };
        if self.over() { format!("{text}, over") } else { text }
    }

    /// For a screen reader and the tooltip.
    pub fn label(&self, what: &str) -> String {
        format!("{what}, {}: {}", self.name, self.figures())
    }

    fn share(&self) -> f32 {
        match (self.used, self.budget) {
            (Some(used), Some(budget)) if budget > 0 => (used as f64 / budget as f64).min(1.0) as f32,
            (Some(used), Some(_)) if used > 0 => 1.0,
            _ => 0.0,
        }
    }

    fn meter_ui(&self, ui: &mut Ui, width: f32, what: &str) {
        let t = theme::tokens(ui);
        let (fill, label) = (if self.over() { t.error } else { self.color }, self.label(what));
        widgets::meter(ui, self.share(), fill, width, &label).on_hover_text(label);
    }
}

/// Bars in the status line, from the right; with figures if there is room.
pub fn tiers_line_ui(ui: &mut Ui, bars: &[TierBar; 3], figures: bool) {
    let t = theme::tokens(ui);
    for bar in bars.iter().rev() {
        let ink = if bar.over() { t.error_text } else { t.weak };
        let text = |text: String| RichText::new(text).font(theme::small()).color(ink);
        ui.spacing_mut().item_spacing.x = 1.5 * GRID;
        if figures || bar.over() {
            ui.label(text(bar.figures()));
        }
        bar.meter_ui(ui, STATUS_BAR, "KV cache");
        ui.label(text(bar.name.to_owned()));
        ui.add_space(2.0 * GRID);
    }
}

/// Bars below each other, in rows of this height: name, bar, figures.
pub fn tiers_rows_ui(ui: &mut Ui, bars: &[TierBar; 3], height: f32) {
    const NAMES: f32 = 48.0;
    const FIGURES: f32 = 136.0;
    let t = theme::tokens(ui);
    for bar in bars {
        ui.horizontal(|ui| {
            ui.set_height(height);
            ui.spacing_mut().item_spacing.x = 0.0;
            let (name, _) = ui.allocate_exact_size(vec2(NAMES, height), egui::Sense::hover());
            widgets::text_in(ui, name, bar.name, theme::small(), t.text);
            let width = (ui.available_width() - FIGURES).max(2.0 * NAMES);
            bar.meter_ui(ui, width, "KV cache");
            ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                let ink = if bar.over() { t.error_text } else { t.strong };
                ui.label(RichText::new(bar.figures()).font(theme::small()).color(ink));
            });
        });
    }
}

/// Bars side by side in a card. `mark` precedes a figure that is an estimate.
pub fn tiers_columns_ui(ui: &mut Ui, bars: &[TierBar; 3], mark: &str, what: &str) {
    let t = theme::tokens(ui);
    let gap = theme::SECTION;
    let width = ((ui.available_width() - 2.0 * gap) / 3.0).floor();
    let roomy = width > ROOMY;
    ui.horizontal_top(|ui| {
        ui.spacing_mut().item_spacing.x = gap;
        for bar in bars {
            ui.allocate_ui_with_layout(vec2(width, 28.0), egui::Layout::top_down(egui::Align::Min), |ui| {
                ui.set_width(width);
                ui.spacing_mut().item_spacing = vec2(GRID, 1.5 * GRID);
                ui.horizontal(|ui| {
                    ui.set_height(18.0);
                    ui.spacing_mut().interact_size.y = 18.0;
                    widgets::caption(ui, bar.name);
                    ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                        let ink = if bar.over() { t.error_text } else { t.text };
                        let said = if bar.used.is_some_and(|n| n > 0) { mark } else { "" };
                        let figures = if roomy || bar.over() {
                            bar.figures()
                        } else {
                            bar.used.map_or_else(|| "N/A".to_owned(), format::bytes)
                        };
                        ui.label(RichText::new(format!("{said}{figures}")).font(theme::small()).color(ink));
                    });
                });
                bar.meter_ui(ui, width, what);
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(used: Option<u64>, budget: Option<u64>) -> TierBar {
        let tiers = |n: u64| Tiers { vram: n, ram: 0, disk: 0 };
        TierBar::all(theme::of(true), used.map(tiers), budget.map(tiers))[0]
    }

    #[test]
    fn tier_shows_use_budget_and_what_is_not_known() {
        assert_eq!(bars(Some(3 << 29), Some(2 << 30)).label("KV cache"), "KV cache, VRAM: 1.50 of 2.00 GiB");
        assert_eq!(bars(None, None).figures(), "N/A");
        assert_eq!(bars(None, Some(2 << 30)).figures(), "N/A of 2.00 GiB");
        assert_eq!(bars(Some(0), Some(0)).figures(), "not used");
    }

    #[test]
    fn only_a_passed_budget_is_over() {
        assert!(!bars(Some(2 << 30), Some(2 << 30)).over());
        let over = bars(Some(3 << 30), Some(2 << 30));
        assert!(over.over() && over.figures().ends_with("over"));
        assert_eq!(over.share(), 1.0);
    }
}
