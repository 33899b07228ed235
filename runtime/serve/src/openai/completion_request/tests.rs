//! Requests: their defaults, their forms, and what is refused.

use serde_json::json;

use super::*;

fn parse(kind: Kind, more: &Value) -> Result<CompletionRequest, String> {
    let mut request = match kind {
        Kind::Completion => json!({"model": "m", "prompt": "a"}),
        Kind::Chat => json!({"model": "m", "messages": [{"role": "user", "content": "a"}]}),
    };
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let parsed = CompletionRequest::parse(kind, request.to_string().as_bytes());
    parsed.map_err(|error| error.json()["error"]["message"].as_str().unwrap().to_owned())
}

#[test]
fn the_defaults_are_those_of_the_protocol_and_unknown_fields_are_ignored() {
    let request = parse(Kind::Completion, &json!({"user": "u", "unknown": [1], "stop": null, "n": 1})).unwrap();
    assert_eq!((request.input, request.tokens_max, request.temperature), (Input::Text("a".to_owned()), None, None));
    assert_eq!((request.top_p, request.top_k, request.seed, request.streams), (1.0, 0, None, false));
}

#[test]
fn a_prompt_is_a_text_or_tokens() {
    let input = |prompt: Value| parse(Kind::Completion, &json!({"prompt": prompt})).map(|request| request.input);
    let tokens = Ok(Input::Tokens(vec![5, 6]));
    assert_eq!(input(json!(["b"])), Ok(Input::Text("b".to_owned())));
    assert_eq!((input(json!([5, 6])), input(json!([[5, 6]]))), (tokens.clone(), tokens));
    for (prompt, expected) in [
        (json!([]), "`prompt` is empty"),
        (json!([[]]), "`prompt` is empty"),
        (json!(["a", "b"]), "`prompt` has 2 prompts: send each in a request of its own"),
        (json!([[1], [2]]), "`prompt` has 2 prompts: send each in a request of its own"),
        (json!([1, "a"]), "`prompt` must be a string or a list of token numbers, not a string"),
        (json!([1.5]), "`prompt` must be a string or a list of token numbers, not a number"),
        (json!({}), "`prompt` must be a string or a list of token numbers, not an object"),
        (json!([[[1]]]), "`prompt` must be a string or a list of token numbers, not an array"),
        (Value::Null, "the request has no `prompt`"),
    ] {
        assert_eq!(input(prompt), Err(expected.to_owned()));
    }
}

#[test]
fn messages_are_texts_or_lists_of_texts() {
    let messages = |messages: Value| parse(Kind::Chat, &json!({"messages": messages})).map(|request| request.input);
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let expected = Input::Messages(vec![Message { role: "user".to_owned(), content: "a\nb".to_owned() }]);
    assert_eq!(messages(json!([{"role": "user", "content": parts}])), Ok(expected));
    for (given, expected) in [
        (json!([]), "`messages` is empty"),
        (json!("a"), "`messages` must be a list of messages, not a string"),
        (json!([{"content": "a"}]), "message 0 has no `role` that is a string"),
        (json!([{"role": "user"}]), "message 0 has no `content` that is a string or a list of texts"),
        (json!([{"role": "user", "content": [{"type": "image_url"}]}]), "message 0 has a part that is no text"),
    ] {
        assert_eq!(messages(given), Err(expected.to_owned()));
    }
}

#[test]
fn wrong_values_and_what_is_not_supported_are_refused_by_name() {
    for (more, expected) in [
        (json!({"model": 3}), "`model` must be a string, not a number"),
        (json!({"temperature": "1"}), "`temperature` must be a number, not a string"),
        (json!({"temperature": 2.5}), "`temperature` is 2.5, but must be from 0 to 2"),
        (json!({"top_p": 0}), "`top_p` is 0, but must be above 0 and at most 1"),
        (json!({"max_tokens": 0}), "`max_tokens` is 0, but must be at least 1"),
        (json!({"max_tokens": 1.5}), "`max_tokens` is 1.5, but must be a whole number"),
        (json!({"n": 2}), "`n` is not supported by this server: leave it out"),
        (json!({"echo": true}), "`echo` is not supported by this server: leave it out"),
        (json!({"logprobs": 0}), "`logprobs` is not supported by this server: leave it out"),
        (json!({"frequency_penalty": 0.5}), "`frequency_penalty` is not supported by this server: leave it out"),
        (json!({"stream": 1}), "`stream` must be a boolean, not a number"),
        (json!({"stream_options": {}}), "`stream_options` is only for `stream: true`"),
        (json!({"stop": ["a", "b", "c", "d", "e"]}), "`stop` has 5 words, but at most 4 are allowed"),
        (json!({"stop": ""}), "a word of `stop` has 0 bytes, but must have 1 to 1000"),
        (json!({"stop": [1]}), "`stop` must be a string or a list of strings, not a number"),
    ] {
        assert_eq!(parse(Kind::Completion, &more).unwrap_err(), expected);
    }
    let error = CompletionRequest::parse(Kind::Chat, b"[]").unwrap_err().json();
    assert_eq!(error["error"]["message"], "the request is not a JSON object");
    let deep = "[".repeat(100_000);
    let error = CompletionRequest::parse(Kind::Chat, deep.as_bytes()).unwrap_err().json();
    assert!(error["error"]["message"].as_str().unwrap().contains("recursion limit"), "{error}");
}

#[test]
fn the_newer_name_of_the_most_tokens_goes_first() {
    let request = parse(Kind::Chat, &json!({"max_tokens": 3, "max_completion_tokens": 5})).unwrap();
    assert_eq!(request.tokens_max, Some(5));
    assert_eq!(parse(Kind::Completion, &json!({"max_tokens": 3})).unwrap().tokens_max, Some(3));
}
