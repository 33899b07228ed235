//! When a node is concerned by a deviation: conditions on its attributes, inputs and shapes.
//!
//! Knows no engine.

use flagperf_onnx::{Attribute, DType, Dim};

use super::NodeUse;

pub(super) fn always(_: &NodeUse<'_>) -> bool {
    true
}

/// On x86, only AVX-512 VNNI adds products of 8-bit integers in 32 bits.
pub(super) fn on_a_processor_without_vnni(_: &NodeUse<'_>) -> bool {
    #[cfg(target_arch = "x86_64")]
    return !std::arch::is_x86_feature_detected!("avx512vnni");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Returns an integer of a node.
pub(super) fn int(usage: &NodeUse<'_>, name: &str) -> Option<i64> {
    match usage.node.attributes.get(name) {
        Some(Attribute::Int(value)) => Some(*value),
        _ => None,
    }
}

/// Returns a text of a node.
pub(super) fn text<'a>(usage: &NodeUse<'a>, name: &str) -> Option<&'a str> {
    match usage.node.attributes.get(name) {
        Some(Attribute::String(value)) => Some(value),
        _ => None,
    }
}

/// Returns whether a node has an attribute.
pub(super) fn has(usage: &NodeUse<'_>, name: &str) -> bool {
    usage.node.attributes.contains_key(name)
}

/// Returns whether the element type of an input is one of these; an unknown one is not.
fn is_type(usage: &NodeUse<'_>, input: usize, types: &[DType]) -> bool {
    usage.spec(input).is_some_and(|spec| types.contains(&spec.dtype))
}

pub(super) fn of_bools(usage: &NodeUse<'_>) -> bool {
    is_type(usage, 0, &[DType::Bool])
}

pub(super) fn of_signed_integers(usage: &NodeUse<'_>) -> bool {
    is_type(usage, 0, &[DType::I8, DType::I16, DType::I32, DType::I64])
}

/// A softmax of an operator set below 13 that is not over the last dimension alone, or does not say so.
pub(super) fn is_flattening(usage: &NodeUse<'_>) -> bool {
    let rank = usage.spec(0).map(|spec| spec.dims.len() as i64);
    let is_last = |axis: i64| axis == -1 || rank == Some(axis + 1);
    usage.known.graph.opset < 13 && !int(usage, "axis").is_some_and(is_last)
}

/// A softmax of an operator set below 13 over more than one dimension, as far as the shape is known.
pub(super) fn over_several_dimensions(usage: &NodeUse<'_>) -> bool {
    let Some(spec) = usage.spec(0) else { return usage.known.graph.opset < 13 };
    let (rank, axis) = (spec.dims.len() as i64, int(usage, "axis").unwrap_or(1));
    let first = usize::try_from(if axis < 0 { axis + rank } else { axis }).unwrap_or(0);
    usage.known.graph.opset < 13 && spec.dims.iter().skip(first + 1).any(|dim| dim.fixed() != Some(1))
}

/// Selects the first of equal elements, as is the default.
pub(super) fn selects_first(usage: &NodeUse<'_>) -> bool {
    int(usage, "select_last_index") != Some(1)
}

/// A product with a vector on the right.
pub(super) fn has_vector_on_the_right(usage: &NodeUse<'_>) -> bool {
    let rank = |input| usage.spec(input).map(|spec| spec.dims.len());
    rank(1) == Some(1) && rank(0) != Some(1)
}

pub(super) fn pads_at_the_lower_end(usage: &NodeUse<'_>) -> bool {
    text(usage, "auto_pad") == Some("SAME_LOWER")
}

/// A window without the attributes that have a default.
pub(super) fn lacks_window_attributes(usage: &NodeUse<'_>) -> bool {
    let is_pool = matches!(usage.node.op.as_str(), "MaxPool" | "AveragePool");
    let is_padded = matches!(text(usage, "auto_pad"), None | Some("NOTSET"));
    !has(usage, "strides") || (!is_pool && !has(usage, "dilations")) || (is_padded && !has(usage, "pads"))
}

pub(super) fn returns_indices(usage: &NodeUse<'_>) -> bool {
    usage.node.outputs.get(1).is_some_and(|name| !name.is_empty())
}

pub(super) fn has_sequence_lengths(usage: &NodeUse<'_>) -> bool {
    usage.input(4).is_some()
}

/// Converts another type to bool.
pub(super) fn casts_to_bool(usage: &NodeUse<'_>) -> bool {
    const BOOL: i64 = 9;
    int(usage, "to") == Some(BOOL) && !of_bools(usage)
}

/// Converts f16 or f32 to f64.
pub(super) fn widens_to_double(usage: &NodeUse<'_>) -> bool {
    const DOUBLE: i64 = 11;
    int(usage, "to") == Some(DOUBLE) && is_type(usage, 0, &[DType::F16, DType::F32])
}

pub(super) fn is_cubic(usage: &NodeUse<'_>) -> bool {
    text(usage, "mode") == Some("cubic")
}

pub(super) fn has_antialias(usage: &NodeUse<'_>) -> bool {
    int(usage, "antialias") == Some(1)
}

pub(super) fn excludes_outside(usage: &NodeUse<'_>) -> bool {
    int(usage, "exclude_outside") == Some(1)
}

/// Aligns corners, and the scales may not give whole sizes.
pub(super) fn aligns_corners_of_fractional_sizes(usage: &NodeUse<'_>) -> bool {
    if text(usage, "coordinate_transformation_mode") != Some("align_corners") || usage.input(2).is_none() {
        return false;
    }
    let Some(scales) = usage.constant(2) else { return true };
    let dims = usage.spec(0).map_or(&[][..], |spec| &spec.dims);
    let size = |axis: usize| dims.get(axis).and_then(Dim::fixed).map_or(1.0, |size| size as f64);
    scales.to_f64().iter().enumerate().any(|(axis, scale)| (scale * size(axis)).fract() != 0.0)
}

/// Normalizes by the statistics of the batch, as in training: before version 14 of the operator set, that is what further
/// outputs mean.
pub(super) fn normalizes_by_batch(usage: &NodeUse<'_>) -> bool {
    int(usage, "training_mode") == Some(1) || usage.node.outputs.iter().skip(1).any(|output| !output.is_empty())
}

/// Keeps or drops elements at random.
pub(super) fn drops_at_random(usage: &NodeUse<'_>) -> bool {
    let is_zero = |input| usage.constant(input).is_some_and(|value| value.to_f64().iter().all(|x| *x == 0.0));
    usage.input(2).is_some() && !is_zero(2) && !is_zero(1)
}

/// An integer beyond 32 bits among the constant inputs. For the operators that limit by such a number, the next one of 32 bits
/// does the same.
pub(super) fn has_large_integer(usage: &NodeUse<'_>) -> bool {
    const LIMITING: [&str; 4] = ["Clip", "Max", "Min", "Slice"];
    let is_large = |x: &i64| i32::try_from(*x).is_err();
    let mut constants = (0..usage.node.inputs.len()).filter_map(|input| usage.constant(input));
    !LIMITING.contains(&usage.node.op.as_str())
        && constants.any(|tensor| tensor.as_slice::<i64>().is_ok_and(|values| values.iter().any(is_large)))
}

/// Computes a 64-bit integer that may need more than 32 bits.
pub(super) fn may_exceed_32_bits(usage: &NodeUse<'_>) -> bool {
    usage.node.outputs.iter().any(|output| usage.known.ranges().may_exceed(output))
}

/// An input that can be NaN although every input of the graph is finite.
pub(super) fn may_be_nan(usage: &NodeUse<'_>) -> bool {
    usage.node.inputs.iter().any(|input| usage.known.nan_values().contains(input))
}

pub(super) fn has_zero_points(usage: &NodeUse<'_>) -> bool {
    let is_zero = |input| usage.constant(input).is_some_and(|zero| zero.to_f64().iter().all(|x| *x == 0.0));
    [2, 3].into_iter().any(|input| usage.input(input).is_some() && !is_zero(input))
}

/// Pads quantised values whose zero is another number.
pub(super) fn pads_around_a_zero_point(usage: &NodeUse<'_>) -> bool {
    let is_padded = match usage.node.attributes.get("pads") {
        Some(Attribute::Ints(pads)) => pads.iter().any(|pad| *pad != 0),
        _ => text(usage, "auto_pad").is_some_and(|mode| mode.starts_with("SAME")),
    };
    is_padded && usage.input(2).is_some()
}

pub(super) fn is_in_column_row_depth_order(usage: &NodeUse<'_>) -> bool {
    text(usage, "mode") == Some("CRD")
}

pub(super) fn has_local_window(usage: &NodeUse<'_>) -> bool {
    ["left_window_size", "right_window_size"].iter().any(|name| has(usage, name))
}

pub(super) fn returns_products(usage: &NodeUse<'_>) -> bool {
    usage.node.outputs.get(3).is_some_and(|name| !name.is_empty())
}

pub(super) fn is_causal_with_past(usage: &NodeUse<'_>) -> bool {
    int(usage, "is_causal") == Some(1) && usage.input(4).is_some()
}

pub(super) fn has_mask_in_f16(usage: &NodeUse<'_>) -> bool {
    usage.input(3).is_some() && is_type(usage, 0, &[DType::F16])
}

/// Has a mask that is the same for every row of the products.
pub(super) fn has_mask_of_one_row(usage: &NodeUse<'_>) -> bool {
    let dims = usage.spec(3).map_or(&[][..], |spec| &spec.dims);
    dims.len() >= 2 && dims[dims.len() - 2].fixed() == Some(1)
}

pub(super) fn has_output_shape(usage: &NodeUse<'_>) -> bool {
    usage.input(2).is_some()
}

pub(super) fn has_peepholes(usage: &NodeUse<'_>) -> bool {
    usage.input(7).is_some()
}

pub(super) fn takes_the_largest(usage: &NodeUse<'_>) -> bool {
    text(usage, "mode") == Some("max")
}

pub(super) fn computes_its_axis(usage: &NodeUse<'_>) -> bool {
    usage.input(2).is_some() && usage.constant(2).is_none()
}

pub(super) fn computes_its_steps(usage: &NodeUse<'_>) -> bool {
    usage.input(4).is_some() && usage.constant(4).is_none()
}

pub(super) fn computes_its_repeats(usage: &NodeUse<'_>) -> bool {
    usage.constant(1).is_none()
}
