//! The events of a streamed answer.

use serde::Deserialize;

use crate::http_server::excerpt;

/// An event of a streamed answer, as far as it is read.
#[derive(Deserialize)]
struct StreamedEvent {
    #[serde(default)]
    choices: Vec<Choice>,
    /// llama.cpp's own interface.
    tokens: Option<Vec<i64>>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: i64,
    /// vLLM and SGLang, with `return_token_ids`.
    token_ids: Option<Vec<i64>>,
    #[serde(default)]
    text: String,
}

/// What a line of a streamed answer says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Tokens(Vec<i64>),
    /// The answer is complete.
    End,
    /// Nothing about tokens, such as a comment.
    Other,
}

/// Reads a line of a stream of server-sent events.
///
/// # Errors
/// When the line is an error, or text without token ids.
pub(super) fn read_line(line: &[u8]) -> Result<Line, String> {
    let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else {
        // Other fields of an event, comments, and the empty line after an event; anything else is no such stream.
        let known = [b":".as_slice(), b"event:", b"id:", b"retry:"];
        return match line.is_empty() || known.iter().any(|field| line.starts_with(field)) {
            true => Ok(Line::Other),
            false => Err(format!("the reply is not a stream of events: `{}`", excerpt(line))),
        };
    };
    if data == b"[DONE]" {
        return Ok(Line::End);
    }
    let event: StreamedEvent = serde_json::from_slice(data)
        .map_err(|error| format!("an event cannot be read: {error}: `{}`", excerpt(data)))?;
    if event.error.is_some() {
        return Err(format!("the answer ended with an error: `{}`", excerpt(data)));
    }
    if event.choices.len() > 1 || event.choices.iter().any(|choice| choice.index != 0) {
        return Err("an event has several answers to one prompt".to_owned());
    }
    let choice = event.choices.into_iter().next();
    let has_text = choice.as_ref().is_some_and(|choice| !choice.text.is_empty());
    match choice.and_then(|choice| choice.token_ids).or(event.tokens) {
        None if has_text => Err(format!(
            "an event has text without token ids (`token_ids`, or `tokens` of llama.cpp): `{}`",
            excerpt(data)
        )),
        Some(tokens) => Ok(Line::Tokens(tokens)),
        None => Ok(Line::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_from_the_events_of_each_kind_of_server() {
        for (line, expected) in [
            (
                r#"data: {"choices": [{"index": 0, "text": " a", "token_ids": [5, 6], "finish_reason": null}]}"#,
                Line::Tokens(vec![5, 6]),
            ),
            (r#"data:{"content": " a", "tokens": [7], "stop": false}"#, Line::Tokens(vec![7])),
            // The end of the answer, and the use of tokens.
            (r#"data: {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}"#, Line::Other),
            (r#"data: {"choices": [], "usage": {"completion_tokens": 3}}"#, Line::Other),
            ("data: [DONE]", Line::End),
            (": ping", Line::Other),
            ("event: message", Line::Other),
            ("", Line::Other),
        ] {
            assert_eq!(read_line(line.as_bytes()), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_is_no_answer_in_tokens_is_named() {
        for (line, part) in [
            (r#"data: {"choices": [{"text": " a"}]}"#, "text without token ids"),
            (r#"data: {"error": {"message": "out of memory"}}"#, "ended with an error: `{\"error\""),
            (r#"data: {"choices": [{"token_ids": [1]}, {"token_ids": [2]}]}"#, "several answers"),
            (r#"data: {"choices": [{"index": 1, "token_ids": [1]}]}"#, "several answers"),
            (r#"data: {"tokens": ["a"]}"#, "an event cannot be read: "),
            ("data: <html>", "an event cannot be read: "),
            (r#"{"choices": []}"#, "is not a stream of events: `{\"choices\""),
            ("data: {\"error\": \"\u{1b}[2J\"}", "\\u{1b}"),
        ] {
            let error = read_line(line.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
