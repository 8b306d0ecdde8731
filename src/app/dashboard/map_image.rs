//! KV map image: pages across, layers down, one image for any number of pages. Pure.
//!
//! ```text
//! ▇ VRAM: as high as the row      a column of several pages is stacked: disk at the bottom, then RAM, then VRAM
//! ▅ RAM: two thirds
//! ▂ disk: one third
//!   none: background
//! ```
//! 1. Height and color carry the same information, so the map is legible without color. 2. Every page in view counts, at any width.
//!
//! Units: pixels; pages of 64 tokens.

use egui::{Color32, ColorImage};

use crate::engine::{Tier, TierOccupancy};

/// The part of the map to draw, and its size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frame {
    /// first page, and one past the last, with fractions
    pub pages: [f64; 2],
    /// layers in a row
    pub row_layers: usize,
    /// pixels across
    pub width: usize,
    /// height of a row with the gap below it, pixels
    pub row_height: usize,
    /// pixels of the gap
    pub gap: usize,
}

/// Ground, VRAM, RAM, disk.
pub type Palette = [Color32; 4];

impl Frame {
    /// Rows of `n_layer` layers.
    pub fn n_rows(&self, n_layer: usize) -> usize {
        n_layer.div_ceil(self.row_layers.max(1))
    }

    /// Pages of column `x`: the first, and one past the last. If a page has several columns, each shows one page.
    fn pages_at(&self, x: usize, n_pages: usize) -> (usize, usize) {
        let per_column = (self.pages[1] - self.pages[0]) / self.width.max(1) as f64;
        let page = |x: f64| (self.pages[0] + per_column * x).max(0.0);
        let (first, end) = match per_column > 1.0 {
            true => (page(x as f64).floor() as usize, page(x as f64 + 1.0).ceil() as usize),
            false => (page(x as f64 + 0.5) as usize, page(x as f64 + 0.5) as usize + 1),
        };
        (first.min(n_pages), end.min(n_pages))
    }
}

/// Draws the map.
pub fn paint(occupancy: &TierOccupancy, frame: &Frame, palette: Palette) -> ColorImage {
    let n_rows = frame.n_rows(occupancy.n_layer);
    let mut image = ColorImage::filled([frame.width, n_rows * frame.row_height], Color32::TRANSPARENT);
    let height = frame.row_height.saturating_sub(frame.gap).max(1);
    for row in 0..n_rows {
        let layers = row * frame.row_layers..((row + 1) * frame.row_layers).min(occupancy.n_layer);
        for x in 0..frame.width {
            let (first, end) = frame.pages_at(x, occupancy.n_pages);
            let pages = layers.clone().flat_map(|layer| (first..end).map(move |page| (layer, page)));
            let tops = tops(pages.map(|(layer, page)| occupancy.at(layer, page).nearest()), height);
            if first == end {
                continue;
            }
            for y in 0..height {
                // From below.
                let kind = tops.iter().position(|top| y < *top).map_or(0, |tier| 3 - tier);
                let line = row * frame.row_height + height - 1 - y;
                image.pixels[line * frame.width + x] = palette[kind];
            }
        }
    }
    image
}

/// Top of the disk's part of a column, of RAM's above it, of VRAM's above that.
fn tops(nearest: impl Iterator<Item = Option<Tier>>, height: usize) -> [usize; 3] {
    let mut counts = [0usize; 3];
    let mut n = 0;
    for tier in nearest {
        n += 1;
        match tier {
            Some(Tier::Disk) => counts[0] += 1,
            Some(Tier::Ram) => counts[1] += 1,
            Some(Tier::Vram) => counts[2] += 1,
            None => {}
        }
    }
    let mut thirds = 0;
    let mut tops = [0; 3];
    for (i, count) in counts.into_iter().enumerate() {
        thirds += (i + 1) * count;
        tops[i] = (thirds * height + 3 * n.max(1) / 2) / (3 * n.max(1));
        // A tier with a page is visible.
        if count > 0 {
            let below = if i == 0 { 0 } else { tops[i - 1] };
            tops[i] = tops[i].max((below + 1).min(height));
        }
    }
    tops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::PageCopies;

    const PALETTE: Palette = [Color32::BLACK, Color32::BLUE, Color32::GREEN, Color32::YELLOW];

    fn occupancy(n_layer: usize, n_pages: usize, tier: impl Fn(usize, usize) -> Option<Tier>) -> TierOccupancy {
        let mut occupancy = TierOccupancy::new(n_layer, n_pages);
        for layer in 0..n_layer {
            for page in 0..n_pages {
                occupancy.copies[layer * n_pages + page] =
                    tier(layer, page).map_or(PageCopies::default(), |t| PageCopies::default().with(t));
            }
        }
        occupancy
    }

    fn frame(n_pages: usize, width: usize) -> Frame {
        Frame { pages: [0.0, n_pages as f64], row_layers: 1, width, row_height: 7, gap: 1 }
    }

    fn column(image: &ColorImage, x: usize, row: usize) -> Vec<Color32> {
        (0..6).rev().map(|y| image.pixels[(row * 7 + y) * image.size[0] + x]).collect()
    }

    #[test]
    fn page_is_as_high_as_its_tier_is_fast() {
        let tiers = [Some(Tier::Vram), Some(Tier::Ram), Some(Tier::Disk), None];
        let image = paint(&occupancy(1, 4, |_, page| tiers[page]), &frame(4, 4), PALETTE);
        let [k, b, g, y] = PALETTE;
        assert_eq!(column(&image, 0, 0), [b; 6]);
        assert_eq!(column(&image, 1, 0), [g, g, g, g, k, k]);
        assert_eq!(column(&image, 2, 0), [y, y, k, k, k, k]);
        assert_eq!(column(&image, 3, 0), [k; 6]);
        assert_eq!(image.pixels[6 * 4], Color32::TRANSPARENT, "the gap");
    }

    #[test]
    fn single_page_among_thousands_is_seen() {
        let alone = |_: usize, page: usize| Some(if page == 4321 { Tier::Vram } else { Tier::Disk });
        let image = paint(&occupancy(1, 8192, alone), &frame(8192, 64), PALETTE);
        let seen: Vec<usize> = (0..64).filter(|x| column(&image, *x, 0).contains(&PALETTE[1])).collect();
        assert_eq!(seen, [4321 * 64 / 8192]);
    }

    #[test]
    fn layers_in_a_row_are_counted_together_and_the_last_row_may_have_fewer() {
        let by_layer = |layer: usize, _: usize| Some(if layer < 2 { Tier::Vram } else { Tier::Disk });
        let occupancy = occupancy(5, 1, by_layer);
        let frame = Frame { row_layers: 2, ..frame(1, 1) };
        let image = paint(&occupancy, &frame, PALETTE);
        assert_eq!((frame.n_rows(5), image.size), (3, [1, 21]));
        assert_eq!(
            (column(&image, 0, 0)[5], column(&image, 0, 1)[0], column(&image, 0, 2)[5]),
            (PALETTE[1], PALETTE[3], PALETTE[0])
        );
    }

    #[test]
    fn view_within_one_page_shows_that_page() {
        let image = paint(
            &occupancy(1, 3, |_, page| (page == 1).then_some(Tier::Ram)),
            &Frame { pages: [1.2, 1.4], ..frame(3, 5) },
            PALETTE,
        );
        assert!((0..5).all(|x| column(&image, x, 0)[0] == PALETTE[2]));
    }
}
