//! Clients that leave, full queues, lost workers, and the end of a server, while a language model writes answers.

use std::fs;
use std::thread;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use crate::language_store::{Stream, joined, request, store, tokens};
use crate::server::Server;
use crate::support::{program, root};

const COMPLETIONS: &str = "/v1/completions";

/// A model whose runs take a given time, and whose every token is 0.
fn slow(milliseconds: u32, more: &str) -> Server {
    let settings = format!("compiler: \"null\"\noptions: {{sleep_ms: {milliseconds}}}\nprompt_chunk: 4\n{more}");
    Server::of_store(store(&settings, 0.0), &[])
}

fn metric(server: &Server, name: &str) -> f64 {
    let text = String::from_utf8(server.get("/metrics").body).unwrap();
    let begin = format!("{name}{{model=\"m\",version=\"1\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&begin)?.parse().ok()).unwrap()
}

fn streamed(tokens_max: usize) -> Value {
    request(&json!([1, 2, 3]), tokens_max, &json!({"stream": true}))
}

#[test]
fn a_client_that_leaves_frees_its_row_at_the_next_run() {
    let server = slow(100, "max_batch_size: 1");
    let mut stream = Stream::open(&server, COMPLETIONS, &streamed(40));
    assert!(stream.next().is_some());
    assert_eq!(metric(&server, "flagperf_active_rows"), 1.0);
    drop(stream);
    // The whole answer would take four seconds more.
    server.wait_until("the row is free", |server| metric(server, "flagperf_active_rows") == 0.0);
    assert_eq!(metric(&server, "flagperf_left_answers_total"), 1.0);
    assert!(metric(&server, "flagperf_answer_tokens_total") < 20.0);
    assert_eq!(tokens(&server.post(COMPLETIONS, &request(&json!([5]), 2, &json!({})))), [0, 0]);
}

#[test]
fn requests_join_and_leave_while_others_are_answered() {
    let server = slow(20, "max_batch_size: 2");
    let mut long = Stream::open(&server, COMPLETIONS, &streamed(40));
    assert!(long.next().is_some());
    for _ in 0..3 {
        assert_eq!(tokens(&server.post(COMPLETIONS, &request(&json!(vec![1; 9]), 2, &json!({})))), [0, 0]);
    }
    assert_eq!(metric(&server, "flagperf_active_rows"), 1.0, "the long answer still goes on");
    assert_eq!(joined(&long.events()).0.len(), 39);
}

#[test]
fn a_full_queue_refuses_and_a_request_that_waits_too_long_gets_an_error() {
    let server = slow(300, "max_batch_size: 1\nqueue_size: 1\ntime_limit_s: 1");
    let mut first = Stream::open(&server, COMPLETIONS, &streamed(40));
    assert!(first.next().is_some());
    let ask = || server.post(COMPLETIONS, &request(&json!([1]), 1, &json!({})));
    thread::scope(|scope| {
        let waiting = scope.spawn(ask);
        server.wait_until("a request waits", |server| metric(server, "flagperf_waiting_requests") == 1.0);
        let refused = ask();
        assert_eq!((refused.status, &refused.json()["error"]["type"]), (429, &json!("rate_limit_error")));
        assert_eq!(refused.json()["error"]["message"], "m version 1: 1 requests wait already");
        assert!(refused.headers.contains("retry-after: 1"), "{}", refused.headers);
        let late = waiting.join().unwrap();
        assert_eq!(late.status, 504);
        assert_eq!(late.json()["error"]["message"], "m version 1: no further token within 2 s");
    });
    assert!(first.next().is_some());
}

#[test]
fn a_lost_worker_ends_its_answers_with_an_error_and_is_started_again() {
    let server = slow(100, "max_batch_size: 2");
    let mut stream = Stream::open(&server, COMPLETIONS, &streamed(40));
    assert!(stream.next().is_some());
    let whole = thread::scope(|scope| {
        let whole = scope.spawn(|| server.post(COMPLETIONS, &request(&json!([1]), 40, &json!({}))));
        server.wait_until("both have a row", |server| metric(server, "flagperf_active_rows") == 2.0);
        server.workers().into_iter().for_each(|worker| kill(worker, Signal::SIGKILL).unwrap());
        whole.join().unwrap()
    });
    assert_eq!((whole.status, &whole.json()["error"]["type"]), (503, &json!("server_error")));
    let last = std::iter::from_fn(|| stream.next()).last().unwrap();
    assert!(last.contains("\"error\"") && last.contains("m version 1: the worker"), "{last}");
    server.wait_until("the worker is started again", |server| {
        metric(server, "flagperf_worker_restarts_total") == 1.0 && server.get("/v2/health/ready").status == 200
    });
    assert_eq!(metric(&server, "flagperf_active_rows"), 0.0);
    assert_eq!(tokens(&server.post(COMPLETIONS, &request(&json!([5]), 2, &json!({})))), [0, 0]);
}

#[test]
fn a_run_beyond_the_time_limit_ends_the_answers() {
    // The runs while the model is loaded have no such limit.
    let server = slow(3000, "max_batch_size: 1\ntime_limit_s: 1");
    let answer = server.post(COMPLETIONS, &request(&json!([1]), 1, &json!({})));
    assert!([503, 504].contains(&answer.status), "{answer:?}");
    server.wait_until("the worker is started again", |server| metric(server, "flagperf_ready_instances") == 1.0);
}

#[test]
fn answers_that_were_begun_or_wait_are_finished_after_sigterm() {
    let mut server = slow(50, "max_batch_size: 2");
    let streams: Vec<Stream> = thread::scope(|scope| {
        let open = || scope.spawn(|| Stream::open(&server, COMPLETIONS, &streamed(12)));
        let opened: Vec<_> = (0..6).map(|_| open()).collect();
        server.wait_until("some have a row and others wait", |server| {
            metric(server, "flagperf_active_rows") == 2.0 && metric(server, "flagperf_waiting_requests") > 0.0
        });
        kill(server.pid(), Signal::SIGTERM).unwrap();
        opened.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for stream in streams {
        assert_eq!(joined(&stream.events()).0.len(), 12);
    }
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_reload_while_answers_are_written_loses_none() {
    let server = slow(10, "max_batch_size: 2");
    thread::scope(|scope| {
        let ask = || {
            for _ in 0..5 {
                let answer = server.post(COMPLETIONS, &request(&json!([1, 2]), 10, &json!({})));
                assert_eq!(tokens(&answer).len(), 10);
            }
        };
        (0..4).for_each(|_| _ = scope.spawn(ask));
        for _ in 0..3 {
            let loaded = server.post("/v2/repository/models/m/load", &json!({}));
            assert_eq!(loaded.status, 200, "{loaded:?}");
        }
    });
    assert_eq!(server.workers().len(), 1);
}

#[test]
fn requests_that_nobody_should_send_are_answered_and_leave_no_row_occupied() {
    let server = slow(0, "max_batch_size: 2");
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let bodies: [&[u8]; 8] = [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{\"model\": \"m\"}",
        b"{\"model\": \"m\", \"prompt\": {\"a\": 1}}",
        b"{\"model\": \"m\", \"prompt\": [1, 2.5]}",
        b"{\"model\": \"m\", \"prompt\": \"a\", \"max_tokens\": 1e300}",
        deep.as_bytes(),
    ];
    for body in bodies {
        for path in [COMPLETIONS, "/v1/chat/completions"] {
            let answer = server.request("POST", path, &[], body);
            assert_eq!(answer.status, 400, "{answer:?}");
            assert!(answer.json()["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
        }
    }
    assert_eq!(metric(&server, "flagperf_active_rows"), 0.0);
    assert_eq!(tokens(&server.post(COMPLETIONS, &request(&json!([5]), 2, &json!({})))), [0, 0]);
}

#[test]
fn a_store_whose_files_do_not_belong_together_is_refused_with_the_reason() {
    let refused = |change: &dyn Fn(&std::path::Path), settings: &str| {
        let store = store(settings, 0.0);
        change(&store.path().join("m"));
        let folder = store.path().to_str().unwrap();
        let output = program::flagperf(root(), &["serve", "--model-store", folder, "--http", "127.0.0.1:0"]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let write = |name: &'static str, text: &'static str| {
        move |folder: &std::path::Path| fs::write(folder.join(name), text).unwrap()
    };
    let errors = refused(&|_| (), "end_tokens: [\"<none>\"]");
    assert!(errors.contains("has no token `<none>`, which is to end an answer"), "{errors}");
    let errors = refused(&write("tokenizer.json", "{}"), "");
    assert!(errors.contains("is not a tokenizer"), "{errors}");
    let errors = refused(&write("tokenizer_config.json", "{\"chat_template\": \"{% if %}\"}"), "");
    assert!(errors.contains("the chat template: "), "{errors}");
    let linear = |folder: &std::path::Path| {
        let graph = crate::support::graphs::linear(5);
        flagperf_onnx::write_onnx(&graph, &folder.join("1/model.onnx")).map(drop).unwrap();
    };
    let errors = refused(&linear, "");
    assert!(errors.contains("is not the decoder of a language model: it has no input `input_ids`"), "{errors}");
}
