//! Measures an operator: its first call, calls that are waited for one by one, and calls that are waited for together.

use std::path::{Path, PathBuf};

use flagperf_core::measure::Clock;
use flagperf_core::tensor::{Tensor, TensorSpec};
use flagperf_core::units::{Bytes, Seconds};
use flagperf_engine::{
    Artifact, Engine, EngineError, EngineSource, LoadOptions, Session, Value, available_memory, check_options,
    loaded_version,
};
use flagperf_monitor::DeviceFacts;
use flagperf_onnx::{Graph, ValueInfo, write_onnx};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::check::{Comparison, Reference, drop_the_same};
use super::format::Format;
use super::graph::{GradientBy, GraphFailure, OperatorGraph, first_row_graph, operator_graph, tile_graph};
use super::inputs::draw;
use super::operators::{Elements, Operator};
use super::sizes::{SizeError, Sizes};
use super::times::{OperatorTimes, Round};

/// The bytes that the inputs of successive calls have together, more than the caches of today's devices.
/// Tests need fewer.
const TURN_BYTES: u64 = if cfg!(test) { 8 << 20 } else { 256 << 20 };
/// The number of sets with different values among them.
const DRAWN_SETS: u64 = 4;
/// Largest number of inputs that calls use in turn.
const SETS_MAX: u64 = 256;
/// The calls with inputs that no call before them had, of which the fastest counts: of large inputs there is one.
const NEW_SETS: u64 = 3;
const LARGE_BYTES: u64 = 64 << 20;
/// A first call that takes longer is not repeated.
const FIRST_CALL_MAX: f64 = 100.0;
/// The warm-up ends after so many calls, or after the time of a measurement.
const WARMUP_CALLS_MIN: u64 = 5;
const WARMUP_CALLS_MAX: u64 = 100;
/// The number of calls that are waited for one by one.
const CALLS_MIN: usize = 5;
const CALLS_MAX: usize = 1000;
/// The share of the time of a measurement that a round of calls takes that are waited for together, and the number of rounds.
const ROUND_SHARE: f64 = 0.1;
const ROUNDS_MIN: usize = 5;
const ROUND_CALLS_MAX: u64 = 100_000;
/// The number of calls whose outputs are read twice, of which the least difference but the first counts.
pub(crate) const DEFERRED_SAMPLES: usize = 4;
/// The size of a dimension at which an operator without tiles is compared.
const SMALL: usize = 512;
/// What engines call the processor.
pub(crate) const PROCESSOR: &str = "cpu";
/// The option by which an engine computes products in TF32.
const TF32: &str = "tf32";

/// What a process measures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperatorJob {
    /// The name of the operator.
    pub operator: String,
    /// The format of its floating-point numbers or integers.
    pub format: Format,
    /// The sizes that are not FlagPerf's.
    pub sizes: IndexMap<String, usize>,
    /// The engine.
    pub engine: EngineSource,
    /// The monitor that knows the names of the devices.
    pub monitor: Option<String>,
    /// The time of each of the two measurements.
    pub time_s: Seconds,
    /// The seed of the inputs.
    pub seed: u64,
    /// The folder for temporary files.
    pub scratch: PathBuf,
}

impl OperatorJob {
    /// Returns what the monitor knows of a device, which the engine names.
    pub(crate) fn monitored(&self, device: &str) -> Option<DeviceFacts> {
        flagperf_monitor::find(self.monitor.as_deref()?)?.device(device)
    }

    /// Returns the name of a device in its driver.
    pub(crate) fn device_name(&self, device: &str) -> Option<String> {
        self.monitored(device).map(|facts| facts.name)
    }
}

/// Why an operator cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// There is no such operator, or not in this format.
    #[error("{0}")]
    Operator(String),
    /// A size is wrong.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The graph is wrong.
    #[error(transparent)]
    Graph(#[from] GraphFailure),
    /// The engine fails.
    #[error("{0}")]
    Engine(EngineError),
    /// The tensors do not fit into the memory of this machine.
    #[error(
        "operator `{operator}` needs {} MiB of memory with these sizes, and {} MiB are available; `--shape {dimension}=SIZE` makes it smaller",
        needed >> 20,
        available >> 20
    )]
    Memory { operator: &'static str, dimension: &'static str, needed: u64, available: u64 },
    /// A call takes too long to be repeated.
    #[error(
        "a call of operator `{operator}` takes {seconds:.0} s with these sizes; `--shape {dimension}=SIZE` makes it smaller"
    )]
    Slow { operator: &'static str, dimension: &'static str, seconds: f64 },
    /// A temporary file cannot be written.
    #[error("cannot write to `{}`: {reason}", path.display())]
    File { path: PathBuf, reason: String },
}

impl From<EngineError> for MeasureError {
    fn from(error: EngineError) -> Self {
        MeasureError::Engine(error)
    }
}

/// An operator with its graphs.
pub(crate) struct PreparedOperator {
    pub operator: &'static Operator,
    sizes: Sizes,
    tile_sizes: Sizes,
    gradient: Option<GradientBy>,
    /// The graph that the engine computes, and that of the tile.
    pub whole: OperatorGraph,
    pub tile: OperatorGraph,
}

impl PreparedOperator {
    pub fn of(job: &OperatorJob, engine: &Loader<'_>) -> Result<Self, MeasureError> {
        let operator = Operator::find(&job.operator).map_err(MeasureError::Operator)?;
        operator.check_format(job.format).map_err(MeasureError::Operator)?;
        let sizes = Sizes::of(operator, &job.sizes)?;
        let gradient_by = match engine.engine.differentiates(&engine.options)? {
            true => GradientBy::Engine,
            false => GradientBy::StandardOperators,
        };
        let gradient = operator.has_gradient.then_some(gradient_by);
        let tile_sizes = if operator.tiles.is_empty() { sizes.small_tile(SMALL) } else { sizes.tile(operator) };
        let dtype = job.format.dtype;
        let whole = operator_graph(operator, &sizes, dtype, gradient)?;
        let by = gradient.map(|_| GradientBy::StandardOperators);
        let tile = operator_graph(&operator.without_drops(), &tile_sizes, dtype, by)?;
        Ok(PreparedOperator { operator, sizes, tile_sizes, gradient, whole, tile })
    }
}

/// Measures an operator, but for its kernels.
///
/// # Errors
/// When the operator is unknown or the engine fails. Wrong outputs are a result.
pub fn measure_operator(job: &OperatorJob, clock: &dyn Clock) -> Result<OperatorTimes, MeasureError> {
    let engine = Loader::new(job)?;
    let PreparedOperator { operator, sizes, tile_sizes, gradient, whole, tile } = PreparedOperator::of(job, &engine)?;
    let is_small = operator.tiles.is_empty();
    let kept = operator.without_drops();
    let forward = gradient.map(|_| operator_graph(&kept, &tile_sizes, job.format.dtype, None)).transpose()?;
    let sum = |infos: &[ValueInfo]| infos.iter().map(bytes_of).fold(0, u64::saturating_add);
    let (input_bytes, output_bytes) = (sum(&whole.graph.inputs), sum(&whole.graph.outputs));
    let input_sets = TURN_BYTES.div_ceil(input_bytes.max(1)).clamp(1, SETS_MAX);
    let new_sets = if input_bytes > LARGE_BYTES { 1 } else { NEW_SETS };

    let begin = clock.now();
    let mut session = engine.load(&whole.graph)?;
    let load_s = clock.now().since(begin);
    let mut resident = engine.load(&tile_graph(&tile.graph.inputs, &whole.graph.inputs))?;
    let mut first_row = engine.load(&first_row_graph(&whole.graph.outputs))?;
    let device = session.facts().device;
    if device == PROCESSOR {
        // The copies of the two outputs that are compared, and of the output of a call that ends, are beside the inputs.
        let needed = input_bytes.saturating_mul(input_sets + new_sets).saturating_add(output_bytes.saturating_mul(4));
        let available = available_memory();
        if needed > available {
            let dimension = operator.sizes[0].0;
            return Err(MeasureError::Memory { operator: operator.name, dimension, needed, available });
        }
    }
    let drawn = |set: u64| {
        let values = if set < input_sets { set % DRAWN_SETS } else { set + DRAWN_SETS };
        draw_inputs(operator, &tile.graph.inputs, job.seed.wrapping_add(values))
    };
    let sets = (0..input_sets + new_sets).map(|set| {
        let tiles: Vec<Value> = drawn(set).into_iter().map(Value::Host).collect();
        let whole = resident.submit(&tiles)?;
        resident.sync()?;
        Ok(whole)
    });
    let mut sets = sets.collect::<Result<Vec<_>, EngineError>>()?;
    let new_inputs = sets.split_off(input_sets as usize);
    let inputs_on_device = device != PROCESSOR && sets.iter().flatten().all(|input| matches!(input, Value::Device(_)));
    drop(resident);

    let mut calls = Calls { session: &mut *session, sets, next: 0, clock };
    let first_call_s = calls.timed(1)?.0.time_s;
    if first_call_s.0 > FIRST_CALL_MAX {
        let dimension = operator.sizes[0].0;
        return Err(MeasureError::Slow { operator: operator.name, dimension, seconds: first_call_s.0 });
    }
    let (warmup_calls, estimate) = calls.warm_up(first_call_s, job.time_s)?;
    let calls_s = calls.one_by_one(job.time_s, estimate)?;
    let (rounds, last_set, outputs) = calls.together(job.time_s, estimate)?;
    let mut deferred = Vec::new();
    for sample in 0..DEFERRED_SAMPLES {
        // The first reading also prepares the session that reads.
        let other = if sample == 0 { outputs.clone() } else { calls.timed(1)?.1 };
        deferred.push(read_twice(&mut *first_row, &other, clock)?);
    }
    let deferred_s = Seconds(deferred[1..].iter().fold(f64::INFINITY, |least, time| least.min(time.0)));
    let mut calls = Calls { session: &mut *session, sets: new_inputs, next: 0, clock };
    let (mut new_inputs_s, mut new_outputs) = (f64::INFINITY, Vec::new());
    for _ in 0..new_sets {
        drop(std::mem::take(&mut new_outputs));
        let (round, outputs) = calls.timed(1)?;
        (new_inputs_s, new_outputs) = (new_inputs_s.min(round.time_s.0), outputs);
    }

    let compare = |set: u64, outputs: &[Tensor]| -> Result<Comparison, MeasureError> {
        let tiles = tile_count(&whole.graph.inputs[0], &tile.graph.inputs[0]);
        let (forward, scale) = (forward.as_ref().map(|forward| &forward.graph), (tiles, job.format.rounding));
        let reference = Reference::compute(operator, &tile, forward, &drawn(set), scale)?;
        Ok(reference.compare(outputs))
    };
    let (comparison, comparison_of_new_inputs, compared_smaller) = if is_small {
        let small = compare_small(operator, &sizes, job, &engine, gradient)?;
        (small.clone(), small, Some(format!("the outputs were compared with dimensions of at most {SMALL}")))
    } else {
        let (outputs, new_outputs) = (to_host(&outputs)?, to_host(&new_outputs)?);
        let mut of_new = compare(input_sets + new_sets - 1, &new_outputs)?;
        if operator.dropped > 0.0 && drop_the_same(&outputs, &new_outputs) {
            of_new.wrong.get_or_insert_with(|| "two calls drop the same elements".to_owned());
        }
        (compare(last_set, &outputs)?, of_new, None)
    };
    let facts = session.facts();
    let monitored = job.monitored(&facts.device);
    Ok(OperatorTimes {
        engine: job.engine.engine.clone(),
        version: loaded_version(engine.engine, &facts),
        device_name: monitored.as_ref().map(|device| device.name.clone()),
        driver: facts.driver.clone().or_else(|| monitored?.driver),
        device: facts.device,
        threads: facts.threads,
        warnings: facts.warnings,
        nodes: whole.graph.nodes.len() as u64,
        inputs_on_device,
        input_sets,
        bytes: Bytes(input_bytes.saturating_add(output_bytes)),
        device_memory: session.device_memory(),
        load_s,
        first_call_s,
        warmup_calls,
        calls_s,
        rounds,
        kernels_s: Vec::new(),
        new_inputs_s: Seconds(new_inputs_s),
        deferred_s,
        comparison,
        comparison_of_new_inputs,
        compared_smaller,
    })
}

/// Compares an operator whose inputs have no tiles at small sizes.
fn compare_small(
    operator: &Operator,
    sizes: &Sizes,
    job: &OperatorJob,
    engine: &Loader<'_>,
    gradient: Option<GradientBy>,
) -> Result<Comparison, MeasureError> {
    let small: IndexMap<String, usize> = sizes.iter().map(|(name, size)| (name.to_owned(), size.min(SMALL))).collect();
    let sizes = Sizes::of(operator, &small)?;
    let graph = operator_graph(operator, &sizes, job.format.dtype, gradient)?;
    let standard = operator_graph(operator, &sizes, job.format.dtype, gradient.map(|_| GradientBy::StandardOperators))?;
    let inputs = draw_inputs(operator, &graph.graph.inputs, job.seed);
    let mut session = engine.load(&graph.graph)?;
    let outputs = session.submit(&inputs.iter().cloned().map(Value::Host).collect::<Vec<_>>())?;
    session.sync()?;
    let reference = Reference::compute(operator, &standard, None, &inputs, (1.0, job.format.rounding))?;
    Ok(reference.compare(&to_host(&outputs)?))
}

/// Loads graphs into the engine of a job.
pub(crate) struct Loader<'j> {
    pub engine: &'static dyn Engine,
    pub options: LoadOptions,
    scratch: &'j Path,
    /// Each graph has a file of its own, which the engine may read later.
    files: std::cell::Cell<u32>,
}

impl<'j> Loader<'j> {
    pub fn new(job: &'j OperatorJob) -> Result<Self, MeasureError> {
        let unknown = |error: flagperf_engine::UnknownEngine| MeasureError::Operator(error.to_string());
        let engine = job.engine.find_engine().map_err(unknown)?;
        let mut options = job.engine.load_options(job.format.precision(), &job.scratch);
        if job.format.is_tf32() {
            options.extra.insert(TF32.to_owned(), true.into());
        }
        check_options(engine, &options)?;
        Ok(Loader { engine, options, scratch: &job.scratch, files: 0.into() })
    }

    /// Loads a graph: a compiler reads it from a file.
    pub fn load(&self, graph: &Graph) -> Result<Box<dyn Session>, MeasureError> {
        if !self.engine.roles().compiler {
            return Ok(self.engine.load(Artifact::Graph(graph), &self.options)?);
        }
        self.files.set(self.files.get() + 1);
        let path = self.scratch.join(format!("{}_{}.onnx", graph.name, self.files.get()));
        let failed = |reason: String| MeasureError::File { path: path.clone(), reason };
        write_onnx(graph, &path).map_err(|error| failed(error.to_string()))?;
        Ok(self.engine.load(Artifact::Onnx(&path), &self.options)?)
    }
}

/// Calls of an operator with the sets of inputs in turn.
pub(crate) struct Calls<'s> {
    pub session: &'s mut dyn Session,
    pub sets: Vec<Vec<Value>>,
    pub next: usize,
    pub clock: &'s dyn Clock,
}

impl Calls<'_> {
    /// Submits calls, of which only the outputs of the last are kept, and waits for all.
    pub fn timed(&mut self, calls: u64) -> Result<(Round, Vec<Value>), EngineError> {
        let begin = self.clock.now();
        let mut outputs = Vec::new();
        for _ in 0..calls {
            drop(std::mem::take(&mut outputs));
            outputs = self.session.submit(&self.sets[self.next])?;
            self.next = (self.next + 1) % self.sets.len();
        }
        self.session.sync()?;
        Ok((Round { calls, time_s: self.clock.now().since(begin) }, outputs))
    }

    /// Returns the number of calls so far, and how long one takes.
    fn warm_up(&mut self, first: Seconds, limit: Seconds) -> Result<(u64, Seconds), EngineError> {
        let (mut calls, mut time, mut last) = (1, 0.0, first);
        while calls < WARMUP_CALLS_MIN || (calls < WARMUP_CALLS_MAX && time < limit.0) {
            last = self.timed(1)?.0.time_s;
            time += last.0;
            calls += 1;
        }
        Ok((calls, Seconds(last.0.max(1e-9))))
    }

    fn one_by_one(&mut self, time: Seconds, estimate: Seconds) -> Result<Vec<Seconds>, EngineError> {
        let calls = ((time.0 / estimate.0) as usize).clamp(CALLS_MIN, CALLS_MAX);
        (0..calls).map(|_| Ok(self.timed(1)?.0.time_s)).collect()
    }

    /// Returns the rounds, and the index of the set of the last call with its outputs.
    fn together(&mut self, time: Seconds, estimate: Seconds) -> Result<(Vec<Round>, u64, Vec<Value>), EngineError> {
        // The first round, which is not counted, shows how long a call takes that is not waited for.
        let round_s = ROUND_SHARE * time.0;
        let (trial, mut outputs) = self.timed(((round_s / estimate.0) as u64).clamp(1, ROUND_CALLS_MAX))?;
        let call = (trial.time_s.0 / trial.calls as f64).max(1e-9);
        let calls = ((round_s / call).ceil() as u64).clamp(1, ROUND_CALLS_MAX);
        let count = ((time.0 / (calls as f64 * call)) as usize).max(ROUNDS_MIN);
        let mut rounds = Vec::with_capacity(count);
        for _ in 0..count {
            drop(std::mem::take(&mut outputs));
            let (round, last) = self.timed(calls)?;
            rounds.push(round);
            outputs = last;
        }
        let last = (self.next + self.sets.len() - 1) % self.sets.len();
        Ok((rounds, last as u64, outputs))
    }
}

/// Reads the first row of outputs on a device twice, and returns by how much the first reading took longer.
pub(crate) fn read_twice(
    first_row: &mut dyn Session,
    outputs: &[Value],
    clock: &dyn Clock,
) -> Result<Seconds, EngineError> {
    if outputs.iter().all(|output| matches!(output, Value::Host(_))) {
        return Ok(Seconds(0.0));
    }
    let mut times = [0.0; 3];
    for time in &mut times {
        let begin = clock.now();
        let rows = first_row.submit(outputs)?;
        first_row.sync()?;
        rows.iter().try_for_each(|row| row.to_host().map(drop))?;
        *time = clock.now().since(begin).0;
    }
    Ok(Seconds((times[0] - times[1].max(times[2])).max(0.0)))
}

pub(crate) fn draw_inputs(operator: &Operator, inputs: &[ValueInfo], seed: u64) -> Vec<Tensor> {
    let classes = inputs[0].spec.fixed_shape().and_then(|shape| shape.last().copied()).unwrap_or(1);
    let elements: Vec<Elements> = operator.inputs.iter().map(|(_, _, elements)| *elements).collect();
    let drawn =
        inputs.iter().zip(elements).map(|(info, elements)| draw(&info.name, elements, &info.spec, classes, seed));
    drawn.collect::<Option<Vec<_>>>().expect("the shapes of an operator are fixed")
}

pub(crate) fn to_host(outputs: &[Value]) -> Result<Vec<Tensor>, EngineError> {
    outputs.iter().map(Value::to_host).collect()
}

fn tile_count(whole: &ValueInfo, tile: &ValueInfo) -> f64 {
    elements(&whole.spec) as f64 / elements(&tile.spec).max(1) as f64
}

fn bytes_of(info: &ValueInfo) -> u64 {
    elements(&info.spec).saturating_mul(info.spec.dtype.size() as u64)
}

fn elements(spec: &TensorSpec) -> u64 {
    spec.fixed_shape().unwrap_or_default().iter().map(|size| *size as u64).fold(1, u64::saturating_mul)
}
