//! libtorch's tensors, shared between threads, and copies to and from host memory.

use flagperf_onnx::{DType, Tensor as HostTensor};
use flagperf_onnx_exec::OpError;
use tch::{Device, Kind, TchError, Tensor};

/// A libtorch tensor. Clones share its memory, and nothing writes to it after its creation.
#[derive(Debug)]
pub struct TorchTensor(pub Tensor);

// SAFETY: libtorch counts references atomically and allows reading a tensor from several threads.
unsafe impl Sync for TorchTensor {}

impl Clone for TorchTensor {
    fn clone(&self) -> Self {
        TorchTensor(self.0.shallow_clone())
    }
}

/// Converts an error of libtorch, without the C++ stack trace that follows its message.
pub fn torch_error(error: TchError) -> OpError {
    let text = match error {
        TchError::Torch(text) => text,
        error => error.to_string(),
    };
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Exception raised from"));
    OpError::library(lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" "))
}

/// Returns the sizes, outermost first.
pub fn shape(tensor: &Tensor) -> Vec<usize> {
    tensor.size().into_iter().map(|size| size as usize).collect()
}

/// Converts sizes to libtorch's type.
pub fn sizes(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|size| *size as i64).collect()
}

/// The element types of which libtorch has tensors.
pub const DTYPES: [DType; 10] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U8,
    DType::Bool,
];

/// Converts an element type to libtorch's.
///
/// # Errors
/// For a type that is not one of [`DTYPES`].
pub fn kind(dtype: DType) -> Result<Kind, OpError> {
    Ok(match dtype {
        DType::F64 => Kind::Double,
        DType::F32 => Kind::Float,
        DType::F16 => Kind::Half,
        DType::BF16 => Kind::BFloat16,
        DType::I64 => Kind::Int64,
        DType::I32 => Kind::Int,
        DType::I16 => Kind::Int16,
        DType::I8 => Kind::Int8,
        DType::U8 => Kind::Uint8,
        DType::Bool => Kind::Bool,
        DType::U64 | DType::U32 | DType::U16 => {
            return Err(OpError::unsupported(format!("tensors of `{dtype}`")));
        }
    })
}

/// Converts an element type from libtorch's. The operators used here return no other types.
pub fn dtype(kind: Kind) -> DType {
    let same = |dtype: &DType| self::kind(*dtype).is_ok_and(|own| own == kind);
    DTYPES.into_iter().find(same).expect("the operators return supported types only")
}

/// Copies a host tensor to the device. A scalar stays on the CPU: libtorch combines CPU scalars with tensors on any
/// device, and passes them to the kernel by value.
pub fn upload(tensor: &HostTensor, device: Device) -> Result<Tensor, OpError> {
    let copy = Tensor::f_from_data_size(tensor.bytes(), &sizes(tensor.shape()), kind(tensor.dtype())?);
    let copy = copy.map_err(torch_error)?;
    if tensor.shape().is_empty() { Ok(copy) } else { copy.f_to(device).map_err(torch_error) }
}

/// Copies a tensor to host memory, dense and row-major.
pub fn download(tensor: &Tensor, to: &mut [u8]) -> Result<(), OpError> {
    if to.is_empty() {
        return Ok(());
    }
    let (size, kind) = (tensor.size(), tensor.kind());
    if to.len() != tensor.numel() * kind.elt_size_in_bytes() {
        let (given, needed) = (to.len(), tensor.numel() * kind.elt_size_in_bytes());
        return Err(OpError::invalid_operands(format!("a copy of {needed} bytes into {given}")));
    }
    let strides: Vec<i64> = (0..size.len()).map(|axis| size[axis + 1..].iter().product()).collect();
    // SAFETY: the bytes match shape and type, dense and row-major, and outlive the tensor, which nothing else reads.
    let view = unsafe { Tensor::f_from_blob(to.as_mut_ptr().cast_const(), &size, &strides, kind, Device::Cpu) };
    view.and_then(|mut view| view.f_copy_(tensor)).map_err(torch_error)
}

/// Copies a tensor of four dimensions (images or filters) to the channels-last layout; returns any other tensor
/// unchanged.
pub fn channels_last(tensor: Tensor) -> Result<Tensor, TchError> {
    let [n, c, h, w] = tensor.size()[..] else { return Ok(tensor) };
    if tensor.stride()[1] == 1 {
        return Ok(tensor);
    }
    let strides = [h * w * c, 1, w * c, c];
    let mut copy = Tensor::f_empty_strided([n, c, h, w], strides, (tensor.kind(), tensor.device()))?;
    copy.f_copy_(&tensor)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_survives_the_round_trip() {
        for original in DTYPES {
            assert_eq!(dtype(kind(original).unwrap()), original);
        }
        let error = kind(DType::U16).unwrap_err().to_string();
        assert!(error.contains("tensors of `u16`"), "{error}");
    }

    #[test]
    fn a_tensor_survives_the_round_trip_in_another_layout() {
        let host = HostTensor::from_vec([2, 3, 2, 2], (0..24).map(|i| i as f32).collect()).unwrap();
        let uploaded = upload(&host, Device::Cpu).unwrap();
        let uploaded = channels_last(uploaded).unwrap();
        assert_eq!(uploaded.stride(), [12, 1, 6, 3]);
        let mut back = vec![0; host.bytes().len()];
        download(&uploaded, &mut back).unwrap();
        assert_eq!(back, host.bytes());
    }

    #[test]
    fn an_error_is_one_line_without_the_stack_trace() {
        let [a, b] = [[2, 3], [2, 4]].map(|size| Tensor::f_zeros(size, (Kind::Float, Device::Cpu)).unwrap());
        let error = torch_error(a.f_add(&b).unwrap_err()).to_string();
        assert!(error.starts_with("The size of tensor a (3) must match the size of tensor b (4)"), "{error}");
        assert!(!error.contains('\n') && !error.contains("Exception raised"), "{error}");
    }
}
