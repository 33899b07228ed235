//! Cases on other hosts, on several devices, in clusters and in containers.

#[path = "../support/mod.rs"]
mod support;

mod containers;
mod hosts;
mod lab;
