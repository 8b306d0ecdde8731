//! Icons as strokes: sharp at every scale, without an icon font.
//!
//! Units: each icon is drawn in a square of 16 units, scaled to the rectangle it is given.

use egui::{Color32, Painter, Pos2, Rect, Shape, Stroke, StrokeKind, epaint::PathShape, vec2};

/// The icons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Icon {
    /// add
    Plus,
    /// remove
    Cross,
    /// find
    Search,
    /// settings
    Sliders,
    /// light theme
    Sun,
    /// dark theme
    Moon,
    /// a document
    Page,
    /// two sheets
    Copy,
    /// again
    Redo,
    /// stop a request
    Stop,
    /// send a question
    Send,
    /// opens downwards
    Chevron,
    /// closes upwards
    ChevronUp,
    /// next
    Next,
    /// previous
    Previous,
    /// a model
    Layers,
    /// something went wrong
    Warning,
    /// done
    Tick,
    /// a folder
    Folder,
    /// two branches
    Fork,
    /// questions and shortcuts
    Help,
    /// a conversation
    Chat,
    /// delete
    Trash,
    /// fill the window
    Expand,
    /// fill it no longer
    Shrink,
    /// activity of the engine
    Pulse,
    /// more actions
    More,
    /// change a text
    Pencil,
    /// pinned
    Pin,
}

/// Draws `icon` in the largest centered square of `rect`.
pub fn paint(painter: &Painter, icon: Icon, rect: Rect, color: Color32) {
    let side = rect.width().min(rect.height());
    let origin = rect.center() - vec2(side, side) / 2.0;
    let unit = side / 16.0;
    let pen = Pen { painter, origin, unit, stroke: Stroke::new((1.35 * unit).max(1.0), color) };
    draw(&pen, icon);
}

struct Pen<'a> {
    painter: &'a Painter,
    origin: Pos2,
    unit: f32,
    stroke: Stroke,
}

impl Pen<'_> {
    fn at(&self, (x, y): (f32, f32)) -> Pos2 {
        self.origin + vec2(x, y) * self.unit
    }

    fn line(&self, points: &[(f32, f32)]) {
        let points = points.iter().map(|&p| self.at(p)).collect();
        self.painter.add(Shape::Path(PathShape::line(points, self.stroke)));
    }

    fn closed(&self, points: &[(f32, f32)]) {
        let points = points.iter().map(|&p| self.at(p)).collect();
        self.painter.add(Shape::Path(PathShape::closed_line(points, self.stroke)));
    }

    fn circle(&self, center: (f32, f32), radius: f32) {
        self.painter.circle_stroke(self.at(center), radius * self.unit, self.stroke);
    }

    fn dot(&self, center: (f32, f32), radius: f32) {
        self.painter.circle_filled(self.at(center), radius * self.unit, self.stroke.color);
    }

    fn rect(&self, min: (f32, f32), max: (f32, f32), radius: f32) {
        let rect = Rect::from_min_max(self.at(min), self.at(max));
        self.painter.rect_stroke(rect, radius * self.unit, self.stroke, StrokeKind::Middle);
    }

    fn arc(&self, center: (f32, f32), radius: f32, from: f32, to: f32) {
        const STEPS: u8 = 24;
        let points: Vec<(f32, f32)> = (0..=STEPS)
            .map(|i| {
                let angle = (from + (to - from) * f32::from(i) / f32::from(STEPS)).to_radians();
                (center.0 + radius * angle.cos(), center.1 + radius * angle.sin())
            })
            .collect();
        self.line(&points);
    }
}

// Longer than most: it is a table of shapes, one arm per icon.
fn draw(pen: &Pen<'_>, icon: Icon) {
    match icon {
        Icon::Plus => {
            pen.line(&[(8.0, 3.5), (8.0, 12.5)]);
            pen.line(&[(3.5, 8.0), (12.5, 8.0)]);
        }
        Icon::Fork => {
            pen.line(&[(2.0, 8.0), (6.0, 8.0), (13.5, 4.0)]);
            pen.line(&[(6.0, 8.0), (13.5, 12.0)]);
        }
        Icon::Cross => {
            pen.line(&[(4.0, 4.0), (12.0, 12.0)]);
            pen.line(&[(12.0, 4.0), (4.0, 12.0)]);
        }
        Icon::Search => {
            pen.circle((7.0, 7.0), 4.2);
            pen.line(&[(10.2, 10.2), (13.5, 13.5)]);
        }
        Icon::Sliders => {
            for (y, knob) in [(4.5, 10.5), (11.5, 5.5)] {
                pen.line(&[(2.5, y), (knob - 1.8, y)]);
                pen.line(&[(knob + 1.8, y), (13.5, y)]);
                pen.circle((knob, y), 1.8);
            }
        }
        Icon::Sun => {
            pen.circle((8.0, 8.0), 2.8);
            for i in 0..8u8 {
                let (sin, cos) = (f32::from(i) * std::f32::consts::FRAC_PI_4).sin_cos();
                pen.line(&[(8.0 + 4.8 * cos, 8.0 + 4.8 * sin), (8.0 + 6.4 * cos, 8.0 + 6.4 * sin)]);
            }
        }
        Icon::Moon => {
            pen.arc((8.0, 8.0), 5.6, 10.0, 280.0);
            pen.arc((13.17, 4.38), 4.6, 85.9, 204.2);
        }
        Icon::Page => {
            pen.closed(&[(3.8, 2.0), (9.2, 2.0), (12.2, 5.0), (12.2, 14.0), (3.8, 14.0)]);
            pen.line(&[(6.2, 7.5), (9.8, 7.5)]);
            pen.line(&[(6.2, 10.5), (9.8, 10.5)]);
        }
        Icon::Copy => {
            pen.rect((5.5, 5.5), (13.5, 13.5), 1.5);
            pen.line(&[(10.5, 2.8), (3.8, 2.8), (2.8, 3.8), (2.8, 10.5)]);
        }
        Icon::Redo => {
            pen.arc((8.0, 8.0), 5.2, -20.0, -325.0);
            pen.line(&[(13.4, 2.6), (13.2, 6.2), (9.6, 6.0)]);
        }
        Icon::Stop => {
            let rect = Rect::from_min_max(pen.at((4.0, 4.0)), pen.at((12.0, 12.0)));
            pen.painter.rect_filled(rect, 1.5 * pen.unit, pen.stroke.color);
        }
        Icon::Send => {
            pen.line(&[(8.0, 13.0), (8.0, 3.4)]);
            pen.line(&[(3.8, 7.4), (8.0, 3.2), (12.2, 7.4)]);
        }
        Icon::Chevron => pen.line(&[(4.5, 6.5), (8.0, 10.0), (11.5, 6.5)]),
        Icon::ChevronUp => pen.line(&[(4.5, 9.5), (8.0, 6.0), (11.5, 9.5)]),
        Icon::Next => pen.line(&[(6.0, 3.5), (10.5, 8.0), (6.0, 12.5)]),
        Icon::Previous => pen.line(&[(10.0, 3.5), (5.5, 8.0), (10.0, 12.5)]),
        Icon::Layers => {
            pen.closed(&[(8.0, 2.2), (14.0, 5.4), (8.0, 8.6), (2.0, 5.4)]);
            pen.line(&[(2.0, 8.4), (8.0, 11.6), (14.0, 8.4)]);
            pen.line(&[(2.0, 11.2), (8.0, 14.4), (14.0, 11.2)]);
        }
        Icon::Warning => {
            pen.closed(&[(8.0, 2.2), (14.4, 13.4), (1.6, 13.4)]);
            pen.line(&[(8.0, 6.4), (8.0, 9.6)]);
            pen.dot((8.0, 11.5), 0.8);
        }
        Icon::More => [3.5, 8.0, 12.5].into_iter().for_each(|x| pen.dot((x, 8.0), 1.1)),
        Icon::Pencil => {
            pen.closed(&[(3.0, 13.0), (3.6, 10.2), (10.8, 3.0), (13.0, 5.2), (5.8, 12.4)]);
            pen.line(&[(9.2, 4.6), (11.4, 6.8)]);
        }
        Icon::Pin => {
            pen.closed(&[(5.5, 2.5), (10.5, 2.5), (9.8, 7.0), (12.0, 9.5), (4.0, 9.5), (6.2, 7.0)]);
            pen.line(&[(8.0, 9.5), (8.0, 14.0)]);
        }
        Icon::Tick => pen.line(&[(3.5, 8.5), (6.6, 11.6), (12.5, 4.8)]),
        Icon::Folder => {
            pen.closed(&[(2.0, 3.6), (6.2, 3.6), (7.6, 5.2), (14.0, 5.2), (14.0, 12.8), (2.0, 12.8)]);
        }
        Icon::Help => {
            pen.circle((8.0, 8.0), 6.0);
            pen.arc((8.0, 6.6), 1.9, 180.0, 400.0);
            pen.line(&[(9.0, 8.2), (8.0, 9.3)]);
            pen.dot((8.0, 11.4), 0.8);
        }
        Icon::Trash => {
            pen.line(&[(2.6, 4.2), (13.4, 4.2)]);
            pen.line(&[(6.0, 4.0), (6.0, 2.2), (10.0, 2.2), (10.0, 4.0)]);
            pen.line(&[(4.0, 4.4), (4.6, 13.6), (11.4, 13.6), (12.0, 4.4)]);
            pen.line(&[(6.6, 7.0), (6.8, 11.0)]);
            pen.line(&[(9.4, 7.0), (9.2, 11.0)]);
        }
        Icon::Expand => {
            pen.line(&[(9.5, 2.5), (13.5, 2.5), (13.5, 6.5)]);
            pen.line(&[(6.5, 13.5), (2.5, 13.5), (2.5, 9.5)]);
            pen.line(&[(13.2, 2.8), (9.2, 6.8)]);
            pen.line(&[(2.8, 13.2), (6.8, 9.2)]);
        }
        Icon::Shrink => {
            pen.line(&[(9.2, 2.8), (9.2, 6.8), (13.2, 6.8)]);
            pen.line(&[(6.8, 13.2), (6.8, 9.2), (2.8, 9.2)]);
            pen.line(&[(13.5, 2.5), (9.5, 6.5)]);
            pen.line(&[(2.5, 13.5), (6.5, 9.5)]);
        }
        Icon::Pulse => pen.line(&[(1.5, 8.5), (4.5, 8.5), (6.6, 3.0), (9.4, 13.0), (11.5, 8.5), (14.5, 8.5)]),
        Icon::Chat => {
            pen.closed(&[(2.4, 3.0), (13.6, 3.0), (13.6, 11.0), (7.6, 11.0), (4.8, 13.6), (4.8, 11.0), (2.4, 11.0)]);
        }
    }
}
