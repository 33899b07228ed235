//! Answers that their client does not read: they would stay in memory for as long as the client keeps its connection.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, sleep};

/// How long a client may leave a part of an answer unread.
const UNREAD_TIME_MAX: Duration = Duration::from_secs(60);
/// How often this is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The answers of a connection of which a part was handed over and the next one is not asked for yet.
#[derive(Clone, Debug, Default)]
pub struct UnreadAnswers(Arc<Mutex<Since>>);

/// The number of the last answer, and since when each waits for its client.
#[derive(Debug, Default)]
struct Since {
    last: u64,
    waiting: BTreeMap<u64, Instant>,
}

impl UnreadAnswers {
    fn lock(&self) -> MutexGuard<'_, Since> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches an answer until it is read.
    pub fn watch(&self, response: Response) -> Response {
        let mut since = self.lock();
        since.last += 1;
        let number = since.last;
        since.waiting.insert(number, Instant::now());
        drop(since);
        response.map(|body| Body::new(WatchedBody { body, number, unread: self.clone() }))
    }

    /// Returns how long the answer waits that waits longest.
    fn longest(&self) -> Duration {
        self.lock().waiting.values().min().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Waits until an answer was left unread for too long.
    pub async fn overdue(&self) {
        while self.longest() < UNREAD_TIME_MAX {
            sleep(CHECK_INTERVAL).await;
        }
    }
}

/// The body of an answer that is watched.
struct WatchedBody {
    body: Body,
    number: u64,
    unread: UnreadAnswers,
}

impl hyper::body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let mut since = self.unread.lock();
        // A pending body waits for the model, not for the client.
        match &polled {
            Poll::Ready(Some(_)) => since.waiting.insert(self.number, Instant::now()),
            Poll::Ready(None) | Poll::Pending => since.waiting.remove(&self.number),
        };
        drop(since);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.unread.lock().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;
    use futures_util::StreamExt;

    #[test]
    fn an_answer_waits_for_its_client_until_it_is_read_or_given_up() {
        let unread = UnreadAnswers::default();
        let count = || unread.lock().waiting.len();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let first = unread.watch("text".into_response());
        let second = unread.watch("text".into_response());
        assert_eq!(count(), 2);
        let mut stream = first.into_body().into_data_stream();
        runtime.block_on(async { while stream.next().await.is_some() {} });
        assert_eq!(count(), 1);
        assert!(unread.longest() > Duration::ZERO);
        drop(second);
        assert_eq!((count(), unread.longest()), (0, Duration::ZERO));
    }
}
