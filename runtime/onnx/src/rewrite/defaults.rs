//! The values that the standard gives to attributes that a node does not state.

use crate::Attribute;

/// Returns the value that an attribute has if a node of a version of the operator set does not state it.
pub(super) fn default_attribute(op: &str, name: &str, opset: i64) -> Option<Attribute> {
    let (int, float) = (|value: i64| Some(Attribute::Int(value)), |value: f32| Some(Attribute::Float(value)));
    let text = |value: &str| Some(Attribute::String(value.to_owned()));
    match (op, name) {
        (op, "keepdims") if op.starts_with("Reduce") || op.starts_with("Arg") => int(1),
        (op, "noop_with_empty_axes") if op.starts_with("Reduce") => int(0),
        // Before version 13, it is the first of the dimensions that count as one.
        ("Softmax" | "LogSoftmax" | "Hardmax", "axis") => int(if opset < 13 { 1 } else { -1 }),
        ("LayerNormalization" | "RMSNormalization" | "TopK" | "OneHot" | "LpNormalization", "axis") => int(-1),
        ("ArgMax" | "ArgMin" | "Gather" | "GatherElements" | "ScatterElements" | "Split", "axis") => int(0),
        ("Flatten" | "QuantizeLinear" | "DequantizeLinear", "axis") => int(1),
        ("ArgMax" | "ArgMin", "select_last_index") => int(0),
        (
            "BatchNormalization"
            | "GroupNormalization"
            | "InstanceNormalization"
            | "LayerNormalization"
            | "RMSNormalization",
            "epsilon",
        ) => float(1e-5),
        ("BatchNormalization", "momentum") => float(0.9),
        ("BatchNormalization", "training_mode") => int(0),
        ("GroupNormalization" | "LayerNormalization" | "RMSNormalization", "stash_type") => int(1),
        ("Gemm", "alpha" | "beta") => float(1.0),
        ("Gemm", "transA" | "transB") => int(0),
        ("Conv" | "ConvTranspose" | "ConvInteger" | "QLinearConv" | "DeformConv", "group") => int(1),
        ("DeformConv", "offset_group") => int(1),
        (op, "auto_pad") if is_window(op) => text("NOTSET"),
        (op, "ceil_mode" | "storage_order" | "count_include_pad") if op.ends_with("Pool") => int(0),
        ("LpPool" | "GlobalLpPool" | "LpNormalization", "p") => int(2),
        ("LeakyRelu", "alpha") => float(0.01),
        ("Elu" | "Celu" | "ThresholdedRelu" | "Swish", "alpha") => float(1.0),
        ("HardSigmoid", "alpha") => float(0.2),
        ("HardSigmoid", "beta") => float(0.5),
        ("Selu", "alpha") => float(1.673_263_2),
        ("Selu", "gamma") => float(1.050_701),
        ("Shrink", "bias") => float(0.0),
        ("Shrink", "lambd") => float(0.5),
        ("LRN", "alpha") => float(1e-4),
        ("LRN", "beta") => float(0.75),
        ("LRN", "bias") => float(1.0),
        ("Gelu", "approximate") => text("none"),
        ("Pad", "mode") => text("constant"),
        ("Reshape", "allowzero") => int(0),
        ("Cast" | "CastLike" | "QuantizeLinear", "saturate") => int(1),
        ("TopK", "largest" | "sorted") | ("Unique", "sorted") | ("Trilu", "upper") => int(1),
        ("IsInf", "detect_negative" | "detect_positive") => int(1),
        ("CumSum", "exclusive" | "reverse") | ("Mod", "fmod") | ("EyeLike", "k") | ("Shape", "start") => int(0),
        ("GatherND", "batch_dims") | ("NonMaxSuppression", "center_point_box") => int(0),
        ("ScatterElements" | "ScatterND", "reduction") => text("none"),
        ("DepthToSpace", "mode") => text("DCR"),
        ("Resize", "mode") => text("nearest"),
        ("Resize", "coordinate_transformation_mode") => text("half_pixel"),
        ("Resize", "nearest_mode") => text("round_prefer_floor"),
        ("Resize", "keep_aspect_ratio_policy") => text("stretch"),
        ("Resize", "cubic_coeff_a") => float(-0.75),
        ("Resize", "extrapolation_value") => float(0.0),
        ("Resize", "antialias" | "exclude_outside") | ("GridSample", "align_corners") => int(0),
        ("GridSample", "padding_mode") => text("zeros"),
        ("LSTM" | "GRU" | "RNN", "direction") => text("forward"),
        ("LSTM" | "GRU" | "RNN", "layout") | ("LSTM", "input_forget") | ("GRU", "linear_before_reset") => int(0),
        ("Attention", "is_causal" | "qk_matmul_output_mode") => int(0),
        ("Attention", "softcap") => float(0.0),
        ("RotaryEmbedding", "interleaved" | "num_heads" | "rotary_embedding_dim") => int(0),
        _ => None,
    }
}

/// Returns whether an attribute says no more than the standard does without it.
pub(super) fn is_default(op: &str, name: &str, value: &Attribute, opset: i64) -> bool {
    let all = |number: i64| matches!(value, Attribute::Ints(values) if values.iter().all(|value| *value == number));
    default_attribute(op, name, opset).as_ref() == Some(value)
        || is_window(op) && (name == "pads" && all(0) || matches!(name, "strides" | "dilations") && all(1))
        // It repeats the shape of the weight.
        || name == "kernel_shape" && op.contains("Conv")
}

fn is_window(op: &str) -> bool {
    op.ends_with("Pool") && !op.starts_with("Global") || op.contains("Conv")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_a_default_of_its_version_and_operator_alone() {
        let axis = |value, opset| is_default("Softmax", "axis", &Attribute::Int(value), opset);
        assert_eq!([axis(-1, 13), axis(1, 11), axis(1, 13), axis(-1, 11)], [true, true, false, false]);
        let ints = |op, name, values: &[i64]| is_default(op, name, &Attribute::Ints(values.to_vec()), 17);
        assert!(ints("Conv", "strides", &[1, 1]) && ints("MaxPool", "pads", &[0; 4]));
        assert!(
            !ints("Conv", "strides", &[1, 2]) && !ints("Pad", "pads", &[0; 4]) && !ints("ReduceMean", "axes", &[1])
        );
    }
}
