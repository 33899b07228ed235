//! An answer in parts: the events of a stream, each a line `data: JSON`, and at the end `data: [DONE]`.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::body::{Body, Bytes};
use futures_util::stream::unfold;
use serde_json::Value;

use super::answer_reader::{AnswerReader, Part};
use super::completion_response::ResponseHead;
use super::openai_error::OpenAiError;
use crate::api_error::ApiError;

/// The events of an answer.
struct EventStream {
    reader: AnswerReader,
    head: ResponseHead,
    ready: VecDeque<Bytes>,
}

/// Returns the body of an answer whose first part has arrived.
pub fn event_stream(reader: AnswerReader, head: ResponseHead, first: &Part) -> Body {
    let mut stream = EventStream { reader, head, ready: VecDeque::new() };
    stream.ready.extend(stream.head.first().as_ref().map(event));
    stream.add(first);
    Body::from_stream(unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((Ok::<_, Infallible>(bytes), stream))
    }))
}

impl EventStream {
    async fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() {
            match self.reader.next().await? {
                Ok(part) => self.add(&part),
                Err(error) => self.fail(error),
            }
        }
        self.ready.pop_front()
    }

    /// Adds the events of a part.
    fn add(&mut self, part: &Part) {
        self.ready.extend(self.head.part(part).as_ref().map(event));
        if part.finish.is_some() {
            self.ready.extend(self.head.usage(self.reader.usage()).as_ref().map(event));
            self.ready.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        }
    }

    /// Ends the stream without `[DONE]`.
    fn fail(&mut self, error: ApiError) {
        self.ready.push_back(event(&OpenAiError::from(error).json()));
    }
}

fn event(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}
