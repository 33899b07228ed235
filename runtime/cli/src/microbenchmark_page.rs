//! The figures of operators and limits as a page that needs neither scripts nor the network.

use std::fmt::Write as _;

use flagperf_page::rate_figure;
use indexmap::{IndexMap, IndexSet};

use super::compare_page::page_start;
use super::graph_page::escape;
use super::microbenchmark_results::{LimitResult, OperatorResult};
use super::microbenchmark_text::{name_text, rate_text, value_text};

/// The widest bar, as a share of the column.
const WIDTH: f64 = 100.0;
const STYLE: &str = "<style>table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2em .6em}td:last-child{width:45%}\
.bar{background:#36c;height:1em;min-width:1px}</style>\n";

/// A row of a table: what it is of, the value as a text, and the part of a bar that it fills, if it is known.
struct Bar {
    name: String,
    value: String,
    part: Option<f64>,
}

/// Returns a page of operators: each bar is a share of the data sheet's figure, or else of the highest rate of its unit.
pub(super) fn operators_page(results: &[OperatorResult], text: &str) -> String {
    let rate = |result: &OperatorResult| {
        let figures = result.figures.as_ref()?;
        Some((figures.flops_per_s.is_some(), figures.flops_per_s.unwrap_or(figures.bytes_per_s)))
    };
    let highest = |unit: bool| {
        let of_unit = results.iter().filter_map(rate).filter(|(own, _)| *own == unit);
        of_unit.fold(f64::MIN_POSITIVE, |highest, (_, rate)| highest.max(rate))
    };
    let bar = |result: &OperatorResult| {
        let figures = result.figures.as_ref()?;
        let (unit, rate) = rate(result)?;
        let name = name_text(result);
        let part = figures.peak_share.unwrap_or(rate / highest(unit));
        Some(Bar { name, value: rate_text(figures, result.format), part: Some(part) })
    };
    page("Operators", &results.iter().filter_map(bar).collect::<Vec<_>>(), &plots(results), text)
}

/// Draws the rate of each operator that was measured in several sizes.
fn plots(results: &[OperatorResult]) -> String {
    let mut operators: IndexMap<&str, Vec<&OperatorResult>> = IndexMap::new();
    for result in results.iter().filter(|result| result.figures.is_some()) {
        operators.entry(&result.operator).or_default().push(result);
    }
    operators.iter().filter_map(|(name, results)| plot(name, results)).collect()
}

/// Draws the rates of an operator, a line for each format; `None` unless it was measured in several sizes.
fn plot(operator: &str, results: &[&OperatorResult]) -> Option<String> {
    let axis = size_axis(results);
    let mut lines: IndexMap<String, Vec<(f64, f64)>> = IndexMap::new();
    let mut units = IndexSet::new();
    for result in results {
        let figures = result.figures.as_ref()?;
        units.insert(if figures.flops_per_s.is_some() { result.format.rate_unit() } else { "B/s" });
        let size = match axis.first() {
            Some(first) => result.sizes[*first] as f64,
            None => result.times.as_ref()?.bytes.0 as f64,
        };
        let rate = figures.flops_per_s.unwrap_or(figures.bytes_per_s);
        lines.entry(format!("{operator}:{}", result.format.name)).or_default().push((size, rate));
    }
    lines.retain(|_, points| points.iter().any(|point| point.0 != points[0].0));
    let over = if axis.is_empty() { "bytes of inputs and outputs".to_owned() } else { axis.join(" = ") };
    let title = format!("{operator}: {} over {over}", units.into_iter().collect::<Vec<_>>().join(", "));
    (!lines.is_empty()).then(|| rate_figure(&title, &lines.into_iter().collect::<Vec<_>>()))
}

/// Returns the sizes that differ between results if they have one value in each result; empty if they have not, or if a result is of
/// the operator's own sizes.
fn size_axis<'r>(results: &[&'r OperatorResult]) -> Vec<&'r str> {
    let Some(first) = results.first() else { return Vec::new() };
    let differs = |name: &&String| results.iter().any(|result| result.sizes.get(*name) != first.sizes.get(*name));
    let names: Vec<&str> = first.sizes.keys().filter(differs).map(String::as_str).collect();
    let is_one = |result: &&OperatorResult| {
        let values: Option<Vec<usize>> = names.iter().map(|name| result.sizes.get(*name).copied()).collect();
        result.sizes.len() == first.sizes.len()
            && values.is_some_and(|values| values.iter().all(|size| *size == values[0]))
    };
    if results.iter().all(is_one) { names } else { Vec::new() }
}

/// Returns a page of limits: each bar is a share of the data sheet's figure, where there is one.
pub(super) fn peak_page(results: &[LimitResult], text: &str) -> String {
    let bar = |result: &LimitResult| {
        let value = result.value?;
        let part = result.data_sheet_value.map(|sheet| value / sheet);
        Some(Bar { name: result.limit.to_owned(), value: value_text(value, result.unit), part })
    };
    page("Limits of the device", &results.iter().filter_map(bar).collect::<Vec<_>>(), "", text)
}

fn page(title: &str, bars: &[Bar], plots: &str, text: &str) -> String {
    let mut page = page_start(title) + STYLE;
    page += "<div class=\"wide\"><table><thead><tr><th>what<th>measured<th>share of the data sheet, or of the highest rate</thead><tbody>\n";
    for bar in bars {
        let (name, value) = (escape(&bar.name), escape(&bar.value));
        let share = bar.part.map_or_else(
            || "unknown".to_owned(),
            |part| {
                let width = part.clamp(0.0, 1.0) * WIDTH;
                format!("{width:.0} %<div class=\"bar\" style=\"width:{width:.1}%\"></div>")
            },
        );
        writeln!(page, "<tr><th scope=\"row\">{name}<td>{value}<td>{share}").expect("a text accepts everything");
    }
    page += &format!("</tbody></table></div>\n{plots}<pre>{}</pre></html>\n", escape(text));
    page
}
