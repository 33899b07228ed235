//! A server that generates text by OpenAI's interface for completions, on the loopback interface.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value as Json;

/// A server whose answers are written by a function. It ends when this value is dropped.
pub struct CompletionServer {
    port: u16,
    ends: Arc<AtomicBool>,
}

/// The list of models of a server that has one.
pub const MODELS: &str = r#"{"object":"list","data":[{"id":"tiny","owned_by":"flagperf's tests"}]}"#;

impl CompletionServer {
    /// Starts a server with this list of models. `answer` writes the reply to a request for a completion.
    pub fn start(models: &str, answer: impl Fn(&Json, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (ends, models, answer) = (Arc::new(AtomicBool::new(false)), models.to_owned(), Arc::new(answer));
        let stop = Arc::clone(&ends);
        thread::spawn(move || {
            for connection in listener.incoming().flatten().take_while(|_| !stop.load(Ordering::Relaxed)) {
                let (models, answer) = (models.clone(), Arc::clone(&answer));
                thread::spawn(move || serve(connection, &models, &*answer));
            }
        });
        CompletionServer { port, ends }
    }

    /// Returns the address below which it has `completions` and `models`.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }
}

impl Drop for CompletionServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

/// Handles the only request of a connection.
fn serve(connection: TcpStream, models: &str, answer: &dyn Fn(&Json, &mut TcpStream)) {
    let mut reader = BufReader::new(connection);
    let (mut first, mut length) = (String::new(), 0);
    drop(reader.read_line(&mut first));
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).is_err() || line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let mut connection = reader.into_inner();
    if first.starts_with("GET /v1/models ") {
        drop(write!(
            connection,
            "HTTP/1.1 200 OK\r\nServer: test/1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{models}",
            models.len()
        ));
    } else if first.starts_with("POST /v1/completions ") {
        answer(&serde_json::from_slice(&body).expect("a request is JSON"), &mut connection);
    }
}

/// Begins a streamed answer, which ends with the connection.
pub fn begin(connection: &mut TcpStream) {
    drop(connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"));
}

/// Sends tokens as one event, as vLLM does. Returns whether the connection still exists.
pub fn send(connection: &mut TcpStream, tokens: &[i64]) -> bool {
    let choice = serde_json::json!({"choices": [{"index": 0, "text": "a", "token_ids": tokens}]});
    connection.write_all(format!("data: {choice}\n\n").as_bytes()).is_ok()
}
