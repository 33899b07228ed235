//! A request for a completion or for the next message of a conversation.

use serde_json::Value;

use super::fields::{Fields, wrong_type};
use super::openai_error::OpenAiError;
use crate::api_error::ApiError;
use crate::generation::Message;

/// The most stop words, and the most bytes of one.
const STOP_WORDS_MAX: usize = 4;
const STOP_BYTES_MAX: usize = 1_000;
/// The highest temperature.
const TEMPERATURE_MAX: f64 = 2.0;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The text after a prompt.
    Completion,
    /// The next message of a conversation.
    Chat,
}

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    pub kind: Kind,
    /// The name of the model.
    pub model: String,
    pub input: Input,
    /// The most tokens of the answer.
    pub tokens_max: Option<usize>,
    pub temperature: Option<f64>,
    pub top_p: f64,
    /// The most tokens that are chosen from; 0 is no limit. vLLM and llama.cpp have this field, too.
    pub top_k: usize,
    pub seed: Option<u64>,
    /// Whether the answer is sent in parts.
    pub streams: bool,
    /// Whether the last part of a stream has the numbers of tokens.
    pub includes_usage: bool,
    /// The words before which the answer ends.
    pub stop_words: Vec<String>,
    /// Whether tokens that end an answer are tokens like others. A field of vLLM and SGLang.
    pub ignores_ends: bool,
    /// Whether the answer contains the numbers of its tokens. A field of vLLM and SGLang.
    pub returns_tokens: bool,
}

/// What is to be continued.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    Text(String),
    Tokens(Vec<i64>),
    Messages(Vec<Message>),
}

impl CompletionRequest {
    /// Reads a request. Fields that nobody knows are ignored, as OpenAI's server does.
    ///
    /// # Errors
    /// When it is not a JSON object, a field is of the wrong type or out of range, or asks for what is not supported.
    pub fn parse(kind: Kind, body: &[u8]) -> Result<Self, OpenAiError> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| ApiError::bad_request(format!("the request is not JSON: {error}")))?;
        let Value::Object(object) = &value else {
            return Err(ApiError::bad_request("the request is not a JSON object").into());
        };
        let fields = Fields(object);
        refuse_unsupported(fields)?;
        let model = fields.required("model")?;
        let streams = fields.flag("stream")?;
        Ok(CompletionRequest {
            kind,
            model: model.as_str().ok_or_else(|| wrong_type("model", "a string", model))?.to_owned(),
            input: input(kind, fields)?,
            tokens_max: tokens_max(kind, fields)?,
            temperature: fields.number("temperature", 0.0, TEMPERATURE_MAX)?,
            top_p: top_p(fields)?,
            top_k: top_k(fields)?,
            // The bits of a negative seed are a seed, too.
            seed: fields.whole("seed", i64::MIN)?.map(i64::cast_unsigned),
            streams,
            includes_usage: includes_usage(fields, streams)?,
            stop_words: stop_words(fields)?,
            ignores_ends: fields.flag("ignore_eos")?,
            returns_tokens: fields.flag("return_token_ids")?,
        })
    }
}

/// Refuses the fields of OpenAI's protocol that would change the answer and are not supported.
fn refuse_unsupported(fields: Fields<'_>) -> Result<(), OpenAiError> {
    let is_zero = |value: &Value| value.as_f64() == Some(0.0);
    let is_one = |value: &Value| value.as_f64() == Some(1.0);
    let is_empty = |value: &Value| match value {
        Value::Object(object) => object.is_empty(),
        Value::Array(array) => array.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    let is_false = |value: &Value| value.as_bool() == Some(false);
    fields.refuse("n", is_one)?;
    fields.refuse("best_of", is_one)?;
    fields.refuse("echo", is_false)?;
    fields.refuse("suffix", is_empty)?;
    fields.refuse("logprobs", is_false)?;
    fields.refuse("top_logprobs", is_zero)?;
    fields.refuse("logit_bias", is_empty)?;
    fields.refuse("presence_penalty", is_zero)?;
    fields.refuse("frequency_penalty", is_zero)?;
    fields.refuse("tools", is_empty)?;
    fields.refuse("functions", is_empty)?;
    fields.refuse("response_format", |value| value["type"] == "text")?;
    fields.refuse("modalities", |value| value.as_array().is_some_and(|all| all.iter().all(|one| one == "text")))?;
    fields.refuse("audio", |_| false)
}

fn input(kind: Kind, fields: Fields<'_>) -> Result<Input, OpenAiError> {
    match kind {
        Kind::Completion => prompt(fields.required("prompt")?),
        Kind::Chat => messages(fields.required("messages")?).map(Input::Messages),
    }
}

/// Reads a prompt: a text, a list of tokens, or a list of one of them.
fn prompt(value: &Value) -> Result<Input, OpenAiError> {
    const EXPECTED: &str = "a string or a list of token numbers";
    match value {
        Value::String(text) => Ok(Input::Text(text.clone())),
        Value::Array(list) => match &list[..] {
            [] => Err(OpenAiError::field("prompt", "`prompt` is empty")),
            [one @ (Value::String(_) | Value::Array(_))] => match prompt(one)? {
                Input::Tokens(_) if one[0].is_array() => Err(wrong_type("prompt", EXPECTED, one)),
                input => Ok(input),
            },
            [Value::String(_) | Value::Array(_), ..] => {
                let message = format!("`prompt` has {} prompts: send each in a request of its own", list.len());
                Err(OpenAiError::field("prompt", message))
            }
            tokens => {
                let token = |value: &Value| value.as_i64().ok_or_else(|| wrong_type("prompt", EXPECTED, value));
                tokens.iter().map(token).collect::<Result<_, _>>().map(Input::Tokens)
            }
        },
        other => Err(wrong_type("prompt", EXPECTED, other)),
    }
}

fn messages(value: &Value) -> Result<Vec<Message>, OpenAiError> {
    let list = value.as_array().ok_or_else(|| wrong_type("messages", "a list of messages", value))?;
    if list.is_empty() {
        return Err(OpenAiError::field("messages", "`messages` is empty"));
    }
    list.iter().enumerate().map(|(index, value)| message(index, value)).collect()
}

fn message(index: usize, value: &Value) -> Result<Message, OpenAiError> {
    let wrong = |what: &str| OpenAiError::field("messages", format!("message {index} {what}"));
    let role = value["role"].as_str().ok_or_else(|| wrong("has no `role` that is a string"))?;
    let content = match &value["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let text = |part: &Value| part["text"].as_str().filter(|_| part["type"] == "text").map(str::to_owned);
            let texts = parts.iter().map(text).collect::<Option<Vec<_>>>();
            texts.ok_or_else(|| wrong("has a part that is no text"))?.join("\n")
        }
        _ => return Err(wrong("has no `content` that is a string or a list of texts")),
    };
    Ok(Message { role: role.to_owned(), content })
}

fn tokens_max(kind: Kind, fields: Fields<'_>) -> Result<Option<usize>, OpenAiError> {
    let newer = fields.whole("max_completion_tokens", 1)?.filter(|_| kind == Kind::Chat);
    let older = fields.whole("max_tokens", 1)?;
    // A number that no machine can count to is more than any context.
    Ok(newer.or(older).map(|count| usize::try_from(count).unwrap_or(usize::MAX)))
}

fn top_p(fields: Fields<'_>) -> Result<f64, OpenAiError> {
    match fields.number("top_p", 0.0, 1.0)? {
        Some(0.0) => Err(OpenAiError::field("top_p", "`top_p` is 0, but must be above 0 and at most 1")),
        top_p => Ok(top_p.unwrap_or(1.0)),
    }
}

/// -1 is no limit, as in vLLM.
fn top_k(fields: Fields<'_>) -> Result<usize, OpenAiError> {
    Ok(fields.whole("top_k", -1)?.and_then(|top_k| usize::try_from(top_k).ok()).unwrap_or(0))
}

fn includes_usage(fields: Fields<'_>, streams: bool) -> Result<bool, OpenAiError> {
    let Some(value) = fields.get("stream_options") else { return Ok(false) };
    let options = value.as_object().ok_or_else(|| wrong_type("stream_options", "an object", value))?;
    if !streams {
        return Err(OpenAiError::field("stream_options", "`stream_options` is only for `stream: true`"));
    }
    Fields(options).flag("include_usage")
}

fn stop_words(fields: Fields<'_>) -> Result<Vec<String>, OpenAiError> {
    const EXPECTED: &str = "a string or a list of strings";
    let Some(value) = fields.get("stop") else { return Ok(Vec::new()) };
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| wrong_type("stop", EXPECTED, value));
    let words = match value {
        Value::Array(words) if words.len() > STOP_WORDS_MAX => {
            let message = format!("`stop` has {} words, but at most {STOP_WORDS_MAX} are allowed", words.len());
            return Err(OpenAiError::field("stop", message));
        }
        Value::Array(words) => words.iter().map(text).collect::<Result<Vec<_>, _>>()?,
        word => vec![text(word)?],
    };
    match words.iter().find(|word| word.is_empty() || word.len() > STOP_BYTES_MAX) {
        Some(word) => {
            let message = format!("a word of `stop` has {} bytes, but must have 1 to {STOP_BYTES_MAX}", word.len());
            Err(OpenAiError::field("stop", message))
        }
        None => Ok(words),
    }
}

#[cfg(test)]
mod tests;
