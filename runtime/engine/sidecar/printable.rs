//! Text of a sidecar's made fit for messages and records: no control characters, and an end.
//!
//! Knows no message.

/// `text` with its control characters escaped (`\u{1b}`), except for the ends of its lines; after `limit` characters it
/// says how many there were.
pub(super) fn printable(text: &str, limit: usize) -> String {
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == limit {
            shown.push_str(&format!("... ({} characters)", text.chars().count()));
            break;
        }
        match character {
            '\n' | '\t' => shown.push(character),
            _ if character.is_control() => shown.extend(character.escape_debug()),
            _ => shown.push(character),
        }
    }
    shown
}

/// [`printable`] in one line.
pub(super) fn printable_line(text: &str, limit: usize) -> String {
    printable(text, limit).replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_text_and_lines_stay_lines() {
        assert_eq!(printable("a\u{1b}[2J\r\n\tb\u{9b}", 20), "a\\u{1b}[2J\\r\n\tb\\u{9b}");
        assert_eq!(printable_line("a\nb", 20), "a\\nb");
    }

    #[test]
    fn text_that_is_cut_says_how_long_it_was() {
        assert_eq!(printable("äöü", 3), "äöü");
        assert_eq!(printable("äöüß", 3), "äöü... (4 characters)");
    }
}
