//! Lost workers, slow models, full queues, and what a server refuses to start with.

use std::io::Write;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::json;

use crate::server::{Server, add_model, rows, store};
use crate::support::{program, root};

/// Returns the value of a metric of the model `m`.
fn metric(server: &Server, name: &str) -> f64 {
    let text = String::from_utf8(server.get("/metrics").body).unwrap();
    let begin = format!("{name}{{model=\"m\",version=\"1\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&begin)?.parse().ok()).unwrap()
}

#[test]
fn a_killed_worker_is_started_again_while_other_models_go_on() {
    let server = Server::start(&[("m", ""), ("other", "")]);
    let request = rows(&[[1.0, 2.0, 3.0]]);
    let expected = server.infer("m", &request).body;
    assert_eq!(server.workers().len(), 2);
    server.workers().into_iter().for_each(|worker| kill(worker, Signal::SIGKILL).unwrap());
    server.wait_until("both models are ready", |server| {
        metric(server, "flagperf_worker_restarts_total") == 1.0 && server.get("/v2/health/ready").status == 200
    });
    assert_eq!(server.infer("m", &request).body, expected);
    assert_eq!(server.infer("other", &request).status, 200);
}

#[test]
fn a_run_beyond_the_time_limit_fails_and_the_worker_is_started_again() {
    let slow = "compiler: \"null\"\noptions: {sleep_ms: 30000}\ntime_limit_s: 1";
    let server = Server::start(&[("m", slow), ("other", "")]);
    let answer = server.infer("m", &rows(&[[1.0; 3]]));
    let expected = "m version 1: a run took longer than 1 s, and the worker was killed";
    assert_eq!((answer.status, answer.error()), (503, expected.to_owned()));
    assert!(answer.headers.contains("retry-after: 1"), "{}", answer.headers);
    assert_eq!(server.infer("other", &rows(&[[1.0; 3]])).status, 200);
    server.wait_until("the worker is started again", |server| metric(server, "flagperf_ready_instances") == 1.0);
}

#[test]
fn a_full_queue_refuses_and_a_deadline_is_kept() {
    let slow = "compiler: \"null\"\noptions: {sleep_ms: 1000}\nqueue_size: 1";
    let server = Server::start(&[("m", slow)]);
    let answers: Vec<_> = thread::scope(|scope| {
        let send = || {
            thread::sleep(Duration::from_millis(100));
            server.infer("m", &rows(&[[1.0; 3]]))
        };
        let running: Vec<_> = (0..6).map(|_| scope.spawn(send)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(!refused.is_empty() && answers.iter().any(|answer| answer.status == 200), "{answers:?}");
    assert_eq!(refused[0].error(), "m version 1: 1 requests wait already");
    assert!(refused[0].headers.contains("retry-after: 1"));
    let mut request = rows(&[[1.0; 3]]);
    request["parameters"] = json!({"timeout": 100_000});
    let answer = server.infer("m", &request);
    assert_eq!((answer.status, answer.error()), (504, "m version 1: no answer within 0.1 s".to_owned()));
}

#[test]
fn a_request_whose_deadline_has_passed_leaves_the_queue_at_once() {
    let server = Server::start(&[("m", "compiler: \"null\"\noptions: {sleep_ms: 2000}\nqueue_size: 1")]);
    let mut request = rows(&[[1.0; 3]]);
    request["parameters"] = json!({"timeout": 100_000});
    thread::scope(|scope| {
        scope.spawn(|| server.infer("m", &rows(&[[1.0; 3]])));
        thread::sleep(Duration::from_millis(300));
        for _ in 0..3 {
            // The place of the one before is free again.
            assert_eq!(server.infer("m", &request).status, 504);
        }
        assert_eq!(metric(&server, "flagperf_waiting_requests"), 0.0);
    });
}

#[test]
fn a_request_whose_client_has_left_is_not_computed() {
    let server = Server::start(&[("m", "compiler: \"null\"\noptions: {sleep_ms: 3000}")]);
    let body = rows(&[[1.0; 3]]).to_string();
    let head = format!("POST /v2/models/m/infer HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", body.len());
    let send = || {
        let mut connection = server.connect();
        connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
        connection
    };
    let wait = |count: f64| {
        server.wait_until("the request waits, or has left", |server| {
            metric(server, "flagperf_waiting_requests") == count
        });
    };
    let running = send();
    thread::sleep(Duration::from_millis(500));
    for _ in 0..3 {
        let waiting = send();
        wait(1.0);
        drop(waiting);
        wait(0.0);
    }
    drop(running);
    server
        .wait_until("those who left are counted", |server| metric(server, "flagperf_cancelled_requests_total") == 4.0);
    assert_eq!(server.infer("m", &rows(&[[1.0; 3]])).status, 200);
    let runs = server.get("/v2/models/m/stats").json()["model_stats"][0]["execution_count"].clone();
    assert_eq!(runs, 2, "only the first of them was computed");
}

#[test]
fn a_store_with_a_mistake_is_refused_with_its_place() {
    for (settings, expected) in [
        ("max_batchsize: 4", "m/model.yaml:1: unknown key `max_batchsize` (nearest: `max_batch_size`)"),
        ("compiler: rtne", "m/model.yaml:1: unknown engine `rtne`"),
        ("inputs: {a: b}", "model m version 1: `inputs` of model.yaml names `b` (in the file: x"),
        ("precision: fp16", "m/model.yaml:1: engine `rten` does not compute in `f16` (supported: f32)"),
    ] {
        let store = store(&[("m", settings)]);
        let folder = store.path().to_str().unwrap();
        let output = program::flagperf(root(), &["serve", "--model-store", folder, "--http", "127.0.0.1:0"]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(expected), "{errors}");
    }
}

#[test]
fn a_model_that_cannot_be_loaded_again_leaves_the_old_one_in_place() {
    let server = Server::start(&[("m", "")]);
    std::fs::write(server.store.path().join("m/1/model.onnx"), "no model").unwrap();
    let answer = server.post("/v2/repository/models/m/load", &json!({}));
    assert_eq!(answer.status, 400);
    assert!(answer.error().starts_with("model m version 1: the engine failed: "), "{}", answer.error());
    assert_eq!(server.infer("m", &rows(&[[1.0; 3]])).status, 200);
    add_model(server.store.path(), "m", "1", 6, "");
    assert_eq!(server.post("/v2/repository/models/m/load", &json!({})).status, 200);
}
