//! Checks the outputs of every engine against the model's: their number, element types and fixed dimensions.
//!
//! Knows no engine. An output on a device is checked when it is copied to the host, because it may not be computed before.

use std::any::Any;
use std::sync::Arc;

use flagperf_onnx::ValueInfo;

use crate::{DeviceTensor, EngineError, Value};
use flagperf_core::tensor::{Tensor, TensorSpec};

/// Checks outputs that an engine returned; those on a device check themselves when they are copied.
///
/// # Errors
/// [`EngineError::Failed`] with the name of the output, what the model declares and what the engine returned.
pub(super) fn check_outputs(declared: &[ValueInfo], outputs: Vec<Value>) -> Result<Vec<Value>, EngineError> {
    if declared.len() != outputs.len() {
        let (given, expected) = (outputs.len(), declared.len());
        return Err(EngineError::Failed(format!("the engine returned {given} outputs, the model declares {expected}")));
    }
    let check = |(info, value): (&ValueInfo, Value)| match value {
        Value::Host(tensor) => check_output(&info.name, &info.spec, &tensor).map(|()| Value::Host(tensor)),
        Value::Device(tensor) => {
            let (name, declared) = (info.name.clone(), info.spec.clone());
            Ok(Value::Device(Arc::new(CheckedTensor { tensor, name, declared })))
        }
    };
    declared.iter().zip(outputs).map(check).collect()
}

fn check_output(name: &str, declared: &TensorSpec, tensor: &Tensor) -> Result<(), EngineError> {
    if declared.admits(tensor.shape(), tensor.dtype()) {
        return Ok(());
    }
    let received = tensor.spec();
    Err(EngineError::Failed(format!("output `{name}` is `{received}`, but the model declares `{declared}`")))
}

/// An output on a device.
#[derive(Debug)]
struct CheckedTensor {
    tensor: Arc<dyn DeviceTensor>,
    name: String,
    declared: TensorSpec,
}

impl DeviceTensor for CheckedTensor {
    fn spec(&self) -> TensorSpec {
        self.tensor.spec()
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        let tensor = self.tensor.to_host()?;
        check_output(&self.name, &self.declared, &tensor).map(|()| tensor)
    }

    fn copy_again(&self) -> Result<(), EngineError> {
        self.tensor.copy_again()
    }

    /// Returns the engine's own tensor, which the engine recognizes.
    fn as_any(&self) -> &dyn Any {
        self.tensor.as_any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct OnDevice(Tensor);

    impl DeviceTensor for OnDevice {
        fn spec(&self) -> TensorSpec {
            self.0.spec()
        }

        fn to_host(&self) -> Result<Tensor, EngineError> {
            Ok(self.0.clone())
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[test]
    fn an_output_of_another_type_rank_or_fixed_dimension_is_an_error_on_the_host_and_on_a_device() {
        let tensor = Tensor::from_vec([2, 3], vec![0.0f32; 6]).unwrap();
        let run = |declared: &str, value: Value| {
            let info = ValueInfo { name: "y".to_owned(), spec: declared.parse().unwrap() };
            let checked = check_outputs(&[info], vec![value]).and_then(|outputs| outputs[0].to_host());
            checked.map_err(|error| error.to_string())
        };
        let values = || [Value::Host(tensor.clone()), Value::Device(Arc::new(OnDevice(tensor.clone())))];
        for value in values() {
            for declared in ["2,3,f32", "N,3,f32", "?,?,f32"] {
                run(declared, value.clone()).unwrap();
            }
            for declared in ["2,3,i64", "2,4,f32", "3,f32", "2,3,1,f32"] {
                let error = run(declared, value.clone()).unwrap_err();
                assert_eq!(error, format!("output `y` is `2,3,f32`, but the model declares `{declared}`"));
            }
        }
        let error = check_outputs(&[], values().to_vec()).unwrap_err().to_string();
        assert_eq!(error, "the engine returned 2 outputs, the model declares 0");
    }

    #[test]
    fn an_engine_recognizes_its_own_checked_tensor() {
        let info = ValueInfo { name: "y".to_owned(), spec: "f32".parse().unwrap() };
        let own: Arc<dyn DeviceTensor> = Arc::new(OnDevice(Tensor::scalar(1.0f32)));
        let checked = check_outputs(&[info], vec![Value::Device(own)]).unwrap();
        let Value::Device(tensor) = &checked[0] else { panic!("on the host") };
        assert!(tensor.as_any().downcast_ref::<OnDevice>().is_some());
    }
}
