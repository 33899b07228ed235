//! Frameworks and compilers behind one trait: an [`Engine`] loads a model, a [`Session`] runs it.
//!
//! Knows no script and no dataset, and reads no clock.

mod session;

pub use session::{
    Artifact, DeviceTensor, Engine, EngineError, HeapMemory, LentMemory, Options, Roles, Session, Unavailable, Value,
    check_inputs,
};
