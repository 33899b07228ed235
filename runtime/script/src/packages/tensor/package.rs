//! The module of the package: its functions and types combined.

use rhai::Module;

use super::{Tensor, creation, elementwise, inspection, layout, ordering, pairwise, random, reduction, selection};

pub(in crate::packages) fn module() -> Module {
    let mut module = rhai::exported_module!(creation::functions);
    module.combine(rhai::exported_module!(random::functions));
    module.combine(rhai::exported_module!(inspection::functions));
    module.combine(rhai::exported_module!(selection::functions));
    module.combine(rhai::exported_module!(layout::functions));
    module.combine(rhai::exported_module!(elementwise::functions));
    module.combine(rhai::exported_module!(pairwise::functions));
    module.combine(rhai::exported_module!(ordering::functions));
    elementwise::register(&mut module);
    pairwise::register(&mut module);
    reduction::register(&mut module);
    ordering::register(&mut module);
    module.set_custom_type::<Tensor>("Tensor");
    module
}
