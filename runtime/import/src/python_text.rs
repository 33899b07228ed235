//! Parses the text of a Python file, within limits of size and nesting.

use ruff_python_ast::Suite;
use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, lexer::lex, parse_module};
use ruff_source_file::LineIndex;
use ruff_text_size::{Ranged, TextSize};

/// Maximum size of a Python file in bytes. The largest file of settings in FlagPerf has 12 KiB.
const BYTES_MAX: usize = 64 << 10;
/// Maximum number of brackets around a value. Python refuses more than 200, and the time to parse braces in texts is quadratic.
const BRACKETS_MAX: usize = 100;
/// Bytes of stack for a file. The tree of `1+1+1...` is as deep as the text is long, and is freed by recursion.
const STACK_BYTES: usize = 64 << 20;
/// Maximum number of characters of code in a message.
const EXCERPT_MAX: usize = 60;

/// The text of a Python file, with its lines.
pub(super) struct PythonText<'t> {
    text: &'t str,
    lines: LineIndex,
}

impl PythonText<'_> {
    /// Returns the line of a place, from 1.
    pub(super) fn line(&self, at: TextSize) -> usize {
        self.lines.line_index(at).get()
    }

    /// Returns the code of a node for a message: its first line, and `...` for what is left out.
    pub(super) fn excerpt(&self, node: &impl Ranged) -> String {
        let code = &self.text[node.range()];
        let line = code.lines().next().unwrap_or_default();
        let excerpt: String = line.chars().take(EXCERPT_MAX).collect();
        if excerpt.len() < code.len() { excerpt + "..." } else { excerpt }
    }
}

/// Calls `read` with the statements of a Python file, on a stack on which they can be parsed and freed.
///
/// # Errors
/// A line, or 0 for the whole file, and why the file is not read.
pub(super) fn with_statements<R>(
    text: &str,
    read: impl FnOnce(&PythonText<'_>, &Suite) -> R,
) -> Result<R, (usize, String)> {
    if text.len() > BYTES_MAX {
        return Err((0, format!("has {} bytes; the limit for a Python file is {BYTES_MAX}", text.len())));
    }
    if is_nested_too_deeply(text) {
        return Err((0, format!("has more than {BRACKETS_MAX} open brackets at one place")));
    }
    let source = PythonText { text, lines: LineIndex::from_source_text(text) };
    stacker::grow(STACK_BYTES, || match parse_module(text) {
        Ok(parsed) => Ok(read(&source, parsed.suite())),
        Err(error) => Err((source.line(error.location.start()), format!("this is not Python: {}", error.error))),
    })
}

fn is_nested_too_deeply(text: &str) -> bool {
    let mut lexer = lex(text, Mode::Module);
    let mut open = 0_usize;
    while open <= BRACKETS_MAX {
        match lexer.next_token() {
            TokenKind::EndOfFile => return false,
            TokenKind::Lpar | TokenKind::Lsqb | TokenKind::Lbrace => open += 1,
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace => open = open.saturating_sub(1),
            _ => {}
        }
    }
    true
}
