//! The trait that every engine implements, and the values that pass through it.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flagperf_onnx::{Graph, ValueInfo};
use indexmap::IndexMap;

pub use super::error::{EngineError, Unavailable};
use crate::event::{PluginFacts, SidecarFacts};
use crate::tensor::{DType, HostMemory, Tensor, TensorSpec};
use crate::units::{Bytes, Seconds};

/// What a session is loaded from.
#[derive(Clone, Copy, Debug)]
pub enum Artifact<'a> {
    /// A graph in memory: what frameworks take.
    Graph(&'a Graph),
    /// An ONNX file: what compilers take.
    Onnx(&'a Path),
    /// A file that the compiler made earlier (`exist_compiler_path`).
    Compiled(&'a Path),
}

/// How a session is loaded.
#[derive(Clone, Debug)]
pub struct Options {
    /// The vendor's folder: relative paths of `library` and `command` count from here.
    pub folder: PathBuf,
    /// The shared library, for an engine that the vendor brings as a plug-in.
    pub library: Option<PathBuf>,
    /// Where files may be put that are of no use after the process.
    pub scratch: PathBuf,
    /// Program and arguments, for an engine that the vendor brings as a sidecar.
    pub command: Vec<String>,
    /// Threads to compute with; 0 is the engine's default.
    pub threads: usize,
    /// Rows of a full batch.
    pub batch_size: usize,
    /// The floating-point type to compute in; an engine that lacks it refuses.
    pub precision: DType,
    /// Further options from the vendor's overlay, by the engine's own names.
    pub extra: IndexMap<String, serde_json::Value>,
    /// The merged configuration of the case, for an engine that hands it on to code of the vendor's.
    pub config: IndexMap<String, serde_json::Value>,
}

impl Default for Options {
    /// Batches of one row in f32, everything else left to the engine.
    fn default() -> Self {
        Options {
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

/// Which sides of a case an engine can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// It can validate: it takes a graph.
    pub framework: bool,
    /// It can infer: it takes a file.
    pub compiler: bool,
}

/// What an engine is, whatever machine it is on.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Lower-case name, unique in the table.
    pub name: &'static str,
    /// One line on what it is, for `doctor` and the documentation.
    pub about: &'static str,
    /// Which sides of a case it can take.
    pub roles: Roles,
    /// Floating-point types that it computes in.
    pub precisions: &'static [DType],
    /// Highest version of the standard operator set that it knows.
    pub opset_max: i64,
    /// Whether it loads a file that it made earlier ([`Artifact::Compiled`]).
    pub takes_compiled: bool,
    /// Whether it is in a shared library that the vendor brings ([`Options::library`]).
    pub takes_library: bool,
    /// Whether it is a process that the vendor brings ([`Options::command`]).
    pub takes_command: bool,
}

impl Facts {
    /// Those of an engine that takes whatever can be asked of one, in this process; a row says where its own is narrower.
    pub(super) const fn widest(name: &'static str, about: &'static str) -> Self {
        Facts {
            name,
            about,
            roles: Roles { framework: true, compiler: true },
            precisions: &[DType::F64, DType::F32, DType::F16, DType::BF16],
            opset_max: i64::MAX,
            takes_compiled: true,
            takes_library: false,
            takes_command: false,
        }
    }
}

/// A framework or compiler: one row of the table of engines.
pub trait Engine: Sync {
    /// What it is.
    fn facts(&self) -> Facts;

    /// Its name.
    fn name(&self) -> &'static str {
        self.facts().name
    }

    /// Floating-point types that it computes in.
    fn precisions(&self) -> &'static [DType] {
        self.facts().precisions
    }

    /// Which sides of a case it can take.
    fn roles(&self) -> Roles {
        self.facts().roles
    }

    /// Whether it works on this machine: the version of the library behind it, or why not.
    ///
    /// # Errors
    /// When the engine cannot be used here.
    fn check(&self) -> Result<String, Unavailable>;

    /// Checks the options of a load, as far as this needs neither a model nor a library. Options that are handed on to
    /// a vendor's code are the vendor's to check.
    ///
    /// # Errors
    /// [`EngineError::Option`] for an option that the engine does not know, or a value that it does not take.
    fn check_options(&self, options: &Options) -> Result<(), EngineError> {
        let _ = options;
        Ok(())
    }

    /// Loads (and, for compilers, compiles) a model.
    ///
    /// # Errors
    /// When the artifact or an option is not what the engine takes, or the library behind it fails.
    fn load(&self, artifact: Artifact<'_>, options: &Options) -> Result<Box<dyn Session>, EngineError>;
}

/// A loaded model.
pub trait Session: Send {
    /// What it is fed, in order.
    fn inputs(&self) -> &[ValueInfo];

    /// What it gives, in order.
    fn outputs(&self) -> &[ValueInfo];

    /// Memory of `bytes` for the input at `index`, in the form that the engine takes fastest (heap, pinned, shared).
    ///
    /// # Errors
    /// When the memory cannot be had.
    fn lend(&mut self, index: usize, bytes: usize) -> Result<Box<dyn LentMemory>, EngineError> {
        let _ = index;
        HeapMemory::zeroed(bytes).map(|memory| Box::new(memory) as Box<dyn LentMemory>)
    }

    /// Runs the model on inputs in the session's order. Outputs may still be under way on the device.
    ///
    /// # Errors
    /// When an input is not what the model takes (names the input), or computing fails.
    fn submit(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError>;

    /// Waits until everything submitted is computed.
    ///
    /// # Errors
    /// When computing failed.
    fn sync(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Memory in use on the device; `None` when the engine does not say.
    fn device_memory(&self) -> Option<Bytes> {
        None
    }

    /// The device, as the engine names it: `cpu`, `cuda:0 H200`.
    fn device(&self) -> String {
        "cpu".to_owned()
    }

    /// Version of the device's driver, where it has one that tells.
    fn driver(&self) -> Option<String> {
        None
    }

    /// Threads it really computes with; 0 when it does not say.
    fn threads(&self) -> usize {
        0
    }

    /// Answers a question of a script's about the loaded model: `layers`. Each engine says which it answers.
    ///
    /// # Errors
    /// [`EngineError::Question`] when it does not answer this one, or not with this argument.
    fn ask(&mut self, question: &str, argument: &serde_json::Value) -> Result<serde_json::Value, EngineError> {
        let _ = argument;
        Err(EngineError::Question {
            engine: None,
            question: question.to_owned(),
            reason: "unknown (this engine answers none)".to_owned(),
        })
    }

    /// Changes a setting of the loaded model, for what is submitted from now on: `profile`. Inputs and outputs may change
    /// with it. Each engine says which it takes.
    ///
    /// # Errors
    /// [`EngineError::Setting`] when there is no such setting, or it does not take this value.
    fn tune(&mut self, setting: &str, value: &serde_json::Value) -> Result<(), EngineError> {
        let _ = value;
        Err(EngineError::Setting {
            engine: None,
            setting: setting.to_owned(),
            reason: "unknown (this engine takes none)".to_owned(),
        })
    }

    /// Nodes of the model by the provider that runs them, by the library's own names; empty when it has no providers.
    fn nodes_by_provider(&self) -> IndexMap<String, u64> {
        IndexMap::new()
    }

    /// Time that the vendor's own code asked to have taken off (FlagPerf's `foo_time`) since this was last called;
    /// `None` when it asks for none. It is recorded, and never subtracted.
    fn vendor_time(&mut self) -> Option<Seconds> {
        None
    }

    /// Peak resident memory of processes that the engine computes in beside this one.
    fn process_memory_max(&self) -> Option<Bytes> {
        None
    }

    /// Ends what the engine runs beside this process; nothing is submitted after it. Gives what was wrong with its end.
    fn close(&mut self) -> Option<String> {
        None
    }

    /// The plug-in that it runs in, when it does.
    fn plugin(&self) -> Option<PluginFacts> {
        None
    }

    /// The process that it runs in, when it does.
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
    /// Shape and type.
    pub fn spec(&self) -> TensorSpec {
        match self {
            Value::Host(tensor) => tensor.spec(),
            Value::Device(tensor) => tensor.spec(),
        }
    }

    /// The tensor in host memory; copies when it is on a device.
    ///
    /// # Errors
    /// When computing it failed, or the copy does.
    pub fn to_host(&self) -> Result<Tensor, EngineError> {
        match self {
            Value::Host(tensor) => Ok(tensor.clone()),
            Value::Device(tensor) => tensor.to_host(),
        }
    }
}

/// A tensor that an engine keeps on its device.
pub trait DeviceTensor: Send + Sync + std::fmt::Debug {
    /// Shape and type.
    fn spec(&self) -> TensorSpec;

    /// Copies it to host memory.
    ///
    /// # Errors
    /// When computing it failed, or the copy does.
    fn to_host(&self) -> Result<Tensor, EngineError>;

    /// The engine's own type, for a session that takes its own tensors back.
    fn as_any(&self) -> &dyn Any;
}

/// Memory that a session lends to the loader: written by it, then read as a tensor.
pub trait LentMemory: HostMemory {
    /// The bytes, to write to.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Lent memory on the heap, aligned for every element type.
#[derive(Debug)]
pub struct HeapMemory {
    words: Vec<u64>,
    bytes: usize,
}

impl HeapMemory {
    /// `bytes` of zeros.
    ///
    /// # Errors
    /// When there is not that much memory.
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

/// Checks inputs against what a model takes, names of dimensions included: one size a name.
///
/// # Errors
/// [`EngineError::InputCount`] or [`EngineError::Input`].
pub fn check_inputs(takes: &[ValueInfo], given: &[Value]) -> Result<(), EngineError> {
    if takes.len() != given.len() {
        return Err(EngineError::InputCount { takes: takes.len(), given: given.len() });
    }
    let mut named: IndexMap<&str, usize> = IndexMap::new();
    for (info, value) in takes.iter().zip(given) {
        let spec = value.spec();
        let refused = || EngineError::Input { name: info.name.clone(), takes: info.spec.clone(), given: spec.clone() };
        let shape = spec.fixed_shape().ok_or_else(refused)?;
        let consistent = info.spec.dims.iter().zip(&shape).all(|(dim, size)| match dim {
            crate::tensor::Dim::Named(name) => *named.entry(name).or_insert(*size) == *size,
            _ => true,
        });
        if !info.spec.admits(&shape, spec.dtype) || !consistent {
            return Err(refused());
        }
    }
    Ok(())
}
