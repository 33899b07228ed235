//! Engine plug-ins in C: the header, the example, the instructions for adding one, invalid plug-ins, and memory leaks.

#![expect(clippy::unwrap_used, reason = "functions of tests, too, may panic")]

mod bad;
mod example;
mod fixture;
mod gates;
mod header;
mod memory;
mod questions;
