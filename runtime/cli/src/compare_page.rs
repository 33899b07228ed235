//! A comparison as a page that needs neither scripts nor the network.

use std::fmt::Write as _;

use flagperf_comparison::{Comparison, Speed};

use super::compare_text::{comparison_text, ratio_text, verdict};
use super::graph_page::escape;

const STYLE: &str = ":root{color-scheme:light dark}body{font:15px sans-serif;margin:1.5em;max-width:70em}h1{font-size:1.5em}h2{font-size:1.2em}h1,h2,p{overflow-wrap:anywhere}pre,.wide{overflow:auto}\
svg{display:block;width:100%;height:auto}text{font:12px sans-serif}\
figure{margin:0 0 1em;max-width:48em}figure text{font-size:24px}figcaption{font-weight:bold}.legend span{margin-right:1em}.legend i{display:inline-block;width:.9em;height:.9em;margin-right:.35em}\
@media(max-width:34em){body{margin:.75em}text{font-size:20px}figure text{font-size:38px}polyline{stroke-width:3px}}\
@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}text{fill:#ddd}[stroke=\"#DDDDDE\"]{stroke:#444}[stroke=\"#36c\"]{stroke:#79f}[fill=\"#36c\"]{fill:#79f}[stroke=\"#0072B2\"]{stroke:#4aa8e8}[fill=\"#0072B2\"]{fill:#4aa8e8}}";
/// The width of the text on the page, in characters.
const COLUMNS: u16 = 140;
/// The width of a plot, and the height of a row, in pixels.
const WIDTH: f64 = 640.0;
const ROW: f64 = 18.0;

/// Returns the page.
pub(super) fn comparison_page(comparison: &Comparison) -> String {
    let [first, second] = &comparison.sides;
    let mut plots = String::new();
    for (name, speed) in [("core", &comparison.core), ("whole", &comparison.whole)] {
        if let Some(speed) = speed {
            let heading = format!("Speed, {name}: {}: {}", ratio_text(speed.ratio.as_ref()), verdict(speed.verdict));
            write!(plots, "<h2>{}</h2>{}", escape(&heading), plot(name, speed)).expect("a text accepts everything");
        }
    }
    page_with_text(&format!("{first} and {second}"), &plots, |columns| comparison_text(comparison, columns))
}

/// Returns a page with this title, its plots in HTML, and a text of this many columns.
pub(super) fn page_with_text(title: &str, plots: &str, text: impl Fn(u16) -> String) -> String {
    format!("{}{plots}<pre>{}</pre></html>\n", page_start(&escape(title)), escape(&text(COLUMNS)))
}

/// Returns the beginning of a page with text and a plot, up to its title, which is HTML.
pub(super) fn page_start(title: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title><style>{STYLE}</style>\n\
         <h1>{title}</h1>\n"
    )
}

/// Returns the beginning of a plot of this width and height, which is at most as wide as the page.
pub(super) fn plot_start([width, height]: [f64; 2], title: &str) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" style=\"max-width:{width}px\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>"
    )
}

/// Draws the throughput of each block: the first side above, the second below.
fn plot(name: &str, speed: &Speed) -> String {
    let all = speed.blocks.iter().flatten().copied();
    let (low, high) = (all.clone().fold(f64::INFINITY, f64::min), all.fold(0.0, f64::max));
    let span = (high - low).max(high * 1e-3);
    let x = |value: f64| 10.0 + (value - low) / span * (WIDTH - 20.0);
    let mut svg = plot_start([WIDTH, 3.0 * ROW], &format!("throughput of each block, {name}"));
    for (side, colour) in [(0, "#36c"), (1, "#c60")] {
        let y = ROW * (side as f64 + 0.7);
        for block in &speed.blocks {
            let at = x(block[side]);
            write!(
                svg,
                "<circle cx=\"{at:.1}\" cy=\"{y}\" r=\"4\" fill=\"{colour}\"><title>{:.3}</title></circle>",
                block[side]
            )
            .expect("a text accepts everything");
        }
    }
    let y = 2.8 * ROW;
    let labels = format!(
        "<text x=\"0\" y=\"{y}\">{low:.2}</text><text x=\"{WIDTH}\" y=\"{y}\" text-anchor=\"end\">{high:.2} samples/s</text>"
    );
    svg += &labels;
    svg += "</svg>\n";
    svg
}
