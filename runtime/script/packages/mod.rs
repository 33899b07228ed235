//! What scripts can use beyond the language: one file a package, each granted to some stages only.
//!
//! Functions of a package are called with its name (`metric::top_k`), methods on values without.

use rhai::{Engine, Module};

pub(super) mod data;
pub(super) mod image;
pub(super) mod log;
pub(super) mod metric;
pub(super) mod nn;
pub(super) mod options;
pub(super) mod session;
pub(super) mod tensor;
pub(super) mod timing;

/// A package: a name, and the module with its functions and types.
struct Package {
    name: &'static str,
    module: fn() -> Module,
}

/// Every package.
const TABLE: &[Package] = &[
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
pub(super) fn register(engine: &mut Engine, name: &str) {
    if let Some(package) = TABLE.iter().find(|package| package.name == name) {
        engine.register_static_module(package.name, (package.module)().into());
    }
}
