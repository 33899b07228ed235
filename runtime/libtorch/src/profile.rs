//! The times of the operators of each run, for the host's trace.

use std::time::Instant;

use flagperf_onnx_exec::{ExecError, Executor, NodeEvent};
use flagperf_plugin::Error;
use serde_json::{Value, json};
use tch::Device;

use crate::ops::TorchOps;
use crate::tensor::TorchTensor;

/// The setting that has a session keep the times, and the question about them.
pub(crate) const OPERATOR_TIMES: &str = "operator_times";

/// The times of the operators of the runs so far.
#[derive(Default)]
pub(crate) struct Profile(Vec<Value>);

impl Profile {
    /// Runs the graph. On a device, each operator is waited for, so that its time is its own.
    #[expect(clippy::disallowed_methods, reason = "a plug-in has no clock of the host")]
    pub(crate) fn run(
        &mut self,
        executor: &Executor<TorchOps>,
        inputs: Vec<TorchTensor>,
    ) -> Result<Vec<TorchTensor>, ExecError> {
        let device = executor.ops().device;
        wait_for(device);
        let begin = Instant::now();
        let (mut last, mut nodes) = (0.0, Vec::new());
        let outputs = executor.run_observed(inputs, &mut |event| {
            let NodeEvent::Ended(node, _) = event else { return };
            wait_for(device);
            let now = begin.elapsed().as_secs_f64();
            nodes.push(json!({"name": node.name, "operator": node.op, "begin_s": last, "time_s": now - last}));
            last = now;
        })?;
        self.0.push(Value::Array(nodes));
        Ok(outputs)
    }

    /// Returns the runs since the last call: a list of the operators of each.
    pub(crate) fn take(&mut self) -> String {
        Value::Array(std::mem::take(&mut self.0)).to_string()
    }
}

fn wait_for(device: Device) {
    if let Device::Cuda(index) = device {
        tch::Cuda::synchronize(index as i64);
    }
}

/// Returns why a session that replays its runs keeps no times.
pub(crate) fn replayed_error() -> Error {
    Error::BadOption {
        option: OPERATOR_TIMES.to_owned(),
        reason: "with `cuda_graph`, a device runs all operators as one".to_owned(),
    }
}
