//! What is measured of an operator, before any figure is computed.

use flagperf_core::units::{Bytes, Seconds};
use serde::{Deserialize, Serialize};

use super::check::Comparison;

/// Calls that were submitted one after the other, and waited for at the end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The number of calls.
    pub calls: u64,
    /// From the submission of the first until all were computed.
    pub time_s: Seconds,
}

/// The raw times of an operator, and what is known of the session that computed it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorTimes {
    /// The name and version of the engine's library.
    pub engine: String,
    pub version: String,
    /// The device, as the engine names it, and as its vendor's monitor does.
    pub device: String,
    pub device_name: Option<String>,
    pub driver: Option<String>,
    /// The number of threads; 0 when the engine does not report it.
    pub threads: usize,
    /// What the engine computes in another way than the standard.
    pub warnings: Vec<String>,
    /// The nodes of the graph, most of which are kernels of their own.
    pub nodes: u64,
    /// Whether the inputs lay on a device. Otherwise they lay in host memory, and a device first copies them.
    pub inputs_on_device: bool,
    /// Different inputs that calls used in turn, so that they do not lie in a cache.
    pub input_sets: u64,
    /// The bytes of the inputs and the outputs of a call.
    pub bytes: Bytes,
    /// The memory in use on the device after the calls.
    pub device_memory: Option<Bytes>,
    /// The time in which the engine loaded the graph.
    pub load_s: Seconds,
    /// The first call, which may compile kernels and allocate memory.
    pub first_call_s: Seconds,
    /// Calls before the measurement, the first one included.
    pub warmup_calls: u64,
    /// Calls each of which was waited for.
    pub calls_s: Vec<Seconds>,
    /// Calls that were waited for together.
    pub rounds: Vec<Round>,
    /// The time of all kernels of each of some calls, as the engine tells it; empty if it does not.
    #[serde(default)]
    pub kernels_s: Vec<Seconds>,
    /// The fastest of one or three calls with inputs that no call before them had.
    pub new_inputs_s: Seconds,
    /// By how much reading a part of an output took longer the first time than the second: longer than nothing if the engine
    /// computes outputs when they are read.
    pub deferred_s: Seconds,
    /// How the outputs of a measured call differ from the reference.
    pub comparison: Comparison,
    /// The same of the call with new inputs.
    pub comparison_of_new_inputs: Comparison,
    /// Why the outputs of the measured shape were not compared: smaller ones were.
    pub compared_smaller: Option<String>,
}
