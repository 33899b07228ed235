//! The end of a run of several cases: one line for each case.

use std::path::Path;

use console::measure_text_width;

use super::case_report::outcome_word;
use super::conclusion::headline_figure;
use super::text::display_text;
use flagperf_config::CaseKey;
use flagperf_core::text::one_line;
use flagperf_result::Record;

/// One case in the overview of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverviewRow([String; 4]);

impl OverviewRow {
    /// Returns the row of a case that was not started.
    pub fn not_run(key: &CaseKey) -> Self {
        OverviewRow(["not run".to_owned(), key.to_string(), String::new(), String::new()])
    }

    /// Returns the row of a case: verdict, case, headline figure and the path of the record, or that it is not on disk. `place`
    /// is the host and the device of a case that has several records; `is_official_run`, whether the run required a valid result.
    pub fn new(record: &Record, place: Option<&str>, path: Option<&Path>, is_official_run: bool) -> Self {
        let key = place.map_or_else(|| record.key(), |place| format!("{} on {place}", record.key()));
        let path = path.map_or_else(|| "not written".to_owned(), |path| path.display().to_string());
        let word = outcome_word(record.status, record.validity.verdict, is_official_run);
        let cells = [word.to_owned(), key, headline_figure(record), path];
        OverviewRow(cells.map(|cell| one_line(&display_text(&cell)).into_owned()))
    }

    /// Returns the row of a case that the killed process of a resumed run had finished.
    pub fn finished_before(record: &Record, place: Option<&str>, path: &Path, is_official_run: bool) -> Self {
        let OverviewRow([verdict, key, figure, path]) = OverviewRow::new(record, place, Some(path), is_official_run);
        OverviewRow([verdict, key, format!("{figure}, finished before"), path])
    }
}

/// Formats an overview. A path is never broken, so that it can be copied: where a line is wider than the screen, the path
/// is on the next line.
pub fn overview(rows: &[OverviewRow], columns: u16) -> String {
    let widest = |column: usize| rows.iter().map(|row| measure_text_width(&row.0[column])).max().unwrap_or(0);
    let widths = [0, 1, 2].map(widest);
    let line = |OverviewRow(cells): &OverviewRow| {
        let [verdict, key, figure] = [0, 1, 2].map(|column| {
            console::pad_str(&cells[column], widths[column], console::Alignment::Left, None).into_owned()
        });
        let line = format!("{verdict}  {key}  {figure}  {}", cells[3]);
        if measure_text_width(line.trim_end()) <= usize::from(columns) {
            return format!("{}\n", line.trim_end());
        }
        let [line, indent] = [format!("{verdict}  {key}  {figure}"), " ".repeat(widths[0] + 2)];
        format!("{}\n{indent}{}\n", line.trim_end(), cells[3])
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_an_overview_are_aligned_and_its_lines_are_whole() {
        let row = |cells: [&str; 4]| OverviewRow(cells.map(str::to_owned));
        let rows = [
            row(["ok", "a:interpreter", "inference 48.2 samples/s core", "result/a/record.json"]),
            row(["FAILED", "long_name:b", "no figure", &format!("{}/record.json", "x".repeat(200))]),
        ];
        let text = overview(&rows, 100).replace(&"x".repeat(200), "[path]");
        insta::assert_snapshot!(text, @r"
        ok      a:interpreter  inference 48.2 samples/s core  result/a/record.json
        FAILED  long_name:b    no figure
                [path]/record.json
        ");
        let before =
            OverviewRow::finished_before(&flagperf_result::testing::record(), None, Path::new("a.json"), false);
        assert_eq!(before.0[2], "validation 80.0 samples/s core, finished before");
        let rows = [rows[0].clone(), OverviewRow::not_run(&"b:mock".parse().unwrap())];
        insta::assert_snapshot!(overview(&rows, 60), @r"
        ok       a:interpreter  inference 48.2 samples/s core
                 result/a/record.json
        not run  b:mock
        ");
    }
}
