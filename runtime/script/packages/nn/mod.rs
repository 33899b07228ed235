//! `nn`: models, built layer by layer with PyTorch's meaning and state_dict names.
//!
//! A graph is made with `nn::graph`; layers are methods of its values and give values. Knows no engine.

mod activations;
mod graph;
mod layers;

use rhai::Module;

pub(crate) use graph::Graph;

pub(super) fn module() -> Module {
    let mut module = rhai::exported_module!(graph::functions);
    module.combine(rhai::exported_module!(layers::functions));
    module.combine(rhai::exported_module!(activations::functions));
    module.set_custom_type::<Graph>("Graph");
    module.set_custom_type::<graph::Node>("Node");
    module
}
