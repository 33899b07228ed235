//! OpenAI's protocol for language models: answers, streams, chat, sampling, and what is refused.

use std::thread;

use serde_json::{Value, json};

use crate::language_store::{
    LENGTH, Stream, add_language_model, expected, joined, prompts, request, store, text, tokens,
};
use crate::server::{Server, add_model};
use crate::support;

/// Three rows that read eight tokens of a prompt at a time.
const SETTINGS: &str = "max_batch_size: 3\nprompt_chunk: 8";
const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn greedy() -> Server {
    Server::of_store(store(SETTINGS, 0.0), &[])
}

/// Returns the sentence of a refusal.
fn refusal(server: &Server, path: &str, request: &Value) -> String {
    let answer = server.post(path, request);
    assert_eq!(answer.status, 400, "{answer:?}");
    let error = answer.json()["error"].clone();
    assert_eq!(error["type"], "invalid_request_error");
    error["message"].as_str().unwrap().to_owned()
}

#[test]
fn answers_are_those_of_each_prompt_alone_wherever_the_other_rows_are() {
    let server = greedy();
    // Shorter than a chunk, as long, longer, and as long as the cache allows: more than there are rows.
    let prompts = prompts(&[1, 5, 8, 13, 16, 23, 40, 47]);
    let expected = expected(&prompts);
    let sent = |at: usize| request(&json!(prompts[at]), expected[at].len(), &json!({}));
    for (at, expected) in expected.iter().enumerate() {
        assert_eq!(tokens(&server.post(COMPLETIONS, &sent(at))), *expected, "prompt {at} alone");
    }
    thread::scope(|scope| {
        let (server, expected, sent) = (&server, &expected, &sent);
        let ask = move |at: usize| {
            let answer = server.post(COMPLETIONS, &sent(at));
            assert_eq!(tokens(&answer), expected[at], "prompt {at} with others");
        };
        (0..expected.len()).for_each(|at| _ = scope.spawn(move || ask(at)));
    });
    let stats = server.get("/v2/models/m/stats").json()["model_stats"][0].clone();
    assert!(stats["inference_count"].as_u64() > stats["execution_count"].as_u64(), "rows ran together: {stats}");
}

#[test]
fn a_row_does_not_see_what_another_request_has_left_in_it() {
    let server = Server::of_store(store("max_batch_size: 1\nprompt_chunk: 8", 0.0), &[]);
    let prompts = prompts(&[3, 46]);
    let expected = expected(&prompts);
    for _ in 0..2 {
        for (prompt, expected) in prompts.iter().zip(&expected) {
            let answer = server.post(COMPLETIONS, &request(&json!(prompt), expected.len(), &json!({})));
            assert_eq!(tokens(&answer), *expected);
        }
    }
}

#[test]
fn a_stream_has_the_text_of_the_whole_answer_and_its_usage() {
    let server = greedy();
    let prompt = "abcd, \u{e9}!";
    let whole = server.post(COMPLETIONS, &request(&json!(prompt), 20, &json!({}))).json();
    let answered: Vec<i64> =
        whole["choices"][0]["token_ids"].as_array().unwrap().iter().map(|token| token.as_i64().unwrap()).collect();
    let expected_text = text(&answered);
    assert_eq!(
        (whole["object"].as_str(), whole["choices"][0]["text"].as_str()),
        (Some("text_completion"), Some(&expected_text[..]))
    );
    assert_eq!((&whole["choices"][0]["finish_reason"], &whole["model"]), (&json!("length"), &json!("m")));
    // `ab` and `cd` are tokens, and é has two bytes.
    let usage = json!({"prompt_tokens": 7, "completion_tokens": 20, "total_tokens": 27});
    assert_eq!(whole["usage"], usage);
    let streamed = json!({"stream": true, "stream_options": {"include_usage": true}});
    let stream = Stream::open(&server, COMPLETIONS, &request(&json!(prompt), 20, &streamed));
    assert!(stream.headers.contains("content-type: text/event-stream"), "{}", stream.headers);
    let events = stream.events();
    assert_eq!(joined(&events), (answered, expected_text));
    assert_eq!((events.len(), &events[20]["usage"], &events[20]["choices"]), (21, &usage, &json!([])));
    assert_eq!((&events[0]["usage"], &events[19]["choices"][0]["finish_reason"]), (&Value::Null, &json!("length")));
}

#[test]
fn a_conversation_is_answered_by_the_chat_template() {
    let server = greedy();
    let messages = json!([{"role": "user", "content": "hi"}]);
    let template = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    let fields = json!({"prompt": null, "messages": messages, "max_completion_tokens": 6});
    let whole = server.post(CHAT, &request(&Value::Null, 6, &fields)).json();
    let choice = &whole["choices"][0];
    assert_eq!((&whole["object"], &choice["message"]["role"]), (&json!("chat.completion"), &json!("assistant")));
    let completion = server.post(COMPLETIONS, &request(&json!(template), 6, &json!({}))).json();
    assert_eq!(choice["message"]["content"], completion["choices"][0]["text"]);
    assert_eq!(whole["usage"], completion["usage"]);
    let events = Stream::open(
        &server,
        CHAT,
        &request(&Value::Null, 6, &{
            let mut streamed = fields.clone();
            streamed["stream"] = true.into();
            streamed
        }),
    )
    .events();
    assert_eq!(
        (&events[0]["choices"][0]["delta"]["role"], &events[0]["object"]),
        (&json!("assistant"), &json!("chat.completion.chunk"))
    );
    assert_eq!(joined(&events).1, choice["message"]["content"].as_str().unwrap());
    // Without a limit, the answer fills the context.
    let open = json!({"model": "m", "messages": messages, "ignore_eos": true});
    assert_eq!(server.post(CHAT, &open).json()["usage"]["total_tokens"], LENGTH);
}

#[test]
fn an_answer_ends_before_a_stop_word_and_at_an_end_token() {
    let server = greedy();
    let prompt = &prompts(&[9])[0];
    let answer = &expected(std::slice::from_ref(prompt))[0];
    // A token that does not occur before.
    let at = (3..answer.len()).find(|at| !answer[..*at].contains(&answer[*at])).expect("another token");
    let word = text(&answer[at..=at]);
    if word.is_empty() || word.contains('\u{fffd}') || text(&answer[..at]).contains(&word) {
        panic!("the seeded model answers otherwise: {answer:?}");
    }
    let stopped = server.post(COMPLETIONS, &request(&json!(prompt), 20, &json!({"stop": ["\u{1}none", word]}))).json();
    assert_eq!(
        (&stopped["choices"][0]["finish_reason"], &stopped["choices"][0]["text"]),
        (&json!("stop"), &json!(text(&answer[..at])))
    );
    let events =
        Stream::open(&server, COMPLETIONS, &request(&json!(prompt), 20, &json!({"stop": word, "stream": true})))
            .events();
    assert_eq!(joined(&events).1, text(&answer[..at]));

    let name = serde_json::to_string(&word).unwrap();
    let server = Server::of_store(store(&format!("{SETTINGS}\nend_tokens: [{name}]"), 0.0), &[]);
    let ended = server.post(COMPLETIONS, &request(&json!(prompt), 20, &json!({"ignore_eos": false}))).json();
    assert_eq!(
        (&ended["choices"][0]["finish_reason"], &ended["choices"][0]["text"]),
        (&json!("stop"), &json!(text(&answer[..at])))
    );
    assert_eq!(ended["usage"]["completion_tokens"], at + 1);
}

#[test]
fn scores_are_sampled_with_a_seed_and_without_temperature_the_best_is_chosen() {
    let server = Server::of_store(store(SETTINGS, 1.0), &[]);
    let prompt = &prompts(&[9])[0];
    let answer = &|more: Value| tokens(&server.post(COMPLETIONS, &request(&json!(prompt), 12, &more)));
    assert_eq!(answer(json!({})), expected(std::slice::from_ref(prompt))[0][..12]);
    let seeded = answer(json!({"temperature": 1, "seed": 5}));
    assert_eq!(seeded, answer(json!({"temperature": 1, "seed": 5})));
    assert_ne!(seeded, answer(json!({"temperature": 1, "seed": 6})));
    assert_ne!(answer(json!({"temperature": null})), answer(json!({"temperature": null})), "the default is 1");
    assert_eq!(answer(json!({"temperature": 1, "top_p": 0.000_001})), answer(json!({})));
    assert_eq!(answer(json!({"temperature": 1, "top_k": 1})), answer(json!({})));
    // Others in the same runs change nothing.
    thread::scope(|scope| {
        let others: Vec<_> =
            (0..6).map(|seed| scope.spawn(move || answer(json!({"temperature": 1, "seed": seed})))).collect();
        let all: Vec<_> = others.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(all[5], seeded);
    });
}

#[test]
fn what_does_not_fit_the_model_is_refused_with_the_numbers() {
    let server = greedy();
    let long = vec![1; LENGTH];
    let ask = |prompt: &Value, more: Value| refusal(&server, COMPLETIONS, &request(prompt, 4, &more));
    assert_eq!(
        ask(&json!(long), json!({})),
        "the prompt has 48 tokens, but the model's context has 48 for the prompt and the answer"
    );
    assert_eq!(
        ask(&json!(long[..46]), json!({})),
        "the model's context has 48 tokens, but the request needs more: 46 of the prompt and 4 of the answer"
    );
    let huge = "a".repeat(1 << 20);
    assert_eq!(ask(&json!(huge), json!({})), "the prompt has at least 87382 tokens, but the model's context has 48");
    assert_eq!(ask(&json!(""), json!({})), "the prompt has no tokens");
    for token in [1024, -1, i64::MAX] {
        let expected = format!("the model has no token {token}: it has 1024, from 0");
        assert_eq!(ask(&json!([3, token]), json!({})), expected);
    }
    let expected = "`temperature` is 0.5, but the model was exported without the scores of tokens and returns only the most \
                    probable one: use 0";
    assert_eq!(ask(&json!("a"), json!({"temperature": 0.5})), expected);
    assert_eq!(ask(&json!("a"), json!({"n": 2})), "`n` is not supported by this server: leave it out");
    let answer = server.post(COMPLETIONS, &request(&json!("a"), 1, &json!({"model": "n"})));
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (404, &json!("model_not_found")));
    let answer = server.get(COMPLETIONS);
    assert_eq!(answer.status, 405);
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("is not for GET"));
    assert_eq!(server.get("/v1/embeddings").status, 404);
    // The server goes on, and its rows are free.
    assert_eq!(server.post(COMPLETIONS, &request(&json!("a"), 1, &json!({}))).status, 200);
}

#[test]
fn models_are_listed_and_a_model_of_another_kind_is_not_one_of_them() {
    let store = store(SETTINGS, 0.0);
    add_model(store.path(), "linear", "1", 5, "");
    add_language_model(store.path(), "other", SETTINGS, 1.0);
    let server = Server::of_store(store, &[]);
    let list = server.get("/v1/models").json();
    let names: Vec<&str> = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!((names, &list["data"][0]["max_model_len"]), (vec!["m", "other"], &json!(LENGTH)));
    assert_eq!(server.get("/v1/models/m").json()["object"], "model");
    let expected = "model `linear` is no language model: ask it at `/v2/models/linear/infer`";
    assert_eq!(refusal(&server, COMPLETIONS, &request(&json!("a"), 1, &json!({"model": "linear"}))), expected);
    let answer = server.infer(
        "m",
        &json!({"inputs": [
        {"name": "input_ids", "shape": [1, 1], "datatype": "INT64", "data": [1]},
        {"name": "first", "shape": [1], "datatype": "INT64", "data": [0]}]}),
    );
    assert_eq!(answer.status, 400);
    assert!(answer.error().contains("ask it at `/v1/completions`"), "{}", answer.error());
}

#[test]
fn metrics_count_tokens_and_their_times() {
    let server = greedy();
    server.post(COMPLETIONS, &request(&json!([1, 2, 3]), 5, &json!({})));
    server.post(COMPLETIONS, &request(&json!([1, 2]), 2, &json!({})));
    let text = String::from_utf8(server.get("/metrics").body).unwrap();
    for (name, value) in [
        ("flagperf_prompt_tokens_total", "5"),
        ("flagperf_answer_tokens_total", "7"),
        ("flagperf_first_tokens_total", "2"),
        ("flagperf_next_tokens_total", "5"),
        ("flagperf_requests_total", "2"),
        ("flagperf_left_answers_total", "0"),
        ("flagperf_active_rows", "0"),
    ] {
        let line = format!("{name}{{model=\"m\",version=\"1\"}} {value}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}

#[test]
fn the_official_client_of_openai_works() {
    let Some(python) = support::python() else { return };
    let server = greedy();
    support::run_script(&python, "openai_client.py", &[&server.address]);
}
