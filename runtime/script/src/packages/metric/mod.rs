//! `metric`: the return value of an evaluator. Observations over the samples of a batch, which the host merges over a
//! pass and turns into the final figures.
//!
//! Knows nothing about datasets: labels and truth are tensors and texts.

mod detection;
mod functions;
mod language;
mod return_value;
mod segmentation;

use rhai::Module;

pub(crate) use return_value::{Metrics, from_script};

/// The module of the package: its functions and types combined.
pub(super) fn module() -> Module {
    let mut module = rhai::exported_module!(functions::functions);
    module.combine(rhai::exported_module!(language::functions));
    module.combine(rhai::exported_module!(segmentation::functions));
    module.combine(rhai::exported_module!(detection::functions));
    module.set_custom_type::<Metrics>("Metrics");
    module
}
