//! The times of an operator as a page that needs neither scripts nor the network.

use std::fmt::Write as _;

use flagperf_config::OperatorDescription;
use flagperf_operator::Measured;

use super::compare_page::{page_start, plot_start};
use super::graph_page::escape;
use super::operator::CaseResults;
use super::operator_text::shapes;

/// The width of the longest bar, the place of the bars and the height of one, in pixels.
const WIDTH: f64 = 480.0;
const LEFT: f64 = 320.0;
const BAR: f64 = 16.0;

/// Returns the page: for each case a bar for the operator and one for the engine's own, as shares of the bandwidth of a copy.
pub(super) fn operator_page(
    title: &str,
    operator: &OperatorDescription,
    outcomes: &[CaseResults<Measured>],
    text: &str,
) -> String {
    let title = escape(title);
    let about = escape(&operator.about);
    let heading = "Share of the bandwidth of a copy: operator above, engine's own below";
    let mut page = page_start(&title);
    page += &format!("<p>{about}</p>\n<h2>{heading}</h2>\n");
    let measured: Vec<(String, &Measured)> = (operator.benchmarks.iter().zip(outcomes))
        .flat_map(|(case, outcome)| outcome.results.iter().map(|one| (format!("{} {}", shapes(case), one.dtype), one)))
        .collect();
    let height = measured.len() as f64 * 3.0 * BAR;
    page += &plot_start([LEFT + WIDTH + 60.0, height], heading);
    for (place, (name, one)) in measured.iter().enumerate() {
        let top = place as f64 * 3.0 * BAR;
        let label = format!("<text x=\"0\" y=\"{}\">{}</text>", top + 1.2 * BAR, escape(name));
        page += &label;
        for (row, (time, colour)) in [(one.operator_s.0, "#36c"), (one.standard_s.0, "#c60")].into_iter().enumerate() {
            let share = (one.copy_s.0 / time).clamp(0.0, 1.2);
            let (y, width) = (top + row as f64 * BAR, share * WIDTH / 1.2);
            write!(
                page,
                "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\">{share:.2}</text>",
                BAR - 2.0,
                LEFT + width + 4.0,
                y + 0.75 * BAR
            )
            .expect("a text accepts everything");
        }
    }
    page += &format!("</svg>\n<pre>{}</pre></html>\n", escape(text));
    page
}
