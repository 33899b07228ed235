//! A review as Markdown, for a comment on a pull request.
//!
//! Every text from the repository is in a code span, where Markdown interprets neither links, mentions, HTML nor
//! tables.

use std::fmt::Write as _;

use super::output::counted;
use super::review_text::{by_outcome, cost_line, function_details, function_line, judged_line, key_line};
use flagperf_core::text::{one_line, truncate};
use flagperf_review::{Review, ReviewFinding};

/// Most bytes of the whole text: hosts of repositories refuse longer comments.
const TEXT_BYTES_MAX: usize = 60_000;
/// Most bytes of one code span.
const SPAN_BYTES_MAX: usize = 600;
/// Most entries of each section.
const ENTRIES_MAX: usize = 50;

/// Formats a review as Markdown.
pub(super) fn markdown_text(review: &Review) -> String {
    let mut text = format!("### flagperf review: {}\n\n{}\n", review.verdict.phrase(), code(&judged_line(review)));
    for (title, findings) in by_outcome(&review.findings) {
        add_section(&mut text, &title, findings.into_iter().map(finding_entry));
    }
    let functions = review.functions.iter().map(|change| {
        let details = function_details(change).into_iter().map(|detail| format!("  - {}\n", code(&detail)));
        format!("- {}\n{}", code(&function_line(change)), details.collect::<String>())
    });
    add_section(&mut text, "Changed functions", functions);
    add_section(&mut text, "Changed keys", review.keys.iter().map(|key| format!("- {}\n", code(&key_line(key)))));
    add_section(
        &mut text,
        "Cost of adapting",
        review.costs.iter().map(|cost| format!("- {}\n", code(&cost_line(cost)))),
    );
    add_section(&mut text, "Remarks", review.notes.iter().map(|note| format!("- {}\n", code(note))));
    shorten(text)
}

fn finding_entry(finding: &ReviewFinding) -> String {
    let line = finding.line.map(|line| format!(":{line}")).unwrap_or_default();
    let place = code(&format!("{}{line}", finding.file));
    let mut entry = format!("- {place}, rule {}: {}\n", code(&finding.rule), code(&finding.message));
    if !finding.hint.is_empty() {
        let _ = writeln!(entry, "  - hint: {}", code(&finding.hint));
    }
    entry
}

fn add_section(text: &mut String, title: &str, entries: impl ExactSizeIterator<Item = String>) {
    let number = entries.len();
    if number == 0 {
        return;
    }
    // The title may contain the name of a vendor.
    let _ = write!(text, "\n**{title}** ({number})\n\n");
    text.extend(entries.take(ENTRIES_MAX));
    if number > ENTRIES_MAX {
        let _ = writeln!(text, "- {} more", number - ENTRIES_MAX);
    }
}

/// Returns a text as a code span: on one line, between more backticks than follow each other in it.
fn code(text: &str) -> String {
    let text = one_line(text);
    let text = truncate(text.trim(), SPAN_BYTES_MAX);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    match text.is_empty() || text.starts_with('`') || text.ends_with('`') {
        true => format!("{fence} {text} {fence}"),
        false => format!("{fence}{text}{fence}"),
    }
}

/// Leaves out the last lines of a text that is too long, and says so.
fn shorten(text: String) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    let kept = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    let kept = kept.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let left_out = counted(text[kept.len()..].lines().count().saturating_sub(1), "line");
    format!("{kept}\n\n{left_out} left out; `flagperf review --json` lists all.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_inside_its_code_span() {
        for (text, expected) in [
            ("plain", "`plain`"),
            ("a`b``c", "```a`b``c```"),
            ("`x`", "`` `x` ``"),
            ("", "`  `"),
            ("@owner <img src=x> | [a](b)\n# title", "`@owner <img src=x> | [a](b)\\n# title`"),
            ("\u{1b}[2J", "`\\u{1b}[2J`"),
        ] {
            assert_eq!(code(text), expected, "{text}");
        }
        assert!(code(&"x".repeat(10_000)).len() < SPAN_BYTES_MAX + 60);
    }

    #[test]
    fn a_text_that_is_too_long_ends_between_lines_and_says_how_much_is_left_out() {
        let text = shorten("0123456789\n".repeat(6000));
        assert!(text.len() < TEXT_BYTES_MAX + 100);
        assert!(
            text.ends_with("0123456789\n\n546 lines left out; `flagperf review --json` lists all.\n"),
            "{}",
            &text[59_000..]
        );
    }
}
