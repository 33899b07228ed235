//! Slices, gathers and padding.

use flagperf_onnx_exec::{PadMode, ScatterAxis};
use tch::{Kind, TchError, Tensor};

/// Returns `count` entries along `axis`, starting at `start`, at intervals of `step`. libtorch's own slices support
/// positive steps only.
pub fn slice(x: &Tensor, axis: i64, start: i64, count: i64, step: i64) -> Result<Tensor, TchError> {
    if step > 0 {
        let end = if count == 0 { start } else { start + (count - 1) * step + 1 };
        return x.f_slice(axis, start, end, step);
    }
    let indices: Vec<i64> = (0..count).map(|i| start + i * step).collect();
    x.f_index_select(axis, &Tensor::f_from_slice(&indices)?.f_to(x.device())?)
}

/// Returns the elements at `indices` along `axis`; negative indices count from the end.
pub fn gather_elements(x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor, TchError> {
    x.f_gather(axis as i64, &count_from_front(indices, x.size()[axis])?, false)
}

/// Returns indices of a dimension with a size, of which none is negative.
fn count_from_front(indices: &Tensor, size: i64) -> Result<Tensor, TchError> {
    let indices = indices.f_to_kind(Kind::Int64)?;
    indices.f_add_scalar(size)?.f_where_self(&indices.f_lt(0)?, &indices)
}

/// Returns the entries at `indices`; negative indices count from the end.
pub fn gather(x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor, TchError> {
    let mut shape = x.size();
    let from_front = count_from_front(&indices.f_reshape([-1])?, shape[axis])?;
    let selected = x.f_index_select(axis as i64, &from_front)?;
    shape.splice(axis..=axis, indices.size());
    selected.f_reshape(shape)
}

/// Writes the entries of `update` into `cache`, or into a copy of it, from the index in `first` of each entry of the first
/// dimension on.
pub fn tensor_scatter(
    cache: Tensor,
    update: &Tensor,
    first: Option<&Tensor>,
    ScatterAxis { axis, is_circular }: ScatterAxis,
    in_place: bool,
) -> Result<Tensor, TchError> {
    let (sizes, options) = (update.size(), (Kind::Int64, cache.device()));
    let mut along = vec![1; sizes.len()];
    along[axis] = sizes[axis];
    let mut places = Tensor::f_arange(sizes[axis], options)?.f_reshape(&along[..])?;
    if let Some(first) = first {
        along[axis] = 1;
        along[0] = sizes[0];
        let first = first.f_to_kind(Kind::Int64)?.f_reshape(&along[..])?;
        places = if sizes[axis] == 1 { first } else { places.f_add(&first)? };
    }
    if is_circular {
        places = places.f_remainder(cache.size()[axis])?;
    }
    let places = places.f_expand(&sizes[..], false)?;
    let mut written = cache;
    if in_place {
        written.f_scatter_(axis as i64, &places, update)
    } else {
        written.f_scatter(axis as i64, &places, update)
    }
}

/// Pads a tensor. libtorch counts dimensions from the last one, and its reflection only supports the dimensions that
/// have padding.
pub fn pad(x: &Tensor, pads: &[(usize, usize)], mode: PadMode) -> Result<Tensor, TchError> {
    let first = pads.iter().position(|pad| *pad != (0, 0)).unwrap_or(pads.len());
    let amounts: Vec<i64> = pads[first..].iter().rev().flat_map(|pad| [pad.0 as i64, pad.1 as i64]).collect();
    match mode {
        _ if amounts.is_empty() => Ok(x.shallow_clone()),
        PadMode::Constant(value) => x.f_pad(amounts, "constant", value),
        PadMode::Reflect => x.f_pad(amounts, "reflect", None),
        PadMode::Edge => x.f_pad(amounts, "replicate", None),
    }
}
