//! The module of the package: its functions and types combined.

use rhai::Module;

use super::states::{self, States};
use super::{Model, functions};

pub(in crate::packages) fn module() -> Module {
    let mut module = rhai::exported_module!(functions::functions);
    module.combine(rhai::exported_module!(states::functions));
    module.set_custom_type::<Model>("Model");
    module.set_custom_type::<States>("States");
    module
}
