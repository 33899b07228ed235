//! The table of packages, and granting one to an engine.

use rhai::{Engine, Module};

use super::{data, image, log, metric, nn, session, tensor, timing};

/// A package: a name, and the module with its functions and types.
pub(super) struct Package {
    pub(super) name: &'static str,
    module: fn() -> Module,
}

/// Every package.
pub(super) const TABLE: &[Package] = &[
    Package { name: "data", module: data::module },
    Package { name: "image", module: image::module },
    Package { name: "log", module: log::module },
    Package { name: "metric", module: metric::module },
    Package { name: "nn", module: nn::module },
    Package { name: "session", module: session::module },
    Package { name: "tensor", module: tensor::module },
    Package { name: "timing", module: timing::module },
];

/// Grants a package to an engine.
pub(in crate::script) fn register(engine: &mut Engine, name: &str) {
    if let Some(package) = TABLE.iter().find(|package| package.name == name) {
        engine.register_static_module(package.name, (package.module)().into());
    }
}
