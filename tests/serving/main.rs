//! `flagperf serve`: the protocol and its real clients, bad input, lost workers, load, and the model of a result.

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod faults;
mod load;
mod protocol;
mod result;
mod server;
