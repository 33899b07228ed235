//! Reads the attributes of attention, rotary embeddings, equations and resizing.

use super::{Source, unknown_word};
use crate::OpError;
use crate::attributes::Attributes;
use crate::einsum::Equation;
use crate::multi_head_attention::{MultiHeadAttention, ScoreStage};
use crate::op::{HeadCounts, Op};
use crate::resize::{AspectRatio, Coordinates, Interpolation, NearestRounding, Resize, Sampling};
use crate::rotary::Rotary;

pub(super) fn einsum(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Einsum(Equation::parse(source.attributes.text("equation", "")?)?))
}

pub(super) fn rotary_embedding(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    Ok(Op::RotaryEmbedding(Rotary {
        interleaved: attributes.flag("interleaved", false)?,
        heads: positive(attributes, "num_heads")?,
        width: positive(attributes, "rotary_embedding_dim")?,
    }))
}

/// Reads an integer for which 0 stands for none.
fn positive(attributes: Attributes, name: &str) -> Result<Option<usize>, OpError> {
    Ok(attributes.sizes(name)?.and_then(|sizes| sizes.first().copied()).filter(|size| *size > 0))
}

pub(super) fn attention(source: &Source<'_>) -> Result<Op, OpError> {
    let Source { node, attributes, .. } = *source;
    if node.inputs.iter().skip(7).any(|name| !name.is_empty()) {
        return Err(OpError::unsupported("inputs after `nonpad_kv_seqlen`"));
    }
    let bound = |name| Ok::<_, OpError>(Some(attributes.int(name, -1)?).filter(|bound| *bound >= 0));
    let last_output = node.outputs.iter().rposition(|name| !name.is_empty()).unwrap_or(0);
    if last_output > 3 {
        return Err(OpError::invalid_operands("an attention has at most four outputs"));
    }
    Ok(Op::MultiHeadAttention(MultiHeadAttention {
        counts: HeadCounts { of_q: attributes.count("q_num_heads")?, of_kv: attributes.count("kv_num_heads")? },
        scale: if attributes.contains("scale") { Some(attributes.float("scale", 1.0)?) } else { None },
        causal: attributes.flag("is_causal", false)?,
        window: [bound("left_window_size")?, bound("right_window_size")?],
        softcap: attributes.float("softcap", 0.0)?.max(0.0),
        outputs: last_output + 1,
        has_finite_mask: false,
        reads_hidden_rows: false,
        scores: match attributes.int("qk_matmul_output_mode", 0)? {
            0 => ScoreStage::Product,
            1 => ScoreStage::Bounded,
            2 => ScoreStage::Masked,
            3 => ScoreStage::Weights,
            other => return Err(OpError::unsupported(format!("`qk_matmul_output_mode` {other}"))),
        },
    }))
}

pub(super) fn resize(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    let nearest = match attributes.text("nearest_mode", "round_prefer_floor")? {
        "round_prefer_floor" => NearestRounding::PreferFloor,
        "round_prefer_ceil" => NearestRounding::PreferCeil,
        "floor" => NearestRounding::Floor,
        "ceil" => NearestRounding::Ceil,
        other => return Err(unknown_word("nearest_mode", other)),
    };
    let interpolation = match attributes.text("mode", "nearest")? {
        "nearest" => Interpolation::Nearest(nearest),
        "linear" => Interpolation::Linear,
        "cubic" => Interpolation::Cubic(attributes.float("cubic_coeff_a", -0.75)?),
        other => return Err(unknown_word("mode", other)),
    };
    let coordinates = match attributes.text("coordinate_transformation_mode", "half_pixel")? {
        "half_pixel" => Coordinates::HalfPixel,
        "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
        "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        "tf_half_pixel_for_nn" => Coordinates::TfHalfPixelForNearest,
        "tf_crop_and_resize" => Coordinates::TfCropAndResize,
        other => return Err(unknown_word("coordinate_transformation_mode", other)),
    };
    let aspect_ratio = match attributes.text("keep_aspect_ratio_policy", "stretch")? {
        "stretch" => AspectRatio::Stretch,
        "not_larger" => AspectRatio::NotLarger,
        "not_smaller" => AspectRatio::NotSmaller,
        other => return Err(unknown_word("keep_aspect_ratio_policy", other)),
    };
    Ok(Op::Resize(Resize {
        sampling: Sampling {
            interpolation,
            coordinates,
            antialias: attributes.flag("antialias", false)?,
            exclude_outside: attributes.flag("exclude_outside", false)?,
            extrapolation_value: attributes.float("extrapolation_value", 0.0)?,
        },
        axes: attributes.ints("axes")?,
        aspect_ratio,
    }))
}
