//! A model that a sidecar has loaded. Batches are lent, outputs stay with the sidecar until they are asked for.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use flagperf_onnx::ValueInfo;
use serde_json::Value as Json;

use super::connection::Connection;
use super::memory::{Book, Region};
use super::outputs::{check_outputs, check_seconds, third_value};
use super::protocol::{Answer, Ask, Input, Loaded};
use crate::engine::{DeviceTensor, EngineError, LentMemory, Session, Value, check_inputs};
use crate::event::SidecarFacts;
use crate::tensor::{DType, HostMemory, Tensor, TensorSpec, byte_count};
use crate::units::{Bytes, Seconds};

/// Regions that outputs are read from where they lie. Whoever keeps more of them gets copies: a region is a mapping in two
/// processes, and takes longer to make than most outputs to copy.
const OUTPUT_REGIONS: usize = 8;

/// What a model is fed and what it gives.
#[derive(Clone, Debug, Default)]
pub(super) struct Signature {
    pub(super) inputs: Vec<ValueInfo>,
    pub(super) outputs: Vec<ValueInfo>,
}

/// A loaded model.
pub(super) struct SidecarSession {
    shared: Arc<Shared>,
    signature: Signature,
    device: String,
    threads: usize,
    facts: SidecarFacts,
    runs: u64,
    /// Inputs that do not lie in lent memory are copied here, one region an input.
    staged: Vec<Option<Region>>,
    asked_off: Option<Seconds>,
}

/// What outputs need of their sidecar as long as they live.
#[derive(Debug)]
struct Shared {
    connection: Mutex<Connection>,
    book: Arc<Book>,
    /// Regions for outputs; one that only this list holds is free.
    outputs: Mutex<Vec<Arc<Region>>>,
    /// The region that outputs are copied from when none of those is free.
    copied: Mutex<Option<Region>>,
    /// Runs whose outputs nobody wants any more, of which the sidecar was not told yet.
    forget: Mutex<Vec<u64>>,
}

impl SidecarSession {
    pub(super) fn new(mut connection: Connection, signature: Signature, loaded: Loaded, facts: SidecarFacts) -> Self {
        let device = loaded.device.unwrap_or_else(|| "cpu".to_owned());
        if device != "cpu" {
            connection.computes_on_device();
        }
        let shared = Shared {
            connection: Mutex::new(connection),
            book: Arc::default(),
            outputs: Mutex::default(),
            copied: Mutex::default(),
            forget: Mutex::default(),
        };
        SidecarSession {
            shared: Arc::new(shared),
            staged: signature.inputs.iter().map(|_| None).collect(),
            signature,
            device,
            threads: loaded.threads,
            facts,
            runs: 0,
            asked_off: None,
        }
    }

    /// Where the sidecar finds an input: with itself, in lent memory, or in a copy.
    fn place(&mut self, index: usize, value: &Value) -> Result<Input, EngineError> {
        if let Value::Device(tensor) = value
            && let Some(own) = tensor.as_any().downcast_ref::<SidecarTensor>()
            && Arc::ptr_eq(&own.run.shared, &self.shared)
        {
            return Ok(Input::Output { spec: own.spec(), run: own.run.number, output: own.output });
        }
        let tensor = value.to_host()?;
        let (buffer, offset) = match self.shared.book.find(tensor.bytes()) {
            Some(place) => place,
            None => (self.stage(index, tensor.bytes())?, 0),
        };
        Ok(Input::Buffer { spec: tensor.spec(), buffer, offset })
    }

    /// Copies an input to a region of its own, and gives its number.
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

    fn submit(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.signature.inputs, inputs)?;
        let places = inputs.iter().enumerate().map(|(index, value)| self.place(index, value));
        let places = places.collect::<Result<Vec<_>, _>>()?;
        self.runs += 1;
        let run = self.runs;
        let forget = std::mem::take(&mut *lock(&self.shared.forget));
        let ask = Ask::Run { run, inputs: places, forget };
        let mut connection = self.shared.connection();
        let ran = match connection.ask(&ask)? {
            Answer::Ran(ran) if ran.run.is_none_or(|answered| answered == run) => ran,
            other => return Err(connection.unfit(&ask, &other)),
        };
        drop(connection);
        let run = Arc::new(Run { number: run, shared: Arc::clone(&self.shared) });
        let shapes = check_outputs(&self.signature, inputs, &ran.outputs, &mut self.facts.reshaped_outputs)?;
        if let Some(seconds) = check_seconds(ran.seconds)? {
            self.asked_off = Some(self.asked_off.map_or(seconds, |sum| sum + seconds));
        }
        if self.facts.third_value.is_none() {
            self.facts.third_value = ran.third.map(|third| third_value(&third));
        }
        let kept = |(output, (shape, spec)): (usize, (Vec<usize>, TensorSpec))| {
            let tensor =
                SidecarTensor { run: Arc::clone(&run), output, shape, dtype: spec.dtype, host: OnceLock::new() };
            Value::Device(Arc::new(tensor))
        };
        Ok(shapes.into_iter().zip(ran.outputs).enumerate().map(kept).collect())
    }

    fn device_memory(&self) -> Option<Bytes> {
        match self.shared.connection().ask(&Ask::Memory) {
            Ok(Answer::Memory { bytes }) => bytes.map(Bytes),
            _ => None,
        }
    }

    fn ask(&mut self, question: &str, argument: &Json) -> Result<Json, EngineError> {
        let ask = Ask::Question { question: question.to_owned(), argument: argument.clone() };
        let mut connection = self.shared.connection();
        match connection.ask(&ask)? {
            Answer::Answered { value } => Ok(value),
            other => Err(connection.unfit(&ask, &other)),
        }
    }

    fn tune(&mut self, setting: &str, value: &Json) -> Result<(), EngineError> {
        self.shared.connection().order(&Ask::Tune { setting: setting.to_owned(), value: value.clone() })
    }

    fn device(&self) -> String {
        self.device.clone()
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn sidecar(&self) -> Option<SidecarFacts> {
        Some(self.facts.clone())
    }

    fn vendor_time(&mut self) -> Option<Seconds> {
        self.asked_off.take()
    }

    fn process_memory_max(&self) -> Option<Bytes> {
        self.shared.connection().memory_max().map(Bytes)
    }

    fn close(&mut self) -> Option<String> {
        self.shared.connection().close()
    }
}

impl Shared {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        lock(&self.connection)
    }

    /// Memory that the sidecar has mapped, too.
    fn lend(&self, bytes: usize) -> Result<Region, EngineError> {
        let mut connection = self.connection();
        let buffers = self.book.take_gone();
        if !buffers.is_empty() {
            connection.order(&Ask::TakeBack { buffers })?;
        }
        let (region, file) =
            Region::create(bytes, &self.book).map_err(|_| EngineError::OutOfMemory { bytes: bytes as u64 })?;
        connection.order(&Ask::Lend { buffer: region.buffer(), file: file.path(), bytes: bytes as u64 })?;
        Ok(region)
    }

    /// A region for an output that nobody reads any more, or a new one; `None` when there are enough.
    fn output(&self, bytes: usize) -> Result<Option<Arc<Region>>, EngineError> {
        let mut outputs = lock(&self.outputs);
        let free = |region: &Arc<Region>| Arc::strong_count(region) == 1;
        if let Some(region) = outputs.iter().find(|region| free(region) && region.bytes().len() == bytes) {
            return Ok(Some(Arc::clone(region)));
        }
        if outputs.len() >= OUTPUT_REGIONS {
            outputs.retain(|region| !free(region));
        }
        if outputs.len() >= OUTPUT_REGIONS {
            return Ok(None);
        }
        let region = Arc::new(self.lend(bytes)?);
        outputs.push(Arc::clone(&region));
        Ok(Some(region))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run whose outputs the sidecar keeps.
#[derive(Debug)]
struct Run {
    number: u64,
    shared: Arc<Shared>,
}

impl Drop for Run {
    fn drop(&mut self) {
        lock(&self.shared.forget).push(self.number);
    }
}

/// An output that the sidecar keeps.
#[derive(Debug)]
struct SidecarTensor {
    run: Arc<Run>,
    output: usize,
    shape: Vec<usize>,
    dtype: DType,
    host: OnceLock<Tensor>,
}

impl SidecarTensor {
    /// Has it written to a region.
    fn fetch(&self, region: &Region) -> Result<(), EngineError> {
        let ask = Ask::Fetch { run: self.run.number, output: self.output, buffer: region.buffer() };
        self.run.shared.connection().order(&ask)
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
        let bytes = byte_count(&self.shape, self.dtype).ok_or(EngineError::OutOfMemory { bytes: u64::MAX })?;
        let tensor = match self.run.shared.output(bytes)? {
            Some(region) => {
                self.fetch(&region)?;
                Tensor::from_memory(self.shape.clone(), self.dtype, region, 0)
            }
            None => {
                let mut copied = lock(&self.run.shared.copied);
                let region = match copied.take().filter(|region| region.bytes().len() >= bytes) {
                    Some(region) => copied.insert(region),
                    None => copied.insert(self.run.shared.lend(bytes)?),
                };
                self.fetch(region)?;
                Tensor::from_bytes(self.shape.clone(), self.dtype, &region.bytes()[..bytes])
            }
        };
        let tensor = tensor.map_err(|error| EngineError::Failed(error.to_string()))?;
        Ok(self.host.get_or_init(|| tensor).clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
