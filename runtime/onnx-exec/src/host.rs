//! Operators that are computed on the host, with one implementation for every tensor library.
//!
//! Operators that real models apply to few elements, or rarely. Their numbers are those of the definition, in f64; integers
//! stay integers.

pub(crate) mod detection;
pub(crate) mod elementwise;
pub(crate) mod entries;
pub(crate) mod numeric;
pub(crate) mod sampling;
pub(crate) mod signal;

use std::fmt;
use std::sync::Arc;

use super::OpError;
use super::operands::Operands;
use super::ops::TensorOps;
use flagperf_onnx::Tensor;

/// Computes the outputs of a node from its inputs; `None` stands for an omitted input.
pub(crate) type HostFunction = Arc<dyn Fn(&[Option<Tensor>]) -> Result<Vec<Tensor>, OpError> + Send + Sync>;

/// An operator that is computed on the host.
#[derive(Clone)]
pub(super) struct HostOp(pub HostFunction);

impl fmt::Debug for HostOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostOp")
    }
}

/// Returns an input that the operator requires.
fn input(inputs: &[Option<Tensor>], i: usize) -> Result<&Tensor, OpError> {
    optional(inputs, i).ok_or_else(|| OpError::invalid_operands(format!("input {i} is missing")))
}

/// Returns an input, if it is present.
fn optional(inputs: &[Option<Tensor>], i: usize) -> Option<&Tensor> {
    inputs.get(i).and_then(Option::as_ref)
}

impl HostOp {
    /// Copies the operands to the host, computes the outputs, and copies these to the tensor library. Bools arrive as
    /// the library stores them.
    pub fn evaluate<O: TensorOps>(&self, operands: &Operands<O>) -> Result<Vec<O::Tensor>, OpError> {
        let ops = operands.ops;
        let download = |i: usize| match operands.optional_tensor(i)? {
            Some(tensor) => ops.download(&tensor, ops.dtype(&tensor)).map(Some),
            None => Ok(None),
        };
        let inputs = (0..operands.len()).map(download).collect::<Result<Vec<_>, OpError>>()?;
        (self.0)(&inputs)?.iter().map(|output| ops.upload(output)).collect()
    }
}
