//! A client of gRPC that costs next to nothing: the bytes of a call are prepared, and of its answer only the frames are read.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

/// The largest frame that a server must accept.
const FRAME_BYTES_MAX: usize = 16 << 10;
/// The kinds of frames that are used.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// A connection with one call at a time.
pub struct Http2 {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    headers: Vec<u8>,
    body: Vec<u8>,
    call: u32,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns a text with its length before it.
fn text(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).expect("a short text")], text.as_bytes()].concat()
}

impl Http2 {
    /// Connects, and prepares a call with one message.
    pub fn new(stream: TcpStream, path: &str, message: &[u8]) -> Self {
        stream.set_nodelay(true).expect("a socket");
        let reader = BufReader::new(stream.try_clone().expect("a socket"));
        // Names and values of HPACK: numbers of its static table, and texts.
        let headers = [
            &[0x83, 0x86, 0x04][..],
            &text(path),
            &[0x01],
            &text("bench"),
            &[0x0f, 0x10],
            &text("application/grpc"),
            &[0x00],
            &text("te"),
            &text("trailers"),
        ]
        .concat();
        let length = u32::try_from(message.len()).expect("a message").to_be_bytes();
        let body = [&[0][..], &length, message].concat();
        let mut client = Http2 { stream, reader, headers, body, call: 1 };
        // A window of 2 GiB for each call and for the connection.
        let window = [&[0, 4][..], &0x7fff_ffffu32.to_be_bytes()].concat();
        let begin = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(SETTINGS, 0, 0, &window),
            frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000u32.to_be_bytes()),
        ]
        .concat();
        client.stream.write_all(&begin).expect("the server reads");
        client
    }

    /// Makes the call, and returns the bytes of the answer's messages.
    pub fn call(&mut self) -> usize {
        let mut request = frame(HEADERS, END_HEADERS, self.call, &self.headers);
        let mut rest = &self.body[..];
        while !rest.is_empty() {
            let (now, after) = rest.split_at(rest.len().min(FRAME_BYTES_MAX));
            let flags = if after.is_empty() { END_STREAM } else { 0 };
            request.extend(frame(DATA, flags, self.call, now));
            rest = after;
        }
        self.stream.write_all(&request).expect("the server reads");
        let mut received = 0;
        loop {
            let mut head = [0; 9];
            self.reader.read_exact(&mut head).expect("a frame");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut payload = vec![0; length];
            self.reader.read_exact(&mut payload).expect("a frame");
            let (kind, flags) = (head[3], head[4]);
            match kind {
                DATA => received += length,
                SETTINGS | PING if flags & ACK == 0 => {
                    let answer = if kind == PING { &payload[..] } else { &[] };
                    self.stream.write_all(&frame(kind, ACK, 0, answer)).expect("the server reads");
                }
                HEADERS | SETTINGS | PING | WINDOW_UPDATE => {}
                kind => panic!("a frame of kind {kind}"),
            }
            if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
                self.call += 2;
                return received;
            }
        }
    }
}
