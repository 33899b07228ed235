//! Makes text from outside sources safe to show and to store: control characters are escaped, long texts are truncated
//! with a note.
//!
//! Knows no terminal and no log.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Maximum number of bytes of a text shown in a table or on a line of the display; the record contains more.
pub const SHOWN_BYTES: usize = 1000;

/// Upper bound for the length in bytes of the note that [`truncate`] appends. A text that is longer than the limit by
/// no more than this is kept whole, so a truncated text is not truncated again.
const MARK_BYTES: usize = 40;

/// Returns the text on one line: every control character, including `\n`, is escaped.
///
/// The result can neither start a forged line in a log nor control a terminal.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escape(text, &[])
}

/// Returns the text with its line breaks; every other control character is escaped.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    escape(text, &['\n'])
}

/// Returns log output as text: line breaks and tabs stay, other control characters and invalid UTF-8 are escaped.
pub fn escape_log(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text += &escape(chunk.valid(), &['\n', '\t']);
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Escapes, as `\u....`, the control characters that JSON leaves unescaped: the value stays the same, and the text is
/// safe on a terminal.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    let safe = |c: char| c == '\n' || !is_control(c);
    if json.chars().all(safe) {
        return Cow::Borrowed(json);
    }
    Cow::Owned(json.chars().fold(String::with_capacity(json.len()), |mut text, c| {
        if safe(c) {
            text.push(c);
        } else {
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        }
        text
    }))
}

/// Truncates a text to its first `bytes_max` bytes and notes how many bytes follow. A text that exceeds `bytes_max` by
/// no more than the length of that note is returned whole.
pub fn truncate(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max + MARK_BYTES {
        return Cow::Borrowed(text);
    }
    let kept = &text[..text.floor_char_boundary(bytes_max)];
    Cow::Owned(format!("{kept}... ({} more bytes)", text.len() - kept.len()))
}

fn escape<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let safe = |c: char| !is_control(c) || kept.contains(&c);
    if text.chars().all(safe) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len() + 16), |mut escaped, c| {
        if safe(c) {
            escaped.push(c);
        } else if matches!(c, '\n' | '\r' | '\t') {
            escaped.extend(c.escape_default());
        } else {
            escaped.extend(c.escape_unicode());
        }
        escaped
    }))
}

/// Returns whether `c` is a control character, a line or paragraph separator, or a mark that changes the text
/// direction.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_other_text_is_unchanged() {
        assert_eq!(one_line("größe 3 µs \\n"), "größe 3 µs \\n");
        assert_eq!(one_line("a\nb\r\tc"), r"a\nb\r\tc");
        assert_eq!(one_line("\x1b[2J\u{9b}1m\u{202e}x\x7f\0"), r"\u{1b}[2J\u{9b}1m\u{202e}x\u{7f}\u{0}");
        assert_eq!(escape_lines("a\nb\x07"), "a\nb\\u{7}");
        assert_eq!(escape_log(b"10%\r20%\n\tx\xff\x1b["), "10%\\r20%\n\tx\\xff\\u{1b}[");
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({ "a": "\u{9b}\u{202e}\n\x7f", "b": ["ü"] });
        let json = serde_json::to_string_pretty(&value).unwrap();
        let safe = escape_json(&json);
        assert!(safe.chars().all(|c| c == '\n' || !is_control(c)), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }

    #[test]
    fn a_long_text_is_truncated_between_characters_and_states_how_much_follows() {
        let text = "a".repeat(100);
        assert_eq!(truncate(&text, 60), text);
        assert_eq!(truncate(&text, 3), "aaa... (97 more bytes)");
        assert_eq!(truncate(&"ü".repeat(50), 3), "ü... (98 more bytes)");
        let (huge, most) = ("a".repeat(1 << 20), 1 << 10);
        assert_eq!(truncate(&truncate(&huge, most), most), truncate(&huge, most));
    }
}
