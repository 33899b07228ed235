//! Frameworks and compilers behind one trait: an [`Engine`] loads a model, a [`Session`] runs it.
//!
//! One file an engine, one row of [`TABLE`] each. Knows no script and no dataset, and reads no clock.

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
    Artifact, DeviceTensor, Engine, EngineError, Facts, HeapMemory, LentMemory, Options, Roles, Session, Unavailable,
    Value, check_inputs,
};
pub use table::{TABLE, UnknownEngine, find};
