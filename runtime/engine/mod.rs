//! Frameworks and compilers behind one trait: an [`Engine`] loads a model, and a [`Session`] runs it.
//!
//! Each engine has one file and one row of [`TABLE`]. Knows nothing about scripts or datasets, and reads no clock.

pub mod backend;
mod candle;
mod error;
mod model;
mod null;
mod onnxruntime;
mod openvino;
mod options;
mod panics;
mod plugin;
mod rten;
mod session;
mod sidecar;
mod table;
mod tract;

pub use plugin::open_plugin;
pub use session::{
    Artifact, DeviceTensor, Engine, EngineError, EngineFacts, HeapMemory, LentMemory, LoadOptions, Roles, Session,
    Unavailable, Value, check_inputs,
};
pub use sidecar::greet_sidecar;
pub use table::{TABLE, UnknownEngine, find};
