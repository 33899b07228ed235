//! Converts tensors between the graph and the file: raw bytes, typed fields, external data.
//!
//! Knows nothing about operators.

use half::{bf16, f16};

use super::proto::TensorProto;
use super::{dtype_from_onnx, onnx_code};
use crate::{DType, Tensor, TensorError, byte_count};

/// Returns the message of a tensor, including its bytes.
pub(super) fn encode_tensor(name: &str, tensor: &Tensor) -> TensorProto {
    TensorProto {
        raw_data: Some(tensor.bytes().to_vec().into()),
        ..encode_header(name, tensor.shape(), tensor.dtype())
    }
}

/// Returns the message of a tensor with name, shape and type, but without elements.
pub(super) fn encode_header(name: &str, shape: &[usize], dtype: DType) -> TensorProto {
    TensorProto {
        dims: shape.iter().map(|size| *size as i64).collect(),
        data_type: Some(onnx_code(dtype)),
        name: (!name.is_empty()).then(|| name.to_owned()),
        ..TensorProto::default()
    }
}

/// Returns the shape and type of a tensor message; `None` for an element type that this crate does not support.
///
/// # Errors
/// When a size is negative or the tensor is too large.
pub(super) fn decode_shape(proto: &TensorProto) -> Result<Option<(Vec<usize>, DType)>, String> {
    let shape: Result<Vec<usize>, _> = proto.dims.iter().map(|size| usize::try_from(*size)).collect();
    let shape = shape.map_err(|_| format!("a size in {:?} is negative", proto.dims))?;
    let Some(dtype) = dtype_from_onnx(i64::from(proto.data_type.unwrap_or(0))) else { return Ok(None) };
    match byte_count(&shape, dtype) {
        Some(_) => Ok(Some((shape, dtype))),
        None => Err(TensorError::TooLarge.to_string()),
    }
}

/// Returns the tensor of a tensor message; `None` for an element type that this crate does not support.
///
/// # Errors
/// When the number of elements does not match the shape.
pub(super) fn decode_tensor(proto: &TensorProto) -> Result<Option<Tensor>, String> {
    let Some((shape, dtype)) = decode_shape(proto)? else { return Ok(None) };
    let tensor = match &proto.raw_data {
        Some(bytes) => from_bytes(shape, dtype, bytes),
        None => from_fields(shape, dtype, proto),
    };
    tensor.map(Some).map_err(|error| error.to_string())
}

fn from_bytes(shape: Vec<usize>, dtype: DType, bytes: &[u8]) -> Result<Tensor, TensorError> {
    match dtype {
        // Any byte except 0 is true; in a `Tensor`, true is 1.
        DType::Bool => bools(shape, bytes.iter().map(|byte| *byte != 0)),
        _ => Tensor::from_bytes(shape, dtype, bytes),
    }
}

/// Reads the elements from the typed fields. Narrow types share `int32_data`, which contains 16-bit floats as their
/// bits, and the wide unsigned types `uint64_data`.
fn from_fields(shape: Vec<usize>, dtype: DType, proto: &TensorProto) -> Result<Tensor, TensorError> {
    let narrow = &proto.int32_data;
    match dtype {
        DType::F64 => Tensor::from_vec(shape, proto.double_data.clone()),
        DType::F32 => Tensor::from_vec(shape, proto.float_data.clone()),
        DType::F16 => Tensor::from_vec(shape, narrow.iter().map(|bits| f16::from_bits(*bits as u16)).collect()),
        DType::BF16 => Tensor::from_vec(shape, narrow.iter().map(|bits| bf16::from_bits(*bits as u16)).collect()),
        DType::I64 => Tensor::from_vec(shape, proto.int64_data.clone()),
        DType::I32 => Tensor::from_vec(shape, narrow.clone()),
        DType::I16 => Tensor::from_vec(shape, narrow.iter().map(|value| *value as i16).collect()),
        DType::I8 => Tensor::from_vec(shape, narrow.iter().map(|value| *value as i8).collect()),
        DType::U64 => Tensor::from_vec(shape, proto.uint64_data.clone()),
        DType::U32 => Tensor::from_vec(shape, proto.uint64_data.iter().map(|value| *value as u32).collect()),
        DType::U16 => Tensor::from_vec(shape, narrow.iter().map(|value| *value as u16).collect()),
        DType::U8 => Tensor::from_vec(shape, narrow.iter().map(|value| *value as u8).collect()),
        DType::Bool => bools(shape, narrow.iter().map(|value| *value != 0)),
    }
}

fn bools(shape: Vec<usize>, elements: impl Iterator<Item = bool>) -> Result<Tensor, TensorError> {
    Tensor::from_bools(shape, &elements.collect::<Vec<_>>())
}
