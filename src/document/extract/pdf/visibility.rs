//! Visibility: which text of a page a reader sees.
//!
//! Invariants: 1. Text is hidden only if that is sure: a clip, the edge of the page, or one flat color behind and before it.
//! Limits: [`MAX_AREAS`].

use hayro_interpret::kurbo::{Point, Rect};

/// Largest number of painted areas that are remembered; text on a page with more counts as seen.
const MAX_AREAS: usize = 2000;
/// Smallest area that can hide or carry a letter, square points.
const MIN_AREA: f64 = 8.0;
/// Largest invisible difference of colors, of 1.
const SAME_COLOR: f32 = 0.02;
/// Share of the page that a picture of a scanned page covers, at least.
const SCAN_SHARE: f64 = 0.55;

/// Reason that a letter is invisible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hidden {
    /// clipped, off the page or in the color behind it
    Unseen,
    /// not painted, as the text that recognition lays over a scan
    NotPainted,
}

/// Color with its opacity; None for a pattern or a picture.
pub type Color = Option<[f32; 4]>;

/// An area that was painted, in drawing order.
struct Area {
    rect: Rect,
    /// None if a letter on it is seen in any color
    color: Color,
    /// number of letters that were drawn before
    n_before: usize,
}

/// The page as painted so far.
pub struct Visibility {
    page: Rect,
    clips: Vec<Rect>,
    /// opacity of the open transparency groups
    groups: Vec<f32>,
    areas: Vec<Area>,
    picture_area: f64,
}

impl Visibility {
    /// An empty page with these edges.
    pub fn new(page: Rect) -> Visibility {
        Visibility { page, clips: Vec::new(), groups: Vec::new(), areas: Vec::new(), picture_area: 0.0 }
    }

    pub fn push_clip(&mut self, clip: Rect) {
        let clip = self.clip().intersect(clip);
        self.clips.push(clip);
    }

    pub fn pop_clip(&mut self) {
        self.clips.pop();
    }

    pub fn push_group(&mut self, opacity: f32) {
        self.groups.push(opacity);
    }

    pub fn pop_group(&mut self) {
        self.groups.pop();
    }

    fn clip(&self) -> Rect {
        self.clips.last().copied().unwrap_or(self.page)
    }

    /// Remembers that an area was painted; `color` is None unless all of it has that color.
    pub fn paint(&mut self, rect: Rect, color: Color, n_before: usize) {
        let rect = rect.intersect(self.clip());
        let is_opaque = self.groups.is_empty() && color.is_none_or(|[.., alpha]| alpha > 0.99);
        let color = if is_opaque { color } else { None };
        if rect.area() >= MIN_AREA && rect.is_finite() && self.areas.len() < MAX_AREAS {
            self.areas.push(Area { rect, color, n_before });
        }
    }

    /// Remembers a picture.
    pub fn picture(&mut self, rect: Rect, n_before: usize) {
        self.picture_area += rect.intersect(self.clip()).area();
        self.paint(rect, None, n_before);
    }

    /// True if pictures cover most of the page, as on a scan.
    pub fn is_scan(&self) -> bool {
        self.picture_area >= SCAN_SHARE * self.page.area()
    }

    /// True if a letter of this color with its middle at `at` is invisible.
    pub fn hides(&self, at: Point, color: Color) -> bool {
        let is_clear = self.groups.iter().any(|opacity| *opacity < 0.02) || color.is_some_and(|[.., alpha]| alpha < 0.02);
        // Letters reach beyond their middle, so the edge is drawn wider.
        let clip = self.clip().inflate(1.0, 1.0);
        if is_clear || !clip.contains(at) {
            return true;
        }
        let Some(color) = color.filter(|_| self.areas.len() < MAX_AREAS) else { return false };
        let behind = self.areas.iter().rev().find(|area| area.rect.contains(at));
        // The page is white.
        let behind = behind.map_or(Some([1.0; 4]), |area| area.color);
        behind.is_some_and(|behind| is_same(behind, color))
    }

    /// True if a flat area was painted over a letter that was drawn as number `n`.
    pub fn covers(&self, at: Point, n: usize) -> bool {
        let from = self.areas.partition_point(|area| area.n_before <= n);
        self.areas
            .get(from..)
            .unwrap_or_default()
            .iter()
            .any(|area| area.color.is_some() && area.rect.inflate(-0.5, -0.5).contains(at))
    }
}

fn is_same(a: [f32; 4], b: [f32; 4]) -> bool {
    a.iter().zip(b).take(3).all(|(a, b)| (a - b).abs() <= SAME_COLOR)
}
