//! The names, sizes and types of inputs and outputs, converted between TensorRT and the host.

use flagperf_plugin::{DType, Error, ValueInfo};
use trtx::trtx_sys::nvinfer1::Dims64;
use trtx::{CudaEngine, DataType, TensorIOMode, TensorLocation};

/// An input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The name.
    pub name: String,
    /// The sizes, with -1 for an open one.
    pub sizes: Vec<i64>,
    /// The element type.
    pub dtype: DType,
}

impl Value {
    /// Converts the value to the host's notation: `?,3,224,224,f16`.
    pub fn info(&self) -> ValueInfo {
        let size = |size: &i64| if *size < 0 { "?".to_owned() } else { size.to_string() };
        let sizes = self.sizes.iter().map(size);
        let spec = sizes.chain([self.dtype.name().to_owned()]).collect::<Vec<_>>().join(",");
        ValueInfo { name: self.name.clone(), spec }
    }
}

/// Returns the inputs and the outputs of an engine.
///
/// # Errors
/// When one has an unsupported type, or the engine reads it from host memory.
pub fn engine_values(engine: &CudaEngine<'_>) -> Result<[Vec<Value>; 2], Error> {
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for index in 0..engine.nb_io_tensors().map_err(Error::failed)? {
        let name = engine.io_tensor_name(index).map_err(Error::failed)?;
        let sizes = engine.tensor_shape(&name).map_err(Error::failed)?;
        if engine.tensor_location(&name).map_err(Error::failed)? == TensorLocation::kHOST {
            let reason = format!("`{name}` is a shape that the engine reads from host memory, which is not supported");
            return Err(Error::Failed(reason));
        }
        let dtype = dtype(&name, engine.tensor_data_type(&name).map_err(Error::failed)?)?;
        let side = match engine.tensor_io_mode(&name).map_err(Error::failed)? {
            TensorIOMode::kINPUT => &mut inputs,
            _ => &mut outputs,
        };
        side.push(Value { name, sizes, dtype });
    }
    Ok([inputs, outputs])
}

/// Converts the element type of the input or output `name` from TensorRT's.
///
/// # Errors
/// When the host does not support the type.
pub fn dtype(name: &str, data_type: DataType) -> Result<DType, Error> {
    Ok(match data_type {
        DataType::kFLOAT => DType::F32,
        DataType::kHALF => DType::F16,
        DataType::kBF16 => DType::BF16,
        DataType::kINT64 => DType::I64,
        DataType::kINT32 => DType::I32,
        DataType::kINT8 => DType::I8,
        DataType::kUINT8 => DType::U8,
        DataType::kBOOL => DType::Bool,
        other => {
            let supported = "f32, f16, bf16, i64, i32, i8, u8, bool";
            let reason = format!("`{name}` has the unsupported element type `{other:?}` (supported: {supported})");
            return Err(Error::Failed(reason));
        }
    })
}

/// Converts sizes to TensorRT's type.
///
/// # Errors
/// When there are more than eight sizes.
pub fn dims(sizes: &[i64]) -> Result<Dims64, Error> {
    if sizes.len() > 8 {
        return Err(Error::Failed(format!("TensorRT supports at most 8 dimensions, not `{}`", sizes.len())));
    }
    Ok(Dims64::from_slice(sizes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_size_is_a_question_mark() {
        let value = Value { name: "x".to_owned(), sizes: vec![-1, 3, 224], dtype: DType::F16 };
        assert_eq!(value.info().spec, "?,3,224,f16");
        assert_eq!(Value { sizes: Vec::new(), ..value }.info().spec, "f16");
    }
}
