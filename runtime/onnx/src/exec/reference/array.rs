//! The reference's tensor: f64 numbers and the element type they stand for.

use ndarray::{ArcArray, ArrayD, ArrayViewD, IxDyn};

use super::OpError;
use crate::{DType, Tensor};

/// Numbers in f64 with a shape, and the element type they stand for. Cloning shares the memory.
#[derive(Clone, Debug)]
pub struct Array {
    values: ArcArray<f64, IxDyn>,
    dtype: DType,
}

impl Array {
    /// An array of numbers that stand for `dtype`.
    pub fn new(values: ArrayD<f64>, dtype: DType) -> Self {
        Array { values: values.into_shared(), dtype }
    }

    /// Integers in one dimension.
    pub fn from_ints(values: impl IntoIterator<Item = i64>) -> Self {
        let values: Vec<f64> = values.into_iter().map(|value| value as f64).collect();
        Array::new(ndarray::Array1::from(values).into_dyn(), DType::I64)
    }

    /// The numbers of a host tensor.
    pub fn from_tensor(tensor: &Tensor) -> Self {
        let values = ArrayD::from_shape_vec(IxDyn(tensor.shape()), tensor.to_f64())
            .expect("a tensor holds as many elements as its shape says");
        Array::new(values, tensor.dtype())
    }

    /// The numbers rounded to `dtype`, as a host tensor.
    pub fn to_tensor(&self, dtype: DType) -> Tensor {
        Tensor::from_vec(self.shape(), self.values.iter().copied().collect())
            .expect("an array holds as many elements as its shape says")
            .cast(dtype)
    }

    /// The numbers.
    pub fn values(&self) -> ArrayViewD<'_, f64> {
        self.values.view()
    }

    /// The numbers as integers, in row-major order.
    pub fn to_ints(&self) -> Vec<i64> {
        self.values.iter().map(|value| *value as i64).collect()
    }

    /// The sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        self.values.shape()
    }

    /// The element type the numbers stand for.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The same numbers standing for another element type.
    pub(super) fn with_dtype(self, dtype: DType) -> Self {
        Array { dtype, ..self }
    }

    /// A function of each number.
    pub(super) fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Array::new(self.values.mapv(f), self.dtype)
    }

    /// The numbers repeated up to a shape.
    pub(super) fn broadcast(&self, shape: &[usize]) -> Result<ArrayViewD<'_, f64>, OpError> {
        self.values
            .broadcast(IxDyn(shape))
            .ok_or_else(|| OpError::operands(format!("{:?} does not broadcast to {shape:?}", self.shape())))
    }

    /// The same numbers, row-major, under another shape.
    pub(super) fn reshape(&self, shape: &[usize]) -> Result<Self, OpError> {
        let row_major: Vec<f64> = self.values.iter().copied().collect();
        let values = ArrayD::from_shape_vec(IxDyn(shape), row_major)
            .map_err(|_| OpError::operands(format!("{:?} cannot become {shape:?}", self.shape())))?;
        Ok(Array::new(values, self.dtype))
    }
}
