//! The figures of a case with several values of one setting, as a page that needs neither scripts nor the network.

use std::fmt::Write as _;

use flagperf_comparison::Sweep;

use super::compare_page::{page_start, plot_start};
use super::graph_page::escape;
use super::sweep_text::{sweep_text, value_text};

/// The width of the text on the page, in characters.
const COLUMNS: u16 = 140;
/// The size of the plot, and its margin, in pixels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const MARGIN: f64 = 50.0;
const ACCEPTS: &str = "a text accepts everything";

/// Returns the page.
pub(super) fn sweep_page(sweep: &Sweep) -> String {
    let mut page = page_start(&format!("{} by {}", escape(&sweep.case), escape(&sweep.key)));
    write!(page, "<h2>Throughput, samples/s</h2>\n{}", plot(sweep)).expect(ACCEPTS);
    page += &format!("<pre>{}</pre></html>\n", escape(&sweep_text(sweep, COLUMNS)));
    page
}

/// Draws the throughput of each value; the values have equal distances, in the order of the command line.
fn plot(sweep: &Sweep) -> String {
    let core: Vec<Option<f64>> = sweep.points.iter().map(|point| point.figures.core_samples_per_s).collect();
    let whole: Vec<Option<f64>> = sweep.points.iter().map(|point| point.figures.whole_samples_per_s).collect();
    let high = core.iter().chain(&whole).flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
    let distance = (WIDTH - 2.0 * MARGIN) / (sweep.points.len().max(2) - 1) as f64;
    let place = |index: usize, value: f64| {
        (MARGIN + distance * index as f64, HEIGHT - MARGIN - value / high * (HEIGHT - 2.0 * MARGIN))
    };
    let mut svg = plot_start([WIDTH, HEIGHT], &format!("throughput by {}", sweep.key));
    let base = HEIGHT - MARGIN;
    write!(svg, "<line x1=\"{MARGIN}\" x2=\"{}\" y1=\"{base}\" y2=\"{base}\" stroke=\"#999\"/>", WIDTH - MARGIN)
        .expect(ACCEPTS);
    for (index, (name, colour, values)) in [("core", "#36c", &core), ("whole", "#c60", &whole)].into_iter().enumerate()
    {
        let known = values.iter().enumerate().filter_map(|(index, value)| Some(place(index, (*value)?)));
        let line: Vec<String> = known.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        write!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>", line.join(" ")).expect(ACCEPTS);
        for (index, value) in values.iter().enumerate().filter_map(|(index, value)| Some((index, (*value)?))) {
            let (x, y) = place(index, value);
            let dot = format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"><title>{name}: {value:.2}</title></circle>"
            );
            svg += &dot;
        }
        let x = MARGIN + 90.0 * index as f64;
        write!(
            svg,
            "<circle cx=\"{x}\" cy=\"10\" r=\"4\" fill=\"{colour}\"/><text x=\"{}\" y=\"14\">{name}</text>",
            x + 8.0
        )
        .expect(ACCEPTS);
    }
    if let Some((knee, value)) = sweep.knee.and_then(|knee| Some((knee, core[knee]?))) {
        let (x, y) = place(knee, value);
        write!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"9\" fill=\"none\" stroke=\"#36c\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">knee</text>",
            y - 14.0
        )
        .expect(ACCEPTS);
    }
    for (index, point) in sweep.points.iter().enumerate() {
        let x = place(index, 0.0).0;
        let label = escape(&value_text(&point.value));
        write!(svg, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>", base + 18.0).expect(ACCEPTS);
    }
    write!(svg, "<text x=\"0\" y=\"{:.1}\">{high:.1}</text>", MARGIN + 4.0).expect(ACCEPTS);
    svg + "</svg>\n"
}
