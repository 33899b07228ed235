//! The two traits that a plug-in in Rust implements, and what passes through them.

use std::path::Path;

use dlpark::ffi::DLDevice;

use crate::DType;

/// What a plug-in is.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Lower-case name: `mychip`.
    pub name: &'static str,
    /// Version of the library behind it.
    pub version: &'static str,
    /// One line on what it is.
    pub about: &'static str,
    /// Whether it can validate; then it takes ONNX files.
    pub framework: bool,
    /// Whether it can infer.
    pub compiler: bool,
    /// Whether it takes ONNX files.
    pub onnx: bool,
    /// Whether it takes files that it made earlier.
    pub compiled: bool,
    /// The floating-point types that it computes in.
    pub precisions: &'static [DType],
    /// Highest version of the ONNX operator set that it knows.
    pub opset_max: i64,
}

/// A framework or compiler, given to the host by [`crate::export!`].
pub trait Engine: 'static {
    /// A loaded model.
    type Session: Session;

    /// What it is.
    const ABOUT: About;

    /// Whether it works on this machine.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: what is missing and how to get it.
    fn check() -> Result<(), Error> {
        Ok(())
    }

    /// Loads (and, for compilers, compiles) a model.
    ///
    /// # Errors
    /// When the file, an option or an operator is not what the engine takes.
    fn load(load: &Load<'_>) -> Result<Self::Session, Error>;
}

/// What to load, and how.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The model.
    pub artifact: Artifact<'a>,
    /// The engine's own options: the text of one JSON object. One that the engine does not know is [`Error::BadOption`].
    pub options: &'a str,
    /// Threads to compute with; 0 is as many as the process may use.
    pub threads: usize,
    /// Rows of a full batch.
    pub batch_size: usize,
    /// The type to compute in.
    pub precision: DType,
    /// The folder of the case's logs and results, for files that are worth keeping.
    pub log_folder: Option<&'a Path>,
}

/// A model file; it stays as it is as long as the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Artifact<'a> {
    /// An ONNX file.
    Onnx(&'a Path),
    /// A file that the engine made earlier.
    Compiled(&'a Path),
}

/// A loaded model. The host calls it from one thread at a time.
pub trait Session: Send + 'static {
    /// What it keeps on its device; [`HostOnly`] when nothing.
    type Tensor: DeviceTensor;

    /// What it is fed, in the order of the model.
    fn inputs(&self) -> Vec<ValueInfo>;

    /// What it gives, in the order of the model.
    fn outputs(&self) -> Vec<ValueInfo>;

    /// Memory of `bytes` for the input at `index`, in the form that is taken fastest; `None` when the host's own is as
    /// good.
    ///
    /// # Errors
    /// When the memory cannot be had.
    fn lend(&mut self, index: usize, bytes: usize) -> Result<Option<Box<dyn LentMemory>>, Error> {
        let _ = (index, bytes);
        Ok(None)
    }

    /// Begins to compute; what it is given stays until [`Session::sync`] has returned.
    ///
    /// # Errors
    /// When computing fails.
    fn submit(&mut self, inputs: &[Input<'_, Self::Tensor>]) -> Result<Vec<Output<Self::Tensor>>, Error>;

    /// Waits until everything submitted is computed.
    ///
    /// # Errors
    /// When computing failed.
    fn sync(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Copies a tensor of its own to host memory, dense and row-major.
    ///
    /// # Errors
    /// When the copy fails.
    fn copy_to_host(&mut self, tensor: &Self::Tensor, to: &mut [u8]) -> Result<(), Error>;

    /// Bytes in use on the device; `None` when it does not say.
    fn device_memory(&self) -> Option<u64> {
        None
    }

    /// The device: `cpu`, `cuda:0 NVIDIA H200`.
    fn device(&self) -> String {
        "cpu".to_owned()
    }

    /// Threads that it really computes with; 0 when it does not say.
    fn threads(&self) -> usize {
        0
    }

    /// Answers a question of a script's about the loaded model. `argument` and the answer are JSON.
    ///
    /// # Errors
    /// [`Error::unknown`] when it does not answer that question, [`Error::BadOption`] when not with that argument.
    fn ask(&mut self, question: &str, argument: &str) -> Result<String, Error> {
        let _ = argument;
        Err(Error::unknown(question, &[]))
    }

    /// Changes a setting, for what is submitted from now on. `value` is JSON. Inputs and outputs may change with it.
    ///
    /// # Errors
    /// [`Error::unknown`] when there is no such setting, [`Error::BadOption`] when it does not take that value.
    fn tune(&mut self, setting: &str, value: &str) -> Result<(), Error> {
        let _ = value;
        Err(Error::unknown(setting, &[]))
    }
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    /// Its name in the model.
    pub name: String,
    /// Dimensions, then the element type: `N,3,224,224,f32`.
    pub spec: String,
}

/// Memory that a session lends: given back by being dropped.
pub trait LentMemory: Send {
    /// The bytes, at an address that is a multiple of 8 and stays.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// A tensor that a session keeps on its device. Dropped by the host, on any thread.
pub trait DeviceTensor: Send + Sync + 'static {
    /// The sizes, outermost first.
    fn shape(&self) -> Vec<usize>;

    /// The element type.
    fn dtype(&self) -> DType;

    /// The device, as DLPack numbers it.
    fn device(&self) -> DLDevice;

    /// Its address on the device. The host does not read it.
    fn address(&self) -> usize;
}

/// The device tensor of a session whose outputs are all in host memory: there is none.
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

/// A tensor that a session is fed.
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

/// A tensor that a session gives.
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

/// Memory of an output. Dropped by the host, on any thread.
pub trait HostMemory: Send + Sync + 'static {
    /// The bytes, at an address that suits the elements; neither it nor they change as long as this lives.
    fn bytes(&self) -> &[u8];
}

/// What an engine could not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Something failed.
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
    /// Memory could not be had.
    #[error("out of memory: {bytes} bytes asked for")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// An operator that the engine lacks.
    #[error("operator `{op}` is unknown (node `{node}`)")]
    UnknownOperator {
        /// The operator.
        op: String,
        /// The node.
        node: String,
    },
    /// The type to compute in is one that the engine declares and lacks with this device or these options.
    #[error("no such type here (it has: {has})")]
    LacksPrecision {
        /// What it has instead, and where: `f32 on this processor`.
        has: String,
    },
    /// An option, question or setting that the engine does not know, or a value that it does not take.
    #[error("option `{option}`: {reason}")]
    BadOption {
        /// The option, question or setting.
        option: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// Something failed, as `error` says.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Error::Failed(error.to_string())
    }

    /// An option, question or setting that is none of those known.
    pub fn unknown(name: &str, known: &[&str]) -> Self {
        let known = if known.is_empty() { "there is none".to_owned() } else { format!("known: {}", known.join(", ")) };
        Error::BadOption { option: name.to_owned(), reason: format!("unknown ({known})") }
    }
}
