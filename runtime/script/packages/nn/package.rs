//! The module of the package: its functions and types combined.

use rhai::Module;

use super::graph::{self, Graph, Node};
use super::{activations, layers};

pub(in crate::script::packages) fn module() -> Module {
    let mut module = rhai::exported_module!(graph::functions);
    module.combine(rhai::exported_module!(layers::functions));
    module.combine(rhai::exported_module!(activations::functions));
    module.set_custom_type::<Graph>("Graph");
    module.set_custom_type::<Node>("Node");
    module
}
