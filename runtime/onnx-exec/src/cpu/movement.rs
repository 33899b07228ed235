//! Operations that only move elements.

use ndarray::{ArrayD, Axis, IxDyn, Slice, concatenate};

use super::OpError;
use super::precision::cast;
use super::storage::{Dense, DenseElement, Elements, broadcast, in_order, row_major, scalar, with_elements};
use crate::ops::PadMode;
use crate::result_size::check_result_size;
use flagperf_core::tensor::elements_in_order;
use flagperf_onnx::DType;

pub(super) fn reshape(x: &Dense, shape: &[usize]) -> Result<Dense, OpError> {
    with_elements!(x, x => {
        let reshaped = in_order(x).into_shape_with_order(IxDyn(shape));
        let error = |_| OpError::invalid_operands(format!("{:?} cannot be reshaped to {shape:?}", x.shape()));
        reshaped.map(Dense::from).map_err(error)
    })
}

pub(super) fn permute(x: &Dense, order: &[usize]) -> Dense {
    with_elements!(x, x => x.clone().permuted_axes(IxDyn(order)).into())
}

pub(super) fn expand(x: &Dense, shape: &[usize]) -> Result<Dense, OpError> {
    check_result_size(shape, x.dtype())?;
    with_elements!(x, x => {
        let repeated = ArrayD::from_shape_vec(IxDyn(shape), elements_in_order(broadcast(x, shape)?));
        repeated.map(Dense::from).map_err(OpError::library)
    })
}

pub(super) fn concat(parts: &[Dense], axis: usize) -> Result<Dense, OpError> {
    fn concat<T: DenseElement>(_first: &Elements<T>, parts: &[Dense], axis: usize) -> Result<ArrayD<T>, OpError> {
        let parts = parts.iter().map(T::elements).collect::<Result<Vec<_>, _>>()?;
        let views: Vec<_> = parts.iter().map(|part| part.view()).collect();
        concatenate(Axis(axis), &views).map_err(|error| OpError::invalid_operands(error.to_string()))
    }
    let total = |parts: &[Dense]| parts.iter().map(|part| part.shape()[axis]).fold(0, usize::saturating_add);
    if let Some(first) = parts.first() {
        let mut shape = first.shape().to_vec();
        shape[axis] = total(parts);
        check_result_size(&shape, first.dtype())?;
    }
    let first = parts.first().ok_or_else(|| OpError::invalid_operands("there are no tensors to concatenate"))?;
    with_elements!(first, first => Ok(concat(first, parts, axis)?.into()))
}

pub(super) fn slice(x: &Dense, axis: usize, start: usize, count: usize, step: i64) -> Dense {
    // ndarray counts a backward slice from its last element.
    let last = start as i64 + count.saturating_sub(1) as i64 * step;
    let range = match count {
        0 => Slice::new(0, Some(0), 1),
        _ => Slice::new(last.min(start as i64) as isize, Some(last.max(start as i64) as isize + 1), step as isize),
    };
    with_elements!(x, x => {
        let mut slice = x.clone();
        slice.slice_axis_inplace(Axis(axis), range);
        slice.into()
    })
}

pub(super) fn gather(x: &Dense, indices: &Dense, axis: usize) -> Result<Dense, OpError> {
    let mut shape = x.shape().to_vec();
    let size = shape[axis] as i64;
    let place = |i: i64| {
        let from_front = if i < 0 { i + size } else { i };
        let is_inside = (0..size).contains(&from_front);
        let error = || OpError::invalid_operands(format!("index {i} is out of range for size {size}"));
        is_inside.then_some(from_front as usize).ok_or_else(error)
    };
    let wanted = row_major(i64::elements(&cast(indices, DType::I64))?);
    let places = wanted.into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
    shape.splice(axis..=axis, indices.shape().iter().copied());
    check_result_size(&shape, x.dtype())?;
    reshape(&select_places(x, axis, &places), &shape)
}

/// Returns the entries at `places` along an axis.
fn select_places(x: &Dense, axis: usize, places: &[usize]) -> Dense {
    fn select<T: DenseElement>(x: &Elements<T>, axis: usize, places: &[usize]) -> ArrayD<T> {
        let inner: usize = x.shape()[axis + 1..].iter().product();
        let Some(elements) = x.as_slice().filter(|elements| !elements.is_empty()) else {
            return x.select(Axis(axis), places);
        };
        let mut shape = x.shape().to_vec();
        let outer = elements.chunks_exact(shape[axis] * inner);
        shape[axis] = places.len();
        let mut selected = Vec::with_capacity(shape.iter().product());
        for part in outer {
            match inner {
                1 => selected.extend(places.iter().map(|place| part[*place])),
                _ => places.iter().for_each(|place| selected.extend_from_slice(&part[place * inner..][..inner])),
            }
        }
        ArrayD::from_shape_vec(IxDyn(&shape), selected).expect("there is an entry for each place")
    }
    with_elements!(x, x => select(x, axis, places).into())
}

pub(super) fn pad(x: &Dense, pads: &[(usize, usize)], mode: PadMode) -> Result<Dense, OpError> {
    let padded =
        |(size, (before, after)): (&usize, &(usize, usize))| size.saturating_add(*before).saturating_add(*after);
    check_result_size(&x.shape().iter().zip(pads).map(padded).collect::<Vec<_>>(), x.dtype())?;
    if let PadMode::Constant(value) = mode {
        let value = scalar(value, x.dtype())?;
        return with_elements!(x, x => Ok(pad_with(x, pads, DenseElement::elements(&value)?).into()));
    }
    let mut padded = x.clone();
    for (axis, (before, after)) in pads.iter().enumerate().filter(|(_, pads)| **pads != (0, 0)) {
        let places = places_with_padding(x.shape()[axis], [*before, *after], mode)?;
        padded = select_places(&padded, axis, &places);
    }
    Ok(padded)
}

fn pad_with<T: DenseElement>(x: &Elements<T>, pads: &[(usize, usize)], value: &Elements<T>) -> ArrayD<T> {
    let shape: Vec<usize> = x.shape().iter().zip(pads).map(|(size, (before, after))| size + before + after).collect();
    let mut padded = ArrayD::from_elem(IxDyn(&shape), *value.first().expect("a scalar has an element"));
    let mut interior = padded.view_mut();
    for (axis, (before, _)) in pads.iter().enumerate() {
        interior.slice_axis_inplace(Axis(axis), Slice::from(*before..*before + x.shape()[axis]));
    }
    interior.assign(x);
    padded
}

/// Returns the places that the entries along a padded axis of `size` entries are copied from.
fn places_with_padding(size: usize, [before, after]: [usize; 2], mode: PadMode) -> Result<Vec<usize>, OpError> {
    let last = size as i64 - 1;
    let source = |place: i64| match mode {
        PadMode::Reflect => last - (last - place.abs()).abs(),
        PadMode::Edge | PadMode::Constant(_) => place.min(last).max(0),
    };
    let sources = (-(before as i64)..size as i64 + after as i64).map(source);
    let checked = sources.map(|source| usize::try_from(source).ok().filter(|source| *source < size));
    checked.collect::<Option<_>>().ok_or_else(|| {
        OpError::invalid_operands(format!("padding of {before} and {after} is too large for size {size}"))
    })
}
