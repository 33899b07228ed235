//! Operators on the host that only choose, move or reinterpret elements, of any type.

use std::sync::Arc;

use super::{HostFunction, input};
use crate::OpError;
use crate::indexing::row_major_strides;
use crate::resolve::Source;
use crate::result_size::check_result_size;
use crate::shape_arithmetic::resolve_axis;
use flagperf_onnx::{DType, Tensor, dtype_from_onnx};

/// Returns the entries at `places` along an axis; `None` stands for an entry of zeros.
fn take(x: &Tensor, axis: usize, places: &[Option<usize>]) -> Result<Tensor, OpError> {
    let mut shape = x.shape().to_vec();
    let size = shape[axis];
    let inner = shape[axis + 1..].iter().product::<usize>() * x.dtype().size();
    let outer: usize = shape[..axis].iter().product();
    shape[axis] = places.len();
    check_result_size(&shape, x.dtype())?;
    let mut bytes = Vec::with_capacity(outer * places.len() * inner);
    for block in 0..outer {
        for place in places {
            match place {
                Some(place) => bytes.extend_from_slice(&x.bytes()[(block * size + place) * inner..][..inner]),
                None => bytes.resize(bytes.len() + inner, 0),
            }
        }
    }
    Ok(Tensor::from_bytes(shape, x.dtype(), &bytes)?)
}

fn take_all(x: &Tensor, axis: usize, places: impl IntoIterator<Item = usize>) -> Result<Tensor, OpError> {
    take(x, axis, &places.into_iter().map(Some).collect::<Vec<_>>())
}

fn flattened(x: &Tensor) -> Result<Tensor, OpError> {
    Ok(x.reshape([x.len()])?)
}

/// `Compress`: the entries along an axis, or the elements, for which the condition is true.
pub(crate) fn compress(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let axis = if source.attributes.contains("axis") { Some(source.attributes.int("axis", 0)?) } else { None };
    Ok(Arc::new(move |inputs| {
        let (x, condition) = (input(inputs, 0)?, input(inputs, 1)?.to_f64());
        let (x, axis) = match axis {
            Some(axis) => (x.clone(), resolve_axis(axis, x.shape().len())?),
            None => (flattened(x)?, 0),
        };
        let chosen: Vec<usize> = (0..condition.len()).filter(|place| condition[*place] != 0.0).collect();
        if chosen.last().is_some_and(|last| *last >= x.shape()[axis]) {
            return Err(OpError::invalid_operands(format!("the condition is longer than dimension {axis}")));
        }
        Ok(vec![take_all(&x, axis, chosen)?])
    }))
}

/// `ReverseSequence`: the first elements of each sequence in reverse order.
pub(crate) fn reverse_sequence(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let (batch, time) = (source.attributes.int("batch_axis", 1)?, source.attributes.int("time_axis", 0)?);
    Ok(Arc::new(move |inputs| {
        let (x, lengths) = (input(inputs, 0)?, input(inputs, 1)?.to_f64());
        let shape = x.shape();
        let (batch, time) = (resolve_axis(batch, shape.len())?, resolve_axis(time, shape.len())?);
        let fits = |length: &f64| (0.0..=shape[time] as f64).contains(length);
        if lengths.len() != shape[batch] || batch == time || !lengths.iter().all(fits) {
            return Err(OpError::invalid_operands(format!("the lengths {lengths:?} do not fit {shape:?}")));
        }
        let strides = row_major_strides(shape);
        let source = |place: usize| {
            let at = |axis: usize| place / strides[axis] % shape[axis];
            let (step, length) = (at(time), lengths[at(batch)] as usize);
            if step < length { place + (length - 1) * strides[time] - 2 * step * strides[time] } else { place }
        };
        let moved = take_all(&flattened(x)?, 0, (0..x.len()).map(source))?;
        Ok(vec![moved.reshape(shape)?])
    }))
}

/// Returns numbers of which order and equality are those of the elements. NaN is the largest.
fn keys(x: &Tensor) -> Result<Vec<i64>, OpError> {
    if !x.dtype().is_float() {
        return Ok(x.cast(DType::I64).as_slice::<i64>()?.to_vec());
    }
    let key = |x: f64| {
        let bits = if x.is_nan() { i64::MAX } else { (x + 0.0).to_bits() as i64 };
        if bits < 0 { bits ^ i64::MAX } else { bits }
    };
    Ok(x.to_f64().into_iter().map(key).collect())
}

/// `Unique`: the different entries along an axis, or elements, with their first places, the place of each entry in the
/// result, and their numbers.
pub(crate) fn unique(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let axis = if source.attributes.contains("axis") { Some(source.attributes.int("axis", 0)?) } else { None };
    let sorted = source.attributes.flag("sorted", true)?;
    Ok(Arc::new(move |inputs| {
        let x = input(inputs, 0)?;
        let (x, axis) = match axis {
            Some(axis) => (x.clone(), resolve_axis(axis, x.shape().len())?),
            None => (flattened(x)?, 0),
        };
        let (count, keys) = (x.shape()[axis], keys(&x)?);
        let strides = row_major_strides(x.shape());
        let mut entries: Vec<Vec<i64>> = vec![Vec::new(); count];
        for (place, key) in keys.into_iter().enumerate() {
            entries[place / strides[axis] % count].push(key);
        }
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|a, b| entries[*a].cmp(&entries[*b]));
        let mut groups: Vec<Vec<usize>> =
            order.chunk_by(|a, b| entries[*a] == entries[*b]).map(<[usize]>::to_vec).collect();
        if !sorted {
            groups.sort_by_key(|group| group[0]);
        }
        let mut inverse = vec![0i64; count];
        for (place, group) in groups.iter().enumerate() {
            group.iter().for_each(|i| inverse[*i] = place as i64);
        }
        let list = |values: Vec<i64>| Tensor::from_vec([values.len()], values);
        Ok(vec![
            take_all(&x, axis, groups.iter().map(|group| group[0]))?,
            list(groups.iter().map(|group| group[0] as i64).collect())?,
            list(inverse)?,
            list(groups.iter().map(|group| group.len() as i64).collect())?,
        ])
    }))
}

/// `CenterCropPad`: the middle of the input, or the input in the middle of zeros, along each axis.
pub(crate) fn center_crop_pad(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let axes = source.attributes.ints("axes")?;
    Ok(Arc::new(move |inputs| {
        let (x, wanted) = (input(inputs, 0)?, input(inputs, 1)?.to_f64());
        let axes = axes.clone().unwrap_or_else(|| (0..x.shape().len() as i64).collect());
        if axes.len() != wanted.len() {
            return Err(OpError::invalid_operands(format!("{} sizes for {} axes", wanted.len(), axes.len())));
        }
        let mut result = x.clone();
        for (axis, wanted) in axes.iter().zip(wanted) {
            let axis = resolve_axis(*axis, x.shape().len())?;
            let (size, wanted) = (result.shape()[axis], wanted as usize);
            check_result_size(&[wanted, 2], DType::I64)?;
            let (cut, added) = (size.saturating_sub(wanted) / 2, wanted.saturating_sub(size) / 2);
            let place = |i: usize| (i + cut).checked_sub(added).filter(|place| *place < size);
            result = take(&result, axis, &(0..wanted).map(place).collect::<Vec<_>>())?;
        }
        Ok(vec![result])
    }))
}

/// `BitCast`: the same bytes as another type of the same width.
pub(crate) fn bit_cast(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let to = element_type(source.attributes.int("to", 0)?)?;
    Ok(Arc::new(move |inputs| {
        let x = input(inputs, 0)?;
        if x.dtype().size() != to.size() {
            return Err(OpError::unsupported(format!("`{}` as `{to}`, which has another width", x.dtype())));
        }
        Ok(vec![Tensor::from_bytes(x.shape(), to, x.bytes())?])
    }))
}

pub(super) fn element_type(code: i64) -> Result<DType, OpError> {
    dtype_from_onnx(code).ok_or_else(|| OpError::unsupported(format!("ONNX element type {code}")))
}

/// `EyeLike`: ones on a diagonal of a matrix of the shape of the input.
pub(crate) fn eye_like(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let (k, code) = (source.attributes.int("k", 0)?, source.attributes.int("dtype", 0)?);
    let dtype = if code == 0 { None } else { Some(element_type(code)?) };
    Ok(Arc::new(move |inputs| {
        let x = input(inputs, 0)?;
        let [rows, columns] = x.shape()[..] else { return Err(OpError::invalid_operands("the input is no matrix")) };
        let number = |place: usize| f64::from((place % columns) as i64 - (place / columns) as i64 == k);
        let numbers: Vec<f64> = (0..rows * columns).map(number).collect();
        Ok(vec![Tensor::from_vec([rows, columns], numbers)?.cast(dtype.unwrap_or(x.dtype()))])
    }))
}
