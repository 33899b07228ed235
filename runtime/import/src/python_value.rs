//! The value of a Python expression without a call: literals, names and arithmetic, within limits of depth and size.

use indexmap::IndexMap;
use serde_json::{Map, Number, Value};

use super::python::Assignment;
use super::python_text::{PythonToken, Token};

/// Maximum depth of an expression.
const DEPTH_MAX: usize = 50;
/// Maximum size of the values that an expression takes from names.
const SIZE_MAX: usize = 100_000;

/// Returns the value of an expression.
///
/// # Errors
/// Why it is not read, as a sentence about the value.
pub(super) fn evaluate(tokens: &[PythonToken], names: &IndexMap<String, Assignment>) -> Result<Value, String> {
    let mut parser = Parser { tokens, at: 0, depth: 0, size: 0, names };
    let first = parser.sum()?;
    let value = match parser.peek_operator() {
        Some(",") => Value::Array(parser.items(vec![first], None)?),
        _ => first,
    };
    match parser.tokens.get(parser.at) {
        None => Ok(value),
        Some(token) => Err(format!("it is computed (`{}`)", token.token)),
    }
}

struct Parser<'t> {
    tokens: &'t [PythonToken],
    at: usize,
    depth: usize,
    size: usize,
    names: &'t IndexMap<String, Assignment>,
}

impl<'t> Parser<'t> {
    fn peek_operator(&self) -> Option<&'t str> {
        match self.tokens.get(self.at).map(|token| &token.token) {
            Some(Token::Operator(operator)) => Some(operator),
            _ => None,
        }
    }

    /// Skips an operator if it is one of these, and returns it.
    fn take(&mut self, operators: &[&str]) -> Option<&'t str> {
        let operator = self.peek_operator().filter(|operator| operators.contains(operator))?;
        self.at += 1;
        Some(operator)
    }

    fn sum(&mut self) -> Result<Value, String> {
        self.enter()?;
        let mut value = self.product()?;
        while let Some(operator) = self.take(&["+", "-"]) {
            value = combine(value, operator, self.product()?)?;
        }
        self.depth -= 1;
        Ok(value)
    }

    fn product(&mut self) -> Result<Value, String> {
        let mut value = self.signed()?;
        while let Some(operator) = self.take(&["*", "/", "//", "%"]) {
            value = combine(value, operator, self.signed()?)?;
        }
        Ok(value)
    }

    fn signed(&mut self) -> Result<Value, String> {
        match self.take(&["-", "+"]) {
            Some(operator) => {
                self.enter()?;
                let value = self.signed()?;
                self.depth -= 1;
                combine(0.into(), operator, value)
            }
            None => self.power(),
        }
    }

    fn power(&mut self) -> Result<Value, String> {
        let base = self.atom()?;
        if self.take(&["**"]).is_none() {
            return Ok(base);
        }
        self.enter()?;
        let exponent = self.signed()?;
        self.depth -= 1;
        combine(base, "**", exponent)
    }

    /// Enters a part of the expression.
    fn enter(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err("it is nested too deeply".to_owned()) } else { Ok(()) }
    }

    fn atom(&mut self) -> Result<Value, String> {
        let token = self.tokens.get(self.at).ok_or("it has no value")?;
        self.at += 1;
        let value = match &token.token {
            Token::Number(text) => number(text)?,
            Token::Text { .. } => {
                self.at -= 1;
                self.text()?
            }
            Token::Name(name) => self.name(name)?,
            Token::Operator(operator) => match operator.as_str() {
                "(" => self.tuple()?,
                "[" => Value::Array(self.items(Vec::new(), Some("]"))?),
                "{" => self.map()?,
                other => return Err(format!("it is computed (`{other}`)")),
            },
            Token::Indent | Token::End => return Err("it has no value".to_owned()),
        };
        match self.peek_operator() {
            Some("(") => Err(format!("it is computed by a call (`{}`)", token.token)),
            Some("." | "[") => Err(format!("it is computed (`{}`)", token.token)),
            _ => Ok(value),
        }
    }

    fn name(&mut self, name: &str) -> Result<Value, String> {
        match name {
            "True" => return Ok(true.into()),
            "False" => return Ok(false.into()),
            "None" => return Ok(Value::Null),
            _ => {}
        }
        if matches!(self.peek_operator(), Some("(" | "." | "[")) {
            // The caller says why this is not read.
            return Ok(Value::Null);
        }
        let value = self.names.get(name).and_then(|assignment| assignment.value.as_ref().ok());
        let value = value.ok_or_else(|| format!("it needs `{name}`, which is not read"))?;
        self.size += size(value);
        if self.size > SIZE_MAX {
            return Err("it is too long".to_owned());
        }
        Ok(value.clone())
    }

    /// Reads texts that follow each other, which are one.
    fn text(&mut self) -> Result<Value, String> {
        let mut whole = String::new();
        while let Some(Token::Text { text, is_format }) = self.tokens.get(self.at).map(|token| &token.token) {
            self.at += 1;
            whole += &if *is_format { self.formatted(text)? } else { text.clone() };
        }
        Ok(whole.into())
    }

    /// Puts the values of names in braces into a text.
    fn formatted(&mut self, text: &str) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            filled += &rest[..at];
            let brace = &rest[at..];
            if brace.starts_with("{{") || brace.starts_with("}}") {
                filled += &brace[..1];
                rest = &brace[2..];
                continue;
            }
            let (name, next) = brace[1..].split_once('}').ok_or("it is computed within a text")?;
            match self.names.get(name).and_then(|assignment| assignment.value.as_ref().ok()) {
                Some(value @ (Value::String(_) | Value::Number(_))) => {
                    self.size += size(value);
                    if self.size > SIZE_MAX {
                        return Err("it is too long".to_owned());
                    }
                    filled += &value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                }
                _ => return Err(format!("it needs `{name}`, which is not read")),
            }
            rest = next;
        }
        Ok(filled + rest)
    }

    /// Reads what is in parentheses: a value, or a list with commas.
    fn tuple(&mut self) -> Result<Value, String> {
        if self.take(&[")"]).is_some() {
            return Ok(Value::Array(Vec::new()));
        }
        let first = self.sum()?;
        match self.take(&[")"]) {
            Some(_) => Ok(first),
            None => Ok(Value::Array(self.items(vec![first], Some(")"))?)),
        }
    }

    /// Reads the items of a list to its end; those that exist already are followed by a comma.
    fn items(&mut self, mut items: Vec<Value>, end: Option<&str>) -> Result<Vec<Value>, String> {
        if !items.is_empty() && self.take(&[","]).is_none() {
            return Err("it is computed".to_owned());
        }
        loop {
            match end {
                Some(end) if self.take(&[end]).is_some() => return Ok(items),
                None if self.at == self.tokens.len() => return Ok(items),
                _ => {}
            }
            items.push(self.sum()?);
            if self.take(&[","]).is_none() {
                let is_ended = end.map_or(self.at == self.tokens.len(), |end| self.take(&[end]).is_some());
                return if is_ended { Ok(items) } else { Err("it is computed".to_owned()) };
            }
        }
    }

    fn map(&mut self) -> Result<Value, String> {
        let mut entries = Map::new();
        while self.take(&["}"]).is_none() {
            let key = self.sum()?;
            let key = key.as_str().ok_or("a key of it is no text")?.to_owned();
            self.take(&[":"]).ok_or("it is computed")?;
            let value = self.sum()?;
            entries.insert(key, value);
            if self.take(&[","]).is_none() && self.peek_operator() != Some("}") {
                return Err("it is computed".to_owned());
            }
        }
        Ok(Value::Object(entries))
    }
}

fn number(text: &str) -> Result<Value, String> {
    let plain = text.replace('_', "");
    if let Ok(whole) = plain.parse::<i64>() {
        return Ok(whole.into());
    }
    let finite = plain.parse::<f64>().ok().and_then(Number::from_f64);
    finite.map(Value::Number).ok_or_else(|| format!("`{text}` is a number that is not read"))
}

/// Computes a value from two.
fn combine(one: Value, operator: &str, other: Value) -> Result<Value, String> {
    let refused = || format!("it is computed by `{operator}`");
    match (one, other) {
        (Value::String(one), Value::String(other)) if operator == "+" => Ok((one + &other).into()),
        (Value::Array(mut one), Value::Array(other)) if operator == "+" => {
            one.extend(other);
            Ok(Value::Array(one))
        }
        (Value::Number(one), Value::Number(other)) => {
            if let (Some(one), Some(other)) = (one.as_i64(), other.as_i64()) {
                let whole = match operator {
                    "+" => one.checked_add(other),
                    "-" => one.checked_sub(other),
                    "*" => one.checked_mul(other),
                    "**" => u32::try_from(other).ok().and_then(|power| one.checked_pow(power)),
                    "//" if one >= 0 && other > 0 => one.checked_div(other),
                    "%" if one >= 0 && other > 0 => one.checked_rem(other),
                    _ => None,
                };
                if let Some(whole) = whole {
                    return Ok(whole.into());
                }
            }
            let (one, other) = (one.as_f64().ok_or_else(refused)?, other.as_f64().ok_or_else(refused)?);
            let computed = match operator {
                "+" => one + other,
                "-" => one - other,
                "*" => one * other,
                "/" => one / other,
                "**" => one.powf(other),
                _ => return Err(refused()),
            };
            Number::from_f64(computed).map(Value::Number).ok_or_else(refused)
        }
        _ => Err(refused()),
    }
}

/// Returns the size of a value: its items and the bytes of its texts.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(entries) => entries.iter().map(|(key, value)| key.len() + size(value)).sum(),
        _ => 0,
    }
}
