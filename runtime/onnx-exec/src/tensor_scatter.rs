//! ONNX's operator `TensorScatter`: writes entries of a cache of keys or values.

use super::OpError;
use super::operands::Operands;
use super::ops::TensorOps;
use super::shape_arithmetic::resolve_axis;
use flagperf_onnx::{DType, Tensor};

/// The attributes of a TensorScatter.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorScatter {
    pub axis: i64,
    /// Whether the first entries follow the last one.
    pub is_circular: bool,
    /// Whether nothing else reads the cache, so that it may be overwritten.
    pub in_place: bool,
}

/// The dimension along which entries are written.
#[derive(Clone, Copy, Debug)]
pub struct ScatterAxis {
    /// The dimension whose entries are written.
    pub axis: usize,
    /// Whether the first entries follow the last one; otherwise an entry after the last one is an error.
    pub is_circular: bool,
}

/// Writes the update, input 1, into the cache, input 0, from the index in input 2 of each sample on, or from the first entry on.
pub(super) fn tensor_scatter<O: TensorOps>(
    operands: &Operands<O>,
    scatter: TensorScatter,
) -> Result<O::Tensor, OpError> {
    let (ops, cache, update) = (operands.ops, operands.tensor(0)?, operands.tensor(1)?);
    let (shape, written) = (ops.shape(&cache), ops.shape(&update));
    let axis = resolve_axis(scatter.axis, shape.len())?;
    let mut expected = shape.clone();
    expected[axis] = written.get(axis).copied().unwrap_or(0);
    if written != expected || ops.dtype(&update) != ops.dtype(&cache) || axis == 0 {
        return Err(OpError::invalid_operands(format!("an update {written:?} does not fit a cache {shape:?}")));
    }
    let along = ScatterAxis { axis, is_circular: scatter.is_circular };
    ops.tensor_scatter(cache, &update, operands.optional_tensor(2)?.as_ref(), along, scatter.in_place)
}

/// [`TensorOps::tensor_scatter`] on the host.
pub(super) fn tensor_scatter_on_host<O: TensorOps + ?Sized>(
    ops: &O,
    cache: &O::Tensor,
    update: &O::Tensor,
    first: Option<&O::Tensor>,
    ScatterAxis { axis, is_circular }: ScatterAxis,
) -> Result<O::Tensor, OpError> {
    let download = |x: &O::Tensor| ops.download(x, ops.dtype(x));
    let first = first.map(|first| ops.download(first, DType::I64)).transpose()?.map(|first| first.to_f64());
    let (size, count) = (ops.shape(cache)[axis], ops.shape(update)[axis]);
    // Samples that begin at the same place, such as those of a batch of tokens, need one copy.
    let place = first.as_ref().map_or(0.0, |first| first.first().copied().unwrap_or(0.0));
    let is_same = first.as_ref().is_none_or(|first| first.iter().all(|other| *other == place));
    let end = (place as usize).saturating_add(count);
    if is_same && place >= 0.0 && end <= size && count > 0 {
        let kept = |start: usize, end: usize| (start < end).then(|| ops.slice(cache, axis, start, end - start, 1));
        let parts = [kept(0, place as usize), Some(Ok(update.clone())), kept(end, size)];
        return ops.concat(&parts.into_iter().flatten().collect::<Result<Vec<_>, _>>()?, axis);
    }
    let (cache, update) = (download(cache)?, download(update)?);
    let outer = cache.shape()[..axis].iter().product::<usize>();
    let per_sample = (outer / cache.shape()[0].max(1)).max(1);
    let inner = cache.shape()[axis + 1..].iter().product::<usize>() * cache.dtype().size();
    let mut bytes = cache.bytes().to_vec();
    for block in 0..outer {
        let first = first.as_ref().and_then(|first| first.get(block / per_sample)).copied().unwrap_or(0.0);
        if first < 0.0 {
            return Err(OpError::invalid_operands(format!("index {first} is out of range")));
        }
        for entry in 0..count {
            let place = (first as usize).saturating_add(entry);
            let place = if is_circular { place % size.max(1) } else { place };
            if place >= size {
                return Err(OpError::invalid_operands(format!("index {place} is out of range for size {size}")));
            }
            let from = &update.bytes()[(block * count + entry) * inner..][..inner];
            bytes[(block * size + place) * inner..][..inner].copy_from_slice(from);
        }
    }
    ops.upload(&Tensor::from_bytes(cache.shape(), cache.dtype(), &bytes)?)
}
