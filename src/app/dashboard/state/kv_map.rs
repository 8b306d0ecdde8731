//! State of the KV map between frames: the pages in view, the selected page, the drawn map.

use egui::TextureHandle;

use crate::app::dashboard::map_image::Frame;

/// Fewest pages that fill the map.
const LEAST_PAGES: f64 = 8.0;

/// State of the KV map between frames.
#[derive(Default)]
pub struct KvMapState {
    /// first page in view, and one past the last; None for all
    pub(in crate::app::dashboard) view: Option<[f64; 2]>,
    /// layer and page
    pub selected: Option<(usize, usize)>,
    /// the drawn map
    pub(in crate::app::dashboard) picture: Option<(PictureKey, TextureHandle)>,
}

/// A different key is a different image.
pub(in crate::app::dashboard) type PictureKey = (u64, Frame, bool);

impl std::fmt::Debug for KvMapState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvMapState").field("view", &self.view).field("selected", &self.selected).finish_non_exhaustive()
    }
}

impl KvMapState {
    /// Memory of the image, bytes.
    pub fn bytes(&self) -> u64 {
        self.picture.as_ref().map_or(0, |(_, texture)| texture.byte_size() as u64)
    }

    /// First page in view, and one past the last.
    pub(in crate::app::dashboard) fn range(&self, n_pages: usize) -> [f64; 2] {
        let all = (n_pages as f64).max(1.0);
        let [from, to] = self.view.unwrap_or([0.0, all]);
        let width = (to - from).clamp(LEAST_PAGES.min(all), all);
        let from = from.clamp(0.0, all - width);
        [from, from + width]
    }

    /// Shows `factor` times as many pages, with `center` fixed.
    pub(in crate::app::dashboard) fn zoom(&mut self, n_pages: usize, center: f64, factor: f64) {
        let [from, to] = self.range(n_pages);
        let view = [center - (center - from) * factor, center + (to - center) * factor];
        self.view = (view[1] - view[0] < n_pages as f64).then_some(view);
        self.view = self.view.map(|_| self.range(n_pages));
    }

    /// Moves the view by `pages`.
    pub(in crate::app::dashboard) fn pan(&mut self, n_pages: usize, pages: f64) {
        let [from, to] = self.range(n_pages);
        self.view = self.view.map(|_| [from + pages, to + pages]);
        self.view = self.view.map(|_| self.range(n_pages));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zoom_keeps_the_page_under_the_pointer_and_ends_at_everything() {
        let mut state = KvMapState::default();
        state.zoom(1000, 300.0, 0.5);
        assert_eq!(state.range(1000), [150.0, 650.0]);
        state.pan(1000, 10_000.0);
        assert_eq!(state.range(1000), [500.0, 1000.0], "nothing is beyond the last page");
        state.zoom(1000, 700.0, 1e-9);
        let [from, to] = state.range(1000);
        assert!((to - from - LEAST_PAGES).abs() < 1e-6 && from <= 700.0 && 700.0 <= to);
        state.zoom(1000, 700.0, 1e9);
        assert_eq!((state.view, state.range(1000)), (None, [0.0, 1000.0]));
        state.pan(1000, 5.0);
        assert_eq!(state.view, None, "everything has no side to pan to");
        assert_eq!(state.range(3), [0.0, 3.0]);
    }
}
