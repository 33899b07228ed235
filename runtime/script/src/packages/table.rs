//! The table of packages, and the function that grants one to a script engine.

use rhai::{Engine, Module};

use super::{boxes, data, graph, image, log, metric, nn, optim, session, tensor, text, timing};

/// A package: its name, and the module with its functions and types.
pub(super) struct Package {
    pub(super) name: &'static str,
    module: fn() -> Module,
}

/// Every package.
pub(super) const PACKAGES: &[Package] = &[
    Package { name: "boxes", module: boxes::module },
    Package { name: "data", module: data::module },
    Package { name: "graph", module: graph::module },
    Package { name: "image", module: image::module },
    Package { name: "log", module: log::module },
    Package { name: "metric", module: metric::module },
    Package { name: "nn", module: nn::module },
    Package { name: "optim", module: optim::module },
    Package { name: "session", module: session::module },
    Package { name: "tensor", module: tensor::module },
    Package { name: "text", module: text::module },
    Package { name: "timing", module: timing::module },
];

/// Returns the names of all packages.
pub(crate) fn names() -> Vec<&'static str> {
    PACKAGES.iter().map(|package| package.name).collect()
}

/// Grants the package `name` to a script engine.
pub(crate) fn register(engine: &mut Engine, name: &str) {
    if let Some(package) = PACKAGES.iter().find(|package| package.name == name) {
        engine.register_static_module(package.name, (package.module)().into());
    }
}
