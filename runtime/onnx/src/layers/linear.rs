//! Fully connected layers and embeddings.

use super::{argument, attributes, fixed_size, one};
use crate::{Attribute, BuildError, DType, GraphBuilder, Init, Role, TensorSpec, Var};

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
    /// With a bias.
    pub fn new(in_features: usize, out_features: usize) -> Self {
        Linear { in_features, out_features, bias: true }
    }
}

/// `x · weightᵀ + bias` over the last dimension, with `<name>.weight` (`out,in`) and `<name>.bias` (`out`).
///
/// # Errors
/// When the input's last dimension is not `in_features`.
pub fn linear(builder: &mut GraphBuilder, name: &str, x: &Var, linear: Linear) -> Result<Var, BuildError> {
    let Linear { in_features, out_features, bias } = linear;
    let rank = x.spec().dims.len();
    let last = fixed_size(name, x, rank.wrapping_sub(1), "features")?;
    if last != in_features {
        return Err(argument(name, format!("{in_features} features expected, the input is `{}`", x.spec())));
    }
    let dtype = x.spec().dtype;
    let init = Init::Uniform { bound: (in_features as f32).sqrt().recip() };
    let shape = TensorSpec::new([out_features, in_features], dtype);
    let weight = builder.weight(&format!("{name}.weight"), shape, Role::Parameter, init)?;
    let bias = if bias {
        let shape = TensorSpec::new([out_features], dtype);
        Some(builder.weight(&format!("{name}.bias"), shape, Role::Parameter, init)?)
    } else {
        None
    };
    if rank == 2 {
        let inputs = [Some(x), Some(&weight), bias.as_ref()];
        let inputs = &inputs[..if bias.is_some() { 3 } else { 2 }];
        return one(builder, name, "Gemm", inputs, attributes([("transB", Attribute::Int(1))]));
    }
    let perm = attributes([("perm", Attribute::Ints(vec![1, 0]))]);
    let transposed = one(builder, &format!("{name}.weight_t"), "Transpose", &[Some(&weight)], perm)?;
    let Some(bias) = bias else {
        return one(builder, name, "MatMul", &[Some(x), Some(&transposed)], attributes([]));
    };
    let product = one(builder, &format!("{name}.matmul"), "MatMul", &[Some(x), Some(&transposed)], attributes([]))?;
    one(builder, name, "Add", &[Some(&product), Some(&bias)], attributes([]))
}

/// Rows of the table `<name>.weight` (`count,width`) by integer index.
///
/// # Errors
/// When the indices are no integers.
pub fn embedding(
    builder: &mut GraphBuilder,
    name: &str,
    indices: &Var,
    [count, width]: [usize; 2],
    dtype: DType,
) -> Result<Var, BuildError> {
    if !matches!(indices.spec().dtype, DType::I64 | DType::I32) {
        return Err(argument(name, format!("indices must be i64 or i32, they are `{}`", indices.spec())));
    }
    let spec = TensorSpec::new([count, width], dtype);
    let table = builder.weight(&format!("{name}.weight"), spec, Role::Parameter, Init::Normal { std: 1.0 })?;
    one(builder, name, "Gather", &[Some(&table), Some(indices)], attributes([("axis", Attribute::Int(0))]))
}
