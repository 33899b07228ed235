//! The traits that every engine implements. Frameworks and compilers implement the same ones: a session lends memory
//! for its inputs, addresses inputs and outputs by name, and copies an output to the host only when the host requests
//! it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use flagperf_onnx::ValueInfo;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::output_check::check_outputs;
use super::{AnswerTimes, Artifact, DeferredRun, EngineError, HeapMemory, LentMemory, LoadOptions, Unavailable, Value};
use flagperf_core::description::{EngineDescription, Roles};
use flagperf_core::event::{PluginFacts, ServerFacts, SidecarFacts};
use flagperf_core::tensor::DType;
use flagperf_core::units::{Bytes, Seconds};

/// A framework or compiler: one row of the table of engines.
pub trait Engine: Sync {
    /// Returns the properties of the engine that do not depend on the machine.
    fn description(&self) -> EngineDescription;

    /// Returns whether the engine that these options load computes the gradients of a training step itself: it then gets the
    /// step with one operator for them.
    ///
    /// # Errors
    /// When a library that knows it cannot be opened.
    fn differentiates(&self, options: &LoadOptions) -> Result<bool, EngineError> {
        let _ = options;
        Ok(false)
    }

    /// Returns whether the engine that these options load describes an option of this name.
    ///
    /// # Errors
    /// When a library that knows it cannot be opened.
    fn has_option(&self, name: &str, options: &LoadOptions) -> Result<bool, EngineError> {
        let _ = options;
        Ok(self.description().option(name).is_some())
    }

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

    /// Checks whether the engine works on this machine with these options, which may name another library, and returns
    /// the version of the library behind it. Of `options`, only `extra` is read.
    ///
    /// # Errors
    /// When the engine cannot be used on this machine with these options.
    fn check_with(&self, options: &LoadOptions) -> Result<String, EngineError> {
        let _ = options;
        Ok(self.check()?)
    }

    /// Checks what the description of the options cannot express: one option against another, or against the precision.
    /// Needs no model, and opens no library.
    ///
    /// # Errors
    /// [`EngineError::Option`] for an invalid value.
    fn check_option_combinations(&self, options: &LoadOptions) -> Result<(), EngineError> {
        let _ = options;
        Ok(())
    }

    /// Loads a model; a compiler also compiles it.
    ///
    /// # Errors
    /// When the engine does not accept the artifact or an option, or when the library behind it fails.
    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError>;
}

/// What a session reports about itself for the record. Only the facts of a sidecar change while the session runs.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionFacts {
    /// The device, as the engine names it: `cpu`, `cuda:0 H200`.
    pub device: String,
    /// The version of the device's driver; `None` when it is not known.
    pub driver: Option<String>,
    /// The number of threads that the engine really computes with; 0 when the engine does not report it.
    pub threads: usize,
    /// The number of nodes that each provider runs, under the library's own names; empty when the engine has no
    /// providers.
    pub nodes_by_provider: IndexMap<String, u64>,
    /// The plug-in behind the session, if there is one.
    pub plugin: Option<PluginFacts>,
    /// The sidecar behind the session, if there is one.
    pub sidecar: Option<SidecarFacts>,
    /// The server behind the session, if there is one.
    pub server: Option<ServerFacts>,
    /// The libraries of the vendor's operators that the model uses, as `VENDOR.NAME/cuda.so`, with their SHA-256.
    pub operators: IndexMap<String, String>,
    /// The operators of the model that the engine computes in another way than the standard, for warnings in the record.
    pub warnings: Vec<String>,
}

/// Returns the version of the loaded engine: that of the plug-in or the sidecar if there is one, otherwise that of the
/// engine's library.
pub fn loaded_version(engine: &dyn Engine, session: &SessionFacts) -> String {
    let plugin = session.plugin.as_ref().map(|plugin| &plugin.version);
    let own = plugin.or(session.sidecar.as_ref().map(|sidecar| &sidecar.version));
    own.cloned().unwrap_or_else(|| engine.check().unwrap_or_default())
}

impl Default for SessionFacts {
    /// Returns the facts of a session on the processor that reports nothing else.
    fn default() -> Self {
        SessionFacts {
            device: "cpu".to_owned(),
            driver: None,
            threads: 0,
            nodes_by_provider: IndexMap::new(),
            plugin: None,
            sidecar: None,
            server: None,
            operators: IndexMap::new(),
            warnings: Vec::new(),
        }
    }
}

/// The times of the operators of one run, in the order in which they ran.
pub type RunProfile = Vec<OperatorTime>;

/// How long an operator ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorTime {
    /// The name of the node, by the engine's name.
    pub name: String,
    /// The operator: `Conv`.
    pub operator: String,
    /// From the beginning of the run to that of the operator.
    pub begin_s: Seconds,
    /// How long it ran.
    pub time_s: Seconds,
}

/// A loaded model.
///
/// Its memory and the time of the vendor's code are not part of [`SessionFacts`]: they change with every step, and reading
/// them may ask the device or another process, or resets them.
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

    /// Runs the model as [`Session::submit`] does, without a check of the outputs. Each engine implements this.
    ///
    /// # Errors
    /// When an input does not match the model (the error contains the input's name), or the computation fails.
    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError>;

    /// Runs the model on inputs in the session's order. The device may still be computing the outputs when this
    /// returns; they are checked when they are copied to the host.
    ///
    /// # Errors
    /// As [`Session::compute`], and when an output has another type or fixed dimension than the model declares.
    fn submit(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        let outputs = self.compute(inputs)?;
        check_outputs(self.outputs(), outputs)
    }

    /// Waits until everything submitted has been computed.
    ///
    /// # Errors
    /// When the computation failed.
    fn sync(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Returns what the session reports about itself.
    fn facts(&self) -> SessionFacts {
        SessionFacts::default()
    }

    /// The memory in use on the device; `None` when the engine does not report it.
    fn device_memory(&self) -> Option<Bytes> {
        None
    }

    /// The files of the modules that the engine has imported, as far as it reports them.
    fn modules(&self) -> BTreeSet<PathBuf> {
        BTreeSet::new()
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

    /// Returns the time that the vendor's own code asked to have subtracted (FlagPerf's `foo_time`) since the last
    /// call; `None` when the code never asks for any. This time is recorded, and never subtracted.
    fn vendor_time(&mut self) -> Option<Seconds> {
        None
    }

    /// Returns when the answer to each prompt of the last run arrived; empty for an engine that does not generate text.
    fn answer_times(&mut self) -> Vec<AnswerTimes> {
        Vec::new()
    }

    /// Has later submissions return at once with outputs that arrive when the host waits for the runs of
    /// [`Session::take_deferred`], or no longer does so. Returns whether the session can do so: a server answers several queries at
    /// the same time.
    fn defer_runs(&mut self, defers: bool) -> bool {
        let _ = defers;
        false
    }

    /// Returns the runs that were submitted since the last call and have yet to be sent.
    fn take_deferred(&mut self) -> Vec<DeferredRun> {
        Vec::new()
    }

    /// Returns the times of the operators of each run since the last call, in a session that was loaded with
    /// [`LoadOptions::profile`]; `None` when the engine does not tell them.
    ///
    /// # Errors
    /// When the engine refuses to tell them, or what it tells cannot be read.
    fn operator_times(&mut self) -> Result<Option<Vec<RunProfile>>, EngineError> {
        Ok(None)
    }

    /// Has the next submission fail if the engine writes to its inputs, which takes the time of hashing them. Only engines
    /// that share memory with another process check this.
    fn check_inputs_of_next_run(&mut self) {}

    /// Ends what the engine runs beside this process, after which nothing may be submitted. Returns what went wrong at
    /// the end, for a warning in the record.
    fn close(&mut self) -> Option<String> {
        None
    }
}
