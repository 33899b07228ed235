//! Ranges of runs and operators for NVIDIA's profilers (NVTX), such as Nsight Systems.

use flagperf_onnx_exec::{ExecError, Executor, NodeEvent};

use crate::ops::TorchOps;
use crate::tensor::TorchTensor;

/// Returns whether a profiler is attached: it names the library that receives the ranges.
pub(crate) fn has_profiler() -> bool {
    std::env::var_os("NVTX_INJECTION64_PATH").is_some()
}

/// Runs the graph in a range, in which each operator has its own: `Conv layer1.0.conv1`.
pub(crate) fn run(executor: &Executor<TorchOps>, inputs: Vec<TorchTensor>) -> Result<Vec<TorchTensor>, ExecError> {
    let mut open = 0;
    push("run", &mut open);
    let outputs = executor.run_observed(inputs, &mut |event| match event {
        NodeEvent::Begins(node) => push(&format!("{} {}", node.op, node.name), &mut open),
        NodeEvent::Ended(..) => pop(&mut open),
    });
    // An operator that failed has not ended.
    while open > 0 {
        pop(&mut open);
    }
    outputs
}

fn push(name: &str, open: &mut u32) {
    nvtx::range_push!("{}", name.replace('\0', " "));
    *open += 1;
}

fn pop(open: &mut u32) {
    nvtx::range_pop!();
    *open -= 1;
}
