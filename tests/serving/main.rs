//! `flagperf serve`: the protocol and its real clients, bad input, lost workers, load, and the model of a result.

#![expect(clippy::unwrap_used, reason = "test helpers may panic, too")]

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod faults;
mod language_store;
mod load;
mod openai;
mod openai_faults;
mod openai_result;
mod protocol;
mod result;
mod server;
