//! Reads the attributes of elementwise operators and of matrix products.

use super::Source;
use crate::OpError;
use crate::op::Op;
use crate::ops::{Binary, Unary};
use flagperf_onnx::{DType, dtype_from_onnx};

pub(super) fn hard_sigmoid(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    Ok(Op::Unary(Unary::HardSigmoid { alpha: attributes.float("alpha", 0.2)?, beta: attributes.float("beta", 0.5)? }))
}

pub(super) fn gelu(source: &Source<'_>) -> Result<Op, OpError> {
    let is_tanh = source.attributes.text("approximate", "none")? == "tanh";
    Ok(Op::Unary(if is_tanh { Unary::GeluTanh } else { Unary::Gelu }))
}

pub(super) fn leaky_relu(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Unary(Unary::LeakyRelu { alpha: source.attributes.float("alpha", 0.01)? }))
}

pub(super) fn elu(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Unary(Unary::Elu { alpha: source.attributes.float("alpha", 1.0)? }))
}

/// The defaults are the f32 numbers of ONNX's schema.
pub(super) fn selu(source: &Source<'_>) -> Result<Op, OpError> {
    let (attributes, is_old) = (source.attributes, source.opset < 6);
    Ok(Op::Unary(Unary::Selu {
        alpha: attributes.float("alpha", if is_old { 1.6732 } else { 1.673_263_192_176_818_8 })?,
        gamma: attributes.float("gamma", if is_old { 1.0507 } else { 1.050_700_783_729_553_2 })?,
    }))
}

pub(super) fn is_inf(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    Ok(Op::Unary(Unary::IsInf {
        negative: attributes.flag("detect_negative", true)?,
        positive: attributes.flag("detect_positive", true)?,
    }))
}

pub(super) fn modulo(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Binary(if source.attributes.flag("fmod", false)? { Binary::Fmod } else { Binary::Mod }))
}

pub(super) fn gemm(source: &Source<'_>) -> Result<Op, OpError> {
    let attributes = source.attributes;
    Ok(Op::Gemm {
        alpha: attributes.float("alpha", 1.0)?,
        beta: attributes.float("beta", 1.0)?,
        trans_a: attributes.flag("transA", false)?,
        trans_b: attributes.flag("transB", false)?,
    })
}

pub(super) fn cast(source: &Source<'_>) -> Result<Op, OpError> {
    Ok(Op::Cast { to: Some(element_type(source.attributes.int("to", 0)?)?) })
}

/// Returns the element type of a number of ONNX's `TensorProto.DataType`.
fn element_type(number: i64) -> Result<DType, OpError> {
    dtype_from_onnx(number).ok_or_else(|| OpError::unsupported(format!("ONNX element type {number}")))
}
