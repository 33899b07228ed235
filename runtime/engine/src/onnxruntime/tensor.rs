//! Conversion of tensors to and from ONNX Runtime, without a copy where the element types have the same representation.

use std::sync::Arc;

use bytemuck::{NoUninit, cast_slice};
use flagperf_onnx::{Element, HostMemory};
use ort::session::SessionInputValue;
use ort::value::{DynValue, PrimitiveTensorElementType, Tensor as OrtTensor, TensorElementType, TensorRef, ValueType};

use crate::EngineError;
use flagperf_core::tensor::{DType, Tensor};
use flagperf_core::with_element_type;

/// Returns a view of the tensor's own memory; bool tensors are copied.
pub(super) fn to_ort(tensor: &Tensor) -> ort::Result<SessionInputValue<'_>> {
    fn view<T: Element + PrimitiveTensorElementType + std::fmt::Debug>(
        tensor: &Tensor,
    ) -> ort::Result<SessionInputValue<'_>> {
        let elements = tensor.as_slice::<T>().expect("matched by the element type");
        TensorRef::from_array_view((tensor.shape(), elements)).map(Into::into)
    }
    if tensor.dtype() == DType::Bool {
        let bools: Vec<bool> = tensor.bytes().iter().map(|byte| *byte != 0).collect();
        return OrtTensor::from_array((tensor.shape(), bools.into_boxed_slice())).map(Into::into);
    }
    with_element_type!(tensor.dtype(), T => view::<T>(tensor))
}

/// Converts an output to a tensor over ONNX Runtime's own memory.
pub(super) fn from_ort(name: &str, value: DynValue) -> Result<Tensor, EngineError> {
    let ValueType::Tensor { ty, shape, .. } = value.dtype() else {
        return Err(EngineError::Failed(format!("output `{name}` is not a tensor but {}", value.dtype())));
    };
    let dtype = dtype(name, *ty)?;
    let shape: Vec<usize> = shape.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect();
    let output_error = |error: &dyn std::fmt::Display| EngineError::Failed(format!("output `{name}`: {error}"));
    let memory = Arc::new(OutputMemory { value, dtype });
    Tensor::from_memory(shape, dtype, memory, 0).map_err(|error| output_error(&error))
}

/// The memory of an output that ONNX Runtime allocated.
struct OutputMemory {
    value: DynValue,
    dtype: DType,
}

impl HostMemory for OutputMemory {
    fn bytes(&self) -> &[u8] {
        fn bytes<T: PrimitiveTensorElementType + NoUninit>(value: &DynValue) -> &[u8] {
            value.try_extract_tensor::<T>().map_or(&[], |(_, elements)| cast_slice(elements))
        }
        if self.dtype == DType::Bool {
            return bytes::<bool>(&self.value);
        }
        with_element_type!(self.dtype, T => bytes::<T>(&self.value))
    }
}

/// Converts an element type to ONNX Runtime's.
pub(super) fn element_type(dtype: DType) -> TensorElementType {
    match dtype {
        DType::F64 => TensorElementType::Float64,
        DType::F32 => TensorElementType::Float32,
        DType::F16 => TensorElementType::Float16,
        DType::BF16 => TensorElementType::Bfloat16,
        DType::I64 => TensorElementType::Int64,
        DType::I32 => TensorElementType::Int32,
        DType::I16 => TensorElementType::Int16,
        DType::I8 => TensorElementType::Int8,
        DType::U64 => TensorElementType::Uint64,
        DType::U32 => TensorElementType::Uint32,
        DType::U16 => TensorElementType::Uint16,
        DType::U8 => TensorElementType::Uint8,
        DType::Bool => TensorElementType::Bool,
    }
}

/// Converts the element type of the input or output `name` from ONNX Runtime's.
pub(super) fn dtype(name: &str, element_type: TensorElementType) -> Result<DType, EngineError> {
    let same = |dtype: &DType| self::element_type(*dtype) == element_type;
    DType::ALL.into_iter().find(same).ok_or_else(|| {
        let supported = DType::ALL.map(|dtype| dtype.name()).join(", ");
        EngineError::Failed(format!(
            "`{name}` has the unsupported element type `{element_type}` (supported: {supported})"
        ))
    })
}
