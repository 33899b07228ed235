//! Messages as frames: a byte that says whether the message is compressed, its length in four bytes, and the message.

use std::time::Duration;

use axum::body::{Body, Bytes};
use prost::Message;

use crate::api_error::{ApiError, ErrorKind};
use crate::body::{BodyLimits, LimitedBody, Pieces, append};

/// The bytes before a message.
const HEAD_BYTES: usize = 5;

/// The messages of a call as they arrive.
pub struct Frames {
    pieces: Pieces,
    /// What has arrived after the last message.
    rest: Bytes,
    limits: BodyLimits,
}

impl Frames {
    /// Reads the messages in the body of a call.
    pub fn new(body: Body, limits: BodyLimits) -> Self {
        Frames { pieces: Pieces::new(body), rest: Bytes::new(), limits }
    }

    /// Returns the only message of a call.
    ///
    /// # Errors
    /// As [`Frames::next`]; also when there is none, or another one.
    pub async fn only(mut self, silence_max: Duration) -> Result<LimitedBody, ApiError> {
        let message = self.next(silence_max).await?.ok_or_else(|| ApiError::bad_request("the call has no message"))?;
        match self.rest.is_empty() {
            true => Ok(message),
            false => Err(ApiError::bad_request("more follows the message of the call")),
        }
    }

    /// Returns the next message; `None` at the end. The client may be silent before it for `silence_max`.
    ///
    /// # Errors
    /// When the frame is malformed, cut, too large or too slow, or the memory of all messages is used up.
    pub async fn next(&mut self, silence_max: Duration) -> Result<Option<LimitedBody>, ApiError> {
        while self.rest.is_empty() {
            match self.pieces.first(silence_max).await? {
                Some(piece) => self.rest = piece,
                None => return Ok(None),
            }
        }
        self.pieces.begin();
        let head = self.take(HEAD_BYTES, "head").await?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        match head[0] {
            0 => {}
            1 => {
                let message = "the message is compressed; this server reads only messages as they are";
                return Err(ApiError::new(ErrorKind::WrongForm, message));
            }
            flag => {
                return Err(ApiError::bad_request(format!("a message begins with the byte {flag} instead of 0 or 1")));
            }
        }
        self.limits.check(length.into())?;
        let permit = self.limits.reserve(length as usize)?;
        let message = self.take(length as usize, "message").await?;
        Ok(Some(LimitedBody::new(message, permit)))
    }

    /// Takes bytes, and waits for them. `what` is what they are, for messages.
    async fn take(&mut self, count: usize, what: &str) -> Result<Bytes, ApiError> {
        if self.rest.len() >= count {
            return Ok(self.rest.split_to(count));
        }
        let mut content = Vec::new();
        append(&mut content, &self.rest.split_to(self.rest.len()), count)?;
        while content.len() < count {
            let Some(mut piece) = self.pieces.next().await? else {
                let found = content.len();
                return Err(ApiError::bad_request(format!("the {what} of a frame has {found} of {count} bytes")));
            };
            let needed = piece.split_to(piece.len().min(count - content.len()));
            append(&mut content, &needed, count)?;
            self.rest = piece;
        }
        Ok(Bytes::from(content))
    }
}

/// Reads a message.
///
/// # Errors
/// When it is malformed.
pub fn decode<M: Message + Default>(message: &LimitedBody) -> Result<M, ApiError> {
    M::decode(message.bytes.clone())
        .map_err(|error| ApiError::bad_request(format!("the message is not valid: {error}")))
}

/// Returns a message as a frame.
///
/// # Errors
/// When it is larger than a frame may be.
pub fn encode(message: &impl Message) -> Result<Bytes, ApiError> {
    let length = message.encoded_len();
    let stated = u32::try_from(length)
        .map_err(|_| ApiError::new(ErrorKind::Engine, "the answer is larger than 4 GiB, the most of a message"))?;
    let mut frame = Vec::with_capacity(HEAD_BYTES + length);
    frame.push(0);
    frame.extend_from_slice(&stated.to_be_bytes());
    message.encode_raw(&mut frame);
    Ok(Bytes::from(frame))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    fn frames(pieces: &[&[u8]]) -> Frames {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
        Frames::new(Body::from_stream(stream::iter(pieces)), BodyLimits::new(1024))
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn messages_are_found_however_they_are_cut_into_pieces() {
        let whole = [0, 0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 9];
        for size in 1..=whole.len() {
            let pieces: Vec<&[u8]> = whole.chunks(size).collect();
            let mut frames = frames(&pieces);
            for expected in [&[7, 8][..], &[], &[9]] {
                let message = block_on(frames.next(Duration::from_secs(1))).unwrap().unwrap();
                assert_eq!(message.bytes, expected, "{size}");
            }
            assert!(block_on(frames.next(Duration::from_secs(1))).unwrap().is_none());
        }
    }

    #[test]
    fn frames_that_are_cut_compressed_or_too_large_are_errors() {
        for (piece, expected) in [
            (&[0, 0, 0][..], "the head of a frame has 3 of 5 bytes"),
            (&[0, 0, 0, 0, 2, 7], "the message of a frame has 1 of 2 bytes"),
            (&[1, 0, 0, 0, 0], "the message is compressed"),
            (&[2, 0, 0, 0, 0], "a message begins with the byte 2"),
            (&[0, 255, 255, 255, 255], "the body is larger than 1024 bytes"),
            (&[], "the call has no message"),
            (&[0, 0, 0, 0, 0, 0], "more follows the message"),
        ] {
            let error = block_on(frames(&[piece]).only(Duration::from_secs(1))).unwrap_err().message;
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
