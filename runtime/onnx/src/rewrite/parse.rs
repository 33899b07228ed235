//! Reads the text of patterns and replacements.
//!
//! Written by hand: the grammar has eight rules, and errors name what was expected in the words of the language.

use std::iter::Peekable;
use std::str::CharIndices;

use super::pattern::{AttributeTerm, Line, Name, NodeTerm, Pattern, PatternError, Restriction, Term};
use crate::Attribute;
use crate::operators::{find_operator, operator_names};
use flagperf_core::suggestion::nearest;

/// The most lines, and the most levels of terms.
const LINES_MAX: usize = 1_000;
const DEPTH_MAX: usize = 64;

pub(super) fn parse(text: &str) -> Result<Pattern, PatternError> {
    let mut pattern = Pattern { names: Vec::new(), lines: Vec::new(), variables: Vec::new() };
    let mut restrictions = Vec::new();
    for (number, tokens) in lines(text)? {
        let mut parser = Parser { tokens: tokens.into_iter().peekable(), pattern: &mut pattern, number };
        parser.line(&mut restrictions)?;
    }
    for (number, name, restriction) in restrictions {
        let named = pattern.names.iter_mut().find(|known| known.text == name);
        let named = named.ok_or_else(|| error(number, format!("no line uses the name `{name}`")))?;
        if named.definition.is_some() != (restriction == Restriction::Shared) {
            let which = if named.definition.is_some() { "only an unknown value" } else { "only the output of a node" };
            return Err(error(number, format!("`{name}` cannot be restricted so: {which} can")));
        }
        named.restriction = restriction;
    }
    let last_is_node = pattern.lines.last().is_some_and(|line| matches!(line.term, Term::Node(_) | Term::Either(_)));
    if !last_is_node {
        return Err(error(1, "its last line is no node, such as `y = Add(a, b)`".to_owned()));
    }
    Ok(pattern)
}

/// Returns the tokens of each line with its number. A line that begins with `|` continues the one before.
fn lines(text: &str) -> Result<Vec<(usize, Vec<Token>)>, PatternError> {
    let mut lines: Vec<(usize, Vec<Token>)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if number > LINES_MAX {
            return Err(error(number, format!("more than {LINES_MAX} lines")));
        }
        let tokens = tokens(line.split('#').next().unwrap_or_default(), number)?;
        match (lines.last_mut(), tokens.first()) {
            (Some((_, before)), Some(Token::Mark('|'))) => before.extend(tokens),
            (_, Some(_)) => lines.push((number, tokens)),
            (_, None) => {}
        }
    }
    Ok(lines)
}

fn error(line: usize, reason: String) -> PatternError {
    PatternError { line, reason }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A name, an operator or a word.
    Word(String),
    Int(i64),
    Float(f64),
    Text(String),
    /// A character of its own.
    Mark(char),
}

impl Token {
    fn describe(&self) -> String {
        match self {
            Token::Word(word) => format!("`{word}`"),
            Token::Int(number) => format!("`{number}`"),
            Token::Float(number) => format!("`{number}`"),
            Token::Text(text) => format!("\"{text}\""),
            Token::Mark(mark) => format!("`{mark}`"),
        }
    }
}

fn tokens(code: &str, number: usize) -> Result<Vec<Token>, PatternError> {
    let mut tokens = Vec::new();
    let mut chars = code.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let token = match c {
            c if c.is_whitespace() => continue,
            '"' => {
                let text = take_while(code, &mut chars, at, |c| c != '"');
                chars.next().ok_or_else(|| error(number, "a text has no closing `\"`".to_owned()))?;
                Token::Text(text[1..].to_owned())
            }
            c if c.is_alphabetic() || c == '_' => {
                Token::Word(take_while(code, &mut chars, at, |c| c.is_alphanumeric() || c == '_').to_owned())
            }
            c if c.is_ascii_digit() || c == '-' || c == '.' && next_is_digit(code, at) => {
                let digits =
                    take_while(code, &mut chars, at, |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'));
                let float = || digits.parse().map(Token::Float);
                digits
                    .parse()
                    .map(Token::Int)
                    .or_else(|_| float())
                    .map_err(|_| error(number, format!("`{digits}` is not a number")))?
            }
            '=' | '(' | ')' | '<' | '>' | ',' | '|' | '$' | ':' | '[' | ']' | '.' => Token::Mark(c),
            other => return Err(error(number, format!("`{other}` has no meaning here"))),
        };
        tokens.push(token);
    }
    Ok(tokens)
}

fn next_is_digit(code: &str, at: usize) -> bool {
    code[at + 1..].starts_with(|c: char| c.is_ascii_digit())
}

/// Returns the text from `start` up to the first further character that `belongs` refuses.
fn take_while<'c>(
    code: &'c str,
    chars: &mut Peekable<CharIndices<'_>>,
    start: usize,
    belongs: impl Fn(char) -> bool,
) -> &'c str {
    while chars.next_if(|(_, c)| belongs(*c)).is_some() {}
    let end = chars.peek().map_or(code.len(), |(at, _)| *at);
    &code[start..end]
}

struct Parser<'p> {
    tokens: Peekable<std::vec::IntoIter<Token>>,
    pattern: &'p mut Pattern,
    number: usize,
}

impl Parser<'_> {
    fn error<T>(&self, reason: impl Into<String>) -> Result<T, PatternError> {
        Err(error(self.number, reason.into()))
    }

    fn expected<T>(&mut self, what: &str) -> Result<T, PatternError> {
        let found = self.tokens.peek().map_or_else(|| "the end of the line".to_owned(), Token::describe);
        self.error(format!("expected {what}, found {found}"))
    }

    fn accepts(&mut self, mark: char) -> bool {
        self.tokens.next_if_eq(&Token::Mark(mark)).is_some()
    }

    fn mark(&mut self, mark: char, after: &str) -> Result<(), PatternError> {
        if self.accepts(mark) { Ok(()) } else { self.expected(&format!("`{mark}` {after}")) }
    }

    fn word(&mut self, what: &str) -> Result<String, PatternError> {
        match self.tokens.next_if(|token| matches!(token, Token::Word(_))) {
            Some(Token::Word(word)) => Ok(word),
            _ => self.expected(what),
        }
    }

    /// `name: restriction`, or `name, name = term`.
    fn line(&mut self, restrictions: &mut Vec<(usize, String, Restriction)>) -> Result<(), PatternError> {
        let mut names = vec![self.word("a name")?];
        if self.accepts(':') {
            let word = self.word("a restriction")?;
            let known = Restriction::WORDS.iter().find(|(known, _)| *known == word);
            let Some((_, restriction)) = known else {
                let known = Restriction::WORDS.map(|(word, _)| word).join(", ");
                return self.error(format!("unknown restriction `{word}` (known: {known})"));
            };
            restrictions.push((self.number, names.remove(0), *restriction));
            return self.end();
        }
        while self.accepts(',') {
            names.push(self.word("a name")?);
        }
        self.mark('=', "after the name of an output")?;
        let term = self.either(0)?;
        self.end()?;
        let line = self.pattern.lines.len();
        let mut outputs = Vec::new();
        for (output, name) in names.into_iter().enumerate() {
            let index = self.name(name);
            if self.pattern.names[index].definition.replace((line, output)).is_some() {
                return self.error(format!("`{}` is defined twice", self.pattern.names[index].text));
            }
            outputs.push(index);
        }
        self.pattern.lines.push(Line { number: self.number, outputs, term });
        Ok(())
    }

    fn end(&mut self) -> Result<(), PatternError> {
        if self.tokens.peek().is_none() { Ok(()) } else { self.expected("the end of the line") }
    }

    /// Returns the index of a name.
    fn name(&mut self, text: String) -> usize {
        let names = &mut self.pattern.names;
        names.iter().position(|known| known.text == text).unwrap_or_else(|| {
            names.push(Name { text, restriction: Restriction::Any, definition: None });
            names.len() - 1
        })
    }

    /// `term | term`.
    fn either(&mut self, depth: usize) -> Result<Term, PatternError> {
        if depth > DEPTH_MAX {
            return self.error(format!("more than {DEPTH_MAX} levels of nodes"));
        }
        let mut terms = vec![self.term(depth)?];
        while self.accepts('|') {
            terms.push(self.term(depth)?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Term::Either(terms) })
    }

    fn term(&mut self, depth: usize) -> Result<Term, PatternError> {
        match self.tokens.next() {
            Some(Token::Int(number)) => Ok(Term::Number(number as f64)),
            Some(Token::Float(number)) => Ok(Term::Number(number)),
            Some(Token::Mark('[')) => self.ints().map(Term::List),
            Some(Token::Word(word)) if word == "_" => Ok(Term::Omitted),
            Some(Token::Word(word)) => self.name_or_node(word, depth),
            found => {
                let found = found.map_or_else(|| "the end of the line".to_owned(), |token| token.describe());
                self.error(format!("expected a name, a number or a node, found {found}"))
            }
        }
    }

    /// `name`, or `domain.Op<attribute=value>(input, input)`.
    fn name_or_node(&mut self, mut op: String, depth: usize) -> Result<Term, PatternError> {
        let mut domain = String::new();
        while self.accepts('.') {
            domain = if domain.is_empty() { op } else { format!("{domain}.{op}") };
            op = self.word("the name of an operator")?;
        }
        let attributes = if self.accepts('<') { self.attributes()? } else { Vec::new() };
        let is_node = self.tokens.peek() == Some(&Token::Mark('('));
        if is_node && domain.is_empty() && find_operator(&op).is_none() {
            let near = nearest(&op, operator_names()).map(|near| format!(" (nearest: {near})")).unwrap_or_default();
            return self
                .error(format!("`{op}` is no operator of the standard{near}; one of another domain is `domain.{op}`"));
        }
        if !self.accepts('(') {
            return match domain.is_empty() && attributes.is_empty() {
                true => Ok(Term::Name(self.name(op))),
                false => self.expected(&format!("`(` after `{op}`")),
            };
        }
        let mut inputs = Vec::new();
        if !self.accepts(')') {
            inputs.push(self.either(depth + 1)?);
            while self.accepts(',') {
                inputs.push(self.either(depth + 1)?);
            }
            self.mark(')', &format!("after the inputs of `{op}`"))?;
        }
        Ok(Term::Node(NodeTerm { domain, op, attributes, inputs }))
    }

    fn attributes(&mut self) -> Result<Vec<(String, AttributeTerm)>, PatternError> {
        let mut attributes: Vec<(String, AttributeTerm)> = Vec::new();
        loop {
            let name = self.word("the name of an attribute")?;
            if attributes.iter().any(|(known, _)| *known == name) {
                return self.error(format!("the attribute `{name}` is listed twice"));
            }
            self.mark('=', &format!("after the attribute `{name}`"))?;
            attributes.push((name, self.attribute()?));
            if !self.accepts(',') {
                self.mark('>', "after the attributes")?;
                return Ok(attributes);
            }
        }
    }

    fn attribute(&mut self) -> Result<AttributeTerm, PatternError> {
        let value = match self.tokens.next() {
            Some(Token::Int(number)) => Attribute::Int(number),
            Some(Token::Float(number)) => Attribute::Float(number as f32),
            Some(Token::Text(text)) => Attribute::String(text),
            Some(Token::Mark('[')) => Attribute::Ints(self.ints()?),
            Some(Token::Mark('$')) => {
                let name = self.word("the name of an unknown attribute")?;
                let variables = &mut self.pattern.variables;
                let known = variables.iter().position(|known| *known == name);
                return Ok(AttributeTerm::Variable(known.unwrap_or_else(|| {
                    variables.push(name);
                    variables.len() - 1
                })));
            }
            _ => return self.error("an attribute is a number, a list of integers, a text or `$name`"),
        };
        Ok(AttributeTerm::Value(value))
    }

    fn ints(&mut self) -> Result<Vec<i64>, PatternError> {
        let mut ints = Vec::new();
        while !self.accepts(']') {
            match self.tokens.next() {
                Some(Token::Int(number)) => ints.push(number),
                _ => return self.error("a list contains integers, such as `[-2, -1]`"),
            }
            if !self.accepts(',') {
                self.mark(']', "after a list")?;
                break;
            }
        }
        Ok(ints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Pattern::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_pattern_has_lines_names_and_unknown_attributes() {
        let pattern =
            Pattern::parse("# Two halves.\na, b = Split<axis=$axis>(x)\ny = Add(a, b)\n  | Sub(a, -1.5)\nx: constant")
                .unwrap();
        let lines: Vec<usize> = pattern.lines.iter().map(|line| line.number).collect();
        assert_eq!((lines, pattern.variables), (vec![2, 3], vec!["axis".to_owned()]));
        let names: Vec<&str> = pattern.names.iter().map(|name| name.text.as_str()).collect();
        assert_eq!(names, ["x", "a", "b", "y"]);
        assert!(matches!(&pattern.lines[1].term, Term::Either(terms) if terms.len() == 2));
    }

    #[test]
    fn an_error_has_the_line_and_what_was_expected() {
        let cases = [
            ("", "line 1 of the pattern: its last line is no node, such as `y = Add(a, b)`"),
            ("y = x", "line 1 of the pattern: its last line is no node, such as `y = Add(a, b)`"),
            ("a = Relu(x)\ny = Add(a b)", "line 2 of the pattern: expected `)` after the inputs of `Add`, found `b`"),
            ("y = ", "line 1 of the pattern: expected a name, a number or a node, found the end of the line"),
            ("y = Add(a, b) c", "line 1 of the pattern: expected the end of the line, found `c`"),
            ("y = Add<axis>(a)", "line 1 of the pattern: expected `=` after the attribute `axis`, found `>`"),
            ("y = Gemm<transA=1, transA=0>(a, b)", "line 1 of the pattern: the attribute `transA` is listed twice"),
            ("y = a & b", "line 1 of the pattern: `&` has no meaning here"),
            ("y = Relu(x)\ny = Relu(y)", "line 2 of the pattern: `y` is defined twice"),
            ("a = Relu(b)\nb = Relu(a)", "line 1 of the pattern: `a` depends on itself"),
            (
                "y = Relu(x)\nx: numeral",
                "line 2 of the pattern: unknown restriction `numeral` (known: number, constant, shared)",
            ),
            ("y = Relu(x)\nz: number", "line 2 of the pattern: no line uses the name `z`"),
            (
                "y = Relu(x)\nx: shared",
                "line 2 of the pattern: `x` cannot be restricted so: only the output of a node can",
            ),
            ("y = Relu(\"x)", "line 1 of the pattern: a text has no closing `\"`"),
        ];
        for (text, expected) in cases {
            assert_eq!(error(text), expected, "{text}");
        }
        let deep = format!("y = {}x{}", "Relu(".repeat(100), ")".repeat(100));
        assert_eq!(error(&deep), "line 1 of the pattern: more than 64 levels of nodes");
    }
}
