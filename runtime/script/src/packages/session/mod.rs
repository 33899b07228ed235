//! `session`: the loaded model that a forward function runs, and the states that it carries from one run to the next.
//! Scripts cannot create a model: the host passes it to them.

mod functions;
mod model;
mod package;
mod run;
mod run_counter;
mod states;

pub(crate) use model::Model;
pub(super) use package::module;
pub use run_counter::ModelRuns;
pub(crate) use run_counter::RunCounter;
pub(super) use states::States;
