//! A model as the scripts of a case export it, and what they changed.

use flagperf_core::event::GraphChange;
use flagperf_onnx::Model;

/// A model as the scripts export it.
pub struct Exported {
    pub model: Model,
    /// What each script changed, in order.
    pub rewrites: Vec<ModelRewrite>,
}

/// The changes of one script.
pub struct ModelRewrite {
    /// The script: `resnet50/export.rhai`, or `cpu/export.rhai` of a vendor.
    pub script: String,
    pub before: Model,
    pub after: Model,
    /// What the script did, with the name of each graph.
    pub changes: Vec<(String, GraphChange)>,
}
