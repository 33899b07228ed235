//! sidecar: an engine that is a process of any language. Control messages are JSON lines, tensors lie in shared memory.
//!
//! Knows no framework: what it starts is the vendor's `command`. `runtime/sidecar/PROTOCOL.md` is the protocol.

mod connection;
mod memory;
mod outputs;
mod printable;
mod protocol;
mod row;
mod session;

pub use row::Sidecar;
