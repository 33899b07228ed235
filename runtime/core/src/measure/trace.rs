//! The trace of some batches: what ran when, for viewers of traces. Part of no figure.

use serde::{Deserialize, Serialize};

use crate::units::Seconds;

/// Something that ran during the traced batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceSpan {
    /// The row in which viewers show the span: `batches`, `load 0`, `operators of model`.
    pub row: String,
    /// Its name: `core`, the name of a sample, the name of a node.
    pub name: String,
    /// The operator of a node: `Conv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// From the beginning of the step of the case to that of the span, by the worker's clock.
    pub begin_s: Seconds,
    /// How long it ran.
    pub time_s: Seconds,
}
