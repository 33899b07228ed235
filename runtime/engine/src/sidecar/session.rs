//! The session of a model that a sidecar has loaded. Inputs are in shared memory; outputs stay with the sidecar until
//! the host fetches them.
//!
//! The sidecar can write to the inputs, so they are hashed before and after the first run and before and after a run
//! that follows the last pass. These runs are not measured.

use std::any::Any;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use flagperf_onnx::ValueInfo;
use serde_json::Value as Json;

use super::connection::Connection;
use super::memory::{LentRegions, Region};
use super::outputs::{check_outputs, check_vendor_time, printable_third_value};
use super::protocol::{LoadReply, NOT_TOLD, Reply, Request, RunInput, RunReply, TokensReply};
use crate::answers::{Answer, Prompts, collect};
use crate::value::row_count;
use crate::{AnswerTimes, DeviceTensor, EngineError, LentMemory, Session, SessionFacts, Value, check_inputs};
use flagperf_core::event::SidecarFacts;
use flagperf_core::hash::hash_bytes;
use flagperf_core::measure::{Clock as _, MonotonicClock};
use flagperf_core::tensor::{DType, HostMemory, Tensor, TensorSpec, byte_count};
use flagperf_core::units::{Bytes, Seconds};

/// A larger amount of memory in use on the devices of one machine is an error of the sidecar.
const DEVICE_MEMORY_MAX: u64 = 64 << 40;

/// Largest number of files of modules that are kept.
const MODULES_MAX: usize = 50_000;
/// Stands for the others. It is no file, so that the record names it among those without a hash.
const FURTHER_MODULES: &str = "further modules";

/// The inputs and outputs of a model.
#[derive(Clone, Debug, Default)]
pub(super) struct Signature {
    pub(super) inputs: Vec<ValueInfo>,
    pub(super) outputs: Vec<ValueInfo>,
}

/// The session of a model that a sidecar has loaded.
pub(super) struct SidecarSession {
    shared: Arc<SharedState>,
    signature: Signature,
    device: String,
    threads: usize,
    facts: SidecarFacts,
    run_count: u64,
    /// Whether the next run is checked for writes to its inputs.
    checks_inputs: bool,
    /// For each input, the region to which it is copied if it is not in lent memory.
    staged: Vec<Option<Region>>,
    /// Time that the vendor's code requested to subtract since it was last taken.
    vendor_time: Option<Seconds>,
    /// For a sidecar that generates text.
    prompts: Option<Prompts>,
    answer_times: Vec<AnswerTimes>,
    /// The files of the modules that the sidecar has imported.
    modules: Mutex<BTreeSet<PathBuf>>,
    /// The first problem with a reply about the device's memory.
    memory_error: OnceLock<String>,
}

/// The part of a session that its outputs keep alive.
#[derive(Debug)]
struct SharedState {
    connection: Mutex<Connection>,
    regions: Arc<LentRegions>,
    /// The region to which the sidecar copies an output; as large as the largest one so far.
    output_region: Mutex<Option<Region>>,
    /// Runs whose outputs were dropped, to be reported to the sidecar.
    dropped_runs: Mutex<Vec<u64>>,
}

impl SidecarSession {
    pub(super) fn new(
        mut connection: Connection,
        signature: Signature,
        loaded: LoadReply,
        facts: SidecarFacts,
        prompts: Option<Prompts>,
    ) -> Self {
        if loaded.device.as_deref().is_some_and(|device| device != "cpu") {
            connection.poll_for_device();
        }
        let shared = SharedState {
            connection: Mutex::new(connection),
            regions: Arc::default(),
            output_region: Mutex::default(),
            dropped_runs: Mutex::default(),
        };
        SidecarSession {
            shared: Arc::new(shared),
            staged: signature.inputs.iter().map(|_| None).collect(),
            signature,
            device: loaded.device.unwrap_or_else(|| NOT_TOLD.to_owned()),
            threads: loaded.threads,
            facts,
            run_count: 0,
            checks_inputs: true,
            vendor_time: None,
            prompts,
            answer_times: Vec::new(),
            modules: Mutex::default(),
            memory_error: OnceLock::new(),
        }
    }

    /// Returns the place of an input for the sidecar: one of its own outputs, lent memory, or a copy.
    fn locate_input(&mut self, index: usize, value: &Value) -> Result<RunInput, EngineError> {
        if let Value::Device(tensor) = value
            && let Some(own) = tensor.as_any().downcast_ref::<SidecarTensor>()
            && Arc::ptr_eq(&own.run.shared, &self.shared)
        {
            return Ok(RunInput::Output { spec: own.spec(), run: own.run.number, output: own.output });
        }
        let tensor = value.to_host()?;
        let (buffer, offset) = match self.shared.regions.find(tensor.bytes()) {
            Some(place) => place,
            None => (self.stage(index, tensor.bytes())?, 0),
        };
        Ok(RunInput::Buffer { spec: tensor.spec(), buffer, offset })
    }

    /// Returns the hash of each input in shared memory, as the sidecar sees it; `None` for an output of its own.
    fn hash_inputs(&self, inputs: &[Value], places: &[RunInput]) -> Result<Vec<Option<String>>, EngineError> {
        let hash = |(index, value): (usize, &Value)| {
            if matches!(places[index], RunInput::Output { .. }) {
                return Ok(None);
            }
            let tensor = value.to_host()?;
            let staged = self.staged[index].as_ref().filter(|_| self.shared.regions.find(tensor.bytes()).is_none());
            let bytes = staged.map_or(tensor.bytes(), |region| &region.bytes()[..tensor.bytes().len()]);
            Ok(Some(hash_bytes(bytes)))
        };
        inputs.iter().enumerate().map(hash).collect()
    }

    /// Copies an input to its region and returns the number of the region.
    fn stage(&mut self, index: usize, bytes: &[u8]) -> Result<u32, EngineError> {
        let staged = &mut self.staged[index];
        if staged.as_ref().is_none_or(|region| region.bytes().len() < bytes.len()) {
            *staged = None;
        }
        let region = match staged {
            Some(region) => region,
            None => staged.insert(self.shared.lend(bytes.len())?),
        };
        region.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        Ok(region.buffer())
    }

    /// Has the sidecar run. Returns its last reply, and the answers of as many rows from the replies before it.
    fn run(&self, request: &Request, rows: usize) -> Result<(RunReply, Vec<Answer>), EngineError> {
        let mut connection = self.shared.connection();
        let clock = MonotonicClock::start();
        let mut answers = vec![Answer::sent(clock.now()); rows];
        connection.send(request)?;
        loop {
            match (connection.read_reply(request, None)?, &self.prompts) {
                (Reply::Ran(reply), _) if reply.run.is_none_or(|number| number == self.run_count) => {
                    return Ok((reply, answers));
                }
                (Reply::Tokens(TokensReply { row, tokens }), Some(prompts)) => {
                    let added = match answers.get_mut(row) {
                        Some(answer) => answer.add(&tokens, clock.now(), prompts),
                        None => Err(format!("row {row} is none of the batch, which has {rows}")),
                    };
                    added.map_err(|why| connection.reply_error(request, &format!("sent wrong tokens: {why}")))?;
                }
                (other, _) => return Err(connection.unexpected_reply(request, &other)),
            }
        }
    }
}

impl Session for SidecarSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.signature.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.signature.outputs
    }

    fn lend(&mut self, _: usize, bytes: usize) -> Result<Box<dyn LentMemory>, EngineError> {
        Ok(Box::new(self.shared.lend(bytes)?))
    }

    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.signature.inputs, inputs)?;
        let places = inputs.iter().enumerate().map(|(index, value)| self.locate_input(index, value));
        let places = places.collect::<Result<Vec<_>, _>>()?;
        self.run_count += 1;
        let run = self.run_count;
        let forget = std::mem::take(&mut *lock(&self.shared.dropped_runs));
        // The inputs are verified in the first run and in one after the last pass, which are not measured: sealed against
        // writes, they could not be pinned for a device.
        let before =
            if std::mem::take(&mut self.checks_inputs) { self.hash_inputs(inputs, &places)? } else { Vec::new() };
        let request = Request::Run { run, inputs: places.clone(), forget };
        let rows = match &self.prompts {
            Some(prompts) => prompts.read(inputs)?.len(),
            None => 0,
        };
        let (reply, answers) = self.run(&request, rows)?;
        if !before.is_empty() {
            let after = self.hash_inputs(inputs, &places)?;
            if let Some(index) = (0..before.len()).find(|index| before[*index] != after[*index]) {
                let name = &self.signature.inputs[index].name;
                return Err(EngineError::Failed(format!(
                    "the sidecar wrote to its input `{name}`; inputs must not change"
                )));
            }
        }
        if let Some(seconds) = check_vendor_time(reply.seconds)? {
            self.vendor_time = Some(self.vendor_time.map_or(seconds, |sum| sum + seconds));
        }
        if let Some(prompts) = &self.prompts {
            let collected = collect(answers, row_count(inputs), prompts);
            let (outputs, times) =
                collected.map_err(|why| EngineError::Failed(format!("the sidecar ended `run`, but {why}")))?;
            self.answer_times = times;
            return Ok(outputs);
        }
        let run = Arc::new(KeptRun { number: run, shared: Arc::clone(&self.shared) });
        let shapes = check_outputs(&self.signature, inputs, &reply.outputs, &mut self.facts.reshaped_outputs)?;
        if self.facts.third_value.is_none() {
            self.facts.third_value = reply.third.map(|third| printable_third_value(&third));
        }
        let value = |(output, (shape, spec)): (usize, (Vec<usize>, TensorSpec))| {
            let tensor =
                SidecarTensor { run: Arc::clone(&run), output, shape, dtype: spec.dtype, host: OnceLock::new() };
            Value::Device(Arc::new(tensor))
        };
        Ok(shapes.into_iter().zip(reply.outputs).enumerate().map(value).collect())
    }

    fn device_memory(&self) -> Option<Bytes> {
        let reply = self.shared.connection().request(&Request::Memory);
        if let Ok(Reply::Memory { modules, .. }) = &reply {
            let mut known = lock(&self.modules);
            let free = MODULES_MAX.saturating_sub(known.len());
            known.extend(modules.iter().take(free).cloned());
            if modules.len() > free {
                known.insert(PathBuf::from(FURTHER_MODULES));
            }
        }
        let problem = match reply {
            Ok(Reply::Memory { bytes: Some(bytes), .. }) if bytes > DEVICE_MEMORY_MAX => {
                format!(
                    "the sidecar reported {bytes} bytes of device memory, which no machine has; they are not recorded"
                )
            }
            Ok(Reply::Memory { bytes, .. }) => return bytes.map(Bytes),
            Ok(_) => "the sidecar reported no device memory: it sent another reply than `memory`".to_owned(),
            Err(error) => format!("the sidecar reported no device memory: {error}"),
        };
        self.memory_error.get_or_init(|| problem);
        None
    }

    fn modules(&self) -> BTreeSet<PathBuf> {
        lock(&self.modules).clone()
    }

    fn ask(&mut self, question: &str, argument: &Json) -> Result<Json, EngineError> {
        let request = Request::Question { question: question.to_owned(), argument: argument.clone() };
        let mut connection = self.shared.connection();
        match connection.request(&request)? {
            Reply::Answered { value } => Ok(value),
            other => Err(connection.unexpected_reply(&request, &other)),
        }
    }

    fn tune(&mut self, setting: &str, value: &Json) -> Result<(), EngineError> {
        let request = Request::Tune { setting: setting.to_owned(), value: value.clone() };
        self.shared.connection().request_done(&request)
    }

    fn check_inputs_of_next_run(&mut self) {
        self.checks_inputs = true;
    }

    fn facts(&self) -> SessionFacts {
        SessionFacts {
            device: self.device.clone(),
            threads: self.threads,
            sidecar: Some(SidecarFacts { maps_buffers: self.shared.connection().maps_buffers(), ..self.facts.clone() }),
            ..SessionFacts::default()
        }
    }

    fn vendor_time(&mut self) -> Option<Seconds> {
        self.vendor_time.take()
    }

    fn answer_times(&mut self) -> Vec<AnswerTimes> {
        std::mem::take(&mut self.answer_times)
    }

    fn close(&mut self) -> Option<String> {
        let problems = [self.memory_error.take(), self.shared.connection().close()];
        problems.into_iter().flatten().reduce(|first, second| format!("{first}; {second}"))
    }
}

impl SharedState {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        lock(&self.connection)
    }

    /// Creates a region, and has the sidecar map it and unmap the regions that were dropped.
    fn lend(&self, bytes: usize) -> Result<Region, EngineError> {
        let mut connection = self.connection();
        let buffers = self.regions.take_dropped();
        if !buffers.is_empty() {
            connection.request_done(&Request::TakeBack { buffers })?;
        }
        let (region, file) =
            Region::create(bytes, &self.regions).map_err(|_| EngineError::OutOfMemory { bytes: bytes as u64 })?;
        connection.lend(region.buffer(), &file, bytes as u64)?;
        Ok(region)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run whose outputs the sidecar keeps until this value is dropped.
#[derive(Debug)]
struct KeptRun {
    number: u64,
    shared: Arc<SharedState>,
}

impl Drop for KeptRun {
    fn drop(&mut self) {
        lock(&self.shared.dropped_runs).push(self.number);
    }
}

/// An output that the sidecar keeps; `host` is the fetched tensor.
#[derive(Debug)]
struct SidecarTensor {
    run: Arc<KeptRun>,
    output: usize,
    shape: Vec<usize>,
    dtype: DType,
    host: OnceLock<Tensor>,
}

impl SidecarTensor {
    /// Has the sidecar copy the output to a region.
    fn fetch(&self, region: &Region) -> Result<(), EngineError> {
        let request = Request::Fetch { run: self.run.number, output: self.output, buffer: region.buffer() };
        self.run.shared.connection().request_done(&request)
    }
}

impl DeviceTensor for SidecarTensor {
    fn spec(&self) -> TensorSpec {
        TensorSpec::new(self.shape.iter().copied(), self.dtype)
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        if let Some(tensor) = self.host.get() {
            return Ok(tensor.clone());
        }
        let tensor = self.copy()?;
        Ok(self.host.get_or_init(|| tensor).clone())
    }

    fn copy_again(&self) -> Result<(), EngineError> {
        self.copy().map(drop)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl SidecarTensor {
    /// Has the sidecar copy the output, and returns the host's own copy of that: the sidecar can write to a region at any
    /// time, so that it could compute while the host evaluates.
    fn copy(&self) -> Result<Tensor, EngineError> {
        let bytes = byte_count(&self.shape, self.dtype).ok_or(EngineError::OutOfMemory { bytes: u64::MAX })?;
        let mut output_region = lock(&self.run.shared.output_region);
        let region = match output_region.take().filter(|region| region.bytes().len() >= bytes) {
            Some(region) => output_region.insert(region),
            None => output_region.insert(self.run.shared.lend(bytes)?),
        };
        self.fetch(region)?;
        let tensor = Tensor::from_bytes(self.shape.clone(), self.dtype, &region.bytes()[..bytes]);
        tensor.map_err(|error| EngineError::Failed(error.to_string()))
    }
}
