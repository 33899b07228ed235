//! Makes a training step from a model: one graph that takes a batch and the state of the training, and gives the loss and
//! the next state. The state consists of parameters, running statistics and what the optimizer remembers.
//!
//! Knows no engine, no loop and no schedule: the caller feeds outputs back as inputs, and gives the learning rate.

mod batch_norm;
mod clip;
mod error;
mod optimizer;
mod step;

pub use error::TrainingError;
pub use optimizer::{Moments, Optimizer, OptimizerKind, StepScalars};
pub use step::{State, StateKind, TrainingOptions, TrainingStep, training_step};
