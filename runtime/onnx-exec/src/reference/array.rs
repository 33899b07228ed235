//! The tensor of the reference library: f64 numbers, and the element type that they represent.

use ndarray::{ArcArray, ArrayD, ArrayViewD, IxDyn};

use super::OpError;
use flagperf_onnx::{DType, Tensor};

/// Numbers in f64 with a shape, and the element type that they represent. Cloning shares the memory.
#[derive(Clone, Debug)]
pub struct Array {
    values: ArcArray<f64, IxDyn>,
    dtype: DType,
}

impl Array {
    /// Returns an array of numbers that represent `dtype`.
    pub fn new(values: ArrayD<f64>, dtype: DType) -> Self {
        Array { values: values.into_shared(), dtype }
    }

    /// Returns an array of numbers of type f64.
    #[cfg(feature = "cpu")]
    pub(crate) fn from_elements(values: ArcArray<f64, IxDyn>) -> Self {
        Array { values, dtype: DType::F64 }
    }

    /// Returns the numbers.
    #[cfg(feature = "cpu")]
    pub(crate) fn into_elements(self) -> ArcArray<f64, IxDyn> {
        self.values
    }

    /// Returns a one-dimensional array of integers.
    pub fn from_ints(values: impl IntoIterator<Item = i64>) -> Self {
        let values: Vec<f64> = values.into_iter().map(|value| value as f64).collect();
        Array::new(ndarray::Array1::from(values).into_dyn(), DType::I64)
    }

    /// Returns an array of the numbers of a host tensor.
    pub fn from_tensor(tensor: &Tensor) -> Self {
        let values = ArrayD::from_shape_vec(IxDyn(tensor.shape()), tensor.to_f64())
            .expect("the number of a tensor's elements matches its shape");
        Array::new(values, tensor.dtype())
    }

    /// Returns the numbers, rounded to `dtype`, as a host tensor.
    pub fn to_tensor(&self, dtype: DType) -> Tensor {
        Tensor::from_vec(self.shape(), self.values.iter().copied().collect())
            .expect("the number of an array's elements matches its shape")
            .cast(dtype)
    }

    /// Returns a view of the numbers.
    pub fn values(&self) -> ArrayViewD<'_, f64> {
        self.values.view()
    }

    /// Returns the numbers as integers, in row-major order.
    pub fn to_ints(&self) -> Vec<i64> {
        self.values.iter().map(|value| *value as i64).collect()
    }

    /// Returns the sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        self.values.shape()
    }

    /// Returns the element type that the numbers represent.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the same numbers, representing another element type.
    pub(super) fn with_dtype(self, dtype: DType) -> Self {
        Array { dtype, ..self }
    }

    /// Applies a function to each number.
    pub(super) fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Array::new(self.values.mapv(f), self.dtype)
    }

    /// Broadcasts the numbers to a shape.
    pub(super) fn broadcast(&self, shape: &[usize]) -> Result<ArrayViewD<'_, f64>, OpError> {
        self.values
            .broadcast(IxDyn(shape))
            .ok_or_else(|| OpError::invalid_operands(format!("{:?} cannot be broadcast to {shape:?}", self.shape())))
    }

    /// Returns the same numbers, in row-major order, with another shape.
    pub(crate) fn reshape(&self, shape: &[usize]) -> Result<Self, OpError> {
        let row_major: Vec<f64> = self.values.iter().copied().collect();
        let values = ArrayD::from_shape_vec(IxDyn(shape), row_major)
            .map_err(|_| OpError::invalid_operands(format!("{:?} cannot be reshaped to {shape:?}", self.shape())))?;
        Ok(Array::new(values, self.dtype))
    }
}
