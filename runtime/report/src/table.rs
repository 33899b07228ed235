//! Tables of text, and the screen for which they are formatted.

use comfy_table::presets::NOTHING;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width};
use console::{Term, measure_text_width};

use super::text::{display_text, wrap};
use flagperf_core::text::one_line;

/// Columns of text when standard output is not a terminal.
const COLUMNS: u16 = 100;
/// Narrowest and widest table; other terminal widths are clamped.
const COLUMNS_MIN: u16 = 40;
const COLUMNS_MAX: u16 = 200;

/// Width of the column of names: FlagPerf's longest name and a space on each side.
pub(super) const NAME_COLUMNS: u16 = 25;

/// Properties of the output for which text is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Characters per line.
    pub columns: u16,
    /// Whether to use colours: the output is a terminal, and `NO_COLOR` is not set.
    pub colour: bool,
}

impl Screen {
    /// Returns the properties of standard output.
    pub fn stdout() -> Self {
        Screen { columns: columns(), colour: console::colors_enabled() && Term::stdout().is_term() }
    }
}

/// Returns the characters per line of standard output.
pub fn columns() -> u16 {
    let columns = Term::stdout().size_checked().map_or(COLUMNS, |(_, columns)| columns);
    columns.clamp(COLUMNS_MIN, COLUMNS_MAX)
}

/// Width below which a table that does not fit becomes a list: its columns would be too narrow to be read.
const NARROW: u16 = 60;

/// Formats names and values in two columns and wraps long values. On a narrow screen, a value that does not fit is below its name.
pub fn name_value_table(rows: Vec<(String, String)>, columns: u16) -> String {
    if columns < NARROW {
        return narrow_lines(rows.into_iter().map(|(name, value)| [name, value]), columns);
    }
    let names = ColumnConstraint::Absolute(Width::Fixed(NAME_COLUMNS));
    let mut table = table(rows.into_iter().map(|(name, value)| [name, value]), columns);
    if let Some(column) = table.column_mut(0) {
        column.set_constraint(names);
    }
    table.trim_fmt() + "\n"
}

/// Formats columns without lines between them, at most `columns` characters wide. On a narrow screen, rows that do not fit become
/// lists: the first cell, and the others below it.
pub fn plain_table<const N: usize>(rows: impl IntoIterator<Item = [String; N]>, columns: u16) -> String {
    let rows: Vec<[String; N]> = rows.into_iter().collect();
    if columns < NARROW && natural_width(&rows) > usize::from(columns) {
        return narrow_lines(rows, columns);
    }
    table(rows, columns).trim_fmt() + "\n"
}

/// Formats columns with a head, which is the first row. Where the columns do not fit beside each other, each row becomes a list in
/// which the head names the cells.
pub fn headed_table<const N: usize>(rows: Vec<[String; N]>, columns: u16) -> String {
    if natural_width(&rows) <= usize::from(columns) {
        return plain_table(rows, columns);
    }
    let Some((head, rows)) = rows.split_first() else { return String::new() };
    let mut text = String::new();
    for row in rows {
        text += &format!("{}\n", wrap(&format!(" {}", display_text(&row[0])), columns.into()));
        for (name, cell) in head.iter().zip(row).skip(1).filter(|(_, cell)| !cell.is_empty()) {
            text += &format!("{}\n", wrap(&format!("     {name}: {}", display_text(cell)), columns.into()));
        }
    }
    text
}

/// Returns the width of a table whose cells are not wrapped.
fn natural_width<const N: usize>(rows: &[[String; N]]) -> usize {
    let of_cell = |cell: &String| cell.lines().map(measure_text_width).max().unwrap_or(0);
    // A space on each side of a cell.
    (0..N).map(|column| rows.iter().map(|row| of_cell(&row[column])).max().unwrap_or(0) + 2).sum()
}

/// Formats each row as a line or, if it does not fit, as its first cell and the other cells below it.
fn narrow_lines<const N: usize>(rows: impl IntoIterator<Item = [String; N]>, columns: u16) -> String {
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> = row.iter().filter(|cell| !cell.is_empty()).map(|cell| display_text(cell)).collect();
        let line = format!(" {}", cells.join("  "));
        if measure_text_width(&line) <= usize::from(columns) && !line.contains('\n') {
            text += &format!("{line}\n");
            continue;
        }
        let indents = std::iter::once(" ").chain(std::iter::repeat("     "));
        for (indent, line) in indents.zip(cells.iter().flat_map(|cell| cell.lines())) {
            text += &format!("{}\n", wrap(&format!("{indent}{line}"), columns.into()));
        }
    }
    text
}

fn table<const N: usize>(rows: impl IntoIterator<Item = [String; N]>, columns: u16) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
    // Cells are truncated because wrapping a word takes time quadratic in its length.
    table.add_rows(rows.into_iter().map(|row| row.map(|text| display_text(&text).into_owned())));
    table
}

/// Formats names, values and origins in three columns without ever breaking a value or an origin, which may be a path.
/// Where they do not fit beside each other, the origin is on the next line.
pub fn unbroken_table(rows: &[[String; 3]], columns: u16) -> String {
    let clean = |row: &[String; 3]| row.each_ref().map(|text| one_line(&display_text(text)).into_owned());
    let rows: Vec<_> = rows.iter().map(clean).collect();
    if columns < NARROW {
        return narrow_lines(rows, columns);
    }
    let columns = usize::from(columns);
    let widest = |column: usize| rows.iter().map(|row| measure_text_width(&row[column])).max().unwrap_or(0);
    let [names, values, origins] = [0, 1, 2].map(widest);
    // A space at the left edge, and two between columns.
    let values = values.min(columns.saturating_sub(names + origins + 5).max(VALUE_COLUMNS_MIN));
    let mut text = String::new();
    for [name, value, origin] in &rows {
        let line = format!(" {name:<names$}  {}  {origin}", pad(value, values));
        let fits = measure_text_width(value) <= values && measure_text_width(line.trim_end()) <= columns;
        let line = if fits { line } else { format!(" {name:<names$}  {value}\n {:names$}  {origin}", "") };
        text += &format!("{}\n", line.trim_end());
    }
    text
}

/// Narrowest column of values.
const VALUE_COLUMNS_MIN: usize = 12;

fn pad(text: &str, columns: usize) -> String {
    console::pad_str(text, columns, console::Alignment::Left, None).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_do_not_fit_on_a_narrow_screen_become_lists() {
        let rows = || {
            let row = |cells: [&str; 3]| cells.map(str::to_owned);
            vec![
                row(["host", "step", "core (samples/s)"]),
                row(["sum: 2 hosts x 8 devices", "inference", "12345.6"]),
                row(["h1", "", "1.5"]),
            ]
        };
        assert_eq!(
            headed_table(rows(), 40),
            " sum: 2 hosts x 8 devices\n     step: inference\n     core (samples/s): 12345.6\n h1\n     core (samples/s): 1.5\n"
        );
        assert_eq!(
            plain_table(rows(), 40),
            " host  step  core (samples/s)\n sum: 2 hosts x 8 devices\n     inference\n     12345.6\n h1  1.5\n"
        );
        assert!(headed_table(rows(), 80).lines().count() == 3);
        let long = ("a name".to_owned(), "a value of many words that does not fit beside its name".to_owned());
        assert_eq!(
            name_value_table(vec![long, ("short".to_owned(), "1".to_owned())], 40),
            " a name\n     a value of many words that does not\n         fit beside its name\n short  1\n"
        );
    }

    #[test]
    fn a_value_wider_than_its_column_is_not_broken() {
        let row = |name: &str, value: &str, origin: &str| [name, value, origin].map(str::to_owned);
        let rows = [
            row("VENDOR", "cpu", "configs/host.yaml:9"),
            row("FLAGPERF_LOG_PATH", "/a/folder/with/a/long/path/that/does/not/fit", "default"),
        ];
        insta::assert_snapshot!(unbroken_table(&rows, 60).trim_start(), @r"
        VENDOR             cpu                  configs/host.yaml:9
         FLAGPERF_LOG_PATH  /a/folder/with/a/long/path/that/does/not/fit
                            default
        ");
    }
}
