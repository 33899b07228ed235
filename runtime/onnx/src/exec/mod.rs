//! Runs a graph node by node over a small set of tensor operations.
//!
//! [`Executor::load`] resolves every node once; [`TensorOps`] is what a tensor library has to bring. Knows no file
//! format, no device and no clock.

#[cfg(feature = "candle")]
mod candle;

mod attention;
mod attributes;
mod error;
mod evaluate;
mod executor;
mod fuse;
mod heads;
mod load;
mod movement;
mod op;
mod operands;
mod ops;
mod rearrange;
mod reference;
mod resolve;
mod window;

#[cfg(feature = "candle")]
pub use candle::CandleOps;
#[cfg(feature = "candle")]
pub(crate) use candle::storage as candle_storage;
pub use error::{ExecError, OpError};
pub use executor::Executor;
pub use ops::{After, Binary, Conv, PadMode, Pool, Reduce, TensorOps, Unary};
pub use reference::{Array, ReferenceOps};

#[cfg(test)]
mod tests;
