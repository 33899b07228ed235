//! Reads the bodies of requests: their size, their time, and the memory of all of them together are limited.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::api_error::{ApiError, ErrorKind};

/// The unit in which the memory of bodies is counted.
const UNIT_BYTES: usize = 1 << 10;
/// How many of the largest bodies may be in memory together.
const LARGEST_BODIES: usize = 8;
/// How long a client may send nothing, and how long a body may take.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const BODY_TIME_MAX: Duration = Duration::from_secs(120);

/// The limits on bodies.
#[derive(Clone, Debug)]
pub struct BodyLimits {
    bytes_max: usize,
    memory: Arc<Semaphore>,
}

/// A body, with its share of the memory of all bodies.
#[derive(Debug)]
pub struct LimitedBody {
    /// The bytes.
    pub bytes: Bytes,
    _memory: Vec<OwnedSemaphorePermit>,
}

impl BodyLimits {
    /// Limits each body to `bytes_max` bytes, and all together to eight times as many.
    pub fn new(bytes_max: usize) -> Self {
        let units = (bytes_max.div_ceil(UNIT_BYTES) * LARGEST_BODIES).min(Semaphore::MAX_PERMITS);
        BodyLimits { bytes_max, memory: Arc::new(Semaphore::new(units)) }
    }

    /// Checks the size of a body that is announced.
    ///
    /// # Errors
    /// When it is too large.
    pub fn check(&self, bytes: u64) -> Result<(), ApiError> {
        if bytes <= self.bytes_max as u64 {
            return Ok(());
        }
        let message = format!("the body is larger than {} bytes (`--body-bytes-max`)", self.bytes_max);
        Err(ApiError::new(ErrorKind::TooLarge, message))
    }

    /// Takes a share of the memory of all bodies.
    ///
    /// # Errors
    /// When it is used up.
    pub fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let reserved = Arc::clone(&self.memory).try_acquire_many_owned(units);
        reserved.map_err(|_| ApiError::too_many("the requests that are being read use all the memory that they may"))
    }

    /// Reads a body. `stated` is its size, if the client has announced it.
    ///
    /// # Errors
    /// When it is too large or too slow, does not end, or the memory of all bodies is used up.
    pub async fn read(&self, stated: Option<u64>, body: Body) -> Result<LimitedBody, ApiError> {
        self.check(stated.unwrap_or(0))?;
        let length = stated.and_then(|length| usize::try_from(length).ok());
        let mut permits = Vec::new();
        if let Some(length) = length {
            permits.push(self.reserve(length)?);
        }
        let mut pieces = Pieces::new(body);
        pieces.begin();
        let mut content = Vec::new();
        while let Some(piece) = pieces.next().await? {
            self.check((content.len() + piece.len()) as u64)?;
            if length.is_none() {
                permits.push(self.reserve(piece.len())?);
            }
            // Most bodies of small tensors are one piece, which is not copied.
            if content.is_empty() && length == Some(piece.len()) {
                return Ok(LimitedBody { bytes: piece, _memory: permits });
            }
            append(&mut content, &piece, length.unwrap_or(0))?;
        }
        Ok(LimitedBody { bytes: Bytes::from(content), _memory: permits })
    }
}

impl LimitedBody {
    /// Creates a body from bytes with their share of memory.
    pub fn new(bytes: Bytes, memory: OwnedSemaphorePermit) -> Self {
        LimitedBody { bytes, _memory: vec![memory] }
    }
}

/// Appends a piece to content of which `expected` bytes are announced.
///
/// # Errors
/// When the system has not enough memory.
pub fn append(content: &mut Vec<u8>, piece: &[u8], expected: usize) -> Result<(), ApiError> {
    content
        .try_reserve(expected.saturating_sub(content.len()).max(piece.len()))
        .map_err(|_| ApiError::unavailable("there is not enough memory for the body"))?;
    content.extend_from_slice(piece);
    Ok(())
}

/// The pieces of a body as they arrive.
pub struct Pieces {
    stream: BodyDataStream,
    end: Instant,
}

impl Pieces {
    /// Reads the pieces of a body.
    pub fn new(body: Body) -> Self {
        Pieces { stream: body.into_data_stream(), end: later(BODY_TIME_MAX) }
    }

    /// Begins the time that the body, or a message in it, may take.
    pub fn begin(&mut self) {
        self.end = later(BODY_TIME_MAX);
    }

    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// When the client is too slow or has left.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        let end = self.end.min(later(SILENCE_MAX));
        let is_last = end == self.end;
        let slow = || {
            let message = if is_last { "the body arrives too slowly" } else { "the client has sent nothing for 10 s" };
            ApiError::new(ErrorKind::TooSlow, message)
        };
        timeout_at(end, self.piece()).await.map_err(|_| slow())?
    }

    /// Returns the first piece of a message, for which the client may take longer; `None` at the end.
    ///
    /// # Errors
    /// When the client is silent for longer than `limit`, or has left.
    pub async fn first(&mut self, limit: Duration) -> Result<Option<Bytes>, ApiError> {
        let slow =
            || ApiError::new(ErrorKind::TooSlow, format!("the client has sent no request for {} s", limit.as_secs()));
        timeout(limit, self.piece()).await.map_err(|_| slow())?
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        let piece = self.stream.next().await.transpose();
        piece.map_err(|error| ApiError::bad_request(format!("the body is not complete: {error}")))
    }
}

/// Returns the instant after a time: tokio's timers have no other clock.
fn later(time: Duration) -> Instant {
    Instant::now() + time
}
