//! The module of the package: its functions and types combined.

use rhai::Module;

use super::attention::Rotary;
use super::graph::{self, Graph, Node};
use super::{
    activations, arithmetic, attention, convolutions, elementwise, gradients, layers, losses, normalizations,
    operators, reductions, selection, shape, weights,
};

pub(in crate::packages) fn module() -> Module {
    let mut module = rhai::exported_module!(graph::functions);
    module.combine(rhai::exported_module!(weights::functions));
    module.combine(rhai::exported_module!(operators::functions));
    module.combine(rhai::exported_module!(layers::functions));
    module.combine(rhai::exported_module!(losses::functions));
    module.combine(rhai::exported_module!(gradients::functions));
    module.combine(rhai::exported_module!(convolutions::functions));
    module.combine(rhai::exported_module!(normalizations::functions));
    module.combine(rhai::exported_module!(attention::functions));
    module.combine(rhai::exported_module!(activations::functions));
    module.combine(rhai::exported_module!(elementwise::functions));
    module.combine(rhai::exported_module!(arithmetic::functions));
    module.combine(rhai::exported_module!(reductions::functions));
    module.combine(rhai::exported_module!(selection::functions));
    module.combine(rhai::exported_module!(shape::functions));
    module.set_custom_type::<Graph>("Graph");
    module.set_custom_type::<Node>("Node");
    module.set_custom_type::<Rotary>("Rotary");
    module
}
