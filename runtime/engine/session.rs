//! The traits that every engine implements, and the values that pass through them.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flagperf_onnx::{Graph, ValueInfo};
use indexmap::IndexMap;

pub use super::error::{EngineError, Unavailable};
use crate::description::{EngineDescription, Roles};
use crate::event::{PluginFacts, SidecarFacts};
use crate::tensor::{DType, HostMemory, Tensor, TensorSpec};
use crate::units::{Bytes, Seconds};

/// The model that a session is loaded from.
#[derive(Clone, Copy, Debug)]
pub enum Artifact<'a> {
    /// A graph in memory, for frameworks.
    Graph(&'a Graph),
    /// An ONNX file, for compilers.
    Onnx(&'a Path),
    /// A file that the compiler wrote earlier (`exist_compiler_path`).
    Compiled(&'a Path),
}

/// The settings for loading one session.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The vendor's folder; relative paths in `library` and `command` are resolved against it.
    pub folder: PathBuf,
    /// The shared library, for an engine that the vendor brings as a plug-in.
    pub library: Option<PathBuf>,
    /// The folder for temporary files, which nothing needs once the process has ended.
    pub scratch: PathBuf,
    /// Program and arguments, for an engine that the vendor brings as a sidecar.
    pub command: Vec<String>,
    /// The number of threads to compute with; 0 selects the engine's default.
    pub threads: usize,
    /// The number of rows in a full batch.
    pub batch_size: usize,
    /// The floating-point type to compute in. An engine that does not support it returns an error.
    pub precision: DType,
    /// Further options from the vendor's overlay, under the engine's own names.
    pub extra: IndexMap<String, serde_json::Value>,
    /// The merged configuration of the case, for engines that pass it on to the vendor's code.
    pub config: IndexMap<String, serde_json::Value>,
}

impl Default for LoadOptions {
    /// Batches of one row in fp32; everything else is left to the engine.
    fn default() -> Self {
        LoadOptions {
            folder: PathBuf::new(),
            library: None,
            scratch: std::env::temp_dir(),
            command: Vec::new(),
            threads: 0,
            batch_size: 1,
            precision: DType::F32,
            extra: IndexMap::new(),
            config: IndexMap::new(),
        }
    }
}

/// A framework or compiler: one row of the table of engines.
pub trait Engine: Sync {
    /// Returns the properties of the engine that do not depend on the machine.
    fn description(&self) -> EngineDescription;

    /// The engine's name.
    fn name(&self) -> &'static str {
        self.description().name
    }

    /// The floating-point types that the engine computes in.
    fn precisions(&self) -> &'static [DType] {
        self.description().precisions
    }

    /// The phases that the engine can run.
    fn roles(&self) -> Roles {
        self.description().roles
    }

    /// Checks whether the engine works on this machine, and returns the version of the library behind it.
    ///
    /// # Errors
    /// When the engine cannot be used on this machine.
    fn check(&self) -> Result<String, Unavailable>;

    /// Checks what the description of the options cannot express: one option against another, or against the precision.
    /// Needs neither a model nor a library.
    ///
    /// # Errors
    /// [`EngineError::Option`] for an invalid value.
    fn check_further_options(&self, options: &LoadOptions) -> Result<(), EngineError> {
        let _ = options;
        Ok(())
    }

    /// Loads a model; a compiler also compiles it.
    ///
    /// # Errors
    /// When the engine does not accept the artifact or an option, or when the library behind it fails.
    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError>;
}

/// A loaded model.
pub trait Session: Send {
    /// The model's inputs, in order.
    fn inputs(&self) -> &[ValueInfo];

    /// The model's outputs, in order.
    fn outputs(&self) -> &[ValueInfo];

    /// Allocates `bytes` of memory for the input at `index`, of the kind that the engine reads fastest (heap, pinned or
    /// shared).
    ///
    /// # Errors
    /// When the allocation fails.
    fn lend(&mut self, index: usize, bytes: usize) -> Result<Box<dyn LentMemory>, EngineError> {
        let _ = index;
        HeapMemory::zeroed(bytes).map(|memory| Box::new(memory) as Box<dyn LentMemory>)
    }

    /// Runs the model on inputs in the session's order. The device may still be computing the outputs when this
    /// returns.
    ///
    /// # Errors
    /// When an input does not match the model (the error contains the input's name), or the computation fails.
    fn submit(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError>;

    /// Waits until everything submitted has been computed.
    ///
    /// # Errors
    /// When the computation failed.
    fn sync(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// The memory in use on the device; `None` when the engine does not report it.
    fn device_memory(&self) -> Option<Bytes> {
        None
    }

    /// The device, as the engine names it: `cpu`, `cuda:0 H200`.
    fn device(&self) -> String {
        "cpu".to_owned()
    }

    /// The version of the device's driver; `None` when it is not known.
    fn driver(&self) -> Option<String> {
        None
    }

    /// The number of threads that the engine really computes with; 0 when the engine does not report it.
    fn threads(&self) -> usize {
        0
    }

    /// Answers a script's question about the loaded model, for example `layers`. Each engine documents the questions
    /// that it supports.
    ///
    /// # Errors
    /// [`EngineError::Question`] when the engine does not support this question or this argument.
    fn ask(&mut self, question: &str, argument: &serde_json::Value) -> Result<serde_json::Value, EngineError> {
        let _ = argument;
        Err(EngineError::Question {
            engine: None,
            question: question.to_owned(),
            reason: "unknown (this engine supports no questions)".to_owned(),
        })
    }

    /// Changes a setting of the loaded model, for example `profile`, for all later submissions. The inputs and outputs
    /// may change with it. Each engine documents the settings that it supports.
    ///
    /// # Errors
    /// [`EngineError::Setting`] when the engine does not support this setting or this value.
    fn tune(&mut self, setting: &str, value: &serde_json::Value) -> Result<(), EngineError> {
        let _ = value;
        Err(EngineError::Setting {
            engine: None,
            setting: setting.to_owned(),
            reason: "unknown (this engine has no settings)".to_owned(),
        })
    }

    /// The number of nodes that each provider runs, under the library's own names; empty when the engine has no
    /// providers.
    fn nodes_by_provider(&self) -> IndexMap<String, u64> {
        IndexMap::new()
    }

    /// Returns the time that the vendor's own code asked to have subtracted (FlagPerf's `foo_time`) since the last
    /// call; `None` when the code never asks for any. This time is recorded, and never subtracted.
    fn vendor_time(&mut self) -> Option<Seconds> {
        None
    }

    /// The peak resident memory of the other processes that the engine computes in.
    fn process_memory_max(&self) -> Option<Bytes> {
        None
    }

    /// Ends what the engine runs beside this process, after which nothing may be submitted. Returns what went wrong at
    /// the end, for a warning in the record.
    fn close(&mut self) -> Option<String> {
        None
    }

    /// The plug-in behind this session, if there is one.
    fn plugin(&self) -> Option<PluginFacts> {
        None
    }

    /// The sidecar behind this session, if there is one.
    fn sidecar(&self) -> Option<SidecarFacts> {
        None
    }
}

/// A tensor on the host or on a device.
#[derive(Clone, Debug)]
pub enum Value {
    /// In host memory.
    Host(Tensor),
    /// On a device, or not yet computed.
    Device(Arc<dyn DeviceTensor>),
}

impl Value {
    /// The shape and the element type.
    pub fn spec(&self) -> TensorSpec {
        match self {
            Value::Host(tensor) => tensor.spec(),
            Value::Device(tensor) => tensor.spec(),
        }
    }

    /// Returns the tensor in host memory, copying it when it is on a device.
    ///
    /// # Errors
    /// When the tensor's computation or the copy fails.
    pub fn to_host(&self) -> Result<Tensor, EngineError> {
        match self {
            Value::Host(tensor) => Ok(tensor.clone()),
            Value::Device(tensor) => tensor.to_host(),
        }
    }
}

/// A tensor that an engine keeps on its device.
pub trait DeviceTensor: Send + Sync + std::fmt::Debug {
    /// The shape and the element type.
    fn spec(&self) -> TensorSpec;

    /// Copies the tensor to host memory.
    ///
    /// # Errors
    /// When the tensor's computation or the copy fails.
    fn to_host(&self) -> Result<Tensor, EngineError>;

    /// Returns `self` for downcasting, so that a session recognizes its own tensors as inputs.
    fn as_any(&self) -> &dyn Any;
}

/// Memory that a session lends to the loader, which fills it; it is then read as a tensor.
pub trait LentMemory: HostMemory {
    /// The writable bytes.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Lent memory on the heap, aligned for every element type.
#[derive(Debug)]
pub struct HeapMemory {
    words: Vec<u64>,
    bytes: usize,
}

impl HeapMemory {
    /// Allocates `bytes` zero bytes.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`] when the allocation fails.
    pub fn zeroed(bytes: usize) -> Result<Self, EngineError> {
        let count = bytes.div_ceil(size_of::<u64>());
        let mut words = Vec::new();
        words.try_reserve_exact(count).map_err(|_| EngineError::OutOfMemory { bytes: bytes as u64 })?;
        words.resize(count, 0);
        Ok(HeapMemory { words, bytes })
    }
}

impl HostMemory for HeapMemory {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }
}

impl LentMemory for HeapMemory {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}

/// Checks inputs against the model's, including that every dimension of the same name has the same size.
///
/// # Errors
/// [`EngineError::InputCount`] or [`EngineError::Input`].
pub fn check_inputs(expected: &[ValueInfo], given: &[Value]) -> Result<(), EngineError> {
    if expected.len() != given.len() {
        return Err(EngineError::InputCount { expected: expected.len(), given: given.len() });
    }
    let mut named: IndexMap<&str, usize> = IndexMap::new();
    for (info, value) in expected.iter().zip(given) {
        let spec = value.spec();
        let mismatch =
            || EngineError::Input { name: info.name.clone(), expected: info.spec.clone(), given: spec.clone() };
        let shape = spec.fixed_shape().ok_or_else(mismatch)?;
        let consistent = info.spec.dims.iter().zip(&shape).all(|(dim, size)| match dim {
            crate::tensor::Dim::Named(name) => *named.entry(name).or_insert(*size) == *size,
            _ => true,
        });
        if !info.spec.admits(&shape, spec.dtype) || !consistent {
            return Err(mismatch());
        }
    }
    Ok(())
}
