//! How fast the processes of a group exchange tensors: each computes the mean of its own and those of the others, or gets that of the
//! first one.
//!
//! Every process runs this with the same sizes and the same numbers of calls. Knows neither the other processes nor who starts them.

use std::sync::atomic::{AtomicU64, Ordering};

use flagperf_core::measure::Clock;
use flagperf_core::process_group::{LOST_PROCESS, PROCESS_GROUP_OPTION, ProcessGroup};
use flagperf_core::tensor::{DType, Tensor, TensorSpec};
use flagperf_core::units::{Bytes, Seconds};
use flagperf_engine::{EngineError, Session, Value, available_memory, loaded_version};
use flagperf_onnx::{Graph, ValueInfo, all_reduce_model, broadcast_model};
use serde::{Deserialize, Serialize};

use super::check::{Comparison, Reference};
use super::format::Format;
use super::graph::{first_row_graph, tile_graph};
use super::inputs::draw;
use super::limits::{CALL_MAX, is_memory};
use super::measure::{Calls, DEFERRED_SAMPLES, Loader, MeasureError, OperatorJob, PROCESSOR, read_twice, to_host};
use super::operators::Elements;

/// The sizes of a tensor in bytes: from 64 KiB, four times as large each, to 1 GiB.
pub(crate) const SIZES: [usize; 8] = [1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30];
/// The elements of a row: all rows of a tensor are equal.
const ROW: usize = 1 << 12;
/// Different tensors that the calls of a series use in turn.
const SETS: u64 = 2;
/// The calls with tensors that no call before them had, of which the fastest counts: of large tensors there is one.
const NEW_SETS: u64 = 3;
const LARGE_BYTES: usize = 64 << 20;
/// Tensors beside the inputs that are in memory at once: the one that is exchanged, and the outputs of two calls.
const OTHER_TENSORS: u64 = 3;
/// By how much an engine in host memory exceeds the memory of its tensors: libtorch with Gloo took twice as much.
const HOST_COPIES: u64 = 3;
/// The calls before a series, the share of the time of a measurement that a series takes, and its calls.
const WARMUP_CALLS: u64 = 5;
const SERIES_SHARE: f64 = 0.5;
pub(crate) const CALLS_MIN: u32 = 5;
pub(crate) const CALLS_MAX: u32 = 500;

/// What the processes exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Each gets the mean of all tensors.
    AllReduce,
    /// Each gets the tensor of the first one.
    Broadcast,
}

impl Exchange {
    fn graph(self, shape: &[usize]) -> Graph {
        match self {
            Exchange::AllReduce => all_reduce_model(shape),
            Exchange::Broadcast => broadcast_model(shape),
        }
    }

    /// Returns the row that every process gets in a set.
    fn row(self, seed: u64, size: u32, set: u64) -> Tensor {
        match self {
            Exchange::AllReduce => mean_row(seed, size, set),
            Exchange::Broadcast => row_of(seed, 0, set),
        }
    }
}

/// What a process of the group measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessTimes {
    /// The number of the process, from 0.
    pub rank: u32,
    /// Its host in `HOSTS`; `None` if all processes run on one host.
    #[serde(default)]
    pub host: Option<String>,
    /// The name and version of the engine's library.
    pub engine: String,
    pub version: String,
    /// The device, as the engine names it, as its vendor's monitor does, and the id there, by which two processes can be seen to share it.
    pub device: String,
    pub device_name: Option<String>,
    pub device_id: Option<String>,
    /// The sizes, from small to large.
    pub series: Vec<SeriesTimes>,
}

/// The times of one process in one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesTimes {
    /// The size of the tensor that each process contributes.
    pub bytes: Bytes,
    /// The calls, each of which was waited for.
    pub calls_s: Vec<Seconds>,
    /// The fastest of one or three calls with tensors that no call before them had.
    pub new_inputs_s: Seconds,
    /// By how much reading a part of an output took longer the first time than the second.
    pub deferred_s: Seconds,
    /// How the outputs differ from what they are to be, those of a call of the series and of the last call.
    pub comparison: Comparison,
    pub comparison_of_new_inputs: Comparison,
}

/// Measures the sizes in turn until a call takes 0.3 s or memory is short. `begun` counts the calls that this process has begun, so that
/// a process for which the others wait can be told from them.
///
/// # Errors
/// When the engine fails, or another process of the group did.
pub fn measure_exchange(
    exchange: Exchange,
    settings: &OperatorJob,
    group: &ProcessGroup,
    clock: &dyn Clock,
    begun: &AtomicU64,
) -> Result<ProcessTimes, MeasureError> {
    let mut settings = settings.clone();
    settings.engine.options.insert(PROCESS_GROUP_OPTION.to_owned(), group.option());
    let loader = Loader::new(&settings)?;
    // The process leaves the group when its last session is dropped.
    let mut meeting = Meeting { session: loader.load(&all_reduce_model(&[1]))?, group, begun };
    let facts = meeting.session.facts();
    let mut measured: Vec<SeriesTimes> = Vec::new();
    for bytes in SIZES {
        let prepared = Series::prepare(exchange, &settings, &loader, group, bytes);
        let everywhere = meeting.is_true_everywhere(prepared.is_ok())?;
        let series = match prepared {
            Ok(series) if everywhere => series,
            Err(error) if measured.is_empty() || !is_memory(&error) => return Err(error),
            Ok(_) if measured.is_empty() => return Err(EngineError::Failed(LOST_PROCESS.to_owned()).into()),
            _ => break,
        };
        let times = series.measure(&mut meeting, &settings, clock)?;
        let slowest = times.calls_s.iter().fold(0.0f64, |slowest, time| slowest.max(time.0));
        measured.push(times);
        if meeting.number_of_first(u32::from(slowest > CALL_MAX))? > 0 {
            break;
        }
    }
    let monitored = settings.monitored(&facts.device);
    Ok(ProcessTimes {
        rank: group.rank,
        host: None,
        engine: settings.engine.engine.clone(),
        version: loaded_version(loader.engine, &facts),
        device: facts.device,
        device_name: monitored.as_ref().map(|device| device.name.clone()),
        device_id: monitored.and_then(|device| device.id),
        series: measured,
    })
}

/// Decides together with the other processes, by means of single numbers.
struct Meeting<'g> {
    session: Box<dyn Session>,
    group: &'g ProcessGroup,
    begun: &'g AtomicU64,
}

impl Meeting<'_> {
    /// Returns the sum of a number over the processes, all of which wait for it.
    fn sum(&mut self, own: u32) -> Result<f64, EngineError> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let own = Tensor::from_vec([1], vec![own as f32]).expect("one number");
        let means = self.session.submit(&[Value::Host(own)])?;
        self.session.sync()?;
        let mean = to_host(&means)?.first().and_then(|mean| mean.to_f64().first().copied());
        Ok(mean.unwrap_or(f64::NAN) * f64::from(self.group.size))
    }

    fn is_true_everywhere(&mut self, own: bool) -> Result<bool, EngineError> {
        Ok(self.sum(u32::from(own))? > f64::from(self.group.size) - 0.5)
    }

    /// Returns the number of the first process: the others add zeros to it, so that all have the same one.
    fn number_of_first(&mut self, own: u32) -> Result<u32, EngineError> {
        let number = if self.group.rank == 0 { own } else { 0 };
        Ok(self.sum(number)?.round() as u32)
    }
}

/// The calls in one size, with their tensors.
struct Series<'j> {
    exchange: Exchange,
    bytes: usize,
    group: &'j ProcessGroup,
    session: Box<dyn Session>,
    first_row: Box<dyn Session>,
    sets: Vec<Vec<Value>>,
    new_sets: Vec<Vec<Value>>,
}

fn rows(name: &str, rows: usize) -> ValueInfo {
    ValueInfo { name: name.to_owned(), spec: TensorSpec::new([rows, ROW], DType::F32) }
}

/// Returns the row that a process contributes in a set.
fn row_of(seed: u64, rank: u32, set: u64) -> Tensor {
    let seed = seed.wrapping_add(set << 32).wrapping_add(u64::from(rank));
    draw("own", Elements::Normal, &rows("own", 1).spec, 1, seed).expect("the shape is fixed")
}

/// Returns the mean of the rows of all processes in a set.
fn mean_row(seed: u64, size: u32, set: u64) -> Tensor {
    let mut sums = vec![0.0; ROW];
    for rank in 0..size {
        sums.iter_mut().zip(row_of(seed, rank, set).to_f64()).for_each(|(sum, own)| *sum += own);
    }
    sums.iter_mut().for_each(|sum| *sum /= f64::from(size));
    Tensor::from_vec([1, ROW], sums).expect("the shape is the length of the list").cast(DType::F32)
}

impl<'j> Series<'j> {
    /// Loads the graph and places the tensors, without the other processes.
    fn prepare(
        exchange: Exchange,
        settings: &OperatorJob,
        loader: &Loader<'_>,
        group: &'j ProcessGroup,
        bytes: usize,
    ) -> Result<Self, MeasureError> {
        let new = if bytes > LARGE_BYTES { 1 } else { NEW_SETS };
        let whole = rows("own", bytes / size_of::<f32>() / ROW);
        let graph = exchange.graph(&whole.spec.fixed_shape().expect("the shape is fixed"));
        let session = loader.load(&graph)?;
        let tensors = SETS + new + OTHER_TENSORS;
        if session.facts().device == PROCESSOR {
            let needed = (bytes as u64).saturating_mul(tensors * HOST_COPIES * u64::from(group.local_size.max(1)));
            if needed > available_memory() {
                return Err(EngineError::OutOfMemory { bytes: needed }.into());
            }
        }
        let mut resident = loader.load(&tile_graph(&[rows("own", 1)], &[whole]))?;
        let placed = (0..tensors).map(|set| {
            let placed = resident.submit(&[Value::Host(row_of(settings.seed, group.rank, set))])?;
            resident.sync()?;
            Ok(placed)
        });
        // A process that runs out of memory within a call keeps the others waiting, so memory for the outputs is requested here.
        let mut sets = placed.collect::<Result<Vec<_>, EngineError>>()?;
        sets.truncate((SETS + new) as usize);
        let new_sets = sets.split_off(SETS as usize);
        let first_row = loader.load(&first_row_graph(&graph.outputs))?;
        Ok(Series { exchange, bytes, group, session, first_row, sets, new_sets })
    }

    /// Measures the calls. All processes have prepared the same.
    fn measure(
        mut self,
        meeting: &mut Meeting<'_>,
        settings: &OperatorJob,
        clock: &dyn Clock,
    ) -> Result<SeriesTimes, MeasureError> {
        let begun = meeting.begun;
        let sets = std::mem::take(&mut self.sets);
        let mut calls = Calls { session: &mut *self.session, sets, next: 0, clock };
        let call = |calls: &mut Calls<'_>| {
            begun.fetch_add(1, Ordering::Relaxed);
            calls.timed(1).map(|(round, outputs)| (round.time_s, outputs))
        };
        let mut estimate = f64::INFINITY;
        for _ in 0..WARMUP_CALLS {
            estimate = estimate.min(call(&mut calls)?.0.0);
        }
        let count = (SERIES_SHARE * settings.time_s.0 / estimate.max(1e-9)) as u32;
        let count = meeting.number_of_first(count.clamp(CALLS_MIN, CALLS_MAX))?;
        let calls_s = (0..count).map(|_| Ok(call(&mut calls)?.0)).collect::<Result<Vec<_>, EngineError>>()?;
        let mut deferred_s = Seconds(f64::INFINITY);
        let mut outputs = Vec::new();
        for sample in 0..DEFERRED_SAMPLES {
            drop(std::mem::take(&mut outputs));
            outputs = call(&mut calls)?.1;
            let deferred = read_twice(&mut *self.first_row, &outputs, clock)?;
            // The first reading also prepares the session that reads.
            deferred_s = if sample == 0 { deferred_s } else { Seconds(deferred_s.0.min(deferred.0)) };
        }
        let last_set = (calls.next as u64 + SETS - 1) % SETS;
        let new_sets = self.new_sets.len() as u64;
        let mut calls = Calls { session: &mut *self.session, sets: self.new_sets, next: 0, clock };
        let (mut new_inputs_s, mut new_outputs) = (f64::INFINITY, Vec::new());
        for _ in 0..new_sets {
            drop(std::mem::take(&mut new_outputs));
            // Reading outputs takes some processes longer than others.
            meeting.number_of_first(0)?;
            let (time, outputs) = call(&mut calls)?;
            (new_inputs_s, new_outputs) = (new_inputs_s.min(time.0), outputs);
        }
        let compare = |set: u64, outputs: &[Value]| -> Result<Comparison, EngineError> {
            let expected = self.exchange.row(settings.seed, self.group.size, set);
            Ok(Reference::repeated(expected, Format::FP32.rounding).compare(&to_host(outputs)?))
        };
        Ok(SeriesTimes {
            bytes: Bytes(self.bytes as u64),
            calls_s,
            new_inputs_s: Seconds(new_inputs_s),
            deferred_s,
            comparison: compare(last_set, &outputs)?,
            comparison_of_new_inputs: compare(SETS + new_sets - 1, &new_outputs)?,
        })
    }
}
