//! What the switches of a case change, as a page that needs neither scripts nor the network.

use std::fmt::Write as _;

use flagperf_comparison::{Ablation, Effect, RatioInterval, SwitchEffects};

use super::ablate_text::{Chosen, FIGURES, ablation_text, change};
use super::compare_page::{page_start, plot_start};
use super::graph_page::escape;

/// The width of the text on the page, in characters.
const COLUMNS: u16 = 140;
/// The width of a plot, its margin, the height of a line, and the width of a label at most, in pixels.
const WIDTH: f64 = 720.0;
const MARGIN: f64 = 10.0;
const LINE: f64 = 16.0;
const LABEL: f64 = 110.0;
const ACCEPTS: &str = "a text accepts everything";

/// An effect that is drawn: its name, its colour, and where it is.
type Drawn = (&'static str, &'static str, fn(&SwitchEffects) -> &Effect);

const DRAWN: [Drawn; 3] = [
    ("alone", "#36c", |effects| &effects.alone),
    ("added", "#2a2", |effects| &effects.added),
    ("left out", "#c60", |effects| &effects.left_out),
];

/// Returns the page.
pub(super) fn ablation_page(ablation: &Ablation) -> String {
    let mut page = page_start(&format!("Switches of {}", escape(&ablation.case)));
    for (name, chosen) in FIGURES {
        write!(page, "<h2>Change of throughput, {name}</h2>\n{}", plot(ablation, name, chosen)).expect(ACCEPTS);
    }
    page += &format!("<pre>{}</pre></html>\n", escape(&ablation_text(ablation, COLUMNS)));
    page
}

/// Draws the change of throughput by each switch, with its interval, in percent.
fn plot(ablation: &Ablation, name: &str, chosen: Chosen) -> String {
    let effects =
        |drawn: &Drawn| ablation.switches.iter().filter_map(|switch| chosen(drawn.2(switch))).collect::<Vec<_>>();
    let all: Vec<RatioInterval> = DRAWN.iter().flat_map(effects).collect();
    let low = all.iter().map(|ratio| ratio.low).fold(1.0, f64::min);
    let high = all.iter().map(|ratio| ratio.high).fold(1.0, f64::max);
    let span = (high - low).max(1e-3);
    let x = |ratio: f64| MARGIN + (ratio - low) / span * (WIDTH - 2.0 * MARGIN);
    let height = LINE * (DRAWN.len() as f64 + 2.0) * ablation.switches.len() as f64 + 3.0 * LINE;
    let mut svg = plot_start([WIDTH, height], &format!("change of throughput, {name}, by each switch"));
    write!(svg, "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"0\" y2=\"{1}\" stroke=\"#999\"/>", x(1.0), height - 3.0 * LINE)
        .expect(ACCEPTS);
    let mut y = 0.0;
    for switch in &ablation.switches {
        // Above its lines, a name of any length covers none of them.
        y += 1.2 * LINE;
        write!(svg, "<text x=\"0\" y=\"{y:.1}\">{}</text>", escape(&switch.switch.name)).expect(ACCEPTS);
        for (kind, colour, effect) in DRAWN {
            y += LINE;
            let Some(ratio) = chosen(effect(switch)) else { continue };
            write!(
                svg,
                "<g stroke=\"{colour}\" fill=\"{colour}\"><title>{kind}: {}</title><line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\"/>\
                 <circle cx=\"{:.1}\" cy=\"{y}\" r=\"4\"/></g>",
                change(&ratio),
                x(ratio.low),
                x(ratio.high),
                x(ratio.ratio)
            )
            .expect(ACCEPTS);
        }
        y += 0.8 * LINE;
    }
    let percent = |ratio: f64| format!("{:+.0} %", (ratio - 1.0) * 100.0);
    let axis = height - 1.8 * LINE;
    // Where an end is near 1, the label of 1 is enough.
    let ends = [low, high].into_iter().filter(|ratio| (x(*ratio) - x(1.0)).abs() > LABEL);
    for ratio in ends.chain([1.0]) {
        let anchor = match x(ratio) {
            place if place < LABEL => "start",
            place if place > WIDTH - LABEL => "end",
            _ => "middle",
        };
        write!(svg, "<text x=\"{:.1}\" y=\"{axis}\" text-anchor=\"{anchor}\">{}</text>", x(ratio), percent(ratio))
            .expect(ACCEPTS);
    }
    for (index, (kind, colour, _)) in DRAWN.iter().enumerate() {
        let at = MARGIN + LABEL * index as f64;
        let key = format!(
            "<circle cx=\"{at}\" cy=\"{0}\" r=\"4\" fill=\"{colour}\"/><text x=\"{1}\" y=\"{2}\">{kind}</text>",
            height - 0.6 * LINE,
            at + 8.0,
            height - 0.3 * LINE
        );
        svg += &key;
    }
    svg + "</svg>\n"
}
