//! The fields of a request's JSON object, each with its type and its limits. `null` stands for a field that is left out.

use serde_json::{Map, Value};

use super::openai_error::OpenAiError;

/// The fields of a request.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a Map<String, Value>);

/// The type of a value, for messages.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Returns the error for a field of the wrong type.
pub fn wrong_type(name: &'static str, expected: &str, value: &Value) -> OpenAiError {
    OpenAiError::field(name, format!("`{name}` must be {expected}, not {}", type_name(value)))
}

impl<'a> Fields<'a> {
    /// Returns a field; `None` if it is left out.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Returns a field that must be there.
    ///
    /// # Errors
    /// When it is left out.
    pub fn required(&self, name: &'static str) -> Result<&'a Value, OpenAiError> {
        self.get(name).ok_or_else(|| OpenAiError::field(name, format!("the request has no `{name}`")))
    }

    /// Returns a boolean; `false` if it is left out.
    ///
    /// # Errors
    /// When it is of another type.
    pub fn flag(&self, name: &'static str) -> Result<bool, OpenAiError> {
        let Some(value) = self.get(name) else { return Ok(false) };
        value.as_bool().ok_or_else(|| wrong_type(name, "a boolean", value))
    }

    /// Returns a number from `min` to `max`.
    ///
    /// # Errors
    /// When it is of another type or out of range.
    pub fn number(&self, name: &'static str, min: f64, max: f64) -> Result<Option<f64>, OpenAiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_f64().ok_or_else(|| wrong_type(name, "a number", value))?;
        match (min..=max).contains(&number) {
            true => Ok(Some(number)),
            false => Err(OpenAiError::field(name, format!("`{name}` is {number}, but must be from {min} to {max}"))),
        }
    }

    /// Returns a whole number of at least `min`.
    ///
    /// # Errors
    /// When it is of another type or smaller.
    pub fn whole(&self, name: &'static str, min: i64) -> Result<Option<i64>, OpenAiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_i64().ok_or_else(|| match value {
            Value::Number(number) => {
                OpenAiError::field(name, format!("`{name}` is {number}, but must be a whole number"))
            }
            _ => wrong_type(name, "a whole number", value),
        })?;
        match number >= min {
            true => Ok(Some(number)),
            false => Err(OpenAiError::field(name, format!("`{name}` is {number}, but must be at least {min}"))),
        }
    }

    /// Refuses a field that this server does not support, unless its value asks for nothing.
    ///
    /// # Errors
    /// When it asks for something.
    pub fn refuse(&self, name: &'static str, asks_for_nothing: impl Fn(&Value) -> bool) -> Result<(), OpenAiError> {
        match self.get(name) {
            Some(value) if !asks_for_nothing(value) => {
                Err(OpenAiError::field(name, format!("`{name}` is not supported by this server: leave it out")))
            }
            _ => Ok(()),
        }
    }
}
