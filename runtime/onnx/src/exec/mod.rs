//! Runs a graph node by node over a small set of tensor operations.
//!
//! [`Executor::load`] resolves every node once; a tensor library implements [`TensorOps`]. Knows nothing about file
//! formats, devices or clocks.

mod attention;
mod attributes;
#[cfg(feature = "interpreter")]
mod cpu;
mod error;
mod evaluate;
mod execution_plan;
mod executor;
mod fuse;
mod multi_head_attention;
mod op;
mod operands;
mod ops;
mod rearrange;
mod reference;
mod resolve;
mod shape_arithmetic;
mod window;

#[cfg(feature = "interpreter")]
pub use cpu::CpuOps;
pub use error::{ExecError, OpError};
pub use executor::Executor;
pub use ops::{Binary, Conv, ConvEpilogue, PadMode, Pool, Reduce, TensorOps, Unary};
pub use reference::{Array, ReferenceOps};

#[cfg(test)]
mod tests;
