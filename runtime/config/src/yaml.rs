//! Parses YAML text into a tree whose nodes have line and column.
//!
//! Knows no keys and no files.

use indexmap::IndexMap;
use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde_json::{Number, Value};

/// Maximum depth of nesting.
const DEPTH_MAX: usize = 32;

/// Maximum number of keys in a mapping: each unknown key becomes a message.
const KEYS_MAX: usize = 1000;

/// Maximum length of a key in bytes: messages show keys whole.
const KEY_BYTES_MAX: usize = 256;

/// A position in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
}

/// A value and its position. The position of a value in a mapping is that of its key.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub content: Content,
    /// Its position.
    pub place: Place,
}

/// The value of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A single value, as written and as typed by YAML.
    Scalar {
        /// The text as written, without quotes.
        text: String,
        /// Whether it is written without quotes.
        plain: bool,
        /// The typed value.
        value: Value,
    },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the file.
    Map(IndexMap<String, Node>),
}

impl Node {
    /// Returns the typed value of the whole tree.
    pub fn value(&self) -> Value {
        match &self.content {
            Content::Scalar { value, .. } => value.clone(),
            Content::List(items) => items.iter().map(Node::value).collect(),
            Content::Map(entries) => entries.iter().map(|(key, node)| (key.clone(), node.value())).collect(),
        }
    }

    /// Returns whether the node is null.
    pub fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { value: Value::Null, .. })
    }
}

/// Malformed YAML, or YAML that configuration files may not use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct YamlError {
    /// Position of the error.
    pub place: Place,
    /// Lower-case description of the error.
    pub reason: String,
}

/// Parses one document; an empty text is null.
///
/// # Errors
/// Fails on malformed YAML, duplicate keys, aliases, tags, several documents, and nesting beyond 32 levels.
pub fn parse(text: &str) -> Result<Node, YamlError> {
    let mut reader = Reader { parser: Parser::new_from_str(text) };
    let mut document = None;
    loop {
        let (event, place) = reader.next()?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            Event::DocumentStart(_) if document.is_some() => return Err(error(place, "more than one document")),
            Event::DocumentStart(_) => {
                let (event, place) = reader.next()?;
                document = Some(reader.node(event, place, 0)?);
            }
            _ => return Err(error(place, "a value outside the document")),
        }
    }
    Ok(document.unwrap_or(Node {
        content: Content::Scalar { text: String::new(), plain: true, value: Value::Null },
        place: Place { line: 1, column: 1 },
    }))
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Place), YamlError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, place(span))),
            Some(Err(scan)) => {
                let place = Place { line: scan.marker().line(), column: scan.marker().col() + 1 };
                let is_mistake = !scan.info().contains("limit");
                let remedy = if is_mistake { " (check quotes and indentation, which must be spaces)" } else { "" };
                Err(error(place, &format!("{}{remedy}", scan.info())))
            }
            None => Ok((Event::StreamEnd, Place { line: 1, column: 1 })),
        }
    }

    fn node(&mut self, event: Event<'t>, place: Place, depth: usize) -> Result<Node, YamlError> {
        if depth > DEPTH_MAX {
            return Err(error(place, "nested too deeply"));
        }
        let content = match event {
            Event::Scalar(_, _, _, Some(_)) | Event::SequenceStart(_, Some(_)) | Event::MappingStart(_, Some(_)) => {
                return Err(error(place, "tags are not supported in configuration files"));
            }
            Event::Scalar(text, style, ..) => scalar(&text, style, place)?,
            Event::SequenceStart(..) => self.list(depth)?,
            Event::MappingStart(..) => self.map(depth)?,
            Event::Alias(_) => return Err(error(place, "aliases are not supported in configuration files")),
            _ => return Err(error(place, "a value is missing")),
        };
        Ok(Node { content, place })
    }

    fn list(&mut self, depth: usize) -> Result<Content, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Content::List(items)),
                (event, place) => items.push(self.node(event, place, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Content, YamlError> {
        let mut entries: IndexMap<String, Node> = IndexMap::new();
        loop {
            let (key, key_place) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Content::Map(entries)),
                (Event::Scalar(key, ..), place) => (key.into_owned(), place),
                (_, place) => return Err(error(place, "a key must be a single word")),
            };
            if key.len() > KEY_BYTES_MAX {
                return Err(error(key_place, &format!("a key has {} bytes (limit: {KEY_BYTES_MAX})", key.len())));
            }
            if entries.len() == KEYS_MAX {
                return Err(error(key_place, &format!("more than {KEYS_MAX} keys")));
            }
            let (event, place) = self.next()?;
            let node = Node { place: key_place, ..self.node(event, place, depth + 1)? };
            if let Some(first) = entries.get(&key) {
                let first = first.place.line;
                return Err(error(key_place, &format!("key `{key}` is given twice (first on line {first})")));
            }
            entries.insert(key, node);
        }
    }
}

fn scalar(text: &str, style: ScalarStyle, place: Place) -> Result<Content, YamlError> {
    let plain = style == ScalarStyle::Plain;
    let value = if plain { parse_plain_scalar(text, place)? } else { Value::from(text) };
    Ok(Content::Scalar { text: text.to_owned(), plain, value })
}

/// Types an unquoted scalar by the rules of YAML.
fn parse_plain_scalar(text: &str, place: Place) -> Result<Value, YamlError> {
    Ok(match serde_yaml::from_str(text) {
        Ok(serde_yaml::Value::Null) => Value::Null,
        Ok(serde_yaml::Value::Bool(flag)) => Value::Bool(flag),
        Ok(serde_yaml::Value::Number(number)) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), ..) => Value::from(whole),
            (_, Some(whole), _) => Value::from(whole),
            (.., real) => real
                .and_then(Number::from_f64)
                .map(Value::Number)
                .ok_or_else(|| error(place, &format!("`{text}` is not a finite number")))?,
        },
        _ => Value::from(text),
    })
}

fn place(span: Span) -> Place {
    Place { line: span.start.line(), column: span.start.col() + 1 }
}

fn error(place: Place, reason: &str) -> YamlError {
    YamlError { place, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        parse(text).unwrap().value()
    }

    fn failure(text: &str) -> (usize, usize, String) {
        let error = parse(text).unwrap_err();
        (error.place.line, error.place.column, error.reason)
    }

    #[test]
    fn values_have_the_types_that_yaml_gives_them() {
        assert_eq!(
            value("a: 4.12e9\nb: \"22\"\nc: true\nd: null\ne:\nf: [1, x]\ng: 2*512*0.33e9\nh: ' --gpus all'\n"),
            json!({"a": 4.12e9, "b": "22", "c": true, "d": null, "e": null, "f": [1, "x"], "g": "2*512*0.33e9",
                   "h": " --gpus all"})
        );
    }

    #[test]
    fn a_value_has_the_position_of_its_key() {
        let Content::Map(entries) = parse("# note\na: 1\nCASES:\n    \"x:y\": z\n").unwrap().content else { panic!() };
        assert_eq!(entries["a"].place, Place { line: 2, column: 1 });
        let Content::Map(cases) = &entries["CASES"].content else { panic!() };
        assert_eq!(cases["x:y"].place, Place { line: 4, column: 5 });
    }

    #[test]
    fn an_empty_text_is_null() {
        assert!(parse("").unwrap().is_null());
        assert!(parse("# only a note\n").unwrap().is_null());
    }

    #[test]
    fn malformed_text_is_an_error_with_its_position() {
        assert_eq!(failure("a: 1\na: 2\n"), (2, 1, "key `a` is given twice (first on line 1)".to_owned()));
        assert_eq!(failure("a: &x 1\nb: *x\n").2, "aliases are not supported in configuration files");
        assert_eq!(failure("a: !!python/object 1\n").2, "tags are not supported in configuration files");
        assert_eq!(failure("a: .inf\n").2, "`.inf` is not a finite number");
        assert_eq!(failure("a: 1\n---\nb: 2\n").2, "more than one document");
        assert_eq!(failure("a: [1, 2\nb: 3\n").0, 2);
        assert_eq!(failure(&"[".repeat(40)).2, "nested too deeply");
        assert_eq!(failure(&"[".repeat(100_000)).2, "recursion limit exceeded");
    }
}
