//! Many requests at the same time: requests are joined, none is lost when a model is loaded again or the server stops.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use flagperf_serve::messages::RepositoryModelLoadRequest;
use nix::sys::signal::{Signal, kill};
use serde_json::json;

use crate::grpc::{GrpcClient, SERVICE, frame, rows as message};
use crate::server::{Server, add_graph, read_answer, rows, store};
use crate::support::graphs;

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

#[test]
fn a_reload_under_load_over_grpc_loses_no_request() {
    let server = Server::start(&[("m", "max_batch_size: 4\ninstances: 2")]);
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.grpc();
                while !is_over.load(Ordering::Relaxed) {
                    let answer = client.infer(&message("m", &[[1.0, 2.0, 3.0]]));
                    assert_eq!(answer.code, 0, "{answer:?}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut client = server.grpc();
        for _ in 0..5 {
            let load = RepositoryModelLoadRequest { model_name: "m".to_owned(), ..Default::default() };
            assert_eq!(client.call("RepositoryModelLoad", &load).code, 0);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(answered.into_inner() > 0);
}

/// Makes calls until the server refuses them. Returns how many were answered.
fn call_until_refused(client: &mut GrpcClient, is_stopping: &AtomicBool) -> usize {
    let mut answered = 0;
    loop {
        let begun_before = !is_stopping.load(Ordering::SeqCst);
        let Some(mut call) = client.try_open(&format!("{SERVICE}ModelInfer"), &[]) else { return answered };
        let sent = client.piece(&mut call, frame(&message("m", &[[1.0; 3]])), true);
        match client.finish(call) {
            Some(answer) if answer.code == 0 => answered += 1,
            other => {
                assert!(!begun_before, "a call before the end was lost: {sent:?} {other:?}");
                return answered;
            }
        }
    }
}

#[test]
fn sigterm_under_load_over_grpc_loses_nothing_that_was_accepted() {
    let mut server = Server::start(&[("m", "max_batch_size: 4")]);
    let is_stopping = AtomicBool::new(false);
    let mut clients: Vec<GrpcClient> = (0..8).map(|_| server.grpc()).collect();
    let answered: usize = thread::scope(|scope| {
        let running: Vec<_> =
            clients.iter_mut().map(|client| scope.spawn(|| call_until_refused(client, &is_stopping))).collect();
        thread::sleep(Duration::from_millis(500));
        is_stopping.store(true, Ordering::SeqCst);
        kill(server.pid(), Signal::SIGTERM).unwrap();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(answered > 8, "{answered}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_thousand_slow_clients_do_not_keep_a_good_one_from_its_answers() {
    let server = Server::start(&[("m", "")]);
    let head = "POST /v2/models/m/infer HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{";
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0";
    // The test and the server may open fewer files than that on some machines.
    let mut slow = Vec::new();
    for at in 0..500 {
        for (address, begin) in [(&server.address, &head[..head.len() - at % 50]), (&server.grpc_address, preface)] {
            let Ok(mut connection) = TcpStream::connect(address) else { continue };
            connection.write_all(begin.as_bytes()).unwrap();
            slow.push(connection);
        }
    }
    assert!(slow.len() > 400, "{}", slow.len());
    let mut client = server.grpc();
    for _ in 0..50 {
        assert_eq!(server.infer("m", &rows(&[[1.0; 3]])).status, 200);
        assert_eq!(client.infer(&message("m", &[[1.0; 3]])).code, 0);
        for connection in slow.iter_mut().step_by(7) {
            // The server may have given it up.
            let _ = connection.write_all(b" ");
        }
    }
}

#[test]
fn clients_that_leave_in_the_middle_of_a_request_cost_nothing() {
    let server = Server::start(&[("m", "")]);
    let body = rows(&[[1.0; 3]]).to_string();
    let head = format!("POST /v2/models/m/infer HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", body.len());
    let whole = frame(&message("m", &[[1.0; 3]]));
    let mut client = server.grpc();
    for at in 0..200 {
        // A connection with many calls that are given up at once is closed: it may be an attack.
        if at % 10 == 0 {
            client = server.grpc();
        }
        let mut connection = server.connect();
        connection.write_all(&format!("{head}{body}").as_bytes()[..head.len() + at % body.len()]).unwrap();
        let mut call = client.open(&format!("{SERVICE}ModelInfer"), &[]);
        client.piece(&mut call, whole.slice(..at % whole.len()), false).unwrap();
        call.body.send_reset(h2::Reason::CANCEL);
    }
    assert_eq!(client.infer(&message("m", &[[1.0; 3]])).code, 0);
    assert_eq!(server.get("/v2/models/m/stats").json()["model_stats"][0]["inference_count"], 1);
}

#[test]
fn of_requests_that_run_together_only_those_fail_that_are_at_fault() {
    let store = store(&[]);
    add_graph(store.path(), "table", &graphs::table());
    fs::write(
        store.path().join("table/model.yaml"),
        "max_batch_size: 8\npreferred_batch_sizes: [8]\nqueue_delay_us: 300000",
    )
    .unwrap();
    let server = &Server::of_store(store, &[]);
    let request = |index: i64| json!({"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [index]}]});
    let alone = server.infer("table", &request(3)).json()["outputs"].clone();
    thread::scope(|scope| {
        let send = |at: i64| scope.spawn(move || server.infer("table", &request(if at == 5 { 77 } else { 3 })));
        let running: Vec<_> = (0..8).map(send).collect();
        for (at, thread) in running.into_iter().enumerate() {
            let answer = thread.join().unwrap();
            match at {
                5 => assert!(answer.status == 500 && answer.error().contains("77"), "{answer:?}"),
                _ => assert_eq!(answer.json()["outputs"], alone),
            }
        }
    });
    let stats = server.get("/v2/models/table/stats").json()["model_stats"][0].clone();
    assert_eq!(stats["inference_count"], 8, "{stats}");
}

#[test]
fn a_model_that_always_fails_does_not_disturb_others() {
    let store = store(&[("m", "")]);
    add_graph(store.path(), "failing", &graphs::failing());
    let server = Server::of_store(store, &[]);
    let mut client = server.grpc();
    for _ in 0..100 {
        let answer = server.infer("failing", &rows(&[[1.0; 3]]));
        assert_eq!(answer.status, 500, "{answer:?}");
        assert!(answer.error().starts_with("failing version 1: the engine failed: "), "{}", answer.error());
        assert_eq!(client.infer(&message("failing", &[[1.0; 3]])).code, 13);
        assert_eq!(server.infer("m", &rows(&[[1.0; 3]])).status, 200);
    }
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    assert!(metrics.contains("flagperf_failed_requests_total{model=\"failing\",version=\"1\"} 200\n"), "{metrics}");
    assert!(metrics.contains("flagperf_worker_restarts_total{model=\"failing\",version=\"1\"} 0\n"), "{metrics}");
}
