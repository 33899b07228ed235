//! Operators that read or write elements at given indices. The indices are read on the host, where they are checked; the
//! elements stay in the tensor library.

use std::cmp::Ordering;

use super::OpError;
use super::operands::{Operands, Value};
use super::ops::{Binary, TensorOps};
use super::reference::Array;
use super::result_size::check_result_size;
use super::shape_arithmetic::resolve_axis;
use flagperf_onnx::{DType, Tensor};

/// Returns the elements of input 0 whose index along `axis` is given by input 1.
pub(super) fn gather_elements<O: TensorOps>(operands: &Operands<O>, axis: i64) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let axis = resolve_axis(axis, ops.shape(&x).len())?;
    match &operands.values[..] {
        [_, Some(Value::Library(indices))] => ops.gather_elements(&x, indices, axis),
        _ => elements_at(ops, &x, axis, &operands.shape(1)?, &operands.required_ints(1)?),
    }
}

/// Reads the indices on the host for [`TensorOps::gather_elements`].
pub(super) fn gather_elements_by_host<O: TensorOps>(
    ops: &O,
    x: &O::Tensor,
    indices: &O::Tensor,
    axis: usize,
) -> Result<O::Tensor, OpError> {
    let wanted = ops.shape(indices);
    elements_at(ops, x, axis, &wanted, &Array::from_tensor(&ops.download(indices, DType::I64)?).to_ints())
}

/// Returns the elements of `x` whose index along `axis` is given by indices of shape `wanted`.
fn elements_at<O: TensorOps>(
    ops: &O,
    x: &O::Tensor,
    axis: usize,
    wanted: &[usize],
    indices: &[i64],
) -> Result<O::Tensor, OpError> {
    let shape = ops.shape(x);
    let places = element_places(&shape, wanted, axis, indices)?;
    let flat = ops.reshape(x, &[shape.iter().product()])?;
    ops.gather(&flat, &upload_indices(ops, wanted, &places)?, 0)
}

/// Returns input 0 with the elements of input 2 at the indices of input 1 along `axis`.
pub(super) fn scatter_elements<O: TensorOps>(
    operands: &Operands<O>,
    axis: i64,
    combination: Option<Binary>,
) -> Result<O::Tensor, OpError> {
    let (ops, x, updates) = (operands.ops, operands.tensor(0)?, operands.tensor(2)?);
    let (shape, wanted) = (ops.shape(&x), operands.shape(1)?);
    if ops.shape(&updates) != wanted {
        return Err(OpError::invalid_operands(format!(
            "the updates {:?} and the indices {wanted:?} differ in shape",
            ops.shape(&updates)
        )));
    }
    let axis = resolve_axis(axis, shape.len())?;
    let places = element_places(&shape, &wanted, axis, &operands.required_ints(1)?)?;
    let flat = ops.reshape(&x, &[shape.iter().product(), 1])?;
    let updates = ops.reshape(&updates, &[places.len(), 1])?;
    ops.reshape(&ops.scatter_rows(&flat, &places, &updates, combination)?, &shape)
}

/// Returns the slices of input 0 at the index tuples in the last dimension of input 1.
pub(super) fn gather_nd<O: TensorOps>(operands: &Operands<O>, batch_dims: usize) -> Result<O::Tensor, OpError> {
    let (ops, x) = (operands.ops, operands.tensor(0)?);
    let (shape, wanted) = (ops.shape(&x), operands.shape(1)?);
    let tuples = IndexTuples::new(&shape, &wanted, batch_dims)?;
    let rows = tuples.rows(&operands.required_ints(1)?)?;
    let matrix = ops.reshape(&x, &[tuples.row_count, tuples.row_length])?;
    let result = [&wanted[..wanted.len() - 1], tuples.row_shape].concat();
    check_result_size(&result, ops.dtype(&x))?;
    ops.reshape(&ops.gather(&matrix, &upload_indices(ops, &[rows.len()], &rows)?, 0)?, &result)
}

/// Returns input 0 with the slices of input 2 at the index tuples in the last dimension of input 1.
pub(super) fn scatter_nd<O: TensorOps>(
    operands: &Operands<O>,
    combination: Option<Binary>,
) -> Result<O::Tensor, OpError> {
    let (ops, x, updates) = (operands.ops, operands.tensor(0)?, operands.tensor(2)?);
    let (shape, wanted) = (ops.shape(&x), operands.shape(1)?);
    let tuples = IndexTuples::new(&shape, &wanted, 0)?;
    let expected = [&wanted[..wanted.len() - 1], tuples.row_shape].concat();
    if ops.shape(&updates) != expected {
        return Err(OpError::invalid_operands(format!(
            "the updates have the shape {:?}, not {expected:?}",
            ops.shape(&updates)
        )));
    }
    let rows = tuples.rows(&operands.required_ints(1)?)?;
    let matrix = ops.reshape(&x, &[tuples.row_count, tuples.row_length])?;
    let updates = ops.reshape(&updates, &[rows.len(), tuples.row_length])?;
    ops.reshape(&ops.scatter_rows(&matrix, &rows, &updates, combination)?, &shape)
}

/// The tuples of indices of a GatherND or a ScatterND. Each selects a row of the data, seen as a matrix.
struct IndexTuples<'a> {
    /// The sizes of the dimensions that a batch and a tuple index.
    indexed: &'a [usize],
    batch_dims: usize,
    /// The number of tuples of one entry of the batch.
    tuples_per_batch: usize,
    /// The number of indices of a tuple.
    width: usize,
    row_shape: &'a [usize],
    row_count: usize,
    row_length: usize,
}

impl<'a> IndexTuples<'a> {
    fn new(shape: &'a [usize], indices: &[usize], batch_dims: usize) -> Result<Self, OpError> {
        let misfit = || OpError::invalid_operands(format!("{indices:?} cannot index {shape:?} (batch: {batch_dims})"));
        let (width, outer) = indices.split_last().ok_or_else(misfit)?;
        let depth = batch_dims.checked_add(*width).filter(|depth| *depth <= shape.len()).ok_or_else(misfit)?;
        if outer.get(..batch_dims).is_none_or(|batch| *batch != shape[..batch_dims]) {
            return Err(misfit());
        }
        let (indexed, row_shape) = shape.split_at(depth);
        Ok(IndexTuples {
            indexed,
            batch_dims,
            tuples_per_batch: outer[batch_dims..].iter().product(),
            width: *width,
            row_shape,
            row_count: indexed.iter().product(),
            row_length: row_shape.iter().product(),
        })
    }

    /// Returns the row that each tuple selects.
    fn rows(&self, indices: &[i64]) -> Result<Vec<usize>, OpError> {
        let (batch, inner) = self.indexed.split_at(self.batch_dims);
        let count = batch.iter().product::<usize>() * self.tuples_per_batch;
        let rows_per_batch: usize = inner.iter().product();
        (0..count)
            .map(|i| {
                let tuple = &indices[i * self.width..(i + 1) * self.width];
                let start = i / self.tuples_per_batch.max(1);
                let row = tuple
                    .iter()
                    .zip(inner)
                    .try_fold(0, |row, (index, size)| Ok::<_, OpError>(row * size + resolve_index(*index, *size)?))?;
                Ok(start * rows_per_batch + row)
            })
            .collect()
    }
}

/// Returns, for each index of a tensor of shape `wanted`, the place in row-major order of the element of a tensor of
/// `shape` that has this index along `axis` and otherwise the same coordinates.
fn element_places(shape: &[usize], wanted: &[usize], axis: usize, indices: &[i64]) -> Result<Vec<usize>, OpError> {
    let fits =
        wanted.len() == shape.len() && wanted.iter().zip(shape).enumerate().all(|(i, (w, s))| i == axis || w <= s);
    if !fits {
        return Err(OpError::invalid_operands(format!("{wanted:?} cannot index {shape:?} along axis {axis}")));
    }
    let strides = row_major_strides(shape);
    let mut at = vec![0usize; wanted.len()];
    let mut places = Vec::with_capacity(indices.len());
    for index in indices {
        let index = resolve_index(*index, shape[axis])?;
        let place =
            at.iter().zip(&strides).enumerate().map(|(i, (at, stride))| if i == axis { index } else { *at } * stride);
        places.push(place.sum());
        advance(&mut at, wanted);
    }
    Ok(places)
}

/// Returns the number of elements from one entry of each dimension to the next.
pub(super) fn row_major_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// Moves coordinates to the next element in row-major order.
pub(super) fn advance(at: &mut [usize], shape: &[usize]) {
    for (at, size) in at.iter_mut().zip(shape).rev() {
        *at += 1;
        if *at < *size {
            return;
        }
        *at = 0;
    }
}

/// Returns an index counted from the front. A negative index counts from the end.
fn resolve_index(index: i64, size: usize) -> Result<usize, OpError> {
    let from_front = if index < 0 { index.saturating_add(size as i64) } else { index };
    match usize::try_from(from_front) {
        Ok(front) if front < size => Ok(front),
        _ => Err(OpError::invalid_operands(format!("index {index} is out of range for size {size}"))),
    }
}

/// Uploads indices that are counted from the front.
pub(super) fn upload_indices<O: TensorOps + ?Sized>(
    ops: &O,
    shape: &[usize],
    indices: &[usize],
) -> Result<O::Tensor, OpError> {
    let indices: Vec<i64> = indices.iter().map(|index| *index as i64).collect();
    ops.upload(&Tensor::from_vec(shape, indices).map_err(OpError::library)?)
}

/// Computes [`TensorOps::scatter_rows`] with primitive operations: the result is gathered from the rows of `x` and those
/// of the updates.
pub(super) fn scatter_rows_from_primitives<O: TensorOps + ?Sized>(
    ops: &O,
    x: &O::Tensor,
    rows: &[usize],
    updates: &O::Tensor,
    combination: Option<Binary>,
) -> Result<O::Tensor, OpError> {
    let count = ops.shape(x).first().copied().unwrap_or(0);
    if rows.is_empty() || count == 0 {
        return Ok(x.clone());
    }
    let (rows, updates) = match combination {
        None => (rows.to_vec(), updates.clone()),
        Some(kind) => {
            let (rows, updates) = combine_duplicates(ops, rows, updates, kind)?;
            let before = ops.gather(x, &upload_indices(ops, &[rows.len()], &rows)?, 0)?;
            (rows, ops.binary(kind, &before, &updates)?)
        }
    };
    let mut sources: Vec<usize> = (0..count).collect();
    rows.iter().enumerate().for_each(|(update, row)| sources[*row] = count + update);
    let all = ops.concat(&[x.clone(), updates], 0)?;
    ops.gather(&all, &upload_indices(ops, &[count], &sources)?, 0)
}

/// Combines the updates of each row to one, pair by pair, and returns the rows and their updates.
fn combine_duplicates<O: TensorOps + ?Sized>(
    ops: &O,
    rows: &[usize],
    updates: &O::Tensor,
    kind: Binary,
) -> Result<(Vec<usize>, O::Tensor), OpError> {
    let (mut rows, mut updates) = (rows.to_vec(), updates.clone());
    loop {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|update| rows[*update]);
        let (mut firsts, mut seconds, mut singles) = (Vec::new(), Vec::new(), Vec::new());
        for same_row in order.chunk_by(|a, b| rows[*a] == rows[*b]) {
            for pair in same_row.chunks(2) {
                match pair {
                    [first, second] => {
                        firsts.push(*first);
                        seconds.push(*second);
                    }
                    single => singles.extend(single),
                }
            }
        }
        if firsts.is_empty() {
            return Ok((rows, updates));
        }
        let gather = |places: &[usize]| ops.gather(&updates, &upload_indices(ops, &[places.len()], places)?, 0);
        let combined = ops.binary(kind, &gather(&firsts)?, &gather(&seconds)?)?;
        updates = ops.concat(&[combined, gather(&singles)?], 0)?;
        rows = firsts.iter().chain(&singles).map(|update| rows[*update]).collect();
    }
}

/// Computes [`TensorOps::top_indices`] on the host.
pub(super) fn top_indices_on_host<O: TensorOps + ?Sized>(
    ops: &O,
    x: &O::Tensor,
    axis: usize,
    count: usize,
    largest: bool,
) -> Result<O::Tensor, OpError> {
    let x = Array::from_tensor(&ops.download(x, DType::F64)?);
    let mut shape = x.shape().to_vec();
    shape[axis] = count;
    let mut result = ndarray::ArrayD::<i64>::zeros(ndarray::IxDyn(&shape));
    let axis = ndarray::Axis(axis);
    for (lane, mut best) in x.values().lanes(axis).into_iter().zip(result.lanes_mut(axis)) {
        let compare = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
        let direct = |order: Ordering| if largest { order.reverse() } else { order };
        let mut indices: Vec<usize> = (0..lane.len()).collect();
        indices.sort_by(|a, b| direct(compare(lane[*a], lane[*b])));
        best.iter_mut().zip(indices).for_each(|(best, index)| *best = index as i64);
    }
    let indices: Vec<i64> = result.into_iter().collect();
    ops.upload(&Tensor::from_vec(shape, indices).map_err(OpError::library)?)
}
