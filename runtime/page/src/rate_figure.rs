//! A figure of rates over sizes, for pages that have a style of their own.

use flagperf_report::count;

use super::chart::{Chart, Part, VIEW_BOX, series_colour};
use super::figures::{Figure, legend};
use super::roofline::with_prefix;

/// The share of the largest rate above it.
const MARGIN: f64 = 1.05;

/// Returns a figure as HTML with a line for each series, whose points are a size and a rate. Sizes are logarithmic.
pub fn rate_figure(title: &str, series: &[(String, Vec<(f64, f64)>)]) -> String {
    let all = || series.iter().flat_map(|(_, points)| points);
    let sizes = || all().map(|(size, _)| size.log2());
    let (least, most) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(f64::NEG_INFINITY, f64::max));
    let parts = series.iter().enumerate().flat_map(|(colour, (_, points))| {
        let mut points: Vec<(f64, f64)> = points.iter().map(|(size, rate)| (size.log2(), *rate)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        [Part::Line(points.clone(), colour), Part::Dots(points, colour)]
    });
    let chart = Chart {
        x: least..most,
        y: 0.0..MARGIN * all().map(|(_, rate)| *rate).fold(0.0, f64::max),
        x_label: power_of_two,
        y_label: with_prefix,
        parts: parts.collect(),
    };
    standalone(&Figure {
        title: title.to_owned(),
        description: String::new(),
        elements: chart.elements(),
        legend: legend(series.iter().map(|(name, _)| name)),
        note: None,
        head: Vec::new(),
        rows: Vec::new(),
    })
}

/// Returns the chart of a figure with its legend as HTML.
pub(super) fn standalone(figure: &Figure) -> String {
    let legend = figure.legend.iter().map(|entry| {
        format!("<span><i style=\"background:{}\"></i>{}</span> ", series_colour(entry.colour), escape(&entry.name))
    });
    let (title, description) = (escape(&figure.title), escape(&figure.description));
    format!(
        "<figure><figcaption>{title}</figcaption>\n<svg viewBox=\"{VIEW_BOX}\" role=\"img\" aria-label=\"{title}\"><title>{title}</title><desc>{description}</desc>\n{}\n</svg>\n\
         <p class=\"legend\">{}</p></figure>\n",
        figure.elements,
        legend.collect::<String>()
    )
}

/// Formats a place on the axis of sizes. One between two powers of two has no label.
pub(super) fn power_of_two(place: f64) -> String {
    let is_power = (place - place.round()).abs() < 1e-6 && (0.0..63.0).contains(&place);
    if is_power { count(1 << place.round() as u32) } else { String::new() }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_is_a_line_with_its_name_and_sizes_are_logarithmic() {
        let series = [
            ("mm:FP32".to_owned(), vec![(64.0, 1e9), (256.0, 4e9), (128.0, 2e9)]),
            ("mm:<b>".to_owned(), vec![(64.0, 2e9), (256.0, 8e9)]),
        ];
        let text = rate_figure("mm: FLOP/s over \"m\"", &series);
        assert_eq!(text.matches("<circle").count(), 5, "{text}");
        assert!(
            text.contains("role=\"img\"") && text.contains("<title>mm: FLOP/s over &quot;m&quot;</title>"),
            "{text}"
        );
        assert!(text.contains("mm:FP32") && text.contains("mm:&lt;b&gt;") && !text.contains("<b>"), "{text}");
        for label in ["64", "128", "256"] {
            assert!(text.contains(&format!("\n{label}\n")), "{label}: {text}");
        }
        assert_eq!([6.0, 6.5, -1.0, 70.0].map(power_of_two), ["64", "", "", ""]);
        let one = rate_figure("one", &[("a".to_owned(), vec![(8.0, 0.0)])]);
        assert!(one.contains("<circle"), "{one}");
    }
}
