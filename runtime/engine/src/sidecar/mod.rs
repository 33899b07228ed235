//! sidecar: an engine that is a process in any language. Requests and replies are JSON lines; tensors are in shared
//! memory.
//!
//! Knows nothing about frameworks: it starts the vendor's `command`. `runtime/sidecar/PROTOCOL.md` defines the
//! protocol.

mod connection;
mod engine;
mod memory;
mod outputs;
mod printable;
mod protocol;
mod session;

pub use engine::{HELLO_TIME_LIMIT, Sidecar, describe_sidecar};
