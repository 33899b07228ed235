//! Normalisation of groups, instances and by the root mean square: methods of a graph's values.

use flagperf_onnx::layers;
use rhai::Map;
use rhai::plugin::*;

use super::graph::Node;
use crate::packages::options::{FunctionOptions, size};
use crate::sandbox::Fallible;

/// Reads the option `eps` of a normalisation.
fn epsilon(function: &'static str, options: Map, default: f64) -> Fallible<f32> {
    let mut options = FunctionOptions::new(function, options);
    let eps = options.number("eps")?.unwrap_or(default) as f32;
    options.finish()?;
    Ok(eps)
}

#[export_module]
pub(super) mod functions {
    /// Normalises `groups` groups of channels of each sample of `N,C,..`, with the weights `<name>.weight` and
    /// `<name>.bias`.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,8,8,f32").group_norm("norm", 4);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn group_norm(x: Node, name: &str, groups: i64) -> Fallible<Node> {
        group_norm_with(x, name, groups, Map::new())
    }

    /// Group normalisation with the option `eps` (default 1e-5).
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,8,8,f32").group_norm("norm", 4, #{eps: 1e-6});
    /// ```
    #[rhai_fn(name = "group_norm", global, return_raw)]
    pub fn group_norm_with(x: Node, name: &str, groups: i64, options: Map) -> Fallible<Node> {
        let groups = size("the number of groups", groups)?;
        let eps = epsilon("group_norm", options, 1e-5)?;
        x.add_layer(|builder, x| layers::group_norm(builder, name, x, groups, eps))
    }

    /// Normalises each channel of each sample of `N,C,..`, without weights.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,8,8,f32").instance_norm();
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn instance_norm(x: Node) -> Fallible<Node> {
        x.numbered_layer("instance_norm", |builder, name, x| layers::instance_norm(builder, name, x, 1e-5))
    }

    /// Root mean square normalisation of the last dimension with the weight `<name>.weight`; `eps` is 1e-6.
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").rms_norm("norm");
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn rms_norm(x: Node, name: &str) -> Fallible<Node> {
        rms_norm_with(x, name, Map::new())
    }

    /// Root mean square normalisation with the option `eps` (default 1e-6).
    ///
    /// ```rhai
    /// let x = nn::graph("small").input("x", "N,16,64,f32").rms_norm("norm", #{eps: 1e-5});
    /// ```
    #[rhai_fn(name = "rms_norm", global, return_raw)]
    pub fn rms_norm_with(x: Node, name: &str, options: Map) -> Fallible<Node> {
        let eps = epsilon("rms_norm", options, 1e-6)?;
        x.add_layer(|builder, x| layers::rms_norm(builder, name, x, eps))
    }
}
