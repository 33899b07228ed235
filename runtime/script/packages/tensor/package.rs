//! The module of the package: its functions and types combined.

use rhai::Module;

use super::{Tensor, arithmetic, functions};

pub(in crate::script::packages) fn module() -> Module {
    let mut module = rhai::exported_module!(functions::functions);
    module.combine(rhai::exported_module!(arithmetic::functions));
    module.set_custom_type::<Tensor>("Tensor");
    module
}
