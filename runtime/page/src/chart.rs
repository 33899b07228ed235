//! Draws a chart as SVG that a page contains: with a title and a description for screen readers, and with colours that the page's style
//! replaces in a dark window.
//!
//! No text from a record is in a chart: legends and tables, which have such texts, are HTML.

use std::ops::Range;

use plotters::prelude::*;

/// The size of a chart in units. A page scales it to its own width.
const SIZE: (u32, u32) = (1200, 400);
/// The size of the labels: 24 units, by which plotters means the height of a line. On a narrow page, the style makes it larger.
const LABEL: f64 = 24.0 * 1.24;
/// The space for the labels of the axes in units.
const LEFT: u32 = 170;
const BELOW: u32 = 50;
/// The colours of text, axes and grid, which the style of the page names, too.
const TEXT: RGBColor = RGBColor(0x33, 0x33, 0x34);
const AXIS: RGBColor = RGBColor(0x77, 0x77, 0x78);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xde);
/// The colours of series, which people with any kind of colour vision tell apart (Okabe and Ito 2008).
const SERIES: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x94, 0x8b, 0x00),
    RGBColor(0x66, 0x66, 0x67),
];
/// The width of a line, and the radius of a dot, in units.
const LINE: u32 = 3;
const DOT: i32 = 6;
/// The share of a band's colour.
const BAND: f64 = 0.3;

/// Something that is drawn, with the number of its colour.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// The area between a lower and an upper value at each place: place, lower, upper.
    Band(Vec<(f64, f64, f64)>, usize),
    Line(Vec<(f64, f64)>, usize),
    Dots(Vec<(f64, f64)>, usize),
    /// Bars: begin, end, height.
    Bars(Vec<(f64, f64, f64)>, usize),
}

/// A chart.
pub(super) struct Chart {
    pub(super) x: Range<f64>,
    pub(super) y: Range<f64>,
    /// The text of a place on each axis.
    pub(super) x_label: fn(f64) -> String,
    pub(super) y_label: fn(f64) -> String,
    pub(super) parts: Vec<Part>,
}

impl Chart {
    /// Returns the elements of the chart, which belong into an element `svg` with [`VIEW_BOX`].
    pub(super) fn elements(&self) -> String {
        let mut text = String::new();
        // Only a file could fail to be written.
        self.draw(&mut text).expect("a text accepts everything");
        let inner = text.split_once('>').map_or("", |(_, inner)| inner);
        inner.trim().trim_end_matches("</svg>").trim().replace("font-family=\"sans-serif\" ", "")
    }

    fn draw(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error + '_>> {
        let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
        let mut builder = ChartBuilder::on(&root);
        builder.margin(15).margin_right(50).margin_bottom(0);
        builder.set_label_area_size(LabelAreaPosition::Left, LEFT);
        builder.set_label_area_size(LabelAreaPosition::Bottom, BELOW);
        let mut chart = builder.build_cartesian_2d(widened(&self.x), widened(&self.y)).map_err(described)?;
        let label = ("sans-serif", LABEL).into_font().color(&TEXT);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.stroke_width(2))
            .axis_style(AXIS.stroke_width(2))
            .x_labels(6)
            .y_labels(5)
            .x_label_formatter(&|place| (self.x_label)(*place))
            .y_label_formatter(&|value| (self.y_label)(*value))
            .label_style(label)
            .draw()
            .map_err(described)?;
        for part in &self.parts {
            match part {
                Part::Band(places, colour) => {
                    let lower = places.iter().rev().map(|(at, lower, _)| (*at, *lower));
                    let around: Vec<_> = places.iter().map(|(at, _, upper)| (*at, *upper)).chain(lower).collect();
                    chart.draw_series([Polygon::new(around, series(*colour).mix(BAND).filled())]).map(drop)
                }
                Part::Line(points, colour) => {
                    let style = series(*colour).stroke_width(LINE);
                    chart.draw_series(LineSeries::new(points.iter().copied(), style)).map(drop)
                }
                Part::Dots(points, colour) => {
                    let dot = |point: &(f64, f64)| Circle::new(*point, DOT, series(*colour).filled());
                    chart.draw_series(points.iter().map(dot)).map(drop)
                }
                Part::Bars(bars, colour) => {
                    let bar = |(from, to, height): &(f64, f64, f64)| {
                        Rectangle::new([(*from, 0.0), (*to, *height)], series(*colour).filled())
                    };
                    chart.draw_series(bars.iter().map(bar)).map(drop)
                }
            }
            .map_err(described)?;
        }
        root.present().map_err(described)
    }
}

/// The `viewBox` of every chart.
pub(super) const VIEW_BOX: &str = "0 0 1200 400";

fn series(colour: usize) -> RGBColor {
    SERIES[colour % SERIES.len()]
}

/// Returns the colour of a series as a style names it.
pub(super) fn series_colour(colour: usize) -> String {
    let RGBColor(red, green, blue) = series(colour);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Returns a range that is not empty and whose ends are numbers, without which plotters does not end.
fn widened(range: &Range<f64>) -> Range<f64> {
    if !(range.end - range.start).is_finite() {
        return 0.0..1.0;
    }
    let least = range.start.abs().max(range.end.abs()).max(1e-9) * 1e-6;
    if range.end - range.start >= least { range.clone() } else { range.start..range.start + least.max(1e-9) }
}

fn described(error: impl std::fmt::Display) -> Box<dyn std::error::Error> {
    error.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_each_part_and_no_element_of_its_own_around_them() {
        let chart = Chart {
            x: 0.0..10.0,
            y: 0.0..2.0,
            x_label: |place| format!("{place} s"),
            y_label: |value| format!("<{value}>"),
            parts: vec![
                Part::Band(vec![(0.0, 0.5, 1.5), (10.0, 0.4, 1.0)], 0),
                Part::Line(vec![(0.0, 1.0), (10.0, 0.7)], 0),
                Part::Dots(vec![(5.0, 1.0)], 1),
                Part::Bars(vec![(1.0, 2.0, 1.0)], 9),
            ],
        };
        let text = chart.elements();
        for element in ["<polygon", "<polyline", "<circle", "<rect", "#0072B2", "#D55E00", "&lt;1&gt;", "10 s"] {
            assert!(text.contains(element), "{element}: {text}");
        }
        assert!(!text.contains("<svg") && !text.contains("</svg>"), "{text}");
        assert_eq!(VIEW_BOX, format!("0 0 {} {}", SIZE.0, SIZE.1));
    }

    #[test]
    fn a_range_without_extent_is_drawn() {
        for value in [0.0, 5e-324, 1e-9, 165.0, 1e18, 1e300, -1e300] {
            let parts = vec![Part::Line(vec![(value, value)], 0)];
            let label = |value: f64| value.to_string();
            let chart = Chart { x: value..value, y: value..value, x_label: label, y_label: label, parts };
            assert!(chart.elements().contains("<polyline"), "{value}");
        }
    }
}
