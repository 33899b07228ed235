//! From a checkout to a checked plan: loads the configuration, asks the engines of this machine for their descriptions,
//! plans the selected cases, and checks what can be wrong with each before its engine loads a model: the scripts, the
//! model that they build, the dataset, the weights file and the ONNX file.
//!
//! Engines and scripts may crash or hang, so each runs in a process of its own: `flagperf probe` and `flagperf check`.
//! Measures nothing, prints nothing, and reads neither samples nor weights.

mod case;
mod case_checks;
mod catalogue;
mod checkout;
mod dataset_hint;
mod describe;
mod fault;
mod monitor_check;
mod own_process;
mod prepare;
mod probe;
mod probe_all;
mod signature;

pub use case::{CheckRequest, check};
pub use case_checks::{PlannedCase, check_together};
pub use catalogue::catalogue;
pub use checkout::{Checkout, locate_checkout};
pub use fault::{Fault, FaultPlace};
pub use monitor_check::check_monitor_script;
pub use prepare::{Prepared, prepare, prepare_config};
pub use probe::{ProbeReply, ProbeTarget, Probes, probe, short_reason};
pub use probe_all::{ProbedName, probe_engines, probe_monitor_command, probe_monitors, probe_vendor_engines};
