//! Text of others, made fit to be shown and kept: control characters as escapes, long texts cut with a mark.
//!
//! Knows no terminal and no log.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Bytes of a text that are shown in a table or on a line of the display; the record has more.
pub const SHOWN_BYTES: usize = 1000;

/// Bytes that the mark of a text that was cut has at most, so that what was cut once is not cut again.
const MARK_BYTES: usize = 40;

/// The text on one line: each control character is an escape, line breaks (`\n`) too.
///
/// So a text can neither begin a line of a log that somebody else seems to have written, nor steer a terminal.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escape(text, &[])
}

/// The text with its line breaks; every other control character is an escape.
pub fn lines(text: &str) -> Cow<'_, str> {
    escape(text, &['\n'])
}

/// Bytes of a log as text: line breaks and tabs stay, other control characters and what is not UTF-8 are escapes.
pub fn log_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text += &escape(chunk.valid(), &['\n', '\t']);
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// JSON with control characters beyond those that JSON itself escapes as `\u....`: the same value, safe on a terminal.
pub fn json_text(json: &str) -> Cow<'_, str> {
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

/// The first `bytes_max` bytes of a text that is longer by more than the mark, which says how many bytes follow.
pub fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
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

/// Control characters, line and paragraph separators, and marks that change the direction of text.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escapes_and_other_text_is_untouched() {
        assert_eq!(one_line("größe 3 µs \\n"), "größe 3 µs \\n");
        assert_eq!(one_line("a\nb\r\tc"), r"a\nb\r\tc");
        assert_eq!(one_line("\x1b[2J\u{9b}1m\u{202e}x\x7f\0"), r"\u{1b}[2J\u{9b}1m\u{202e}x\u{7f}\u{0}");
        assert_eq!(lines("a\nb\x07"), "a\nb\\u{7}");
        assert_eq!(log_text(b"10%\r20%\n\tx\xff\x1b["), "10%\\r20%\n\tx\\xff\\u{1b}[");
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({ "a": "\u{9b}\u{202e}\n\x7f", "b": ["ü"] });
        let json = serde_json::to_string_pretty(&value).unwrap();
        let safe = json_text(&json);
        assert!(safe.chars().all(|c| c == '\n' || !is_control(c)), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_how_much_follows() {
        let text = "a".repeat(100);
        assert_eq!(cut(&text, 60), text);
        assert_eq!(cut(&text, 3), "aaa... (97 more bytes)");
        assert_eq!(cut(&"ü".repeat(50), 3), "ü... (98 more bytes)");
        let (huge, most) = ("a".repeat(1 << 20), 1 << 10);
        assert_eq!(cut(&cut(&huge, most), most), cut(&huge, most));
    }
}
