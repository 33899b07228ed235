//! How a script changed a graph before it was exported, and what shows that the graph still computes the same.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::units::null_is_nan;

/// The changes of one graph by one script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct GraphRewrite {
    /// Name of the graph in the model.
    pub graph: String,
    /// The script: `cpu/export.rhai`.
    pub script: String,
    /// Number of nodes before and after.
    pub nodes: [u64; 2],
    /// Operators of which the number changed, with the number before and after.
    pub operators: IndexMap<String, [u64; 2]>,
    /// What the script did, in order.
    pub changes: Vec<GraphChange>,
    /// The comparison of the whole graph before and after.
    pub proof: GraphProof,
}

/// One call of a function that changes a graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct GraphChange {
    /// The line of the call: `cpu/export.rhai:12`.
    pub at: String,
    /// What was done: `fuse LayerNormalization`.
    pub what: String,
    /// Number of places that were changed.
    pub places: u64,
    /// Places that differ from each other by more than their weights. One of each was executed in f64 before and after the
    /// change.
    #[serde(default)]
    pub distinct_places: u64,
    /// The largest difference between an output of a place before and after, relative to the largest value of that output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// The largest relative L2 error of a place that is an approximation: it differs by more than rounding explains, but by no
    /// more than `relative_l2` of the case's limits of agreement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approximation: Option<f64>,
    /// Places that could not be executed, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unproved: Vec<String>,
    /// Places that agree with most of a pattern, each with what does not agree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub near_misses: Vec<String>,
}

/// The comparison of a whole graph before and after its changes, in f64, on drawn inputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct GraphProof {
    /// The number of compared elements; 0 if the graph was not executed.
    pub elements: u64,
    /// The outputs that the same nodes compute from the same values before and after, which need no execution.
    #[serde(default)]
    pub same_outputs: u64,
    /// The largest difference of an output, relative to the largest value of that output.
    #[serde(deserialize_with = "null_is_nan")]
    pub error: f64,
    /// The largest difference that is accepted.
    #[serde(deserialize_with = "null_is_nan")]
    pub limit: f64,
    /// The largest relative L2 error of an output that is an approximation, within the case's limits of agreement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approximation: Option<f64>,
    /// Why the graph was not compared; `None` if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproved: Option<String>,
}
