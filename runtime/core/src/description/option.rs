//! One option of an engine: its name, the values that it accepts, its default.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::suggestion::list_known;

/// Maximum number of options of an engine. Each is compared with all others.
const OPTIONS_MAX: usize = 1000;

/// An option of an engine, which vendor.yaml, an overlay or `--set` may set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineOption {
    /// The name, unique among the options of the engine.
    pub name: &'static str,
    /// The values that it accepts; `null` is always accepted and selects the default.
    pub kind: OptionKind,
    /// The default as the documentation shows it: `cpu`.
    pub default: &'static str,
    /// One sentence about the option.
    pub about: &'static str,
}

/// The values that an option accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptionKind {
    /// `true` or `false`.
    Boolean,
    /// A finite number between two inclusive bounds.
    Number {
        /// The least value.
        min: Option<f64>,
        /// The greatest value.
        max: Option<f64>,
    },
    /// A whole number between two inclusive bounds.
    Integer {
        /// The least value.
        min: Option<i64>,
        /// The greatest value.
        max: Option<i64>,
    },
    /// Any string.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of strings.
    List,
    /// A map with strings, numbers and booleans.
    Map,
    /// Any value; the engine checks it when it loads a model.
    Any,
}

impl EngineOption {
    /// Checks a value of this option.
    ///
    /// # Errors
    /// Why the value is rejected, as a fragment: `` `"maybe"` is not true or false``.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        if value.is_null() || self.kind.accepts(value) {
            return Ok(());
        }
        match (self.kind, value.as_str()) {
            (OptionKind::Choice(words), Some(word)) => {
                Err(format!("unknown value `{word}` (known: {})", list_known(word, words.iter().copied())))
            }
            (OptionKind::Map, _) if value.is_object() => {
                let (key, entry) = value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .find(|(_, entry)| !is_scalar(entry))
                    .expect("a map that is rejected has an entry that is not a scalar");
                Err(format!("`{key}`: `{entry}` is not a string, a number, true or false"))
            }
            (kind, _) => Err(format!("`{value}` is not {}", kind.in_words())),
        }
    }
}

impl OptionKind {
    fn accepts(self, value: &Value) -> bool {
        match self {
            OptionKind::Boolean => value.is_boolean(),
            OptionKind::Number { min, max } => value.as_f64().is_some_and(|number| {
                number.is_finite() && min.is_none_or(|min| number >= min) && max.is_none_or(|max| number <= max)
            }),
            OptionKind::Integer { min, max } => value
                .as_i64()
                .is_some_and(|number| min.is_none_or(|min| number >= min) && max.is_none_or(|max| number <= max)),
            OptionKind::Text => value.is_string(),
            OptionKind::Choice(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            OptionKind::List => value.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
            OptionKind::Map => value.as_object().is_some_and(|map| map.values().all(is_scalar)),
            OptionKind::Any => true,
        }
    }

    /// Describes the accepted values as a noun phrase.
    pub fn in_words(self) -> String {
        match self {
            OptionKind::Boolean => "true or false".to_owned(),
            OptionKind::Number { min, max } => describe_range("a number", min, max),
            OptionKind::Integer { min, max } => describe_range("a whole number", min, max),
            OptionKind::Text => "a string".to_owned(),
            OptionKind::Choice(words) => format!("one of {}", words.join(", ")),
            OptionKind::List => "a list of strings".to_owned(),
            OptionKind::Map => "a map of strings, numbers and booleans".to_owned(),
            OptionKind::Any => "any value".to_owned(),
        }
    }
}

/// Returns why an option is rejected that the engine does not have. The host reads `threads`, which every engine accepts.
pub fn unknown_option_reason(name: &str, options: &[EngineOption]) -> String {
    let known: Vec<&str> = options.iter().map(|option| option.name).chain(["threads"]).collect();
    format!("unknown (known: {})", list_known(name, known.iter().copied()))
}

fn is_scalar(value: &Value) -> bool {
    value.is_string() || value.is_number() || value.is_boolean()
}

fn describe_range<T: std::fmt::Display>(noun: &str, min: Option<T>, max: Option<T>) -> String {
    match (min, max) {
        (Some(min), Some(max)) => format!("{noun} from {min} to {max}"),
        (Some(min), None) => format!("{noun} of at least {min}"),
        (None, Some(max)) => format!("{noun} of at most {max}"),
        (None, None) => noun.to_owned(),
    }
}

/// An [`EngineOption`] in the JSON of a plug-in's table and of a sidecar's reply to `hello`:
/// `{"name": "level", "kind": "choice", "values": ["low", "high"], "default": "low", "about": "How far ..."}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptionMessage {
    pub name: String,
    /// The accepted values.
    #[serde(flatten)]
    pub kind: KindMessage,
    /// The default: any value, or a text about it.
    #[serde(default)]
    pub default: Value,
    /// One sentence about the option.
    pub about: String,
}

/// An [`OptionKind`] in that JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum KindMessage {
    /// [`OptionKind::Boolean`].
    Boolean,
    /// [`OptionKind::Number`].
    Number {
        /// The least value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min: Option<f64>,
        /// The greatest value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<f64>,
    },
    /// [`OptionKind::Integer`].
    Integer {
        /// The least value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min: Option<i64>,
        /// The greatest value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<i64>,
    },
    /// [`OptionKind::Text`].
    Text,
    /// [`OptionKind::Choice`].
    Choice {
        /// The words.
        values: Vec<String>,
    },
    /// [`OptionKind::List`].
    List,
    /// [`OptionKind::Map`].
    Map,
    /// [`OptionKind::Any`].
    Any,
}

impl From<&EngineOption> for OptionMessage {
    fn from(option: &EngineOption) -> Self {
        let kind = match option.kind {
            OptionKind::Boolean => KindMessage::Boolean,
            OptionKind::Number { min, max } => KindMessage::Number { min, max },
            OptionKind::Integer { min, max } => KindMessage::Integer { min, max },
            OptionKind::Text => KindMessage::Text,
            OptionKind::Choice(words) => {
                KindMessage::Choice { values: words.iter().map(|word| (*word).to_owned()).collect() }
            }
            OptionKind::List => KindMessage::List,
            OptionKind::Map => KindMessage::Map,
            OptionKind::Any => KindMessage::Any,
        };
        let (name, about) = (option.name.to_owned(), option.about.to_owned());
        OptionMessage { name, kind, default: option.default.into(), about }
    }
}

impl OptionMessage {
    /// The option. Its texts stay until the process ends.
    pub fn into_option(self) -> EngineOption {
        let kind = match self.kind {
            KindMessage::Boolean => OptionKind::Boolean,
            KindMessage::Number { min, max } => OptionKind::Number { min, max },
            KindMessage::Integer { min, max } => OptionKind::Integer { min, max },
            KindMessage::Text => OptionKind::Text,
            KindMessage::Choice { values } => {
                let words: Vec<&'static str> = values.into_iter().map(|word| &*word.leak()).collect();
                OptionKind::Choice(words.leak())
            }
            KindMessage::List => OptionKind::List,
            KindMessage::Map => OptionKind::Map,
            KindMessage::Any => OptionKind::Any,
        };
        let default = match self.default {
            Value::Null => String::new(),
            Value::String(text) => text,
            other => other.to_string(),
        };
        EngineOption { name: self.name.leak(), kind, default: default.leak(), about: self.about.leak() }
    }

    /// Parses and checks a list of options. `is_reserved` tells which names the host gives a meaning of its own.
    ///
    /// # Errors
    /// Which option is rejected, and why.
    pub fn parse_list(list: Vec<Value>, is_reserved: impl Fn(&str) -> bool) -> Result<Vec<OptionMessage>, String> {
        if list.len() > OPTIONS_MAX {
            return Err(format!("{} options are listed (at most {OPTIONS_MAX})", list.len()));
        }
        let mut options: Vec<OptionMessage> = Vec::new();
        for (index, value) in list.into_iter().enumerate() {
            let name = value.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
            let label = name.map_or_else(|| format!("option {}", index + 1), |name| format!("option `{name}`"));
            let option: OptionMessage = serde_json::from_value(value).map_err(|error| format!("{label}: {error}"))?;
            option.check().map_err(|reason| format!("{label} {reason}"))?;
            if options.iter().any(|other| other.name == option.name) {
                return Err(format!("{label} is listed twice"));
            }
            if is_reserved(&option.name) {
                return Err(format!("{label} has a name that is reserved for a value of the host"));
            }
            options.push(option);
        }
        Ok(options)
    }

    /// Checks what does not depend on other options.
    fn check(&self) -> Result<(), String> {
        if self.name.is_empty() {
            return Err("has an empty name".to_owned());
        }
        if self.name == "threads" {
            return Err("is an option of every engine and cannot be listed again".to_owned());
        }
        let exceeds = |min: &dyn std::fmt::Display, max: &dyn std::fmt::Display| {
            Err(format!("has the `min` {min}, which exceeds its `max` {max}"))
        };
        match &self.kind {
            KindMessage::Choice { values } if values.is_empty() => Err("has no values to choose from".to_owned()),
            KindMessage::Number { min: Some(min), max: Some(max) } if min > max => exceeds(min, max),
            KindMessage::Integer { min: Some(min), max: Some(max) } if min > max => exceeds(min, max),
            _ => Ok(()),
        }
    }
}

/// Parses the list of options of a plug-in's table. `is_reserved` is that of [`OptionMessage::parse_list`].
///
/// # Errors
/// Why it is rejected.
pub fn parse_options(json: &str, is_reserved: impl Fn(&str) -> bool) -> Result<Vec<OptionMessage>, String> {
    let list: Vec<Value> = serde_json::from_str(json).map_err(|error| error.to_string())?;
    OptionMessage::parse_list(list, is_reserved)
}
