//! Engines that are processes: their failures and the messages for them, tested through the whole program.
//!
//! Tests of the adaptor need FLAGPERF_PYTHON; the others use shell scripts.

mod adaptor;
mod cheating;
mod devices;
mod executed_code;
mod classes;
mod gpus;
mod hostile;
mod intrusion;
mod process;
mod outputs;
mod protocol;
