//! Tensors over shared arrays of `ndarray`: neither direction of the conversion copies the elements of a dense array.

use ndarray::{ArcArray, ArcArray1, ArrayViewD, IxDyn, s};

use super::array_memory::ArrayMemory;
use super::{Element, Tensor, TensorError};
use crate::DType;

impl Tensor {
    /// Returns the elements as an array. It shares the memory of a tensor that was created from a vector or an array;
    /// the elements of other memory are copied.
    ///
    /// # Errors
    /// When `T` is neither the tensor's element type nor u8 for a tensor of booleans.
    pub(crate) fn to_array<T: Element>(&self) -> Result<ArcArray<T, IxDyn>, TensorError> {
        let is_byte = (T::DTYPE, self.dtype) == (DType::U8, DType::Bool);
        if T::DTYPE != self.dtype && !is_byte {
            return Err(TensorError::WrongType { requested: T::DTYPE, actual: self.dtype });
        }
        let array = self.shared_elements().unwrap_or_else(|| {
            let elements: &[T] = bytemuck::cast_slice(self.bytes());
            ArcArray1::from_vec(elements.to_vec())
        });
        Ok(array
            .into_shape_with_order(IxDyn(&self.shape))
            .expect("the number of a tensor's elements matches its shape"))
    }

    fn shared_elements<T: Element>(&self) -> Option<ArcArray1<T>> {
        let mut array = self.memory.as_any()?.downcast_ref::<ArrayMemory<T>>()?.0.clone();
        let start = self.offset / size_of::<T>();
        array.slice_collapse(s![start..start + self.len()]);
        Some(array)
    }

    /// Returns a tensor of the elements of an array. They are copied only if the array shares its memory, is a part of
    /// it, or is not in row-major order.
    pub(crate) fn from_array<T: Element>(array: ArcArray<T, IxDyn>) -> Tensor {
        let (shape, length) = (array.shape().to_vec(), array.len());
        let elements = match array.try_into_owned_nocopy() {
            Ok(owned) if owned.is_standard_layout() => match owned.into_raw_vec_and_offset() {
                (elements, _) if elements.len() == length => elements,
                (elements, start) => elements[start.unwrap_or(0)..][..length].to_vec(),
            },
            Ok(owned) => elements_in_order(owned.view()),
            Err(shared) => match shared.as_slice() {
                Some(elements) => elements.to_vec(),
                None => elements_in_order(shared.view()),
            },
        };
        Tensor::from_vec(shape, elements).expect("the number of an array's elements matches its shape")
    }

    /// Returns a tensor of bytes that are 0 or 1 as a tensor of booleans; any other tensor unchanged.
    pub(crate) fn bytes_as_bools(self) -> Tensor {
        if self.dtype == DType::U8 { Tensor { dtype: DType::Bool, ..self } } else { self }
    }
}

/// Returns the elements in row-major order. Whole rows are copied at once: an iterator over the elements of an array of any
/// number of dimensions is several times slower.
pub(crate) fn elements_in_order<T: Clone>(array: ArrayViewD<'_, T>) -> Vec<T> {
    let mut elements = Vec::with_capacity(array.len());
    if array.ndim() == 0 {
        elements.extend(array.iter().cloned());
        return elements;
    }
    for row in array.rows() {
        match row.to_slice() {
            Some(row) => elements.extend_from_slice(row),
            None => elements.extend(row.iter().cloned()),
        }
    }
    elements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_of_a_vector_and_its_array_share_the_memory() {
        let tensor = Tensor::from_vec([2, 3], (0..6).map(|x| x as f32).collect()).unwrap();
        let array = tensor.to_array::<f32>().unwrap();
        assert_eq!(array.as_slice().unwrap().as_ptr(), tensor.as_slice::<f32>().unwrap().as_ptr());
        let rows = tensor.first_rows(1).unwrap().to_array::<f32>().unwrap();
        assert_eq!((rows.shape(), rows.as_ptr()), ([1, 3].as_slice(), array.as_ptr()));
        assert!(tensor.to_array::<i32>().is_err());
        let bools = Tensor::from_bools([2], &[true, false]).unwrap();
        assert_eq!(bools.to_array::<u8>().unwrap().as_slice().unwrap(), &[1, 0]);
    }

    #[test]
    fn an_array_that_owns_its_memory_becomes_a_tensor_without_a_copy() {
        let array = ArcArray1::from_vec(vec![1i64, 2, 3, 4]).into_dyn();
        let address = array.as_ptr();
        assert_eq!(Tensor::from_array(array).as_slice::<i64>().unwrap().as_ptr(), address);
    }

    #[test]
    fn a_part_of_an_array_becomes_a_tensor_of_its_own_elements() {
        let array = ArcArray1::from_vec((0i64..6).collect::<Vec<_>>()).into_shape_with_order(IxDyn(&[2, 3])).unwrap();
        let kept = array.clone();
        let columns = array.clone().permuted_axes(IxDyn(&[1, 0]));
        assert_eq!(Tensor::from_array(columns).as_slice::<i64>().unwrap(), &[0, 3, 1, 4, 2, 5]);
        drop(array);
        let mut row = kept;
        row.slice_axis_inplace(ndarray::Axis(0), (1..2).into());
        let row = Tensor::from_array(row);
        assert_eq!((row.shape(), row.as_slice::<i64>().unwrap()), ([1, 3].as_slice(), [3, 4, 5].as_slice()));
        assert_eq!(row.bytes().len(), row.memory.bytes().len());
    }
}
