//! Many requests at the same time: requests are joined, none is lost when a model is loaded again or the server stops.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::json;

use crate::server::{Server, read_answer, rows};

#[test]
fn requests_at_the_same_time_run_together_and_each_gets_its_own_rows() {
    let settings = "max_batch_size: 8\npreferred_batch_sizes: [8]\nqueue_delay_us: 300000";
    let server = Server::start(&[("m", settings)]);
    let requests: Vec<_> = (0..8u8).map(|at| rows(&[[f32::from(at), 1.0, 2.0]])).collect();
    let alone: Vec<_> = requests.iter().map(|request| server.infer("m", request).json()["outputs"].clone()).collect();
    let server = &server;
    thread::scope(|scope| {
        let send = |request| scope.spawn(move || server.infer("m", request).json()["outputs"].clone());
        let running: Vec<_> = requests.iter().map(send).collect();
        for (thread, expected) in running.into_iter().zip(&alone) {
            assert_eq!(thread.join().unwrap(), *expected);
        }
    });
    let stats = server.get("/v2/models/m/stats").json()["model_stats"][0].clone();
    assert_eq!(stats["inference_count"], 16);
    assert!(stats["execution_count"].as_u64().unwrap() < 16, "{stats}");
}

#[test]
fn a_reload_under_load_loses_no_request() {
    let server = Server::start(&[("m", "max_batch_size: 4\ninstances: 2")]);
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let answer = server.infer("m", &rows(&[[1.0, 2.0, 3.0]]));
                    assert_eq!(answer.status, 200, "{answer:?}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..5 {
            let loaded = server.post("/v2/repository/models/m/load", &json!({}));
            assert_eq!(loaded.status, 200, "{loaded:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(answered.into_inner() > 0);
    assert_eq!(server.workers().len(), 2, "the workers of the models that were replaced have ended");
}

#[test]
fn what_was_accepted_is_answered_after_sigterm() {
    let mut server = Server::start(&[("m", "compiler: \"null\"\noptions: {sleep_ms: 300}")]);
    let body = rows(&[[1.0; 3]]).to_string();
    let head = format!("POST /v2/models/m/infer HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut connections: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for connection in &mut connections {
        connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
    }
    thread::sleep(Duration::from_millis(400));
    let workers = server.workers();
    kill(server.pid(), Signal::SIGTERM).unwrap();
    for connection in &mut connections {
        assert_eq!(read_answer(connection).map(|answer| answer.status), Some(200));
    }
    assert_eq!(server.stop(), Some(0));
    assert!(workers.iter().all(|worker| kill(*worker, None).is_err()), "the workers have ended");
}
