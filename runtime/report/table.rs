//! The final table.

use comfy_table::presets::NOTHING;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width};
use console::{Style, Term};

use super::rows::sections;
use super::text::{count, shown};
use crate::result::{Record, Status};

/// Columns of text where there is no terminal that says.
const COLUMNS: u16 = 100;
/// Narrower or wider than this nothing is set.
const COLUMNS_MIN: u16 = 40;
const COLUMNS_MAX: u16 = 200;

/// Characters of the names, FlagPerf's longest and a space on each side.
const NAME_COLUMNS: u16 = 25;

/// Warnings that a table has; the record has all of them.
const WARNINGS_SHOWN: usize = 50;

/// What text is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Characters in a line.
    pub columns: u16,
    /// Whether colours are wanted: a terminal, and no `NO_COLOR`.
    pub colour: bool,
}

impl Screen {
    /// Standard output as it is.
    pub fn stdout() -> Self {
        Screen { columns: columns(), colour: console::colors_enabled() && Term::stdout().is_term() }
    }
}

/// Characters in a line of standard output.
pub fn columns() -> u16 {
    let columns = Term::stdout().size_checked().map_or(COLUMNS, |(_, columns)| columns);
    columns.clamp(COLUMNS_MIN, COLUMNS_MAX)
}

/// The table of a record, with its failures and warnings below.
pub fn record_table(record: &Record, screen: Screen) -> String {
    let paint = |style: Style, text: &str| style.force_styling(screen.colour).apply_to(shown(text)).to_string();
    let (word, style) = match record.status {
        Status::Ok => ("ok", Style::new().green()),
        Status::Failed => ("FAILED", Style::new().red().bold()),
        Status::Interrupted => ("interrupted", Style::new().yellow()),
    };
    let mut text = format!("{}  {}\n", paint(Style::new().bold(), &record.key()), paint(style, word));
    for section in sections(record) {
        if !section.title.is_empty() {
            text += &format!("{}\n", paint(Style::new().bold(), &section.title));
        }
        text += &name_value_table(section.rows, screen.columns);
    }
    text + name_value_table(notes(record), screen.columns).as_str()
}

/// What a reader should know of a record beside its figures.
fn notes(record: &Record) -> Vec<(String, String)> {
    let row = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let mut rows = Vec::new();
    rows.extend(record.warnings.iter().take(WARNINGS_SHOWN).map(|warning| row("warning", warning)));
    if let Some(more @ 1..) = record.warnings.len().checked_sub(WARNINGS_SHOWN) {
        rows.push(row("", &format!("{} more warnings are in the record", count(more as u64))));
    }
    for failure in &record.failures {
        let step = failure.step.map(|step| format!("{}: ", step.name())).unwrap_or_default();
        rows.push(row("failed", &format!("{step}{}", failure.reason)));
        rows.extend((!failure.hint.is_empty()).then(|| row("  hint", &failure.hint)));
        rows.extend(failure.stderr.iter().map(|line| row("  worker", line)));
    }
    rows
}

/// Names and values in two columns, long values wrapped.
pub fn name_value_table(rows: Vec<(String, String)>, columns: u16) -> String {
    let names = ColumnConstraint::Absolute(Width::Fixed(NAME_COLUMNS));
    let mut table = table(rows.into_iter().map(|(name, value)| [name, value]), columns);
    if let Some(column) = table.column_mut(0) {
        column.set_constraint(names);
    }
    table.trim_fmt() + "\n"
}

/// Columns without lines between them, as wide as `columns` at most.
pub fn plain_table<const N: usize>(rows: impl IntoIterator<Item = [String; N]>, columns: u16) -> String {
    table(rows, columns).trim_fmt() + "\n"
}

fn table<const N: usize>(rows: impl IntoIterator<Item = [String; N]>, columns: u16) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
    // A long word takes the square of its length to be wrapped.
    table.add_rows(rows.into_iter().map(|row| row.map(|text| shown(&text).into_owned())));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EngineFacts;
    use crate::result::{FailureRecord, testing};

    #[test]
    fn no_line_is_wider_than_the_screen() {
        let mut record = testing::record();
        record.warnings.push("something that is long enough to be more than one line on a narrow screen ".repeat(3));
        for columns in [60, 80, 200] {
            let text = record_table(&record, Screen { columns, colour: false });
            let widest = text.lines().map(console::measure_text_width).max().unwrap();
            assert!(widest <= usize::from(columns), "{widest} at {columns}:\n{text}");
        }
    }

    #[test]
    fn long_texts_are_cut_and_control_characters_are_escapes() {
        let mut record = testing::record();
        record.warnings = vec![format!("\x1b[2J{}", "x".repeat(1 << 19)); 200];
        record.failures = vec![FailureRecord {
            phase: None,
            step: None,
            reason: "at line 1:\n\tlet x\x07".into(),
            hint: String::new(),
            stderr: vec!["\rprogress".into()],
        }];
        let text = record_table(&record, Screen { columns: 200, colour: false });
        assert!(text.len() < 200_000, "{}", text.len());
        assert_eq!(text.matches("... (523292 more bytes)").count(), WARNINGS_SHOWN);
        let end = &text[text.find("150 more").unwrap()..];
        insta::assert_snapshot!(end, @r"
        150 more warnings are in the record
         failed                   at line 1:
                                  \tlet x\u{7}
           worker                 \rprogress
        ");
    }

    #[test]
    fn what_an_engine_says_of_itself_is_no_row_of_its_own() {
        let mut record = testing::record();
        let forged = "1.0\n *MFU                     99.9%\x1b[2J";
        let engine =
            EngineFacts { name: "x".into(), version: forged.into(), device: "a\r\nb".into(), ..Default::default() };
        record.phases[0].engine = Some(engine);
        let text = record_table(&record, Screen { columns: 200, colour: false });
        assert!(!text.lines().any(|line| line.contains("99.9%") && !line.contains("x 1.0\\n *MFU")), "{text}");
        assert!(text.contains("99.9%\\u{1b}[2J on a\\r\\nb, "), "{text}");
    }

    #[test]
    fn without_colour_there_is_no_escape() {
        let record = testing::record();
        assert!(!record_table(&record, Screen { columns: 80, colour: false }).contains('\x1b'));
        assert!(record_table(&record, Screen { columns: 80, colour: true }).contains('\x1b'));
    }

    #[test]
    fn what_is_unknown_says_why() {
        let text = record_table(&testing::record(), Screen { columns: 100, colour: false });
        for said in ["no accuracy: random weights", "unknown: the device's peak is unknown", "none: `compiler` is null"]
        {
            assert!(text.contains(said), "{said} is not in\n{text}");
        }
    }
}
