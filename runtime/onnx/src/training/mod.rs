//! Makes a training step from a model: one graph that takes a batch and the state of the training, and gives the loss and
//! the next state. The state consists of parameters, running statistics and what the optimizer remembers.
//!
//! Knows no engine and no loop: the caller feeds the next state back, and gives the learning rate of each step.

mod accumulation;
mod all_reduce;
mod autocast;
mod batch_norm;
mod clip;
mod decay;
mod dropout;
mod error;
mod gradient_operator;
mod gradient_outputs;
mod join_processes;
mod list_operators;
mod loss_scale;
mod optimizer;
mod parts;
mod perturbed;
mod schedule;
mod shard;
mod state_exchange;
mod step;
mod update;

pub use accumulation::Accumulation;
pub use all_reduce::{all_reduce_model, broadcast_model, without_exchange};
pub use error::TrainingError;
pub use gradient_operator::{GRADIENT, TRAINING_DOMAIN, gradient_operator};
pub use gradient_outputs::add_gradients;
pub(crate) use list_operators::all_reduce_node;
pub use list_operators::{ALL_REDUCE, BROADCAST, NORM, OWN_DOMAIN, REDUCE, ROOT, UPDATE, UPDATE_NUMBERS, UpdateRule};
pub use loss_scale::LossScale;
pub use optimizer::{Moments, Optimizer, OptimizerKind, StepScalars};
pub use schedule::{Decay, Schedule, WarmUp};
pub use state_exchange::StateExchange;
pub use step::{State, StateKind, TrainingBatches, TrainingOptions, TrainingStep, training_step};
