//! Configuration and catalogue made into jobs; finds every mistake that needs no device.
//!
//! Pure: reads files through the catalogue only, starts nothing, knows no engine's inside.

mod job;

pub use job::{EngineChoice, Job, Limits, ModelInput, Settings};
