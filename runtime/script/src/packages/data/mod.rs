//! `data`: the source of samples. A pipeline is only a description: no sample is read while the script runs.
//!
//! Opens no file: paths are checked when the host opens the dataset.

mod files;
mod functions;
mod questions;
mod synthetic;
mod text;

use rhai::Module;

use flagperf_data::Pipeline as HostPipeline;

pub(super) use files::relative_path;

/// A dataset and the transforms of every sample.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline(pub(crate) HostPipeline);

/// The module of the package: its functions and types combined.
pub(super) fn module() -> Module {
    let mut module = rhai::exported_module!(functions::functions);
    module.combine(rhai::exported_module!(synthetic::functions));
    module.combine(rhai::exported_module!(text::functions));
    module.combine(rhai::exported_module!(questions::functions));
    module.set_custom_type::<Pipeline>("Pipeline");
    module
}
