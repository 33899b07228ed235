//! The limits of a device: FlagPerf's `base`, by its names.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flagperf_core::measure::Clock;
use flagperf_core::process_group::ProcessGroup;
use flagperf_core::tensor::{DType, HostMemory, Tensor, TensorSpec};
use flagperf_core::units::{Bytes, Seconds};
use flagperf_engine::{EngineError, Session, Value};
use flagperf_onnx::ValueInfo;
use serde::{Deserialize, Serialize};

use super::exchange::{Exchange, measure_exchange};
use super::figures::DataSheet;
use super::format::Format;
use super::graph::{first_row_graph, tile_graph};
use super::limit_times::{LimitTimes, SizeTimes};
use super::measure::{Loader, MeasureError, OperatorJob, PROCESSOR, measure_operator};
use super::operators::Operator;
use super::sizes::Sizes;

/// The time of a call from which no larger size is tried.
pub(crate) const CALL_MAX: f64 = 0.3;
/// The sizes of the three dimensions of a product, and of a copy in units of 2^20 elements.
const PRODUCT_SIZES: [usize; 5] = [1024, 2048, 4096, 8192, 16384];
const COPY_SIZES: [usize; 4] = [16, 64, 256, 1024];
/// The elements of f32 that are copied between host and device: 256 MiB.
const TRANSFERRED: usize = 1 << 26;
/// The number of transfers.
const TRANSFERS: usize = 20;
/// The blocks of memory that are allocated until none is left, and the smallest: FlagPerf's.
const BLOCK_MAX: usize = 1 << 30;
const BLOCK_MIN: usize = 1 << 20;
/// The elements of the tile that fills a block.
const BLOCK_TILE: usize = 1 << 10;
/// Most blocks that are allocated.
const BLOCKS_MAX: usize = 1 << 14;

/// A limit of a device.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// FlagPerf's name of the case, and of its row.
    pub name: &'static str,
    pub row: &'static str,
    kind: LimitKind,
}

/// How a limit is measured.
#[derive(Clone, Copy, Debug)]
enum LimitKind {
    /// By the matrix product in a format of this name.
    Product(&'static str),
    /// By an elementwise operator, which reads its input and writes its output once.
    Copy,
    /// By allocations until one fails.
    Capacity,
    /// By inputs in the memory that the engine lends.
    HostToDevice,
    /// By copies of an output.
    DeviceToHost,
    /// By the means of tensors over several processes, each with a device of its own.
    AllReduce,
    /// By a tensor that one of two such processes sends to the other.
    PeerToPeer,
}

const fn limit(name: &'static str, row: &'static str, kind: LimitKind) -> Limit {
    Limit { name, row, kind }
}

/// Every limit of FlagPerf's `base`, and `interconnect-d2h`. FlagPerf's names of some rows differ from those of their cases.
#[rustfmt::skip]
pub const LIMITS: [Limit; 15] = [
    limit("computation-FP64", "computation-FP64", LimitKind::Product("FP64")),
    limit("computation-FP32", "computation-FP32", LimitKind::Product("FP32")),
    limit("computation-TF32", "computation-TF32", LimitKind::Product("TF32")),
    limit("computation-FP16", "computation-FP16", LimitKind::Product("FP16")),
    limit("computation-BF16", "computation-BF16", LimitKind::Product("BF16")),
    limit("computation-FP8", "computation-FP8", LimitKind::Product("FP8")),
    limit("computation-INT8", "computation-INT8", LimitKind::Product("INT8")),
    limit("main_memory-bandwidth", "main_memory-bindwidth", LimitKind::Copy),
    limit("main_memory-capacity", "main_memory-capacity", LimitKind::Capacity),
    limit("interconnect-h2d", "transfer-bandwidth", LimitKind::HostToDevice),
    limit("interconnect-d2h", "transfer-bandwidth-d2h", LimitKind::DeviceToHost),
    limit("interconnect-MPI_intraserver", "interconnect-MPI_intraserver-bandwidth", LimitKind::AllReduce),
    limit("interconnect-P2P_intraserver", "inferconnect-P2P_intraserver-bandwidth", LimitKind::PeerToPeer),
    limit("interconnect-MPI_interserver", "interconnect-MPI_interserver-bandwidth", LimitKind::AllReduce),
    limit("interconnect-P2P_interserver", "inferconnect-P2P_intraserver-bandwidth", LimitKind::PeerToPeer),
];

/// How many processes measure a limit together: one for each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSize {
    pub hosts: usize,
    /// The devices of each host.
    pub devices: u32,
}

impl GroupSize {
    /// One device of this machine.
    pub const ONE: GroupSize = GroupSize { hosts: 1, devices: 1 };
}

impl Limit {
    /// Returns the limit with this name.
    ///
    /// # Errors
    /// The known names.
    pub fn find(name: &str) -> Result<&'static Limit, String> {
        LIMITS.iter().find(|limit| limit.name == name).ok_or_else(|| {
            let known = LIMITS.iter().map(|limit| limit.name);
            format!("unknown limit `{name}` (known: {})", flagperf_core::suggestion::list_known(name, known))
        })
    }

    /// Returns the operator and the format by which the limit is measured; `None` if it is measured without an operator.
    pub fn operator(&self) -> Option<(&'static Operator, Format)> {
        let (name, format) = match self.kind {
            LimitKind::Product("INT8") => ("int_mm", "INT8"),
            LimitKind::Product("FP8") => ("scaled_mm", "FP8"),
            LimitKind::Product(format) => ("mm", format),
            LimitKind::Copy => ("neg", "FP32"),
            _ => return None,
        };
        Some((Operator::find(name).ok()?, Format::find(format)?))
    }

    /// Returns whether the limit is that of several devices, of one host or of several.
    pub fn is_of_several_devices(&self) -> bool {
        matches!(self.kind, LimitKind::AllReduce | LimitKind::PeerToPeer)
    }

    /// Returns whether the limit is that of devices of several hosts.
    pub fn is_between_hosts(&self) -> bool {
        self.name.contains("interserver")
    }

    /// Returns whether the limit is that of so many devices together.
    pub fn is_of(&self, size: GroupSize) -> bool {
        let GroupSize { hosts, devices } = size;
        if self.is_between_hosts() != (hosts > 1) {
            return false;
        }
        match self.kind {
            LimitKind::PeerToPeer => hosts as u64 * u64::from(devices) == 2,
            _ => self.is_of_several_devices() == (hosts > 1 || devices > 1),
        }
    }

    /// Returns what the processes of the limit exchange; `None` if it is that of one device.
    pub(crate) fn exchange(&self) -> Option<Exchange> {
        match self.kind {
            LimitKind::AllReduce => Some(Exchange::AllReduce),
            LimitKind::PeerToPeer => Some(Exchange::Broadcast),
            _ => None,
        }
    }

    /// Returns what the data sheet says of the limit. It has nothing about transfers.
    pub fn data_sheet_value(&self, sheet: &DataSheet) -> Option<f64> {
        match self.kind {
            LimitKind::Product(_) => sheet.flops_per_s,
            LimitKind::Copy => sheet.bytes_per_s,
            LimitKind::Capacity => sheet.memory_bytes,
            _ => None,
        }
    }

    /// Returns the unit of the limit: `FLOP/s`, `OP/s`, `B/s` or `B`.
    pub fn unit(&self) -> &'static str {
        match self.kind {
            LimitKind::Product(format) => Format::find(format).map_or("FLOP/s", |format| format.rate_unit()),
            LimitKind::Capacity => "B",
            _ => "B/s",
        }
    }
}

/// What a process measures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LimitJob {
    /// The name of the limit.
    pub limit: String,
    /// The engine and the settings. The operator, its format and its sizes are those of the limit.
    pub settings: OperatorJob,
    /// The processes of a limit of several devices.
    #[serde(default)]
    pub group: Option<ProcessGroup>,
}

/// Measures a limit. `begun` counts the calls in which this process meets the others.
///
/// # Errors
/// When the engine fails, or the limit does not exist on its device.
pub fn measure_limit(job: &LimitJob, clock: &dyn Clock, begun: &AtomicU64) -> Result<LimitTimes, MeasureError> {
    let limit = Limit::find(&job.limit).map_err(MeasureError::Operator)?;
    match limit.kind {
        LimitKind::Product(_) => measure_sizes(limit, &["M", "N", "K"], &PRODUCT_SIZES, &job.settings, clock),
        LimitKind::Copy => measure_sizes(limit, &["Melements"], &COPY_SIZES, &job.settings, clock),
        LimitKind::Capacity => measure_capacity(&job.settings),
        LimitKind::HostToDevice => measure_to_device(&job.settings, clock),
        LimitKind::DeviceToHost => measure_to_host(&job.settings, clock),
        LimitKind::AllReduce | LimitKind::PeerToPeer => {
            let alone = || MeasureError::Operator(format!("`{}` is a limit of several devices", limit.name));
            let (group, exchange) = job.group.as_ref().zip(limit.exchange()).ok_or_else(alone)?;
            let times = measure_exchange(exchange, &job.settings, group, clock, begun)?;
            Ok(LimitTimes::of_exchange(exchange, vec![times]))
        }
    }
}

fn measure_sizes(
    limit: &Limit,
    dimensions: &[&str],
    sizes: &[usize],
    settings: &OperatorJob,
    clock: &dyn Clock,
) -> Result<LimitTimes, MeasureError> {
    let (operator, format) = limit.operator().expect("the limit is that of an operator");
    let mut measured: Vec<SizeTimes> = Vec::new();
    for size in sizes {
        let given = dimensions.iter().map(|name| ((*name).to_owned(), *size)).collect();
        let flops =
            operator.flops.map(|flops| Ok::<f64, MeasureError>(flops(&Sizes::of(operator, &given)?))).transpose()?;
        let name = operator.name.to_owned();
        let job = OperatorJob { operator: name, format, sizes: given, ..settings.clone() };
        let times = match measure_operator(&job, clock) {
            Ok(times) => times,
            Err(error) if measured.is_empty() || !is_memory(&error) => return Err(error),
            Err(_) => break,
        };
        let (calls, time) = times.rounds.iter().fold((0, 0.0), |(n, t), round| (n + round.calls, t + round.time_s.0));
        measured.push(SizeTimes { size: *size, flops, times });
        if time / calls.max(1) as f64 > CALL_MAX {
            break;
        }
    }
    Ok(LimitTimes::Operator(measured))
}

pub(crate) fn is_memory(error: &MeasureError) -> bool {
    matches!(error, MeasureError::Memory { .. } | MeasureError::Engine(EngineError::OutOfMemory { .. }))
}

/// Returns the description of a vector of f32.
fn vector(name: &str, elements: usize) -> ValueInfo {
    ValueInfo { name: name.to_owned(), spec: TensorSpec::new([elements], DType::F32) }
}

/// Returns a vector of a session that repeats a tile.
fn block(session: &mut dyn Session, tile: &Tensor) -> Result<Vec<Value>, EngineError> {
    let outputs = session.submit(&[Value::Host(tile.clone())])?;
    session.sync()?;
    Ok(outputs)
}

fn tile_of(elements: usize) -> Tensor {
    Tensor::from_vec([elements], vec![1f32; elements]).expect("the shape is the length of the list")
}

/// The inputs and outputs of an engine lie in host memory.
fn no_device(device: &str) -> MeasureError {
    MeasureError::Operator(format!("`{device}` has no memory of its own: the engine computes in host memory"))
}

/// A session that fills blocks, the name of its device, and the first block.
type Blocks = (Box<dyn Session>, String, Vec<Value>);

/// Loads the session that fills blocks of so many elements.
fn load_blocks(loader: &Loader<'_>, elements: usize) -> Result<Blocks, MeasureError> {
    let mut session = loader.load(&tile_graph(&[vector("block", BLOCK_TILE)], &[vector("block", elements)]))?;
    let first = block(&mut *session, &tile_of(BLOCK_TILE))?;
    let device = session.facts().device;
    // Outputs of an engine that computes in host memory may nevertheless be its own.
    match first.first() {
        Some(Value::Device(_)) if device != PROCESSOR => Ok((session, device, first)),
        _ => Err(no_device(&device)),
    }
}

fn measure_capacity(settings: &OperatorJob) -> Result<LimitTimes, MeasureError> {
    let loader = Loader::new(settings)?;
    let (mut size, mut bytes) = (BLOCK_MAX, 0);
    let mut held = Vec::new();
    let mut device = String::new();
    while size >= BLOCK_MIN && held.len() < BLOCKS_MAX {
        let (mut session, name, first) = match load_blocks(&loader, size / size_of::<f32>()) {
            Err(error) if is_memory(&error) && !held.is_empty() => {
                size /= 2;
                continue;
            }
            loaded => loaded?,
        };
        device = name;
        held.push(first);
        bytes += size;
        loop {
            match block(&mut *session, &tile_of(BLOCK_TILE)) {
                Ok(block) if held.len() < BLOCKS_MAX => held.push(block),
                Ok(_) | Err(EngineError::OutOfMemory { .. }) => break,
                Err(error) => return Err(error.into()),
            }
            bytes += size;
        }
        size /= 2;
    }
    let device_name = settings.device_name(&device);
    Ok(LimitTimes::Capacity { device, device_name, bytes: Bytes(bytes as u64) })
}

fn measure_to_device(settings: &OperatorJob, clock: &dyn Clock) -> Result<LimitTimes, MeasureError> {
    let loader = Loader::new(settings)?;
    drop(load_blocks(&loader, BLOCK_TILE)?);
    let mut session = loader.load(&first_row_graph(&[vector("transferred", TRANSFERRED)]))?;
    let bytes = TRANSFERRED * size_of::<f32>();
    let mut lent = session.lend(0, bytes)?;
    for (place, element) in lent.bytes_mut().chunks_exact_mut(size_of::<f32>()).enumerate() {
        element.copy_from_slice(&(place as f32).to_le_bytes());
    }
    let lent: Arc<dyn HostMemory> = Arc::from(lent as Box<dyn HostMemory>);
    let input = Tensor::from_memory([TRANSFERRED], DType::F32, lent, 0);
    let input = [Value::Host(input.map_err(|error| EngineError::Failed(error.to_string()))?)];
    let transfer = || {
        let begin = clock.now();
        let outputs = session.submit(&input)?;
        session.sync()?;
        drop(outputs);
        Ok(clock.now().since(begin))
    };
    let times_s = transfers(transfer)?;
    let device = session.facts().device;
    let device_name = settings.device_name(&device);
    Ok(LimitTimes::Transfers { device, device_name, bytes: Bytes(bytes as u64), times_s })
}

fn measure_to_host(settings: &OperatorJob, clock: &dyn Clock) -> Result<LimitTimes, MeasureError> {
    let loader = Loader::new(settings)?;
    let (session, device, block) = load_blocks(&loader, TRANSFERRED)?;
    block[0].to_host()?;
    let times_s = transfers(|| {
        let begin = clock.now();
        block[0].copy_again()?;
        Ok(clock.now().since(begin))
    })?;
    drop(session);
    let (device_name, bytes) = (settings.device_name(&device), Bytes((TRANSFERRED * size_of::<f32>()) as u64));
    Ok(LimitTimes::Transfers { device, device_name, bytes, times_s })
}

/// Returns the times of transfers. The first ones, in which memory is allocated, do not count.
fn transfers(mut transfer: impl FnMut() -> Result<Seconds, EngineError>) -> Result<Vec<Seconds>, MeasureError> {
    let times = (0..TRANSFERS + 3).map(|_| transfer()).collect::<Result<Vec<_>, _>>()?;
    Ok(times[3..].to_vec())
}
