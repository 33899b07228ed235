//! The executor's tensors, and their conversion from and to host tensors.

use half::{bf16, f16};
use ndarray::{ArcArray, ArrayD, ArrayViewD, IxDyn};

use super::OpError;
use crate::result_size::check_result_size;
use flagperf_core::tensor::elements_in_order;
use flagperf_core::with_element_type;
use flagperf_onnx::{DType, Element, Tensor};

/// Elements of one type with a shape. Cloning shares the memory.
pub(super) type Elements<T> = ArcArray<T, IxDyn>;

/// A tensor in any element type; bool is stored as u8. Cloning shares the memory, and so do the results of permutations
/// and slices.
#[derive(Clone, Debug)]
pub enum Dense {
    /// Elements of f64.
    F64(Elements<f64>),
    /// Elements of f32.
    F32(Elements<f32>),
    /// Elements of f16.
    F16(Elements<f16>),
    /// Elements of bf16.
    BF16(Elements<bf16>),
    /// Elements of i64.
    I64(Elements<i64>),
    /// Elements of i32.
    I32(Elements<i32>),
    /// Elements of i16.
    I16(Elements<i16>),
    /// Elements of i8.
    I8(Elements<i8>),
    /// Elements of u64.
    U64(Elements<u64>),
    /// Elements of u32.
    U32(Elements<u32>),
    /// Elements of u16.
    U16(Elements<u16>),
    /// Elements of u8, or bools.
    U8(Elements<u8>),
}

/// Evaluates an expression for the elements of a tensor, whatever their type.
macro_rules! with_elements {
    ($tensor:expr, $elements:ident => $result:expr) => {
        match $tensor {
            $crate::cpu::storage::Dense::F64($elements) => $result,
            $crate::cpu::storage::Dense::F32($elements) => $result,
            $crate::cpu::storage::Dense::F16($elements) => $result,
            $crate::cpu::storage::Dense::BF16($elements) => $result,
            $crate::cpu::storage::Dense::I64($elements) => $result,
            $crate::cpu::storage::Dense::I32($elements) => $result,
            $crate::cpu::storage::Dense::I16($elements) => $result,
            $crate::cpu::storage::Dense::I8($elements) => $result,
            $crate::cpu::storage::Dense::U64($elements) => $result,
            $crate::cpu::storage::Dense::U32($elements) => $result,
            $crate::cpu::storage::Dense::U16($elements) => $result,
            $crate::cpu::storage::Dense::U8($elements) => $result,
        }
    };
}
pub(super) use with_elements;

/// Evaluates an expression for the elements of a tensor of one of the types that arithmetic is written for; an error for
/// the others.
macro_rules! with_numbers {
    ($tensor:expr, $elements:ident => $result:expr) => {
        match $tensor {
            $crate::cpu::storage::Dense::F64($elements) => $result,
            $crate::cpu::storage::Dense::F32($elements) => $result,
            $crate::cpu::storage::Dense::I64($elements) => $result,
            $crate::cpu::storage::Dense::I32($elements) => $result,
            other => Err($crate::OpError::unsupported(format!("arithmetic in `{}`", other.dtype()))),
        }
    };
}
pub(super) use with_numbers;

/// A type of elements that [`Dense`] has a variant for.
pub(super) trait DenseElement: Element {
    /// Returns the elements of a tensor; an error if they have another type.
    fn elements(tensor: &Dense) -> Result<&Elements<Self>, OpError>;
}

macro_rules! dense_element {
    ($($variant:ident: $element:ty),*) => {$(
        impl DenseElement for $element {
            fn elements(tensor: &Dense) -> Result<&Elements<Self>, OpError> {
                match tensor {
                    Dense::$variant(elements) => Ok(elements),
                    other => Err(OpError::invalid_operands(format!(
                        "an operand has the element type `{}` instead of `{}`", other.dtype(), Self::DTYPE
                    ))),
                }
            }
        }

        impl From<Elements<$element>> for Dense {
            fn from(elements: Elements<$element>) -> Self {
                Dense::$variant(elements)
            }
        }

        impl From<ArrayD<$element>> for Dense {
            fn from(elements: ArrayD<$element>) -> Self {
                Dense::$variant(elements.into_shared())
            }
        }
    )*};
}
dense_element!(
    F64: f64, F32: f32, F16: f16, BF16: bf16, I64: i64, I32: i32, I16: i16, I8: i8, U64: u64, U32: u32, U16: u16, U8: u8
);

impl Dense {
    /// Returns the element type as it is stored.
    pub(super) fn dtype(&self) -> DType {
        fn dtype<T: Element>(_: &Elements<T>) -> DType {
            T::DTYPE
        }
        with_elements!(self, elements => dtype(elements))
    }

    /// Returns the sizes, outermost first.
    pub(crate) fn shape(&self) -> &[usize] {
        with_elements!(self, elements => elements.shape())
    }

    /// Returns the address of the elements if they are in row-major order without gaps.
    pub(crate) fn dense_address(&self) -> Option<*const u8> {
        with_elements!(self, elements => elements.as_slice().map(|elements| elements.as_ptr().cast()))
    }

    /// Returns the sizes of a batch of images: images, channels, height, width.
    pub(super) fn image_shape(&self) -> Result<[usize; 4], OpError> {
        let shape = self.shape();
        shape.try_into().map_err(|_| OpError::invalid_operands(format!("{shape:?} must have 4 dimensions")))
    }
}

pub(super) fn upload(tensor: &Tensor) -> Result<Dense, OpError> {
    with_element_type!(tensor.dtype(), T => Ok(tensor.to_array::<T>()?.into()))
}

/// Returns a number as a tensor without dimensions.
pub(super) fn scalar(number: f64, dtype: DType) -> Result<Dense, OpError> {
    upload(&Tensor::scalar(number).cast(dtype))
}

pub(super) fn download(tensor: &Dense) -> Result<Tensor, OpError> {
    with_elements!(tensor, elements => Ok(Tensor::from_vec(elements.shape(), row_major(elements))?))
}

/// Converts a tensor to a host tensor. The elements are copied only if the tensor shares its memory or is not dense.
pub(crate) fn into_host(tensor: Dense) -> Tensor {
    with_elements!(tensor, elements => Tensor::from_array(elements))
}

/// Returns a copy of the elements in row-major order.
pub(super) fn row_major<T: Element>(elements: &Elements<T>) -> Vec<T> {
    match elements.as_slice() {
        Some(elements) => elements.to_vec(),
        None => elements_in_order(elements.view()),
    }
}

/// Returns the elements in row-major order. They are copied only if they are not in that order already.
pub(super) fn in_order<T: Element>(elements: &Elements<T>) -> Elements<T> {
    if elements.is_standard_layout() {
        return elements.clone();
    }
    let rows = ArrayD::from_shape_vec(elements.raw_dim(), row_major(elements));
    rows.expect("the elements have the shape").into_shared()
}

/// Repeats dimensions of size 1 up to `shape`.
pub(super) fn broadcast<'a, T>(elements: &'a Elements<T>, shape: &[usize]) -> Result<ArrayViewD<'a, T>, OpError> {
    elements
        .broadcast(IxDyn(shape))
        .ok_or_else(|| OpError::invalid_operands(format!("{:?} cannot be broadcast to {shape:?}", elements.shape())))
}

/// Returns a vector of zeros for the elements of a shape.
///
/// # Errors
/// When the memory for it cannot be allocated.
pub(super) fn zeros<T: Element>(shape: &[usize]) -> Result<Vec<T>, OpError> {
    check_result_size(shape, T::DTYPE)?;
    Ok(vec![T::zeroed(); shape.iter().product()])
}

/// Calls `f` with the elements of an f32 tensor, in row-major order.
pub(super) fn with_f32_elements<R>(x: &Dense, f: impl FnOnce(&[f32]) -> R) -> Result<R, OpError> {
    let Dense::F32(elements) = x else {
        return Err(OpError::unsupported(format!("this operator in `{}`", x.dtype())));
    };
    Ok(match elements.as_slice() {
        Some(elements) => f(elements),
        None => f(&row_major(elements)),
    })
}

/// Returns an f32 tensor of the given elements, in row-major order.
pub(super) fn f32_tensor(elements: Vec<f32>, shape: &[usize]) -> Result<Dense, OpError> {
    ArrayD::from_shape_vec(IxDyn(shape), elements).map(Dense::from).map_err(OpError::library)
}
