//! Tables of text, and the screen for which they are formatted.

use console::{Term, measure_text_width};
use indexmap::IndexMap;

use super::text::{SEPARATORS, display_text, wrap, wrap_cell};
use flagperf_config::env;
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

/// Returns the characters per line of standard output: those of the terminal, or else those that `COLUMNS` states.
pub fn columns() -> u16 {
    let of_terminal = Term::stdout().size_checked().map(|(_, columns)| columns);
    let columns = of_terminal.or_else(env::columns).unwrap_or(COLUMNS);
    columns.clamp(COLUMNS_MIN, COLUMNS_MAX)
}

/// Width below which a table that does not fit becomes a list: its columns would be too narrow to be read.
const NARROW: u16 = 60;

/// Formats names and values in two columns and wraps long values. On a narrow screen, a value that does not fit is below its name.
pub fn name_value_table(rows: Vec<(String, String)>, columns: u16) -> String {
    if columns < NARROW {
        return narrow_lines(rows.into_iter().map(|(name, value)| [name, value]), columns);
    }
    let names = usize::from(NAME_COLUMNS) - CELL_SPACE;
    let values = usize::from(columns) - names - 2 * CELL_SPACE;
    layout(rows.into_iter().map(|(name, value)| [name, value]), [names, values])
}

/// Formats columns without lines between them, at most `columns` characters wide. On a narrow screen, rows that do not fit become
/// lists: the first cell, and the others below it.
pub fn plain_table<const N: usize>(rows: impl IntoIterator<Item = [String; N]>, columns: u16) -> String {
    let rows: Vec<[String; N]> = rows.into_iter().collect();
    if columns < NARROW && natural_width(&rows) > usize::from(columns) {
        return narrow_lines(rows, columns);
    }
    let widths = column_widths(&rows, columns);
    layout(rows, widths)
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

/// Columns that a long word leaves to each other cell.
const CELL_MIN: usize = 12;
/// The spaces around a cell: one on each side.
const CELL_SPACE: usize = 2;

/// Returns the width of each column, so that the table has at most `columns` characters per line: columns that need less than an
/// equal share get what they need, and the others share the rest; each gets at least its longest word, as long as there is space.
fn column_widths<const N: usize>(rows: &[[String; N]], columns: u16) -> [usize; N] {
    let of_cell = |cell: &String| cell.lines().map(measure_text_width).max().unwrap_or(0);
    let natural: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| of_cell(&row[column])).max().unwrap_or(0));
    let word = |cell: &String| {
        cell.split([' ', '\n']).flat_map(|word| word.split_inclusive(SEPARATORS)).map(measure_text_width).max()
    };
    let words: [usize; N] =
        std::array::from_fn(|column| rows.iter().filter_map(|row| word(&row[column])).max().unwrap_or(0));
    let mut widths = natural;
    let mut left = usize::from(columns).saturating_sub(CELL_SPACE * N);
    let mut order: Vec<usize> = (0..N).collect();
    order.sort_by_key(|column| natural[*column]);
    for (position, column) in order.into_iter().enumerate() {
        let reserved = CELL_MIN * (N - position - 1);
        let share = (left / (N - position)).max(words[column].min(left.saturating_sub(reserved)));
        widths[column] = natural[column].min(share).max(1);
        left = left.saturating_sub(widths[column]);
    }
    widths
}

/// Formats rows in columns of these widths; cells are wrapped.
fn layout<const N: usize>(rows: impl IntoIterator<Item = [String; N]>, widths: [usize; N]) -> String {
    let mut text = String::new();
    for row in rows {
        let cells: [Vec<String>; N] =
            std::array::from_fn(|column| wrap_cell(&display_text(&row[column]), widths[column]));
        for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let parts: String = (0..N)
                .map(|column| format!(" {} ", pad(cells[column].get(line).map_or("", String::as_str), widths[column])))
                .collect();
            text += &format!("{}\n", parts.trim_end());
        }
    }
    text
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

/// Formats names, values and origins as [`unbroken_table`] does where each row fits into a line. Where one does not, the rows of each
/// file have its path above them, and the number of the line before them.
pub fn origin_table(rows: &[[String; 3]], columns: u16) -> String {
    if natural_width(rows) < usize::from(columns) {
        return unbroken_table(rows, columns);
    }
    let mut files: IndexMap<&str, Vec<(&str, &str, &str)>> = IndexMap::new();
    for [name, value, origin] in rows {
        // The key of a training on the command line ends in a number, too.
        let is_line = |(file, line): &(&str, &str)| !file.starts_with("--") && line.parse::<usize>().is_ok();
        let placed = origin.rsplit_once(':').filter(is_line);
        let (file, line) = placed.unwrap_or((origin, ""));
        files.entry(file).or_default().push((line, name.as_str(), value.as_str()));
    }
    let names = rows.iter().map(|row| measure_text_width(&row[0])).max().unwrap_or(0);
    // Four columns before the number of the line, four for it, and two before the value.
    let indent = names + 9;
    let mut text = String::new();
    for (file, rows) in files {
        text += &format!("{}\n", wrap(&format!(" {}", one_line(&display_text(file))), columns.into()));
        for (line, name, value) in rows {
            let value = one_line(&display_text(value)).into_owned();
            let mut lines =
                wrap_cell(&value, usize::from(columns).saturating_sub(indent).max(VALUE_COLUMNS_MIN)).into_iter();
            let first = format!("{line:>6} {name:<names$}  {}", lines.next().unwrap_or_default());
            text += &format!("{}\n", first.trim_end());
            lines.for_each(|line| text += &format!("{:indent$}{line}\n", ""));
        }
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
    fn no_word_is_cut_where_it_can_be_broken_after_a_separator() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [
            row([
                "cpu.inductor",
                "missing: no module (`/root/.pyenv/versions/3.11.7/bin/python3` lacks it)",
                "install it",
            ]),
            row(["cpu.rten", "works", "a compiler in pure Rust for the processor, which loads files"]),
        ];
        let text = plain_table(rows, 80);
        insta::assert_snapshot!(text.trim_start(), @r"
        cpu.inductor  missing: no module               install it
                       (`/root/.pyenv/versions/3.11.7/
                       bin/python3` lacks it)
         cpu.rten      works                            a compiler in pure Rust for the
                                                        processor, which loads files
        ");
        let whole = plain_table([["a".to_owned(), "x".repeat(200)]], 60);
        assert!(whole.lines().all(|line| measure_text_width(line) <= 60), "{whole}");
    }

    #[test]
    fn values_whose_origins_do_not_fit_are_listed_by_file() {
        let row = |name: &str, value: &str, origin: &str| [name, value, origin].map(str::to_owned);
        let overlay = "configs/resnet50/vendor_config/cpu_configurations.yaml";
        let rows = [
            row("batch_size", "8", &format!("{overlay}:5")),
            row("repeat", "1", "--set repeat=1"),
            row("weights", "/a/folder/with/a/long/path/that/does/not/fit/model.safetensors", "configs/host.yaml:63"),
            row("fp16", "false", &format!("{overlay}:4")),
        ];
        let text = origin_table(&rows, 60);
        assert!(text.lines().all(|line| measure_text_width(line) <= 60), "{text}");
        insta::assert_snapshot!(text.trim_start(), @r"
        configs/resnet50/vendor_config/cpu_configurations.yaml
             5 batch_size  8
             4 fp16        false
         --set repeat=1
               repeat      1
         configs/host.yaml
            63 weights     /a/folder/with/a/long/path/that/does/not/
                           fit/model.safetensors
        ");
        assert_eq!(origin_table(&rows[1..2], 60), unbroken_table(&rows[1..2], 60));
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
