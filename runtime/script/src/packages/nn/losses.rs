//! Losses: methods of a graph's values that give one number for a batch.

use flagperf_onnx::layers::{self, CrossEntropy};
use rhai::Map;
use rhai::plugin::*;

use super::graph::Node;
use crate::packages::options::FunctionOptions;
use crate::sandbox::Fallible;

#[export_module]
pub(super) mod functions {
    /// The mean cross-entropy of logits `N,classes,..` with labels: a class `N,..` (i64) for each place, or probabilities of
    /// the shape of the logits.
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let loss = graph.input("logits", "N,10,f32").cross_entropy(graph.input("labels", "N,i64"));
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn cross_entropy(logits: Node, labels: Node) -> Fallible<Node> {
        cross_entropy_with(logits, labels, Map::new())
    }

    /// The cross-entropy with the options `label_smoothing` (0: the share of each label that is spread over all classes)
    /// and `ignore_index` (the class of places that do not count).
    ///
    /// ```rhai
    /// let graph = nn::graph("small");
    /// let labels = graph.input("labels", "N,i64");
    /// let loss = graph.input("logits", "N,10,f32").cross_entropy(labels, #{label_smoothing: 0.1});
    /// ```
    #[rhai_fn(name = "cross_entropy", global, return_raw)]
    pub fn cross_entropy_with(logits: Node, labels: Node, options: Map) -> Fallible<Node> {
        let mut options = FunctionOptions::new("cross_entropy", options);
        let label_smoothing = options.number("label_smoothing")?.unwrap_or(0.0) as f32;
        let ignore_index = options.number("ignore_index")?.map(|class| class as i64);
        options.finish()?;
        let loss = CrossEntropy { label_smoothing, ignore_index };
        logits.numbered_layer("cross_entropy", |builder, name, logits| {
            layers::cross_entropy(builder, name, logits, &labels.var, loss)
        })
    }
}
