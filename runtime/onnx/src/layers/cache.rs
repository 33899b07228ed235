//! Caches of keys and values.

use super::node::integers;
use super::{add_node, argument_error, attributes};
use crate::{Attribute, BuildError, DType, Dim, GraphBuilder, Tensor, Var};

/// Writes the keys or values `new` (`N,heads,S,width`) into a cache of `length` positions, from the position `first` (`N,i64`) of each
/// row on. `past` is the cache before, `N,heads,P,width`; if it is shorter, zeros follow: before the first run it is empty.
///
/// # Errors
/// When the shapes do not fit each other.
pub fn update_cache(
    builder: &mut GraphBuilder,
    name: &str,
    [past, new, first]: [&Var; 3],
    length: usize,
) -> Result<Var, BuildError> {
    let spec = past.spec();
    let (&[_, Dim::Fixed(heads), _, Dim::Fixed(width)], 4) = (&spec.dims[..], new.spec().dims.len()) else {
        let specs = format!("`{spec}` and `{}`", new.spec());
        return Err(argument_error(name, format!("{specs} are not `N,heads,length,width` with fixed heads and width")));
    };
    if first.spec().dims.len() != 1 || first.spec().dtype != DType::I64 {
        return Err(argument_error(name, format!("the first positions must be `N,i64`, not `{}`", first.spec())));
    }
    let part = |part: &str| format!("{name}.{part}");
    let along = attributes([("start", Attribute::Int(2)), ("end", Attribute::Int(3))]);
    let rows = add_node(builder, &part("rows"), "Shape", &[Some(past)], along)?;
    let length_now = integers(builder, &part("length"), &[length as i64])?;
    let missing = add_node(builder, &part("missing"), "Sub", &[Some(&length_now), Some(&rows)], attributes([]))?;
    let [before, after] =
        [("before", &[0; 6][..]), ("after", &[0])].map(|(name, zeros)| integers(builder, &part(name), zeros));
    let pads = [Some(&before?), Some(&missing), Some(&after?)];
    let pads = add_node(builder, &part("pads"), "Concat", &pads, attributes([("axis", Attribute::Int(0))]))?;
    let zero = builder.constant(&part("zero"), Tensor::scalar(0.0).cast(spec.dtype))?;
    let padded = add_node(builder, &part("padded"), "Pad", &[Some(past), Some(&pads), Some(&zero)], attributes([]))?;
    let shape = [0, heads, length, width].map(|size| size as i64);
    let cache = super::reshape(builder, &part("cache"), &padded, &shape)?;
    add_node(builder, name, "TensorScatter", &[Some(&cache), Some(new), Some(first)], attributes([]))
}
