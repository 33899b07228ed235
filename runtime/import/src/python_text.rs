//! The words of a Python file.

use std::fmt;

/// A word of a Python file, with its line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PythonToken {
    pub(super) token: Token,
    /// Line, from 1.
    pub(super) line: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Number(String),
    /// A text; `is_format` if names in braces stand for their values.
    Text {
        text: String,
        is_format: bool,
    },
    Operator(String),
    /// The spaces before an indented statement.
    Indent,
    /// The end of a statement.
    End,
}

impl Token {
    pub(super) fn is_operator(&self, text: &str) -> bool {
        matches!(self, Token::Operator(own) if own == text)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Name(text) | Token::Number(text) | Token::Operator(text) => f.write_str(text),
            Token::Text { text, .. } => write!(f, "{text:?}"),
            Token::Indent | Token::End => Ok(()),
        }
    }
}

/// Operators of more than one character.
const LONG: [&str; 14] = ["**", "//", "==", "!=", "<=", ">=", "+=", "-=", "*=", "/=", "->", ":=", "<<", ">>"];

/// Splits a file into its words.
///
/// # Errors
/// A line and what is wrong with it, when a text does not end.
pub(super) fn tokens(text: &str) -> Result<Vec<PythonToken>, (usize, String)> {
    let mut lexer = Lexer { rest: text, line: 1, brackets: 0, tokens: Vec::new() };
    let mut begins_line = true;
    while let Some(first) = lexer.rest.chars().next() {
        match first {
            '\n' => {
                if lexer.brackets == 0 {
                    lexer.push(Token::End);
                }
                lexer.skip(1);
                begins_line = lexer.brackets == 0;
                continue;
            }
            '#' => {
                let end = lexer.rest.find('\n').unwrap_or(lexer.rest.len());
                lexer.skip(end);
                continue;
            }
            '\\' if lexer.rest.starts_with("\\\n") || lexer.rest.starts_with("\\\r\n") => {
                let end = lexer.rest.find('\n').map_or(1, |end| end + 1);
                lexer.skip(end);
                continue;
            }
            ' ' | '\t' if begins_line => {
                let content = lexer.rest.trim_start_matches([' ', '\t']);
                if !content.starts_with(['\n', '\r', '#']) && !content.is_empty() {
                    lexer.push(Token::Indent);
                }
                let blank = lexer.rest.len() - content.len();
                lexer.skip(blank);
            }
            _ if first.is_whitespace() => {
                lexer.skip(first.len_utf8());
                continue;
            }
            ';' if lexer.brackets == 0 => {
                lexer.push(Token::End);
                lexer.skip(1);
            }
            _ => lexer.word(first)?,
        }
        begins_line = false;
    }
    Ok(lexer.tokens)
}

struct Lexer<'t> {
    rest: &'t str,
    line: usize,
    /// How many brackets are open.
    brackets: usize,
    tokens: Vec<PythonToken>,
}

impl Lexer<'_> {
    fn push(&mut self, token: Token) {
        self.tokens.push(PythonToken { token, line: self.line });
    }

    /// Skips a number of bytes, and counts their lines.
    fn skip(&mut self, bytes: usize) {
        let (skipped, rest) = self.rest.split_at(bytes);
        self.line += skipped.matches('\n').count();
        self.rest = rest;
    }

    fn word(&mut self, first: char) -> Result<(), (usize, String)> {
        let is_number = first.is_ascii_digit()
            || first == '.' && self.rest[1..].starts_with(|second: char| second.is_ascii_digit());
        if is_number {
            let digits = number_length(self.rest);
            self.push(Token::Number(self.rest[..digits].to_owned()));
            self.skip(digits);
            return Ok(());
        }
        let length = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
        let (name, after) = self.rest.split_at(length);
        if after.starts_with(['"', '\'']) && length <= 2 {
            return self.text(name.to_ascii_lowercase().as_str());
        }
        if length > 0 {
            self.push(Token::Name(name.to_owned()));
            self.skip(length);
            return Ok(());
        }
        match first {
            '(' | '[' | '{' => self.brackets += 1,
            ')' | ']' | '}' => self.brackets = self.brackets.saturating_sub(1),
            _ => {}
        }
        let long = LONG.iter().find(|long| self.rest.starts_with(**long));
        let operator = long.map_or_else(|| first.to_string(), |long| (*long).to_owned());
        let bytes = operator.len();
        self.push(Token::Operator(operator));
        self.skip(bytes);
        Ok(())
    }

    /// Reads a text with a prefix such as `f` or `r`.
    fn text(&mut self, prefix: &str) -> Result<(), (usize, String)> {
        let begin = &self.rest[prefix.len()..];
        let quote = &begin[..1];
        let quotes = if begin.starts_with(&quote.repeat(3)) { quote.repeat(3) } else { quote.to_owned() };
        let unended = (self.line, "a text does not end".to_owned());
        let mut text = String::new();
        let mut characters = begin[quotes.len()..].char_indices();
        let end = loop {
            let Some((at, character)) = characters.next() else { return Err(unended) };
            match character {
                _ if begin[quotes.len() + at..].starts_with(&quotes) => break at,
                '\n' if quotes.len() == 1 => return Err(unended),
                '\\' if !prefix.contains('r') => match characters.next() {
                    Some((_, '\n')) => {}
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, escaped @ ('\\' | '\'' | '"'))) => text.push(escaped),
                    Some((_, other)) => text.extend(['\\', other]),
                    None => return Err(unended),
                },
                '\\' => {
                    text.push('\\');
                    text.extend(characters.next().map(|(_, next)| next));
                }
                other => text.push(other),
            }
        };
        self.push(Token::Text { text, is_format: prefix.contains('f') });
        self.skip(prefix.len() + quotes.len() + end + quotes.len());
        Ok(())
    }
}

/// Returns the length of the number at the beginning of a text, with the sign of its exponent.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    let is_part = |at: usize| match bytes[at] {
        b'+' | b'-' => !is_hexadecimal && at > 0 && matches!(bytes[at - 1], b'e' | b'E'),
        byte => byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_'),
    };
    (0..bytes.len()).find(|&at| !is_part(at)).unwrap_or(bytes.len())
}
