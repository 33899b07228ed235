//! Limits on what a request for inference becomes in memory, checked before it is read: a short message can stand for many
//! inputs and numbers.

use axum::body::Bytes;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::api_error::{ApiError, ErrorKind};

/// The most bytes beside the raw contents of tensors: while they are read, they take many times as many.
const TYPED_BYTES_MAX: usize = 16 << 20;
/// The most inputs, outputs, parameters and raw contents together.
const PARTS_MAX: usize = 4096;
/// The number of the field of raw contents.
const RAW_CONTENTS: u32 = 7;

/// Checks a request for inference.
///
/// # Errors
/// When it is malformed, or stands for too much.
pub fn check_message(message: &Bytes) -> Result<(), ApiError> {
    let mut rest = message.clone();
    let (mut parts, mut raw_bytes) = (0, 0);
    while rest.has_remaining() {
        parts += 1;
        raw_bytes += skip_part(&mut rest)
            .map_err(|error| ApiError::bad_request(format!("the message is not valid: {error}")))?;
        if parts > PARTS_MAX {
            let message = format!("the request has more than {PARTS_MAX} inputs, outputs and parameters");
            return Err(ApiError::new(ErrorKind::TooLarge, message));
        }
    }
    let typed = message.len() - raw_bytes;
    if typed > TYPED_BYTES_MAX {
        let message = format!(
            "the request has {typed} bytes beside `raw_input_contents` (at most {TYPED_BYTES_MAX}): send tensors there"
        );
        return Err(ApiError::new(ErrorKind::TooLarge, message));
    }
    Ok(())
}

/// Skips a field. Returns its size if it is a raw content.
fn skip_part(rest: &mut Bytes) -> Result<usize, prost::DecodeError> {
    let (number, kind) = decode_key(rest)?;
    if number != RAW_CONTENTS || kind != WireType::LengthDelimited {
        return skip_field(kind, number, rest, DecodeContext::default()).map(|()| 0);
    }
    let size = usize::try_from(decode_varint(&mut rest.clone())?).unwrap_or(usize::MAX);
    skip_field(kind, number, rest, DecodeContext::default())?;
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::ModelInferRequest;
    use crate::messages::model_infer_request::InferInputTensor;
    use prost::Message;

    fn check(request: &ModelInferRequest) -> Result<(), String> {
        check_message(&Bytes::from(request.encode_to_vec())).map_err(|error| error.message)
    }

    #[test]
    fn raw_contents_may_be_large_and_everything_else_may_not() {
        let raw = Bytes::from(vec![0; TYPED_BYTES_MAX + 1]);
        check(&ModelInferRequest { raw_input_contents: vec![raw], ..Default::default() }).unwrap();
        let id = "a".repeat(TYPED_BYTES_MAX + 1);
        let error = check(&ModelInferRequest { id, ..Default::default() }).unwrap_err();
        assert!(error.ends_with("bytes beside `raw_input_contents` (at most 16777216): send tensors there"), "{error}");
        let inputs = vec![InferInputTensor::default(); PARTS_MAX + 1];
        let error = check(&ModelInferRequest { inputs, ..Default::default() }).unwrap_err();
        assert_eq!(error, "the request has more than 4096 inputs, outputs and parameters");
    }

    #[test]
    fn a_field_that_reaches_beyond_the_message_is_an_error() {
        for message in [&[0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f][..], &[0x3a], &[0xff; 11], &[0x3a, 5, 1]] {
            let error = check_message(&Bytes::copy_from_slice(message)).unwrap_err().message;
            assert!(error.starts_with("the message is not valid: "), "{error}");
        }
    }
}
