//! The text of an answer while its tokens arrive: only whole characters, and nothing in which a stop word can begin.

use std::ops::Range;

/// The text that a token completes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The text; empty while it is not clear.
    pub text: String,
    /// Whether a stop word ended the answer. The text ends before it.
    pub is_stopped: bool,
}

/// Decodes tokens, and holds back text that a later token may change.
#[derive(Debug)]
pub struct TextStream {
    tokens: Vec<u32>,
    /// The tokens whose text was taken last. They are decoded again with those after them: the text of a token may depend on
    /// the one before.
    taken: Range<usize>,
    /// Text in which a stop word may begin.
    held: String,
    stop_words: Vec<String>,
}

/// What a character becomes of which bytes are missing.
const INCOMPLETE: char = '\u{fffd}';
/// The most tokens that wait for the rest of a character: four bytes are the most that one has.
const WAITING_MAX: usize = 8;

impl TextStream {
    /// Begins an answer that ends before the first of these words.
    pub fn new(stop_words: Vec<String>) -> Self {
        TextStream { tokens: Vec::new(), taken: 0..0, held: String::new(), stop_words }
    }

    /// Adds a token. `decode` returns the text of tokens.
    ///
    /// # Errors
    /// When `decode` fails.
    pub fn push(&mut self, token: u32, decode: impl Fn(&[u32]) -> Result<String, String>) -> Result<Piece, String> {
        self.tokens.push(token);
        let waiting = self.tokens.len() - self.taken.end;
        let text = self.new_text(&decode)?;
        if text.is_empty() || (text.ends_with(INCOMPLETE) && waiting < WAITING_MAX) {
            return Ok(Piece::default());
        }
        self.taken = self.taken.end..self.tokens.len();
        Ok(self.release(&text))
    }

    /// Returns the text that was held back, at the end of the answer.
    ///
    /// # Errors
    /// When `decode` fails.
    pub fn finish(&mut self, decode: impl Fn(&[u32]) -> Result<String, String>) -> Result<Piece, String> {
        let text = self.new_text(&decode)?;
        self.taken = self.taken.end..self.tokens.len();
        let mut piece = self.release(&text);
        if !piece.is_stopped {
            piece.text += &std::mem::take(&mut self.held);
        }
        Ok(piece)
    }

    /// Returns the text of the tokens that were not taken.
    fn new_text(&self, decode: &impl Fn(&[u32]) -> Result<String, String>) -> Result<String, String> {
        let before = decode(&self.tokens[self.taken.clone()])?;
        let all = decode(&self.tokens[self.taken.start..])?;
        // A decoder that changes earlier text is not followed: what was sent stays.
        Ok(all.get(before.len()..).unwrap_or_default().to_owned())
    }

    /// Adds text, and returns what no stop word can begin in.
    fn release(&mut self, text: &str) -> Piece {
        self.held += text;
        let found = self.stop_words.iter().filter_map(|word| self.held.find(word.as_str())).min();
        if let Some(at) = found {
            self.held.truncate(at);
            return Piece { text: std::mem::take(&mut self.held), is_stopped: true };
        }
        let kept = self.stop_words.iter().map(|word| overlap(&self.held, word)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - kept);
        Piece { text: std::mem::replace(&mut self.held, rest), is_stopped: false }
    }
}

/// Returns the bytes at the end of a text with which a word begins.
fn overlap(text: &str, word: &str) -> usize {
    let lengths = word.char_indices().map(|(at, _)| at).skip(1);
    lengths.filter(|length| text.ends_with(&word[..*length])).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each token is a byte.
    #[expect(clippy::unnecessary_wraps, reason = "the type of a decoder")]
    fn bytes(tokens: &[u32]) -> Result<String, String> {
        let bytes: Vec<u8> = tokens.iter().map(|token| u8::try_from(*token).unwrap()).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the pieces of an answer with `|` between them, and whether a stop word ended it.
    fn stream(text: &[u8], stop_words: &[&str]) -> (String, bool) {
        let mut stream = TextStream::new(stop_words.iter().map(|word| (*word).to_owned()).collect());
        let mut pieces = Vec::new();
        for byte in text {
            let piece = stream.push(u32::from(*byte), bytes).unwrap();
            pieces.push(piece.text);
            if piece.is_stopped {
                return (pieces.join("|"), true);
            }
        }
        let piece = stream.finish(bytes).unwrap();
        pieces.push(piece.text);
        (pieces.join("|"), piece.is_stopped)
    }

    #[test]
    fn a_character_is_sent_when_its_last_byte_is_there() {
        assert_eq!(stream("aé世b".as_bytes(), &[]), ("a||é|||世|b|".to_owned(), false));
        assert_eq!(stream(b"a\xe4\xb8", &[]), ("a|||\u{fffd}".to_owned(), false), "the end of a cut character");
    }

    #[test]
    fn text_in_which_a_stop_word_can_begin_is_held_back() {
        assert_eq!(stream(b"abcd", &["bcx"]), ("a|||bcd|".to_owned(), false));
        assert_eq!(stream(b"abcxd", &["bcx"]), ("a|||".to_owned(), true));
        assert_eq!(stream(b"aab", &["ab", "x"]), ("|a|".to_owned(), true));
        assert_eq!(stream(b"ab", &["abc"]), ("||ab".to_owned(), false), "the answer ends within a stop word");
        assert_eq!(stream("xé".as_bytes(), &["é"]), ("x||".to_owned(), true));
    }

    #[test]
    fn bytes_that_never_become_a_character_do_not_hold_the_answer_back() {
        let (text, _) = stream(&[0xff; 9], &[]);
        assert_eq!(text.matches('\u{fffd}').count(), 9, "{text}");
        assert!(text.starts_with("|||||||\u{fffd}"), "{text}");
    }
}
