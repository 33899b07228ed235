//! sidecar: an engine that is a process in any language. `runtime/sidecar/PROTOCOL.md` defines the protocol.
//!
//! Requests and replies are JSON lines. Tensors are in memory files that both processes map, so a round trip takes
//! microseconds at any batch size, and a crash leaves no files behind. As on a device, outputs stay with the sidecar
//! until the host fetches them. Both sides poll briefly for the next line before they sleep, because waking a core
//! accounted for most of a round trip. Polling brings it to 13 us, so a futex in shared memory, which every language
//! would have to implement, would gain nothing.
//!
//! Knows nothing about frameworks: it starts the vendor's `command`.

mod connection;
mod engine;
mod memory;
mod outputs;
mod protocol;
mod session;

pub use engine::{HELLO_TIME_LIMIT, Sidecar, SidecarReply, describe_sidecar};
