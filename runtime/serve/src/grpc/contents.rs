//! The elements of a tensor in the fields of a message, one for each kind of number.

use axum::body::Bytes;
use flagperf_core::tensor::DType;

use crate::messages::InferTensorContents;

/// Returns the elements as bytes of a tensor, in little-endian order.
///
/// # Errors
/// When an element is no value of the type, the elements are in the field of another type, or the type has none.
pub fn contents_bytes(contents: &InferTensorContents, dtype: DType) -> Result<Bytes, String> {
    let (field, bytes) = match dtype {
        DType::F64 => ("fp64_contents", each(&contents.fp64_contents, f64::to_le_bytes)),
        DType::F32 => ("fp32_contents", each(&contents.fp32_contents, f32::to_le_bytes)),
        DType::I64 => ("int64_contents", each(&contents.int64_contents, i64::to_le_bytes)),
        DType::I32 => ("int_contents", each(&contents.int_contents, i32::to_le_bytes)),
        DType::I16 => ("int_contents", narrow(&contents.int_contents, dtype, i16::to_le_bytes)?),
        DType::I8 => ("int_contents", narrow(&contents.int_contents, dtype, i8::to_le_bytes)?),
        DType::U64 => ("uint64_contents", each(&contents.uint64_contents, u64::to_le_bytes)),
        DType::U32 => ("uint_contents", each(&contents.uint_contents, u32::to_le_bytes)),
        DType::U16 => ("uint_contents", narrow(&contents.uint_contents, dtype, u16::to_le_bytes)?),
        DType::U8 => ("uint_contents", narrow(&contents.uint_contents, dtype, u8::to_le_bytes)?),
        DType::Bool => ("bool_contents", each(&contents.bool_contents, |truth| [u8::from(truth)])),
        DType::F16 | DType::BF16 => {
            let name = dtype.kserve_name();
            return Err(format!("`contents` has no field for {name}: send the tensor as `raw_input_contents`"));
        }
    };
    if bytes.is_empty() && *contents != InferTensorContents::default() {
        return Err(format!("its elements are not in `{field}`, the field of {}", dtype.kserve_name()));
    }
    Ok(Bytes::from(bytes))
}

fn each<T: Copy, const SIZE: usize>(elements: &[T], bytes: fn(T) -> [u8; SIZE]) -> Vec<u8> {
    elements.iter().flat_map(|element| bytes(*element)).collect()
}

/// Returns elements as those of a narrower type.
fn narrow<T, N, const SIZE: usize>(elements: &[T], dtype: DType, bytes: fn(N) -> [u8; SIZE]) -> Result<Vec<u8>, String>
where
    T: Copy + std::fmt::Display,
    N: TryFrom<T>,
{
    let mut narrowed = Vec::with_capacity(elements.len() * SIZE);
    for (at, element) in elements.iter().enumerate() {
        let value = N::try_from(*element).map_err(|_| {
            format!("element {at} of `contents` is {element}, which is no value of {}", dtype.kserve_name())
        })?;
        narrowed.extend(bytes(value));
    }
    Ok(narrowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_in_the_field_of_their_type_and_fit_it() {
        let contents = InferTensorContents { int_contents: vec![1, -2, 300], ..Default::default() };
        assert_eq!(contents_bytes(&contents, DType::I16).unwrap(), [1, 0, 254, 255, 44, 1][..]);
        let error = contents_bytes(&contents, DType::I8).unwrap_err();
        assert_eq!(error, "element 2 of `contents` is 300, which is no value of INT8");
        let error = contents_bytes(&contents, DType::F32).unwrap_err();
        assert_eq!(error, "its elements are not in `fp32_contents`, the field of FP32");
        assert!(contents_bytes(&contents, DType::F16).unwrap_err().starts_with("`contents` has no field for FP16"));
        let truths = InferTensorContents { bool_contents: vec![true, false], ..Default::default() };
        assert_eq!(contents_bytes(&truths, DType::Bool).unwrap(), [1, 0][..]);
    }
}
