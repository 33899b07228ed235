//! A server that a test started, and a client that can also send what no client should.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use flagperf_onnx::{Graph, write_onnx};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::grpc::GrpcClient;
use crate::support::{graphs, program, root};

/// A running server, which is killed at the end of the test.
pub struct Server {
    child: Option<Child>,
    pub address: String,
    pub grpc_address: String,
    pub store: TempDir,
}

/// An answer: status, headers in lower case, and body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&self.body)))
    }

    /// Returns the sentence of an error.
    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_else(|| panic!("no sentence: {self:?}")).to_owned()
    }
}

/// Creates a model store with models of one linear layer, each with its model.yaml.
pub fn store(models: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    models.iter().for_each(|(name, settings)| add_model(folder.path(), name, "1", 5, settings));
    folder
}

/// Adds a model without settings.
pub fn add_graph(store: &Path, name: &str, graph: &Graph) {
    let folder = store.join(name).join("1");
    fs::create_dir_all(&folder).unwrap();
    write_onnx(graph, &folder.join("model.onnx")).unwrap();
}

/// Adds a version of a model with this number of outputs.
pub fn add_model(store: &Path, name: &str, version: &str, outputs: usize, settings: &str) {
    let folder = store.join(name).join(version);
    fs::create_dir_all(&folder).unwrap();
    write_onnx(&graphs::linear(outputs), &folder.join("model.onnx")).unwrap();
    fs::write(store.join(name).join("model.yaml"), settings).unwrap();
}

/// Returns the arguments with a free port for each protocol that they do not mention.
fn arguments_with_ports<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["serve"];
    for protocol in ["--http", "--grpc"] {
        if !arguments.contains(&protocol) {
            all.extend([protocol, "127.0.0.1:0"]);
        }
    }
    [&all, arguments].concat()
}

impl Server {
    /// Starts a server of models of one linear layer.
    pub fn start(models: &[(&str, &str)]) -> Self {
        Self::of_store(store(models), &[])
    }

    pub fn of_store(store: TempDir, arguments: &[&str]) -> Self {
        let folder = store.path().to_str().unwrap().to_owned();
        let mut server = Self::with(root(), &[&["--model-store", &folder], arguments].concat());
        server.store = store;
        server
    }

    pub fn with(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = program::command(folder, &arguments_with_ports(arguments));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready  "), "not ready: {line}");
        let address = |schemes: [&str; 2]| {
            let url = line.split_whitespace().find_map(|url| {
                let (scheme, address) = url.split_once("://")?;
                schemes.contains(&scheme).then_some(address)
            });
            url.unwrap_or_default().to_owned()
        };
        let (http, grpc) = (address(["http", "https"]), address(["grpc", "grpcs"]));
        Server { child: Some(child), address: http, grpc_address: grpc, store: tempfile::tempdir().unwrap() }
    }

    /// A server that something else has started.
    pub fn at(address: &str, grpc_address: &str) -> Self {
        let store = tempfile::tempdir().unwrap();
        Server { child: None, address: address.to_owned(), grpc_address: grpc_address.to_owned(), store }
    }

    /// Returns the status of an answer, if the server answers.
    pub fn try_get(&self, path: &str) -> Option<u16> {
        let mut connection = TcpStream::connect(&self.address).ok()?;
        connection.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).ok()?;
        read_answer(&mut connection).map(|answer| answer.status)
    }

    /// Connects a client of gRPC.
    pub fn grpc(&self) -> GrpcClient {
        GrpcClient::connect(&self.grpc_address)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.as_ref().unwrap().id().cast_signed())
    }

    /// Returns the processes that the server has started.
    pub fn workers(&self) -> Vec<Pid> {
        let path = format!("/proc/{}/task", self.pid());
        let tasks = fs::read_dir(path).unwrap().flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let pids: String = children.collect::<Vec<_>>().join(" ");
        pids.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
    }

    /// Tells the server to stop, and returns its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        kill(self.pid(), Signal::SIGTERM).unwrap();
        self.child.as_mut().unwrap().wait().unwrap().code()
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, &[], body.to_string().as_bytes())
    }

    pub fn infer(&self, model: &str, body: &Value) -> Answer {
        self.post(&format!("/v2/models/{model}/infer"), body)
    }

    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
        head += &format!("Content-Length: {}\r\n", body.len());
        headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        self.raw(&[format!("{head}\r\n").as_bytes(), body].concat()).expect("an answer")
    }

    /// Sends bytes, and returns the answer; `None` when the server ends the connection without one.
    pub fn raw(&self, bytes: &[u8]) -> Option<Answer> {
        let mut connection = self.connect();
        // A server that has answered already need not read the rest.
        let _ = connection.write_all(bytes);
        read_answer(&mut connection)
    }

    pub fn connect(&self) -> TcpStream {
        let connection = TcpStream::connect(&self.address).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        connection
    }

    /// Waits until a condition holds, for at most a minute.
    pub fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        for _ in 0..600 {
            if condition(self) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("it did not happen that {what}");
    }
}

/// Reads an answer: its head, and as many bytes as the head states.
pub fn read_answer(connection: &mut TcpStream) -> Option<Answer> {
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let headers = head.to_lowercase();
    let length = headers.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(Answer { status, headers, body })
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns a request with rows of three numbers.
pub fn rows(rows: &[[f32; 3]]) -> Value {
    let shape = [rows.len(), 3];
    json!({"inputs": [{"name": "x", "shape": shape, "datatype": "FP32", "data": rows}]})
}
