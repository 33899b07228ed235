//! Gradients as outputs of a complete graph.

use flagperf_onnx::add_gradients;
use rhai::plugin::*;
use rhai::{Array, Map};

use super::graph::Graph;
use crate::packages::options::FunctionOptions;
use crate::sandbox::{Fallible, catch_panic};

#[export_module]
pub(super) mod functions {
    /// Adds to a complete graph the gradient of its output `loss`, one number, with respect to inputs: for the input `images`, the
    /// output `images_gradient`. Every size must be known, that of the batch, too.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let y = graph.input("images", "2,3,f32").linear("fc", 10);
    /// graph.output("score", y.max([1], false).sum([0], false));
    /// graph.weights((), 0);
    /// graph.gradients("score", ["images"]);
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn gradients(graph: Graph, loss: &str, inputs: Array) -> Fallible<()> {
        gradients_with(graph, loss, inputs, Map::new())
    }

    /// The same with the option `parameters` (false): whether the gradients of all parameters are computed, too. The output
    /// `parameters_gradient_norm`, `1`, is their norm.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let y = graph.input("images", "2,3,f32").linear("fc", 10);
    /// graph.output("score", y.max([1], false).sum([0], false));
    /// graph.weights((), 0);
    /// graph.gradients("score", ["images"], #{parameters: true});
    /// ```
    #[rhai_fn(name = "gradients", global, return_raw)]
    pub fn gradients_with(graph: Graph, loss: &str, inputs: Array, options: Map) -> Fallible<()> {
        let mut options = FunctionOptions::new("gradients", options);
        let parameters = options.flag("parameters", false)?;
        options.finish()?;
        let names = inputs.into_iter().map(|name| {
            name.into_immutable_string()
                .map_err(|actual| format!("gradients: an input must be its name, not {actual}").into())
        });
        let names = names.collect::<Fallible<Vec<ImmutableString>>>()?;
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let changed = graph.with_complete(|complete| {
            let added = catch_panic(|| add_gradients(complete, loss, &names, parameters))?;
            added.map_err(|error| format!("gradients: {error}").into())
        })?;
        graph.set_complete(changed);
        Ok(())
    }
}
