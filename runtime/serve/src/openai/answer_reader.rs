//! Reads the tokens of an answer as text, until it ends.

use std::sync::Arc;

use flagperf_core::measure::Nanos;

use super::completion_request::CompletionRequest;
use crate::api_error::{ApiError, ErrorKind};
use crate::generation::{Answer, AnswerEvent, Piece, TextModel, TextStream};
use crate::model::Model;
use crate::worker_process::WorkerFailure;

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// By a token that ends it, or before a stop word.
    Stop,
    /// It has as many tokens as it may have.
    Length,
}

impl Finish {
    /// Returns the protocol's word.
    pub fn word(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
        }
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The text that is clear now; may be empty.
    pub text: String,
    /// The token with which it arrived.
    pub token: i64,
    /// Of the last part, why it is.
    pub finish: Option<Finish>,
}

/// The numbers of tokens of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: usize,
    pub answer_tokens: usize,
}

/// An answer that is being read.
#[derive(Debug)]
pub struct AnswerReader {
    model: Arc<Model>,
    answer: Answer,
    text: TextStream,
    usage: Usage,
    tokens_max: usize,
    arrived: Nanos,
    is_over: bool,
}

impl AnswerReader {
    /// Reads the answer to a request that arrived at `arrived`.
    pub fn new(
        model: Arc<Model>,
        answer: Answer,
        request: &CompletionRequest,
        prompt_tokens: usize,
        tokens_max: usize,
        arrived: Nanos,
    ) -> Self {
        let text = TextStream::new(request.stop_words.clone());
        let usage = Usage { prompt_tokens, answer_tokens: 0 };
        AnswerReader { model, answer, text, usage, tokens_max, arrived, is_over: false }
    }

    /// Returns the numbers of tokens so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Waits for the next part; `None` after the last one.
    ///
    /// # Errors
    /// When the answer cannot go on. There is no further part then.
    pub async fn next(&mut self) -> Option<Result<Part, ApiError>> {
        if self.is_over {
            return None;
        }
        let event = self.answer.next().await;
        let part = self.part(event);
        if part.as_ref().map_or(true, |part| part.finish.is_some()) {
            self.is_over = true;
            self.answer.end();
            let nanos = self.model.shared().clock.now().0.saturating_sub(self.arrived.0);
            let now_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
            self.model.statistics().add_request(part.is_ok(), nanos, now_ms);
        }
        Some(part)
    }

    fn part(&mut self, event: Option<Option<AnswerEvent>>) -> Result<Part, ApiError> {
        let title = &self.model.shared().title;
        match event {
            Some(Some(AnswerEvent::Token(token))) => self.token(token),
            Some(Some(AnswerEvent::EndToken(token))) => {
                self.usage.answer_tokens += 1;
                let piece = self.rest()?;
                Ok(Part { text: piece.text, token, finish: Some(Finish::Stop) })
            }
            Some(Some(AnswerEvent::Failed(failure))) => {
                let message = format!("{title}: {failure}");
                Err(match failure {
                    WorkerFailure::Engine(_) => internal(message),
                    WorkerFailure::Lost(_) => ApiError::unavailable(message),
                })
            }
            Some(None) => Err(ApiError::unavailable(format!("{title}: the server stops"))),
            None => {
                let limit = self.answer.limit().as_secs_f64();
                let message = format!("{title}: no further token within {limit} s");
                Err(ApiError::new(ErrorKind::Deadline, message))
            }
        }
    }

    fn token(&mut self, token: i64) -> Result<Part, ApiError> {
        self.usage.answer_tokens += 1;
        let (text_model, is_last) = (self.text_model()?, self.usage.answer_tokens >= self.tokens_max);
        let number = u32::try_from(token).map_err(|_| internal(format!("the model returned the token {token}")))?;
        let decode = |tokens: &[u32]| text_model.language().decode(tokens);
        let mut piece = self.text.push(number, decode).map_err(internal)?;
        if is_last && !piece.is_stopped {
            let Piece { text, is_stopped } = self.rest()?;
            piece = Piece { text: piece.text + text.as_str(), is_stopped };
        }
        let finish = match (piece.is_stopped, is_last) {
            (true, _) => Some(Finish::Stop),
            (false, true) => Some(Finish::Length),
            (false, false) => None,
        };
        Ok(Part { text: piece.text, token, finish })
    }

    /// Returns the text that was held back.
    fn rest(&mut self) -> Result<Piece, ApiError> {
        let text_model = self.text_model()?;
        self.text.finish(|tokens| text_model.language().decode(tokens)).map_err(internal)
    }

    fn text_model(&self) -> Result<Arc<TextModel>, ApiError> {
        self.model.text().cloned().ok_or_else(|| internal("the model is no language model".to_owned()))
    }
}

fn internal(message: String) -> ApiError {
    ApiError::new(ErrorKind::Engine, message)
}
