//! A language model that is served: its text side, the requests that wait for a row, and its statistics.

use std::sync::Arc;
use std::time::Duration;

use flagperf_config::ServedModel;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::generation_statistics::GenerationStatistics;
use super::language_model::LanguageModel;
use super::request_queue::{AnswerEvent, RequestQueue};
use super::source::TextSource;

/// A language model that is served.
#[derive(Debug)]
pub struct TextModel {
    language: LanguageModel,
    queue: RequestQueue,
    statistics: GenerationStatistics,
    rows: usize,
    chunk: usize,
}

impl TextModel {
    /// Prepares a language model.
    pub fn new(language: LanguageModel, source: &TextSource, settings: &ServedModel) -> Self {
        TextModel {
            queue: RequestQueue::new(settings.queue_size as usize),
            statistics: GenerationStatistics::default(),
            rows: settings.max_batch_size as usize,
            chunk: source.chunk.min(language.graph().length),
            language,
        }
    }

    /// Returns the text side.
    pub fn language(&self) -> &LanguageModel {
        &self.language
    }

    /// Returns the requests that wait for a row.
    pub fn queue(&self) -> &RequestQueue {
        &self.queue
    }

    /// Returns what was read and written.
    pub fn statistics(&self) -> &GenerationStatistics {
        &self.statistics
    }

    /// Returns the number of rows of a worker.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the most tokens of a prompt that a run reads.
    pub fn chunk(&self) -> usize {
        self.chunk
    }
}

/// An answer that is being written. When it is dropped, its row becomes free.
#[derive(Debug)]
pub struct Answer {
    model: Arc<TextModel>,
    events: UnboundedReceiver<AnswerEvent>,
    limit: Duration,
    is_over: bool,
}

impl Answer {
    /// Waits for the tokens of a request. `limit` is the longest wait for the next one.
    pub fn new(model: Arc<TextModel>, events: UnboundedReceiver<AnswerEvent>, limit: Duration) -> Self {
        Answer { model, events, limit, is_over: false }
    }

    /// Returns the next part of the answer; `None` within the limit of time if there is none, `Some(None)` after the last one.
    pub async fn next(&mut self) -> Option<Option<AnswerEvent>> {
        let event = timeout(self.limit, self.events.recv()).await.ok();
        self.is_over |= !matches!(event, Some(Some(AnswerEvent::Token(_))));
        event
    }

    /// Notes that the answer is complete, so that the client does not count as one that left.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// Returns the longest wait for the next part.
    pub fn limit(&self) -> Duration {
        self.limit
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.is_over {
            self.model.statistics.add_left();
        }
    }
}
