//! A container engine for tests, whose replies the test defines.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use tempfile::TempDir;

use super::ContainerEngine;

/// An engine that listens on a socket until the test ends.
pub(super) struct TestEngine(TempDir);

/// Returns the status and the body of the reply to a request, of which it gets the first line.
type Answer = dyn Fn(&str) -> (u16, String) + Send;

impl TestEngine {
    pub(super) fn start(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("engine.sock")).unwrap();
        thread::spawn(move || listener.incoming().flatten().for_each(|stream| serve(&stream, &answer)));
        TestEngine(folder)
    }

    pub(super) fn connect(&self) -> ContainerEngine {
        ContainerEngine::connect_to(&self.0.path().join("engine.sock")).unwrap()
    }
}

/// Answers one request and closes the connection.
fn serve(stream: &UnixStream, answer: &Answer) {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let headers = reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let length =
        headers.filter_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok()).last();
    // The client may be gone.
    let _ = reader.take(length.unwrap_or(0)).read_to_end(&mut Vec::new());
    let (status, body) = answer(first.trim_end());
    let head = format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\n");
    let _ = write!(&*stream, "{head}content-length: {}\r\n\r\n{body}", body.len());
}
