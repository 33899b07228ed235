//! The body of an answer: frames, and then the status as trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use hyper::body::Frame;
use tonic::{Code, Status};

use crate::api_error::ApiError;

/// The type of every answer.
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// The frames of a stream; an error ends it.
pub type FrameStream = Pin<Box<dyn Stream<Item = Result<Bytes, ApiError>> + Send>>;

/// The body of an answer.
enum Answers {
    One(Bytes),
    Many(FrameStream),
    /// The trailers follow.
    Status(Status),
    End,
}

impl hyper::body::Body for Answers {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let ended = || Answers::Status(Status::new(Code::Ok, ""));
        if let Answers::Many(stream) = &mut *self {
            match ready!(stream.as_mut().poll_next(context)) {
                Some(Ok(frame)) => return Poll::Ready(Some(Ok(Frame::data(frame)))),
                Some(Err(error)) => *self = Answers::Status(status(&error)),
                None => *self = ended(),
            }
        }
        let (frame, next) = match std::mem::replace(&mut *self, Answers::End) {
            Answers::One(frame) => (Frame::data(frame), ended()),
            Answers::Status(status) => (Frame::trailers(trailers(&status)), Answers::End),
            Answers::Many(_) | Answers::End => return Poll::Ready(None),
        };
        *self = next;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Answers::End)
    }
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(2);
    // A sentence has no characters that a header cannot have: tonic escapes them.
    let _ = status.add_header(&mut trailers);
    trailers
}

/// Returns the status of an error.
pub fn status(error: &ApiError) -> Status {
    Status::new(error.code(), error.sentence())
}

/// Returns the answer to a call with one message. `headers` are its metadata.
pub fn one(frame: Bytes, headers: HeaderMap) -> Response {
    response(Answers::One(frame), headers)
}

/// Returns the answers to a stream.
pub fn many(frames: FrameStream) -> Response {
    response(Answers::Many(frames), HeaderMap::new())
}

fn response(answers: Answers, mut headers: HeaderMap) -> Response {
    headers.insert(header::CONTENT_TYPE, CONTENT_TYPE);
    (headers, Body::new(answers)).into_response()
}

/// Returns the answer to a call that failed.
pub fn failed(error: &ApiError) -> Response {
    status(error).into_http()
}
