//! Engine plug-ins in C: the header, the example, the description of how to add one, every way to be a bad one, and that
//! nothing is leaked.

#![expect(clippy::unwrap_used, reason = "functions of tests, too, may panic")]

#[path = "../support/program.rs"]
mod program;
#[path = "../support/mod.rs"]
mod support;

mod bad;
mod example;
mod fixture;
mod gates;
mod header;
mod memory;
mod questions;
