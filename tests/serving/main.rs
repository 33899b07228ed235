//! `flagperf serve`: the protocol and its real clients, bad input, lost workers, load, and the model of a result.

#![expect(clippy::unwrap_used, reason = "test helpers may panic, too")]

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod faults;
mod load;
mod protocol;
mod result;
mod server;
