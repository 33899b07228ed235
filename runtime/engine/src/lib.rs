//! Frameworks and compilers behind one trait: an [`Engine`] loads a model, and a [`Session`] runs it.
//!
//! Each engine has one file and one row of [`TABLE`]. Knows nothing about scripts or datasets. Only the times at which
//! tokens of an answer arrive are measured here.

mod answers;
mod available_memory;
pub mod backend;
mod decoder;
mod deferred;
mod deviations;
mod engine_source;
mod http_server;
mod interpreter;
mod kserve;
mod library_file;
mod load;
mod model;
mod null;
mod onnxruntime;
mod openai;
mod openvino;
mod operators;
mod options;
mod output_check;
mod panics;
mod plugin;
mod printable;
mod program;
mod rten;
mod session;
mod sidecar;
mod table;
mod value;

pub use answers::AnswerTimes;
pub use available_memory::available_memory;
pub use decoder::open_decoders;
pub use deferred::DeferredRun;
pub use engine_source::EngineSource;
pub use flagperf_core::engine_error::{EngineError, Unavailable};
pub use flagperf_core::lent_memory::{HeapMemory, LentMemory};
pub use load::{Artifact, LoadOptions};
pub use options::check_options;
pub use plugin::open_plugin;
pub use session::{Engine, OperatorTime, RunProfile, Session, SessionFacts, loaded_version};
pub use sidecar::{HELLO_TIME_LIMIT, SidecarReply, describe_sidecar};
pub use table::{TABLE, UnknownEngine, find, is_own_code};
pub use value::{DeviceTensor, Value, check_inputs};
