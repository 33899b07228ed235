//! The times of the operators of each run, for the host's trace and the kernels of an operator.

use flagperf_onnx_exec::{Executor, NodeEvent};
use flagperf_plugin::Error;
use serde_json::{Value, json};

use crate::executor_error;
use crate::ops::TorchOps;
use crate::tensor::TorchTensor;
use crate::timer::Timer;

/// The setting that has a session keep the times, and the question about them.
pub(crate) const OPERATOR_TIMES: &str = "operator_times";

/// The runs so far: the name and the type of each operator, and when it ended.
#[derive(Default)]
pub(crate) struct Profile(Vec<(Vec<[String; 2]>, Timer)>);

impl Profile {
    /// Runs the graph.
    pub(crate) fn run(
        &mut self,
        executor: &Executor<TorchOps>,
        inputs: Vec<TorchTensor>,
    ) -> Result<Vec<TorchTensor>, Error> {
        let (mut timer, mut operators) = (Timer::begin(executor.ops().device)?, Vec::new());
        let mut timed = Ok(());
        let outputs = executor.run_observed(inputs, &mut |event| {
            let NodeEvent::Ended(node, _) = event else { return };
            operators.push([node.name.to_owned(), node.op.to_owned()]);
            timed = std::mem::replace(&mut timed, Ok(())).and_then(|()| timer.end_operator());
        });
        timed?;
        self.0.push((operators, timer));
        outputs.map_err(executor_error)
    }

    /// Returns the runs since the last call: a list of the operators of each.
    pub(crate) fn take(&mut self) -> Result<String, Error> {
        let runs = std::mem::take(&mut self.0).into_iter().map(|(operators, timer)| {
            let mut last = 0.0;
            let times = operators.iter().zip(timer.ends_s()?).map(|([name, operator], end)| {
                let begin = std::mem::replace(&mut last, end);
                json!({"name": name, "operator": operator, "begin_s": begin, "time_s": end - begin})
            });
            Ok(Value::Array(times.collect()))
        });
        Ok(Value::Array(runs.collect::<Result<_, Error>>()?).to_string())
    }
}

/// Returns why a session that replays its runs keeps no times.
pub(crate) fn replayed_error() -> Error {
    Error::BadOption {
        option: OPERATOR_TIMES.to_owned(),
        reason: "with `cuda_graph`, a device runs all operators as one".to_owned(),
    }
}
