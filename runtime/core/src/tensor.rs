//! Tensors in host memory: dense, row-major, with a single element type, cheap to clone.

mod array_memory;
mod element;
mod shared_array;
mod sizes;
mod spec;

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::with_element_type;
use array_memory::ArrayMemory;
use bytemuck::Pod;
pub use element::Element;
use half::{bf16, f16};
use ndarray::{ArcArray1, ArrayViewD, IxDyn};
pub use shared_array::elements_in_order;
pub use sizes::{NamedSizes, SizeConflict};
use smallvec::SmallVec;
pub use spec::{DType, Dim, SpecError, TensorSpec};

/// Memory that a tensor reads from: a vector, a mapped file or a buffer lent by an engine.
pub trait HostMemory: Send + Sync {
    /// Returns the bytes. Their address does not change while the memory exists.
    fn bytes(&self) -> &[u8];

    /// Returns the memory for a downcast, by which a tensor library recognizes its own arrays; `None` by default.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

/// Returns a vector as tensor memory. It keeps the alignment of its elements.
fn vec_memory<T: Pod + Send + Sync>(elements: Vec<T>) -> Arc<dyn HostMemory> {
    Arc::new(ArrayMemory(ArcArray1::from_vec(elements)))
}

/// Returns a copy of bytes as tensor memory with the alignment of `T`.
fn copied_memory<T: Pod + Send + Sync>(bytes: &[u8]) -> Arc<dyn HostMemory> {
    vec_memory::<T>(bytemuck::pod_collect_to_vec(bytes))
}

/// A dense row-major tensor in host memory. Cloning shares the memory.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: SmallVec<[usize; 6]>,
    memory: Arc<dyn HostMemory>,
    offset: usize,
}

impl Tensor {
    /// Returns a tensor of the given elements, in row-major order.
    ///
    /// # Errors
    /// When the number of elements is not the product of `shape`.
    pub fn from_vec<T: Element>(shape: impl Into<Vec<usize>>, elements: Vec<T>) -> Result<Self, TensorError> {
        Tensor::from_whole_memory(shape, T::DTYPE, vec_memory(elements))
    }

    /// Returns a tensor over a copy of bytes in native byte order. The bytes need no alignment.
    ///
    /// # Errors
    /// When the number of bytes differs from what shape and type need.
    pub fn from_bytes(shape: impl Into<Vec<usize>>, dtype: DType, bytes: &[u8]) -> Result<Self, TensorError> {
        if !bytes.len().is_multiple_of(dtype.size()) {
            let shape = shape.into();
            let needed = byte_count(&shape, dtype).ok_or(TensorError::TooLarge)?;
            return Err(TensorError::Length { shape, dtype, needed, available: bytes.len() });
        }
        let memory = with_element_type!(dtype, T => copied_memory::<T>(bytes));
        Tensor::from_whole_memory(shape, dtype, memory)
    }

    /// Returns a tensor of booleans, one byte each.
    ///
    /// # Errors
    /// When the number of elements is not the product of `shape`.
    pub fn from_bools(shape: impl Into<Vec<usize>>, elements: &[bool]) -> Result<Self, TensorError> {
        let bytes: Vec<u8> = elements.iter().map(|b| u8::from(*b)).collect();
        Tensor::from_whole_memory(shape, DType::Bool, vec_memory(bytes))
    }

    /// Returns a tensor of one element and no dimensions.
    pub fn scalar<T: Element>(element: T) -> Self {
        Tensor { dtype: T::DTYPE, shape: SmallVec::new(), memory: vec_memory(vec![element]), offset: 0 }
    }

    /// Returns a tensor over memory of any kind, beginning `offset` bytes into it. The memory may be longer.
    ///
    /// # Errors
    /// When the memory is shorter than shape and type need, or its address is not a multiple of the element size.
    pub fn from_memory(
        shape: impl Into<Vec<usize>>,
        dtype: DType,
        memory: Arc<dyn HostMemory>,
        offset: usize,
    ) -> Result<Self, TensorError> {
        let shape: Vec<usize> = shape.into();
        let needed = byte_count(&shape, dtype).ok_or(TensorError::TooLarge)?;
        let available = memory.bytes().len().saturating_sub(offset);
        if available < needed {
            return Err(TensorError::Length { shape, dtype, needed, available });
        }
        let address = memory.bytes().as_ptr() as usize + offset;
        if !address.is_multiple_of(dtype.size()) {
            return Err(TensorError::Unaligned(dtype));
        }
        Ok(Tensor { dtype, shape: SmallVec::from_slice(&shape), memory, offset })
    }

    /// Returns a tensor over memory of exactly its length.
    fn from_whole_memory(
        shape: impl Into<Vec<usize>>,
        dtype: DType,
        memory: Arc<dyn HostMemory>,
    ) -> Result<Self, TensorError> {
        let available = memory.bytes().len();
        let tensor = Tensor::from_memory(shape, dtype, memory, 0)?;
        let needed = tensor.bytes().len();
        if available == needed {
            return Ok(tensor);
        }
        Err(TensorError::Length { shape: tensor.shape.to_vec(), dtype, needed, available })
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns shape and type, with every dimension fixed.
    pub fn spec(&self) -> TensorSpec {
        TensorSpec::new(self.shape.iter().copied(), self.dtype)
    }

    /// Returns the elements as bytes in native byte order.
    pub fn bytes(&self) -> &[u8] {
        let length = self.len() * self.dtype.size();
        &self.memory.bytes()[self.offset..self.offset + length]
    }

    /// Returns the elements in row-major order.
    ///
    /// # Errors
    /// When `T` is not the tensor's element type.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        if T::DTYPE != self.dtype {
            return Err(TensorError::WrongType { requested: T::DTYPE, actual: self.dtype });
        }
        Ok(bytemuck::cast_slice(self.bytes()))
    }

    /// Returns a view of the elements with their shape.
    ///
    /// # Errors
    /// When `T` is not the tensor's element type.
    pub fn view<T: Element>(&self) -> Result<ArrayViewD<'_, T>, TensorError> {
        let elements = self.as_slice::<T>()?;
        Ok(ArrayViewD::from_shape(IxDyn(&self.shape), elements)
            .expect("the constructor checked the length against the shape"))
    }

    /// Returns the elements converted to f64. Integers beyond 2^53 are rounded.
    pub fn to_f64(&self) -> Vec<f64> {
        with_element_type!(self.dtype, T => convert(self.bytes(), T::to_f64))
    }

    /// Returns the numbers converted to another element type, as [`Element::convert`] does.
    pub fn cast(&self, dtype: DType) -> Tensor {
        if dtype == self.dtype {
            return self.clone();
        }
        let shape = self.shape.to_vec();
        let built = match (self.dtype, dtype) {
            (DType::F32, DType::F16) => Tensor::from_vec(shape, convert(self.bytes(), f16::from_f32)),
            (_, DType::Bool) => {
                let bools: Vec<bool> = self.to_f64().into_iter().map(|x| x != 0.0).collect();
                Tensor::from_bools(shape, &bools)
            }
            (from, to) => with_element_type!(from, T => with_element_type!(to, U => {
                Tensor::from_vec(shape, convert(self.bytes(), U::convert::<T>))
            })),
        };
        built.expect("a conversion keeps the number of elements")
    }

    /// Returns the same elements with another shape.
    ///
    /// # Errors
    /// When the number of elements differs.
    pub fn reshape(&self, shape: impl Into<Vec<usize>>) -> Result<Tensor, TensorError> {
        let shape: Vec<usize> = shape.into();
        if shape.iter().product::<usize>() != self.len() {
            return Err(TensorError::Length {
                needed: byte_count(&shape, self.dtype).ok_or(TensorError::TooLarge)?,
                available: self.bytes().len(),
                dtype: self.dtype,
                shape,
            });
        }
        Ok(Tensor { shape: SmallVec::from_slice(&shape), ..self.clone() })
    }

    /// Returns the first `count` rows (entries of the outermost dimension). They share the tensor's memory.
    ///
    /// # Errors
    /// When the tensor has fewer rows.
    pub fn first_rows(&self, count: usize) -> Result<Tensor, TensorError> {
        match self.shape.first() {
            Some(rows) if count <= *rows => {
                let mut cut = self.clone();
                cut.shape[0] = count;
                Ok(cut)
            }
            rows => Err(TensorError::TooFewRows { requested: count, available: rows.copied().unwrap_or(0) }),
        }
    }

    /// Returns a copy of the rows at `indices`, in that order.
    ///
    /// # Errors
    /// When an index is out of range.
    pub fn take_rows(&self, indices: &[usize]) -> Result<Tensor, TensorError> {
        let available = self.shape.first().copied().unwrap_or(0);
        if let Some(index) = indices.iter().find(|index| **index >= available) {
            return Err(TensorError::TooFewRows { requested: index + 1, available });
        }
        let row = self.bytes().len().checked_div(available).unwrap_or(0);
        let mut words = vec![0u64; (row * indices.len()).div_ceil(size_of::<u64>())];
        let bytes = bytemuck::cast_slice_mut::<u64, u8>(&mut words);
        for (to, index) in bytes.chunks_exact_mut(row.max(1)).zip(indices) {
            to.copy_from_slice(&self.bytes()[index * row..(index + 1) * row]);
        }
        let mut shape = self.shape.clone();
        shape.first_mut().into_iter().for_each(|rows| *rows = indices.len());
        Ok(Tensor { dtype: self.dtype, shape, memory: vec_memory(words), offset: 0 })
    }
}

/// Rounds to 16 bits once: the conversions of `half` round to f32 first.
pub fn f16_from_f64(x: f64) -> f16 {
    f16::from_f32(round_to_odd(x))
}

/// As [`f16_from_f64`].
pub fn bf16_from_f64(x: f64) -> bf16 {
    bf16::from_f32(round_to_odd(x))
}

/// Rounds towards zero and sets the last bit if a digit was lost, so that a second rounding to fewer bits gives the same as
/// rounding once (Boldo and Melquiond, "When double rounding is odd", 2005).
fn round_to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let bits = nearest.to_bits();
    f32::from_bits(match f64::from(nearest).abs().partial_cmp(&x.abs()) {
        Some(Ordering::Greater) => (bits - 1) | 1,
        Some(Ordering::Less) => bits | 1,
        _ => bits,
    })
}

/// Two tensors are equal when shape, type and bytes are.
impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.spec() == other.spec() && self.bytes() == other.bytes()
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({})", self.spec())
    }
}

/// Returns the size of a tensor in bytes, or `None` when it does not fit in a `usize`.
pub fn byte_count(shape: &[usize], dtype: DType) -> Option<usize> {
    shape.iter().try_fold(dtype.size(), |bytes, size| bytes.checked_mul(*size))
}

fn convert<T: Pod, U>(bytes: &[u8], to: impl Fn(T) -> U) -> Vec<U> {
    bytemuck::cast_slice::<u8, T>(bytes).iter().map(|x| to(*x)).collect()
}

/// Why a tensor could not be created or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The length of the memory does not match the shape.
    #[error("a tensor `{}` needs {needed} bytes, but {available} are available", TensorSpec::new(.shape.iter().copied(), *.dtype))]
    Length {
        /// The requested shape.
        shape: Vec<usize>,
        /// The requested element type.
        dtype: DType,
        /// Bytes that shape and type need.
        needed: usize,
        /// Bytes that are available.
        available: usize,
    },
    /// The number of bytes does not fit in a `usize`.
    #[error("the tensor is larger than this machine can address")]
    TooLarge,
    /// The memory is not aligned for the element type.
    #[error("the memory is not aligned for `{0}`")]
    Unaligned(DType),
    /// The elements were requested as another type.
    #[error("the tensor has the element type `{actual}`, not `{requested}`")]
    WrongType {
        requested: DType,
        /// The tensor's type.
        actual: DType,
    },
    /// More rows were requested than the tensor has.
    #[error("a row count of {requested} is out of range: the first dimension is {available}")]
    TooFewRows {
        /// Number of rows requested.
        requested: usize,
        /// Number of rows of the tensor.
        available: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_that_does_not_match_its_elements_is_refused() {
        let error = Tensor::from_vec([2, 2], vec![1.0f32; 3]).unwrap_err();
        assert_eq!(error.to_string(), "a tensor `2,2,f32` needs 16 bytes, but 12 are available");
    }

    #[test]
    fn small_integers_survive_a_cast_and_back() {
        let start = Tensor::from_vec([3], vec![1i64, -2, 100]).unwrap();
        for dtype in [DType::F16, DType::F32, DType::F64, DType::I32, DType::I16, DType::I8] {
            let back = start.cast(dtype).cast(DType::I64);
            assert_eq!(back.as_slice::<i64>().unwrap(), &[1, -2, 100]);
        }
        let start = Tensor::from_vec([3], vec![1i64, 2, 100]).unwrap();
        for dtype in [DType::U64, DType::U32, DType::U16, DType::U8] {
            assert_eq!(start.cast(dtype).cast(DType::I64).as_slice::<i64>().unwrap(), &[1, 2, 100]);
        }
    }

    #[test]
    fn an_integer_that_is_too_large_keeps_its_lowest_bits_and_a_float_is_limited() {
        let integers = Tensor::from_vec([2], vec![-1i64, 70_000]).unwrap();
        assert_eq!(integers.cast(DType::U16).as_slice::<u16>().unwrap(), &[65_535, 4_464]);
        assert_eq!(integers.cast(DType::U64).cast(DType::F64).as_slice::<f64>().unwrap(), &[2f64.powi(64), 70_000.0]);
        let floats = Tensor::from_vec([3], vec![-1.5f32, 70_000.0, f32::NAN]).unwrap();
        assert_eq!(floats.cast(DType::I16).as_slice::<i16>().unwrap(), &[-1, i16::MAX, 0]);
        assert_eq!(floats.cast(DType::U32).as_slice::<u32>().unwrap(), &[0, 70_000, 0]);
    }

    #[test]
    fn the_first_rows_share_the_memory() {
        let all = Tensor::from_vec([3, 2], vec![1i32, 2, 3, 4, 5, 6]).unwrap();
        let two = all.first_rows(2).unwrap();
        assert_eq!(two.as_slice::<i32>().unwrap(), &[1, 2, 3, 4]);
        assert_eq!(two.bytes().as_ptr(), all.bytes().as_ptr());
        assert!(all.first_rows(4).is_err());
    }

    #[test]
    fn rows_are_taken_in_the_requested_order() {
        let all = Tensor::from_vec([3, 3], (0i8..9).collect::<Vec<_>>()).unwrap();
        let two = all.take_rows(&[2, 0]).unwrap();
        assert_eq!(two.as_slice::<i8>().unwrap(), &[6, 7, 8, 0, 1, 2]);
        assert!(all.take_rows(&[3]).is_err());
    }
}
