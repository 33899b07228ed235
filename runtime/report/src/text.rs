//! Formats quantities, and prepares text from outside for display.

use std::borrow::Cow;

use console::measure_text_width;

use flagperf_core::text::{SHOWN_BYTES, escape_lines, truncate};
use flagperf_core::units::{Bytes, SamplesPerSecond, Seconds};

/// Formats a number of bytes: `1.25 GiB`, `310 MiB`.
pub fn bytes(Bytes(bytes): Bytes) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", digits(value), UNITS[unit])
}

/// Formats a duration in a suitable unit: `12.3 ms`, `4.56 s`, `2 min 05 s`, `1 h 02 min`.
pub fn duration(Seconds(seconds): Seconds) -> String {
    let whole = seconds.round() as u64;
    match seconds {
        s if s >= 3600.0 => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
        s if s >= 60.0 => format!("{} min {:02} s", whole / 60, whole % 60),
        s if s >= 1.0 || s == 0.0 => format!("{} s", digits(s)),
        s if s >= 1e-3 => format!("{} ms", digits(s * 1e3)),
        s => format!("{} µs", digits(s * 1e6)),
    }
}

/// Formats samples per second without the unit: `12698.7`, `48.2`, `0.731`.
pub fn rate(SamplesPerSecond(rate): SamplesPerSecond) -> String {
    if rate >= 1000.0 { format!("{rate:.1}") } else { digits(rate) }
}

/// Returns the share of a step that communication takes. On a busy machine, steps without any may take longer.
pub fn exposed_share_text(share: f64) -> String {
    if share < 0.0 { "not measurable".to_owned() } else { percent(share) }
}

/// Formats a share as a percentage: `45.3%`.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// Formats a count with a space between groups of three digits: `25 557 032`.
pub fn count(count: u64) -> String {
    let text = count.to_string();
    let mut grouped = String::with_capacity(text.len() + text.len() / 3);
    for (index, digit) in text.chars().enumerate() {
        if index > 0 && (text.len() - index).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

/// Prepares text for display: truncates it to 1000 bytes and escapes control characters except line breaks. The record
/// contains the full text.
pub fn display_text(text: &str) -> Cow<'_, str> {
    match truncate(text, SHOWN_BYTES) {
        Cow::Borrowed(whole) => escape_lines(whole),
        Cow::Owned(cut) => Cow::Owned(escape_lines(&cut).into_owned()),
    }
}

/// Units that stay on the line of their number.
const UNITS: [&str; 25] = [
    "%", "B", "FLOP/s", "GB", "GB/s", "GFLOP/s", "GiB", "GOP/s", "J", "KiB", "MB", "MHz", "MiB", "TB/s", "TFLOP/s",
    "TOP/s", "W", "h", "min", "ms", "ns", "s", "tokens/s", "°C", "µs",
];

/// Returns the parts of a line between which it may be wrapped: its words, of which a number keeps its unit and its groups of digits.
fn parts(line: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = Vec::new();
    let mut begin = 0;
    for (at, _) in line.match_indices(' ') {
        let (before, after) = (&line[begin..at], line[at + 1..].split(' ').next().unwrap_or_default());
        let is_number = before.ends_with(|c: char| c.is_ascii_digit());
        let after = after.trim_end_matches([',', '.', ';', ':', ')']);
        let is_group = after.len() >= 3 && after.as_bytes()[..3].iter().all(u8::is_ascii_digit);
        if !(is_number && (UNITS.contains(&after) || is_group)) {
            parts.push(before);
            begin = at + 1;
        }
    }
    parts.push(&line[begin..]);
    parts
}

/// Wraps each line of a text between words to at most `columns` columns. A further line is indented by four columns more
/// than the first; a word that is longer than a line, such as a path, is not broken.
pub fn wrap(text: &str, columns: usize) -> String {
    text.split('\n').map(|line| wrap_line(line, columns)).collect::<Vec<_>>().join("\n")
}

fn wrap_line(line: &str, columns: usize) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let mut wrapped = line[..indent].to_owned();
    let mut width = indent;
    for (index, word) in parts(&line[indent..]).into_iter().enumerate() {
        let word_width = measure_text_width(word);
        if index > 0 && width + 1 + word_width > columns {
            width = indent + 4;
            wrapped += &format!("\n{:width$}", "");
        } else if index > 0 {
            wrapped.push(' ');
            width += 1;
        }
        wrapped += word;
        width += word_width;
    }
    wrapped
}

/// The characters after which a long word may be broken.
pub(super) const SEPARATORS: [char; 4] = ['/', ',', ';', '='];

/// Wraps each line of a cell between words to at most `columns` columns. A word that is longer than a line, such as a path, is broken
/// after a separator or, without one, where the line ends.
pub(super) fn wrap_cell(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        if measure_text_width(line) <= columns {
            lines.push(line.to_owned());
            continue;
        }
        let mut current = String::new();
        for word in parts(line) {
            let joined = if current.is_empty() { word.to_owned() } else { format!("{current} {word}") };
            if measure_text_width(&joined) <= columns {
                current = joined;
                continue;
            }
            lines.extend((!current.is_empty()).then(|| std::mem::take(&mut current)));
            let mut pieces = pieces(word, columns);
            current = pieces.pop().unwrap_or_default();
            lines.extend(pieces);
        }
        lines.push(current);
    }
    lines
}

/// Breaks a word into pieces of at most `columns` columns.
fn pieces(word: &str, columns: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut width = 0;
    for letter in word.chars() {
        let own = measure_text_width(letter.encode_utf8(&mut [0; 4]));
        if let Some(last) = pieces.last_mut().filter(|last| width + own > columns && !last.is_empty()) {
            let rest = match last.rfind(SEPARATORS) {
                Some(at) if at + 1 < last.len() => last.split_off(at + 1),
                _ => String::new(),
            };
            width = measure_text_width(&rest);
            pieces.push(rest);
        }
        width += own;
        pieces.last_mut().into_iter().for_each(|last| last.push(letter));
    }
    pieces
}

/// Formats a value with three significant digits.
pub fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 || v == 0.0 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_wrapped_between_words_and_a_long_word_is_not_broken() {
        let text = "note: a line of many words\n  hint: see /a/very/long/path/of/a/file there";
        let expected = "note: a line of\n    many words\n  hint: see\n      /a/very/long/path/of/a/file\n      there";
        assert_eq!(wrap(text, 16), expected);
        assert_eq!(wrap(text, 80), text);
        assert_eq!(wrap("", 16), "");
    }

    #[test]
    fn a_number_keeps_its_unit_and_its_groups_of_digits() {
        assert_eq!(
            parts("p99 at most 191 ms, 2 880 images, 7 %"),
            ["p99", "at", "most", "191 ms,", "2 880", "images,", "7 %"]
        );
        assert_eq!(wrap("took 191 ms", 9), "took\n    191 ms");
        assert_eq!(wrap_cell("took 1 012 s", 8), ["took", "1 012 s"]);
    }

    #[test]
    fn a_cell_is_wrapped_between_words_and_a_long_word_after_a_separator() {
        let text = "see /a/long/path/of/folders/file.txt for it";
        assert_eq!(wrap_cell(text, 16), ["see", "/a/long/path/of/", "folders/file.txt", "for it"]);
        assert_eq!(wrap_cell("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap_cell("one\n  two", 20), ["one", "  two"]);
        assert_eq!(wrap_cell("", 20), [""]);
    }

    #[test]
    fn quantities_are_formatted_with_suitable_units_and_digits() {
        assert_eq!(bytes(Bytes(1_342_177_280)), "1.25 GiB");
        assert_eq!(bytes(Bytes(0)), "0 B");
        assert_eq!(duration(Seconds(0.0123)), "12.3 ms");
        assert_eq!(duration(Seconds(4.2e-6)), "4.20 µs");
        assert_eq!(duration(Seconds(125.0)), "2 min 05 s");
        assert_eq!(duration(Seconds(3725.0)), "1 h 02 min");
        assert_eq!(rate(SamplesPerSecond(12698.74)), "12698.7");
        assert_eq!(rate(SamplesPerSecond(48.234)), "48.2");
        assert_eq!(count(25_557_032), "25 557 032");
        assert_eq!(percent(0.4534), "45.3%");
    }
}
