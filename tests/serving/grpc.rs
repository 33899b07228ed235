//! A client of gRPC that can also send what no client should.

use std::time::Duration;

use flagperf_serve::messages::model_infer_request::InferInputTensor;
use flagperf_serve::messages::{ModelInferRequest, ModelInferResponse};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use prost::Message;
use prost::bytes::Bytes;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// The most time of a call.
const LIMIT: Duration = Duration::from_secs(60);
/// What the paths of calls begin with.
pub const SERVICE: &str = "/inference.GRPCInferenceService/";

/// A connection.
pub struct GrpcClient {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
}

/// A call whose body is not complete.
pub struct OpenCall {
    response: Option<ResponseFuture>,
    pub body: SendStream<Bytes>,
    answer: Option<RecvStream>,
    received: Vec<u8>,
}

/// An answer: the number of its status, its sentence, its metadata, and its messages.
#[derive(Debug, Default)]
pub struct GrpcAnswer {
    pub http_status: u16,
    pub code: i32,
    pub message: String,
    pub headers: HeaderMap,
    pub messages: Vec<Vec<u8>>,
}

impl GrpcAnswer {
    pub fn read<M: Message + Default>(&self) -> M {
        assert_eq!(self.code, 0, "{self:?}");
        M::decode(&self.messages[0][..]).unwrap()
    }
}

/// Returns a message as a frame.
pub fn frame(message: &impl Message) -> Bytes {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap();
    Bytes::from([&[0][..], &length.to_be_bytes(), &message].concat())
}

/// Returns a request with rows of three numbers.
pub fn rows(model: &str, rows: &[[f32; 3]]) -> ModelInferRequest {
    let bytes: Vec<u8> = rows.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
    let input = InferInputTensor {
        name: "x".to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![i64::try_from(rows.len()).unwrap(), 3],
        ..Default::default()
    };
    ModelInferRequest {
        model_name: model.to_owned(),
        inputs: vec![input],
        raw_input_contents: vec![Bytes::from(bytes)],
        ..Default::default()
    }
}

/// Returns the numbers of the first output.
pub fn numbers(response: &ModelInferResponse) -> Vec<f32> {
    let (numbers, _) = response.raw_output_contents[0].as_chunks::<4>();
    numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

impl GrpcClient {
    /// Connects to a server.
    pub fn connect(address: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (sender, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            sender
        });
        GrpcClient { runtime, sender }
    }

    /// Makes a call of the inference service with one message.
    pub fn call(&mut self, method: &str, message: &impl Message) -> GrpcAnswer {
        self.send(&format!("{SERVICE}{method}"), &[], vec![frame(message)]).unwrap()
    }

    /// Asks for inference.
    pub fn infer(&mut self, request: &ModelInferRequest) -> GrpcAnswer {
        self.call("ModelInfer", request)
    }

    /// Sends bytes as the body of a call; `None` when the server ends the call without a status.
    pub fn send(&mut self, path: &str, headers: &[(&str, &str)], pieces: Vec<Bytes>) -> Option<GrpcAnswer> {
        let mut call = self.open(path, headers);
        let last = pieces.len().saturating_sub(1);
        for (at, piece) in pieces.into_iter().enumerate() {
            // A server that has answered already does not read the rest.
            let _ = self.piece(&mut call, piece, at == last);
        }
        self.finish(call)
    }

    /// Begins a call.
    pub fn open(&mut self, path: &str, headers: &[(&str, &str)]) -> OpenCall {
        self.try_open(path, headers).expect("the connection is open")
    }

    /// Begins a call; `None` when the server has ended the connection.
    pub fn try_open(&mut self, path: &str, headers: &[(&str, &str)]) -> Option<OpenCall> {
        let mut request = Request::post(format!("http://test{path}"));
        if headers.iter().all(|(name, _)| *name != "content-type") {
            request = request.header("content-type", "application/grpc");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let sender = self.sender.clone();
        let sent = self.runtime.block_on(async {
            sender.ready().await.and_then(|mut ready| ready.send_request(request.body(()).unwrap(), false))
        });
        let (response, body) = sent.ok()?;
        Some(OpenCall { response: Some(response), body, answer: None, received: Vec::new() })
    }

    /// Sends bytes of the body of a call.
    pub fn piece(&mut self, call: &mut OpenCall, piece: Bytes, is_last: bool) -> Result<(), h2::Error> {
        let send = async {
            let mut rest = piece;
            while !rest.is_empty() {
                call.body.reserve_capacity(rest.len());
                let Some(capacity) = std::future::poll_fn(|context| call.body.poll_capacity(context)).await else {
                    return Ok(());
                };
                let now = rest.split_to(rest.len().min(capacity?));
                call.body.send_data(now, false)?;
            }
            if is_last { call.body.send_data(Bytes::new(), true) } else { Ok(()) }
        };
        self.runtime.block_on(timeout_of(send)).expect("the server reads")
    }

    /// Waits for the next message of a call.
    pub fn message(&mut self, call: &mut OpenCall) -> Option<Vec<u8>> {
        self.runtime.block_on(timeout_of(next_message(call))).expect("the server answers")
    }

    /// Waits for the end of a call.
    pub fn finish(&mut self, mut call: OpenCall) -> Option<GrpcAnswer> {
        self.runtime
            .block_on(timeout_of(async {
                let mut answer = GrpcAnswer { code: -1, ..Default::default() };
                let response = call.response.take()?.await.ok()?;
                answer.http_status = response.status().as_u16();
                answer.headers = response.headers().clone();
                call.answer = Some(response.into_body());
                while let Some(message) = next_message(&mut call).await {
                    answer.messages.push(message);
                }
                let trailers = call.answer?.trailers().await.ok()?.unwrap_or_else(|| answer.headers.clone());
                answer.code = trailers.get("grpc-status").map_or(-1, |code| code.to_str().unwrap().parse().unwrap());
                answer.message =
                    trailers.get("grpc-message").map_or_else(String::new, |text| unescape(text.to_str().unwrap()));
                Some(answer)
            }))
            .expect("the server answers")
    }
}

async fn timeout_of<T>(future: impl Future<Output = T>) -> Option<T> {
    timeout(LIMIT, future).await.ok()
}

async fn next_message(call: &mut OpenCall) -> Option<Vec<u8>> {
    if let Some(response) = call.response.take() {
        call.answer = Some(response.await.ok()?.into_body());
    }
    loop {
        if let Some((head, rest)) = call.received.split_at_checked(5) {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            if rest.len() >= length {
                let message = rest[..length].to_vec();
                call.received.drain(..5 + length);
                return Some(message);
            }
        }
        let answer = call.answer.as_mut()?;
        let piece = answer.data().await?.ok()?;
        answer.flow_control().release_capacity(piece.len()).ok()?;
        call.received.extend_from_slice(&piece);
    }
}

/// Returns the text of a status, in which `%` and two digits stand for a byte.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        match (first, digits) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
