//! `flagperf serve`: the protocol and its real clients, bad input, lost workers, load,
//! encryption and tokens, the model of a result, and the image of a server.

#![expect(clippy::unwrap_used, reason = "test helpers may panic, too")]

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod deployment;
mod faults;
mod grpc;
mod grpc_protocol;
mod kserve;
mod language_store;
mod load;
mod malformed;
mod openai;
mod openai_faults;
mod openai_result;
mod protocol;
mod result;
mod security;
mod server;
mod shared_memory;
