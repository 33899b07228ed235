//! The inputs of a step: values on the host or in the tensor library, converted to the form that the operator requires.

use super::OpError;
use super::ops::TensorOps;
use super::reference::Array;
use flagperf_onnx::DType;

/// A value while a graph runs. Shapes and values computed from them stay on the host.
#[derive(Clone, Debug)]
pub(super) enum Value<T> {
    /// On the host, in f64 with an element type.
    Host(Array),
    /// In the tensor library.
    Library(T),
}

/// The inputs of one step.
pub(super) struct Operands<'a, O: TensorOps> {
    pub ops: &'a O,
    pub values: Vec<Option<Value<O::Tensor>>>,
}

impl<O: TensorOps> Operands<'_, O> {
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns input `i` as a tensor of the library.
    pub fn tensor(&self, i: usize) -> Result<O::Tensor, OpError> {
        self.optional_tensor(i)?.ok_or_else(|| OpError::invalid_operands(format!("input {i} is missing")))
    }

    /// Returns the first inputs as tensors of the library.
    pub fn tensors(&self, count: usize) -> Result<Vec<O::Tensor>, OpError> {
        (0..count).map(|i| self.tensor(i)).collect()
    }

    /// Returns input `i` as a tensor of the library, if it is present.
    pub fn optional_tensor(&self, i: usize) -> Result<Option<O::Tensor>, OpError> {
        match self.values.get(i).and_then(Option::as_ref) {
            None => Ok(None),
            Some(Value::Library(tensor)) => Ok(Some(tensor.clone())),
            Some(Value::Host(array)) => self.ops.upload(&array.to_tensor(array.dtype())).map(Some),
        }
    }

    /// Returns the shape of input `i`.
    pub fn shape(&self, i: usize) -> Result<Vec<usize>, OpError> {
        match self.values.get(i).and_then(Option::as_ref) {
            None => Err(OpError::invalid_operands(format!("input {i} is missing"))),
            Some(Value::Library(tensor)) => Ok(self.ops.shape(tensor)),
            Some(Value::Host(array)) => Ok(array.shape().to_vec()),
        }
    }

    /// Returns the element type of input `i`.
    pub fn dtype(&self, i: usize) -> Result<DType, OpError> {
        match self.values.get(i).and_then(Option::as_ref) {
            None => Err(OpError::invalid_operands(format!("input {i} is missing"))),
            Some(Value::Library(tensor)) => Ok(self.ops.dtype(tensor)),
            Some(Value::Host(array)) => Ok(array.dtype()),
        }
    }

    /// Returns input `i` as integers, if it is present.
    pub fn ints(&self, i: usize) -> Result<Option<Vec<i64>>, OpError> {
        Ok(self.numbers(i, DType::I64)?.map(|array| array.to_ints()))
    }

    /// Returns input `i` as integers.
    pub fn required_ints(&self, i: usize) -> Result<Vec<i64>, OpError> {
        self.ints(i)?.ok_or_else(|| OpError::invalid_operands(format!("input {i} is missing")))
    }

    /// Returns the first number of input `i`, if the input is present.
    pub fn number(&self, i: usize) -> Result<Option<f64>, OpError> {
        Ok(self.numbers(i, DType::F64)?.and_then(|array| array.values().first().copied()))
    }

    /// Returns the numbers of input `i`, if the input is present.
    pub fn float_list(&self, i: usize) -> Result<Option<Vec<f64>>, OpError> {
        Ok(self.numbers(i, DType::F64)?.map(|array| array.values().iter().copied().collect()))
    }

    /// Returns the number in input `i`, if the input is a single number that is already on the host.
    pub fn host_number(&self, i: usize) -> Option<f64> {
        match self.values.get(i)?.as_ref()? {
            Value::Host(array) if array.values().len() == 1 => array.values().first().copied(),
            _ => None,
        }
    }

    fn numbers(&self, i: usize, dtype: DType) -> Result<Option<Array>, OpError> {
        match self.values.get(i).and_then(Option::as_ref) {
            None => Ok(None),
            Some(Value::Host(array)) => Ok(Some(array.clone())),
            Some(Value::Library(tensor)) => Ok(Some(Array::from_tensor(&self.ops.download(tensor, dtype)?))),
        }
    }
}
