//! Tensors over shared arrays of `ndarray`: neither direction of the conversion copies the elements of a dense array.

use ndarray::{ArcArray, ArcArray1, ArrayView2, ArrayViewD, ArrayViewMut2, Axis, Ix2, IxDyn, s};

use super::array_memory::ArrayMemory;
use super::{DType, Element, Tensor, TensorError};

impl Tensor {
    /// Returns the elements as an array. It shares the memory of a tensor that was created from a vector or an array;
    /// the elements of other memory are copied.
    ///
    /// # Errors
    /// When `T` is neither the tensor's element type nor u8 for a tensor of booleans.
    pub fn to_array<T: Element>(&self) -> Result<ArcArray<T, IxDyn>, TensorError> {
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
    pub fn from_array<T: Element>(array: ArcArray<T, IxDyn>) -> Tensor {
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
    pub fn bytes_as_bools(self) -> Tensor {
        if self.dtype == DType::U8 { Tensor { dtype: DType::Bool, ..self } } else { self }
    }
}

/// Rows and columns of the squares in which a matrix is transposed: few enough cache lines to stay in the first cache.
const SQUARE: usize = 64;

/// Returns the elements in row-major order. Neighbouring dimensions that lie in memory as one are merged, and whole
/// matrices are copied at once: an iterator over the elements of an array of any number of dimensions is several times
/// slower.
pub fn elements_in_order<T: Element>(mut array: ArrayViewD<'_, T>) -> Vec<T> {
    let mut elements = Vec::with_capacity(array.len());
    if array.is_empty() {
        return elements;
    }
    for axis in (1..array.ndim()).rev() {
        if array.merge_axes(Axis(axis - 1), Axis(axis)) {
            array.index_axis_inplace(Axis(axis - 1), 0);
        }
    }
    while array.ndim() < 2 {
        array.insert_axis_inplace(Axis(0));
    }
    append_matrices(array, &mut elements);
    elements
}

fn append_matrices<T: Element>(array: ArrayViewD<'_, T>, elements: &mut Vec<T>) {
    match array.view().into_dimensionality::<Ix2>() {
        Ok(matrix) => append_matrix(matrix, elements),
        Err(_) => array.outer_iter().for_each(|part| append_matrices(part, elements)),
    }
}

fn append_matrix<T: Element>(matrix: ArrayView2<'_, T>, elements: &mut Vec<T>) {
    let start = elements.len();
    if matrix.strides()[0] == 1 && matrix.ncols() > 1 {
        elements.resize(start + matrix.len(), T::zeroed());
        let result = ArrayViewMut2::from_shape(matrix.dim(), &mut elements[start..]);
        transpose(matrix, result.expect("as many elements were added as the matrix has"));
        return;
    }
    for row in matrix.rows() {
        match row.to_slice() {
            Some(row) => elements.extend_from_slice(row),
            None => elements.extend(row.iter().copied()),
        }
    }
}

/// Copies a matrix whose columns are contiguous to one whose rows are.
fn transpose<T: Element>(matrix: ArrayView2<'_, T>, mut result: ArrayViewMut2<'_, T>) {
    let (rows, columns) = matrix.dim();
    for column in (0..columns).step_by(SQUARE) {
        for row in (0..rows).step_by(SQUARE) {
            let square = s![row..rows.min(row + SQUARE), column..columns.min(column + SQUARE)];
            result.slice_mut(square).assign(&matrix.slice(square));
        }
    }
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

    #[test]
    fn elements_in_order_are_those_of_an_iterator() {
        for shape in [[2, 3, 4, 5], [1, 1, 1, 1], [1, 7, 1, 3], [3, 1, SQUARE + 1, SQUARE - 1], [2, 0, 3, 1]] {
            let count = shape.iter().product::<usize>() as i64;
            let array = ArcArray1::from_vec((0..count).collect()).into_shape_with_order(IxDyn(&shape)).unwrap();
            for order in [[0, 1, 2, 3], [0, 2, 3, 1], [0, 1, 3, 2], [3, 2, 1, 0], [2, 3, 0, 1], [1, 0, 3, 2]] {
                let permuted = array.view().permuted_axes(IxDyn(&order));
                let sliced =
                    permuted.slice_each_axis(|axis| ndarray::Slice::new(0, Some(axis.len.min(2) as isize), -1));
                for view in [permuted.view(), sliced] {
                    assert_eq!(
                        elements_in_order(view.view()),
                        view.iter().copied().collect::<Vec<_>>(),
                        "{shape:?} {order:?}"
                    );
                }
            }
        }
        assert_eq!(elements_in_order(ndarray::arr0(7i64).into_dyn().view()), [7]);
        let broadcast = ndarray::arr1(&[1i64, 2]).into_dyn();
        assert_eq!(elements_in_order(broadcast.broadcast(IxDyn(&[2, 2])).unwrap()), [1, 2, 1, 2]);
    }
}
