//! Engines that are processes: what they can do wrong, and what is said of it. Each is tried through the whole program.
//!
//! Those that speak the protocol with the adaptor need FLAGPERF_PYTHON; the others are scripts of the shell.

#[path = "../support/program.rs"]
mod program;
#[path = "../support/site.rs"]
mod site;
#[path = "../support/mod.rs"]
mod support;

mod adaptor;
mod devices;
mod classes;
mod gpus;
mod hostile;
mod process;
mod outputs;
mod protocol;
