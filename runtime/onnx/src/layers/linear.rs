//! Fully connected layers and embeddings.

use super::{add_node, argument_error, attributes, fixed_size};
use crate::{Attribute, BuildError, DType, GraphBuilder, Init, TensorSpec, Var, WeightRole};

/// A fully connected layer; the fields are those of `torch.nn.Linear`.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    /// Size of the input's last dimension.
    pub in_features: usize,
    /// Size of the output's last dimension.
    pub out_features: usize,
    /// Whether a bias is added.
    pub bias: bool,
}

impl Linear {
    /// Returns a layer with a bias.
    pub fn new(in_features: usize, out_features: usize) -> Self {
        Linear { in_features, out_features, bias: true }
    }
}

/// `x · weightᵀ + bias` over the last dimension, with `<name>.weight` (`out,in`) and `<name>.bias` (`out`).
///
/// # Errors
/// When the input's last dimension is not `in_features`.
pub fn linear(builder: &mut GraphBuilder, name: &str, x: &Var, linear: Linear) -> Result<Var, BuildError> {
    linear_named(builder, name, x, linear, &[format!("{name}.weight"), format!("{name}.bias")])
}

/// Adds a fully connected layer whose weight and bias have other names than [`linear`] gives them.
pub(super) fn linear_named(
    builder: &mut GraphBuilder,
    name: &str,
    x: &Var,
    linear: Linear,
    [weight_name, bias_name]: &[String; 2],
) -> Result<Var, BuildError> {
    let Linear { in_features, out_features, bias } = linear;
    let rank = x.spec().dims.len();
    let last = fixed_size(name, x, rank.wrapping_sub(1), "the number of features")?;
    if last != in_features {
        return Err(argument_error(
            name,
            format!("the last dimension must be {in_features}, the input is `{}`", x.spec()),
        ));
    }
    let dtype = x.spec().dtype;
    let init = Init::Uniform { bound: (in_features as f32).sqrt().recip() };
    let shape = TensorSpec::new([out_features, in_features], dtype);
    let weight = builder.weight(weight_name, shape, WeightRole::Parameter, init)?;
    let bias = if bias {
        let shape = TensorSpec::new([out_features], dtype);
        Some(builder.weight(bias_name, shape, WeightRole::Parameter, init)?)
    } else {
        None
    };
    if rank == 2 {
        let inputs = [Some(x), Some(&weight), bias.as_ref()];
        let inputs = &inputs[..if bias.is_some() { 3 } else { 2 }];
        return add_node(builder, name, "Gemm", inputs, attributes([("transB", Attribute::Int(1))]));
    }
    let perm = attributes([("perm", Attribute::Ints(vec![1, 0]))]);
    let transposed = add_node(builder, &format!("{name}.weight_t"), "Transpose", &[Some(&weight)], perm)?;
    let Some(bias) = bias else {
        return add_node(builder, name, "MatMul", &[Some(x), Some(&transposed)], attributes([]));
    };
    let product =
        add_node(builder, &format!("{name}.matmul"), "MatMul", &[Some(x), Some(&transposed)], attributes([]))?;
    add_node(builder, name, "Add", &[Some(&product), Some(&bias)], attributes([]))
}

/// Looks up rows of the table `<name>.weight` (`count,width`) by integer index.
///
/// # Errors
/// When the indices are not integers.
pub fn embedding(
    builder: &mut GraphBuilder,
    name: &str,
    indices: &Var,
    [count, width]: [usize; 2],
    dtype: DType,
) -> Result<Var, BuildError> {
    if !matches!(indices.spec().dtype, DType::I64 | DType::I32) {
        return Err(argument_error(name, format!("the indices must be i64 or i32, not `{}`", indices.spec())));
    }
    let spec = TensorSpec::new([count, width], dtype);
    let table = builder.weight(&format!("{name}.weight"), spec, WeightRole::Parameter, Init::Normal { std: 1.0 })?;
    add_node(builder, name, "Gather", &[Some(&table), Some(indices)], attributes([("axis", Attribute::Int(0))]))
}
