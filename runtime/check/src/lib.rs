//! Checks what can be wrong with a planned case before its engine loads a model: the scripts, the model that they
//! build, the dataset, the weights file and the ONNX file.
//!
//! Scripts run here as they do in a worker, so the caller starts a process of its own for each case. Knows no engine,
//! and reads neither samples nor weights.

mod case;
mod fault;
mod signature;

pub use case::{CheckRequest, check};
pub use fault::{Fault, FaultPlace, finding, unchecked_finding};
