//! The two traits that a plug-in in Rust implements, and the values that pass through them.

use std::path::Path;

use dlpark::ffi::DLDevice;

use crate::DType;

/// The description of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineInfo {
    /// Lower-case name: `mychip`.
    pub name: &'static str,
    /// Version of the library behind the engine.
    pub version: &'static str,
    /// One line that describes the engine.
    pub about: &'static str,
    /// Whether it can be a framework, which runs the validation phase. It then accepts ONNX files.
    pub framework: bool,
    /// Whether it can be a compiler, which runs the inference phase.
    pub compiler: bool,
    /// Whether it accepts ONNX files.
    pub onnx: bool,
    /// Whether it accepts files that it wrote earlier.
    pub compiled: bool,
    /// Whether it computes the operator `Gradient` of a training step: see [`crate::abi::FLAGPERF_GRADIENT`].
    pub differentiates: bool,
    /// Whether an output of one session may be an input of another one on the same device.
    pub shares_tensors: bool,
    /// The floating-point types that it computes in.
    pub precisions: &'static [DType],
    /// Highest supported version of the ONNX operator set.
    pub opset_max: i64,
    /// The options besides `threads`, as a JSON array that [`crate::abi::FlagperfPlugin::options`] describes: the host
    /// checks them before a run begins. `None` if only [`Engine::load`] checks them.
    pub options: Option<&'static str>,
}

/// A framework or compiler, exported to the host by [`crate::export!`].
pub trait Engine: 'static {
    /// The type of a loaded model.
    type Session: Session;

    /// The description of the engine.
    const INFO: EngineInfo;

    /// Checks whether the engine works on this machine.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with what is missing and how to get it.
    fn check() -> Result<(), Error> {
        Ok(())
    }

    /// Loads a model; a compiler also compiles it.
    ///
    /// # Errors
    /// When the file, an option or an operator is not supported, or the library behind the engine fails.
    fn load(load: &Load<'_>) -> Result<Self::Session, Error>;
}

/// A model to load, and the settings for it.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The model.
    pub artifact: Artifact<'a>,
    /// The engine's own options, as the text of one JSON object. The engine reports an unknown one as
    /// [`Error::BadOption`].
    pub options: &'a str,
    /// Number of threads to compute with; 0 means as many as the process may use.
    pub threads: usize,
    /// Rows of a full batch.
    pub batch_size: usize,
    /// The type to compute in.
    pub precision: DType,
    /// The folder of the case's logs and results, for files that are worth keeping.
    pub log_folder: Option<&'a Path>,
}

/// A model file. The file does not change while the session exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Artifact<'a> {
    /// An ONNX file.
    Onnx(&'a Path),
    /// A file that the engine wrote earlier.
    Compiled(&'a Path),
}

/// A loaded model. The host calls it from one thread at a time.
pub trait Session: Send + 'static {
    /// The type of tensors that the session keeps on its device; [`HostOnly`] if it keeps none.
    type Tensor: DeviceTensor;

    /// Returns the inputs, in the order of the model.
    fn inputs(&self) -> Vec<ValueInfo>;

    /// Returns the outputs, in the order of the model.
    fn outputs(&self) -> Vec<ValueInfo>;

    /// Lends memory of `bytes` bytes for the input at `index`, in the form that the engine reads fastest; `None` if the
    /// host's own memory serves as well.
    ///
    /// # Errors
    /// When the memory cannot be allocated.
    fn lend(&mut self, index: usize, bytes: usize) -> Result<Option<Box<dyn LentMemory>>, Error> {
        let _ = (index, bytes);
        Ok(None)
    }

    /// Starts to compute. The inputs do not change until [`Session::sync`] has returned.
    ///
    /// # Errors
    /// When the computation fails.
    fn submit(&mut self, inputs: &[Input<'_, Self::Tensor>]) -> Result<Vec<Output<Self::Tensor>>, Error>;

    /// Waits until all submitted work is complete.
    ///
    /// # Errors
    /// When the computation failed.
    fn sync(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Copies one of the session's tensors to host memory, dense and row-major.
    ///
    /// # Errors
    /// When the copy fails.
    fn copy_to_host(&mut self, tensor: &Self::Tensor, to: &mut [u8]) -> Result<(), Error>;

    /// Returns the number of bytes in use on the device; `None` if it is unknown.
    fn device_memory(&self) -> Option<u64> {
        None
    }

    /// Returns the name of the device: `cpu`, `cuda:0 NVIDIA H200`.
    fn device(&self) -> String {
        "cpu".to_owned()
    }

    /// Returns the number of threads that actually compute; 0 if it is unknown.
    fn threads(&self) -> usize {
        0
    }

    /// Answers a script's question about the loaded model. `argument` and the answer are JSON.
    ///
    /// # Errors
    /// [`Error::unknown`] for an unknown question, [`Error::BadOption`] for an argument that is not accepted.
    fn ask(&mut self, question: &str, argument: &str) -> Result<String, Error> {
        let _ = argument;
        Err(Error::unknown(question, &[]))
    }

    /// Changes a setting for later submits. `value` is JSON. The inputs and outputs may change with it.
    ///
    /// # Errors
    /// [`Error::unknown`] for an unknown setting, [`Error::BadOption`] for a value that is not accepted.
    fn tune(&mut self, setting: &str, value: &str) -> Result<(), Error> {
        let _ = value;
        Err(Error::unknown(setting, &[]))
    }
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    /// The name in the model.
    pub name: String,
    /// The dimensions, then the element type: `N,3,224,224,f32`.
    pub spec: String,
}

/// Memory that a session lends. The host gives it back by dropping it.
pub trait LentMemory: Send {
    /// Returns the bytes. Their address is a multiple of 8 and does not change.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// A tensor that a session keeps on its device. The host may drop it on any thread.
pub trait DeviceTensor: Send + Sync + 'static {
    /// Returns the sizes, outermost first.
    fn shape(&self) -> Vec<usize>;

    /// Returns the element type.
    fn dtype(&self) -> DType;

    /// Returns the device in DLPack's numbering.
    fn device(&self) -> DLDevice;

    /// Returns the address on the device. The host does not read from it.
    fn address(&self) -> usize;
}

/// The device tensor of a session whose outputs are all in host memory: a type without values.
#[derive(Debug)]
pub enum HostOnly {}

impl DeviceTensor for HostOnly {
    fn shape(&self) -> Vec<usize> {
        match *self {}
    }

    fn dtype(&self) -> DType {
        match *self {}
    }

    fn device(&self) -> DLDevice {
        match *self {}
    }

    fn address(&self) -> usize {
        match *self {}
    }
}

/// An input tensor of a session.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a, T> {
    /// In host memory, dense and row-major.
    Host(HostView<'a>),
    /// An output of an earlier submit of this session.
    Own(&'a T),
}

/// A dense row-major tensor in host memory.
#[derive(Clone, Copy, Debug)]
pub struct HostView<'a> {
    /// The sizes, outermost first.
    pub shape: &'a [usize],
    /// The element type.
    pub dtype: DType,
    /// The elements.
    pub bytes: &'a [u8],
}

/// An output tensor of a session.
pub enum Output<T> {
    /// In host memory, dense and row-major.
    Host {
        /// The sizes, outermost first.
        shape: Vec<usize>,
        /// The element type.
        dtype: DType,
        /// The elements.
        memory: Box<dyn HostMemory>,
    },
    /// On the device.
    Device(T),
}

/// Memory of an output. The host may drop it on any thread.
pub trait HostMemory: Send + Sync + 'static {
    /// Returns the bytes, at an address that is aligned to the elements. Neither the address nor the bytes change while
    /// this value lives.
    fn bytes(&self) -> &[u8];
}

/// An engine's error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A failure.
    #[error("{0}")]
    Failed(String),
    /// Something is missing on this machine.
    #[error("{reason}")]
    Unavailable {
        /// What is missing.
        reason: String,
        /// How to get it.
        remedy: String,
    },
    /// A failed allocation.
    #[error("out of memory: {bytes} bytes requested")]
    OutOfMemory {
        /// The number of bytes requested.
        bytes: u64,
    },
    /// The engine does not support an operator of the model.
    #[error("unknown operator `{op}` (node `{node}`)")]
    UnknownOperator {
        /// The operator.
        op: String,
        /// The node.
        node: String,
    },
    /// The requested precision is declared, but not supported with this device or these options.
    #[error("unsupported precision (supported: {has})")]
    LacksPrecision {
        /// The supported precisions, and where: `f32 on this processor`.
        has: String,
    },
    /// An option, question or setting is unknown, or its value is not accepted.
    #[error("option `{option}`: {reason}")]
    BadOption {
        /// The option, question or setting.
        option: String,
        /// What is wrong.
        reason: String,
    },
}

impl Error {
    /// Returns a failure with the text of `error`.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Error::Failed(error.to_string())
    }

    /// Returns the error for an unknown option, question or setting, with the list of those that are known.
    pub fn unknown(name: &str, known: &[&str]) -> Self {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Error::BadOption { option: name.to_owned(), reason: format!("unknown (known: {known})") }
    }
}
