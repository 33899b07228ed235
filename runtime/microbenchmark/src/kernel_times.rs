//! How long the kernels of an operator run, as the engine tells it.

use std::sync::Arc;

use flagperf_core::measure::Clock;
use flagperf_core::tensor::{Tensor, TensorSpec};
use flagperf_core::units::Seconds;
use flagperf_engine::{RunProfile, Value};
use flagperf_onnx::ValueInfo;

use super::graph::tile_graph;
use super::measure::{Loader, MeasureError, OperatorJob, PreparedOperator, draw_inputs};

/// The most calls whose kernels are timed, on a device and on a processor, where the work between them takes longer.
const CALLS_MAX: [usize; 2] = [10, 3];
/// What is computed before each of them: so many tensors of so many bytes, so that inputs lie in no cache, and a device has the whole call
/// before it begins with it. Tests need fewer.
const EARLIER_CALLS: [usize; 2] = [16, 1];
const EARLIER_BYTES: usize = if cfg!(test) { 1 << 10 } else { 128 << 20 };
const EARLIER_TILE_BYTES: usize = 1 << 10;

/// Returns the time of all kernels of each of some calls, which take about `call_s`; none if the engine does not tell them. The engine
/// measures them, in a session of their own, and they are not checked.
///
/// # Errors
/// When the engine fails.
pub fn kernel_times(job: &OperatorJob, call_s: Seconds, clock: Arc<dyn Clock>) -> Result<Vec<Seconds>, MeasureError> {
    let (engine, mut profiled) = (Loader::new(job)?, Loader::new(job)?);
    profiled.options.profile = Some(clock);
    let PreparedOperator { operator, whole, tile, .. } = PreparedOperator::of(job, &engine)?;
    // A session may end with the question for its times, and one that replays its runs as one refuses to tell them.
    if !matches!(profiled.load(&whole.graph)?.operator_times(), Ok(Some(_))) {
        return Ok(Vec::new());
    }
    let mut resident = engine.load(&tile_graph(&tile.graph.inputs, &whole.graph.inputs))?;
    let tiles: Vec<Value> = draw_inputs(operator, &tile.graph.inputs, job.seed).into_iter().map(Value::Host).collect();
    let inputs = resident.submit(&tiles)?;
    let dtype = whole.graph.inputs[0].spec.dtype;
    let sizes = |rows: usize| [rows, EARLIER_TILE_BYTES / dtype.size()];
    let info = |rows: usize| ValueInfo {
        name: "earlier".to_owned(),
        spec: TensorSpec { dtype, dims: sizes(rows).map(Into::into).to_vec() },
    };
    let mut earlier = engine.load(&tile_graph(&[info(1)], &[info(EARLIER_BYTES / EARLIER_TILE_BYTES)]))?;
    let zeros =
        Tensor::from_bytes(sizes(1), dtype, &[0; EARLIER_TILE_BYTES]).expect("the size is a multiple of any type's");
    let of_earlier = [Value::Host(zeros)];
    let is_on_device = inputs.iter().any(|input| matches!(input, Value::Device(_)));
    let [calls_max, earlier_calls] = [CALLS_MAX, EARLIER_CALLS].map(|of| of[usize::from(!is_on_device)]);
    let mut session = profiled.load(&whole.graph)?;
    let calls = ((job.time_s.0 / call_s.0.max(1e-9)) as usize).clamp(1, calls_max);
    // The first call compiles kernels and allocates memory.
    for _ in 0..=calls {
        for _ in 0..earlier_calls {
            earlier.submit(&of_earlier)?;
        }
        session.submit(&inputs)?;
        session.sync()?;
    }
    let runs = session.operator_times()?.unwrap_or_default();
    Ok(if runs.len() == calls + 1 { runs[1..].iter().map(total).collect() } else { Vec::new() })
}

fn total(run: &RunProfile) -> Seconds {
    Seconds(run.iter().map(|operator| operator.time_s.0).sum())
}
