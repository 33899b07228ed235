//! Reads the body of a request: its size, its time, and the memory of all bodies together are limited.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::api_error::ApiError;

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

    /// Reads a body.
    ///
    /// # Errors
    /// When it is too large or too slow, does not end, or the memory of all bodies is used up.
    pub async fn read(&self, headers: &HeaderMap, body: Body) -> Result<LimitedBody, ApiError> {
        if let Some(encoding) = headers.get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
            let message = format!("the body is encoded as {encoding:?}; this server reads only bodies as they are");
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let stated = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if stated.is_some_and(|length| length > self.bytes_max as u64) {
            return Err(self.too_large());
        }
        let length = stated.and_then(|length| usize::try_from(length).ok());
        let slow = ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body arrives too slowly");
        timeout(BODY_TIME_MAX, self.collect(length, body)).await.unwrap_or(Err(slow))
    }

    async fn collect(&self, length: Option<usize>, body: Body) -> Result<LimitedBody, ApiError> {
        let mut permits = Vec::new();
        if let Some(length) = length {
            permits.push(self.reserve(length)?);
        }
        let mut stream = body.into_data_stream();
        let mut content = Vec::new();
        let mut only: Option<Bytes> = None;
        loop {
            let silent = || ApiError::new(StatusCode::REQUEST_TIMEOUT, "the client has sent nothing for 10 s");
            let Some(piece) = timeout(SILENCE_MAX, stream.next()).await.map_err(|_| silent())? else { break };
            let piece = piece.map_err(|error| ApiError::bad_request(format!("the body is not complete: {error}")))?;
            if content.len() + piece.len() > self.bytes_max {
                return Err(self.too_large());
            }
            if length.is_none() {
                permits.push(self.reserve(piece.len())?);
            }
            // Most bodies of small tensors are one piece, which is not copied.
            if content.is_empty() && length == Some(piece.len()) {
                only = Some(piece);
                continue;
            }
            content
                .try_reserve(length.unwrap_or(0).saturating_sub(content.len()).max(piece.len()))
                .map_err(|_| ApiError::unavailable("there is not enough memory for the body"))?;
            content.extend_from_slice(&piece);
        }
        Ok(LimitedBody { bytes: only.unwrap_or_else(|| Bytes::from(content)), _memory: permits })
    }

    fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let reserved = Arc::clone(&self.memory).try_acquire_many_owned(units);
        reserved.map_err(|_| ApiError::too_many("the requests that are being read use all the memory that they may"))
    }

    fn too_large(&self) -> ApiError {
        let message = format!("the body is larger than {} bytes (`--body-bytes-max`)", self.bytes_max);
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }
}
