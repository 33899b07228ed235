//! Runs a graph node by node over a small set of tensor operations, so that one executor serves several tensor
//! libraries.
//!
//! [`Executor::load`] resolves every node once; a tensor library implements [`TensorOps`]. The implementation for the
//! CPU uses `gemm` for matrix products and `ndarray` for arrays; its other loops are written here. The implementation
//! in f64 is the reference of the conformance suite. The executor merges nodes for which a library may have one
//! operation: a convolution with the operators after it, or an attention.
//!
//! Knows nothing about file formats, devices or clocks.

#[cfg(feature = "cpu")]
mod apply;
mod attention;
mod attributes;
mod composed;
mod control;
mod conv_transpose;
#[cfg(feature = "cpu")]
mod cpu;
mod custom;
mod einsum;
mod elementwise;
mod error;
mod evaluate;
mod execution_plan;
mod executor;
mod fold;
mod fuse;
mod generate;
mod host;
mod indexing;
mod multi_head_attention;
mod normalize;
mod op;
mod operands;
mod ops;
mod parameters;
mod program;
mod proof;
mod rearrange;
mod recurrent;
mod reference;
mod resolve;
mod resize;
#[cfg(feature = "cpu")]
mod result_bound;
mod result_size;
mod rotary;
mod shape_arithmetic;
mod tensor_scatter;
mod volumes;
mod window;

#[cfg(feature = "cpu")]
pub use apply::{Operation, apply};
#[cfg(feature = "cpu")]
pub use cpu::CpuOps;
pub use custom::CustomOperator;
pub use elementwise::{Elementwise, ElementwiseFunction, ElementwiseOperand, ElementwiseStep};
pub use error::{ExecError, OpError};
pub use executor::Executor;
pub use fold::{FOLDED_BYTES_MAX, Folded, fold_constants};
pub use ops::{
    Binary, Bitwise, Conv, ConvEpilogue, PadMode, Pool, Reduce, ReducedOutputs, ScatterAxis, TensorOps, Unary, Update,
};
pub use program::{ExecutedNode, NodeEvent};
pub use proof::{Compared, ProofError, ProofLimits, RegionsProof, compare, prove_regions};
pub use reference::{Array, ReferenceOps};

#[cfg(test)]
mod tests;
