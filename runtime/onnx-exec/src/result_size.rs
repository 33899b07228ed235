//! The size of results, checked before their memory is allocated.

use super::OpError;
use flagperf_onnx::DType;

/// The most bytes of one result: more than the memory of any device or machine.
const RESULT_BYTES_MAX: usize = 1 << 40;

/// Results from this size on are checked against the memory that this process can allocate.
const PROBED_BYTES_MIN: usize = 1 << 28;

/// Checks that a result of this shape and type fits in memory.
///
/// # Errors
/// When the result has more than 2^40 bytes, or this process cannot allocate it.
pub(super) fn check_result_size(shape: &[usize], dtype: DType) -> Result<(), OpError> {
    // A size of zero counts as one: array libraries multiply the other sizes nevertheless.
    let bytes = shape.iter().try_fold(dtype.size(), |bytes, size| bytes.checked_mul((*size).max(1)));
    match bytes.filter(|bytes| *bytes <= RESULT_BYTES_MAX) {
        Some(bytes) if bytes < PROBED_BYTES_MIN || Vec::<u8>::new().try_reserve_exact(bytes).is_ok() => Ok(()),
        Some(bytes) => Err(OpError::invalid_operands(format!(
            "the result {shape:?} of `{dtype}` needs {} GiB, which cannot be allocated",
            bytes.div_ceil(1 << 30)
        ))),
        None => Err(OpError::invalid_operands(format!(
            "the result {shape:?} of `{dtype}` is too large (at most {} GiB are supported)",
            RESULT_BYTES_MAX >> 30
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_exceeds_any_memory_is_refused() {
        assert!(check_result_size(&[1024, 1024], DType::F32).is_ok());
        assert!(check_result_size(&[], DType::F64).is_ok());
        let error = check_result_size(&[1 << 30, 1 << 30], DType::F32).unwrap_err();
        assert!(error.to_string().ends_with("is too large (at most 1024 GiB are supported)"), "{error}");
        assert!(check_result_size(&[usize::MAX, 2], DType::U8).is_err(), "the product exceeds 64 bits");
        assert!(check_result_size(&[0, usize::MAX, usize::MAX], DType::U8).is_err(), "empty, but with huge strides");
    }
}
