//! The figures of operators and limits as a page that needs neither scripts nor the network.

use std::fmt::Write as _;

use super::compare_page::page_start;
use super::graph_page::escape;
use super::microbenchmark_results::{LimitResult, OperatorResult};
use super::microbenchmark_text::{name_text, rate_text, value_text};

/// The widest bar, as a share of the column.
const WIDTH: f64 = 100.0;
const STYLE: &str = "<style>table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2em .6em}td:last-child{width:45%}\
.bar{background:#36c;height:1em;min-width:1px}</style>\n";

/// A row of a table: what it is of, the value as a text, and the part of a bar that it fills.
struct Bar {
    name: String,
    value: String,
    part: f64,
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
        Some(Bar { name, value: rate_text(figures, result.format), part })
    };
    page("Operators", &results.iter().filter_map(bar).collect::<Vec<_>>(), text)
}

/// Returns a page of limits: each bar is a share of the data sheet's figure, where there is one.
pub(super) fn peak_page(results: &[LimitResult], text: &str) -> String {
    let bar = |result: &LimitResult| {
        let value = result.value?;
        let part = result.data_sheet_value.map_or(0.0, |sheet| value / sheet);
        Some(Bar { name: result.limit.to_owned(), value: value_text(value, result.unit), part })
    };
    page("Limits of the device", &results.iter().filter_map(bar).collect::<Vec<_>>(), text)
}

fn page(title: &str, bars: &[Bar], text: &str) -> String {
    let mut page = page_start(title) + STYLE;
    page +=
        "<table><thead><tr><th>what<th>measured<th>share of the data sheet, or of the highest rate</thead><tbody>\n";
    for bar in bars {
        let (name, value, width) = (escape(&bar.name), escape(&bar.value), bar.part.clamp(0.0, 1.0) * WIDTH);
        writeln!(
            page,
            "<tr><th scope=\"row\">{name}<td>{value}<td>{width:.0} %<div class=\"bar\" style=\"width:{width:.1}%\"></div>"
        )
        .expect("a text accepts everything");
    }
    page += &format!("</tbody></table>\n<pre>{}</pre></html>\n", escape(text));
    page
}
