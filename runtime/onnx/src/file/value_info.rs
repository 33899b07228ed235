//! The declared type and shape of a value.

use super::proto::{DimensionProto, ValueInfoProto};
use super::{dtype_from_onnx, type_name};
use crate::{Dim, TensorSpec};

/// Returns what is not known of a value, or not supported.
pub(super) fn unknown_part(info: &ValueInfoProto) -> String {
    let tensor = info.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
    match tensor.map(|tensor| (tensor.elem_type.unwrap_or(0), &tensor.shape)) {
        None => "another type than a tensor".to_owned(),
        Some((code, _)) if dtype_from_onnx(i64::from(code)).is_none() => {
            format!("the element type `{}`", type_name(i64::from(code)))
        }
        Some(_) => "unknown shape".to_owned(),
    }
}

/// Returns the specification of a value, if the file declares both type and shape.
pub(super) fn declared_spec(info: &ValueInfoProto) -> Option<TensorSpec> {
    let tensor = info.r#type.as_ref()?.tensor_type.as_ref()?;
    let dtype = dtype_from_onnx(i64::from(tensor.elem_type?))?;
    let dim = |proto: &DimensionProto| match (proto.dim_value, &proto.dim_param) {
        (Some(size), _) => usize::try_from(size).map_or(Dim::Unknown, Dim::Fixed),
        // Names that are expressions (`s0 + 1`) mean nothing outside the program that wrote them.
        (None, Some(name)) => name.parse().ok().filter(|dim| matches!(dim, Dim::Named(_))).unwrap_or(Dim::Unknown),
        (None, None) => Dim::Unknown,
    };
    Some(TensorSpec { dims: tensor.shape.as_ref()?.dim.iter().map(dim).collect(), dtype })
}
