//! Results that generate text, by the number of prompts at a time, as text.

use flagperf_comparison::Pareto;
use flagperf_page::{Language, pareto_notes, pareto_rows, pareto_subject};

use super::history_text::unused_text;
use flagperf_report::{headed_table, wrap};

/// Describes results that generate text.
pub(super) fn pareto_text(found: &Pareto, columns: u16) -> String {
    let mut text = String::new();
    for table in &found.tables {
        let rows = pareto_rows(table, found.currency.as_deref(), Language::English);
        text += &format!("{}\n\n", wrap(&pareto_subject(&table.subject), columns.into()));
        text += &format!("{}\n", headed_table(rows, columns));
    }
    let notes = pareto_notes(found, Language::English);
    text.extend(notes.iter().map(|note| format!("{}\n", wrap(note, columns.into()))));
    text.push_str(&unused_text(&found.unused, columns));
    text
}
