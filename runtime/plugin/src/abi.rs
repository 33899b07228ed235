//! The interface itself, as C sees it. `include/flagperf_plugin.h` is generated from this file.
//!
//! Every text is UTF-8 and ends with a zero byte. Enumerations are plain integers, because a plug-in may return any
//! number.

use std::ffi::{c_char, c_void};

use dlpark::ffi::DLManagedTensorVersioned;

/// Version of this interface. It changes whenever the interface changes, except when fields are appended to
/// `FlagperfPlugin` or `FlagperfLoad`: `struct_size` shows which of their fields exist.
pub const FLAGPERF_ABI_VERSION: u32 = 1;

/// The result of a call.
pub type FlagperfStatus = i32;
/// The call succeeded.
pub const FLAGPERF_OK: FlagperfStatus = 0;
/// The call failed; `message` describes why.
pub const FLAGPERF_FAILED: FlagperfStatus = 1;
/// Something is missing on this machine; `hint` describes how to get it.
pub const FLAGPERF_UNAVAILABLE: FlagperfStatus = 2;
/// An allocation failed; `bytes` is the number of bytes that were requested.
pub const FLAGPERF_OUT_OF_MEMORY: FlagperfStatus = 3;
/// The engine does not support an operator of the model; `op` and `node` name it.
pub const FLAGPERF_UNKNOWN_OPERATOR: FlagperfStatus = 4;
/// An option, question or setting is unknown, or its value is not accepted; `option` names it.
pub const FLAGPERF_BAD_OPTION: FlagperfStatus = 5;
/// The requested precision is declared, but not supported with this device or these options; `message` lists those that
/// are.
pub const FLAGPERF_LACKS_PRECISION: FlagperfStatus = 6;

/// In `roles`: the engine can be a framework, which runs the validation phase. The host gives it an ONNX file.
pub const FLAGPERF_FRAMEWORK: u32 = 1;
/// In `roles`: the engine can be a compiler, which runs the inference phase.
pub const FLAGPERF_COMPILER: u32 = 2;

/// In `artifacts`, and as the kind of a file to load: an ONNX file. Large weights are in a file beside it. The host has
/// checked that the file is complete and that the plug-in declares its floating-point types and operator set.
pub const FLAGPERF_ONNX: u32 = 1;
/// In `artifacts`, and as the kind of a file to load: a file that the engine wrote earlier. The host does not read it.
pub const FLAGPERF_COMPILED: u32 = 2;
/// In `artifacts` only: the engine computes the operator `Gradient` of the domain `ai.onnx.preview.training`. It then gets a
/// training step as a `FLAGPERF_ONNX` file with this operator in place of the gradients, with attentions and batch
/// normalizations (in training mode) as single operators, and with the operators `Norm` and `Update` of the domain `flagperf`,
/// which docs/decisions/42-training-step.md describes.
pub const FLAGPERF_GRADIENT: u32 = 4;
/// In `artifacts` only: an output of one session may be an input of another one, as long as both compute on the same device.
pub const FLAGPERF_SHARED_TENSORS: u32 = 8;

/// In `precisions`, and as the type to compute in: 64-bit floating point.
pub const FLAGPERF_F64: u32 = 1;
/// In `precisions`, and as the type to compute in: 32-bit floating point.
pub const FLAGPERF_F32: u32 = 2;
/// In `precisions`, and as the type to compute in: 16-bit floating point of IEEE 754.
pub const FLAGPERF_F16: u32 = 4;
/// In `precisions`, and as the type to compute in: bfloat16, the upper half of 32-bit floating point.
pub const FLAGPERF_BF16: u32 = 8;

/// Why a call failed. Fields that a status does not use may be null or 0.
#[repr(C)]
#[derive(Debug)]
pub struct FlagperfError {
    /// What happened: a lower-case fragment with the value in backticks. Never null.
    pub message: *const c_char,
    /// What to do about it, or null.
    pub hint: *const c_char,
    /// With `FLAGPERF_BAD_OPTION`: the name of the option, question or setting.
    pub option: *const c_char,
    /// With `FLAGPERF_UNKNOWN_OPERATOR`: the operator.
    pub op: *const c_char,
    /// With `FLAGPERF_UNKNOWN_OPERATOR`: the node, or null.
    pub node: *const c_char,
    /// With `FLAGPERF_OUT_OF_MEMORY`: the number of bytes that were requested.
    pub bytes: u64,
}

/// An input or output of a model.
#[repr(C)]
#[derive(Debug)]
pub struct FlagperfValue {
    /// The name in the model.
    pub name: *const c_char,
    /// The dimensions, then the element type: `N,3,224,224,f32`. A dimension is a size, a name that stands for one size
    /// in the whole model, or `?`. The types are `f64`, `f32`, `f16`, `bf16`, `i64`, `i32`, `i16`, `i8`, `u64`, `u32`,
    /// `u16`, `u8` and `bool`.
    pub spec: *const c_char,
}

/// A model to load, and the settings for it.
#[repr(C)]
#[derive(Debug)]
pub struct FlagperfLoad {
    /// Size of this struct in the host. Fields beyond this size do not exist.
    pub struct_size: u32,
    /// `FLAGPERF_ONNX` or `FLAGPERF_COMPILED`: one of those that `artifacts` declares.
    pub artifact: u32,
    /// The path of the model file. The file does not change until the session is unloaded.
    pub path: *const c_char,
    /// The engine's own options from the configuration, as the text of one JSON object. An unknown option must be an
    /// error; it must not be ignored.
    pub options: *const c_char,
    /// Number of threads to compute with; 0 means as many as the process may use.
    pub threads: u32,
    /// Rows of a full batch. Other numbers of rows may follow if the model's first dimension is not fixed.
    pub batch_size: u32,
    /// The type to compute in (`FLAGPERF_F32`): one of those that `precisions` declares. The engine must not use
    /// another.
    pub precision: u32,
    /// The folder of the case's logs and results, for files that are worth keeping; null if there is none.
    pub log_folder: *const c_char,
}

/// Memory that a session lends. The host fills it and passes it back as an input.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FlagperfBuffer {
    /// Host memory in the form that the engine reads fastest (pinned, shared), aligned to 8 bytes; null if the host's
    /// own memory serves as well.
    pub data: *mut c_void,
    /// Size in bytes: exactly the size that was requested.
    pub bytes: u64,
    /// For the plug-in's own use.
    pub handle: *mut c_void,
}

/// A loaded model. Its contents belong to the plug-in.
pub enum FlagperfSession {}

/// Returns why the last failed call on this thread failed. Not null after a failed call. The texts live until the next
/// call on this thread.
pub type FlagperfLastError = Option<unsafe extern "C" fn() -> *const FlagperfError>;
/// Checks whether the engine works on this machine: driver, device, libraries.
pub type FlagperfCheck = Option<unsafe extern "C" fn() -> FlagperfStatus>;
/// Loads a model; a compiler also compiles it. `session` is written only on success.
pub type FlagperfLoadModel =
    Option<unsafe extern "C" fn(load: *const FlagperfLoad, session: *mut *mut FlagperfSession) -> FlagperfStatus>;
/// Returns the inputs or the outputs of the model, in the model's order. The texts live until the session is tuned or
/// unloaded.
pub type FlagperfValues =
    Option<unsafe extern "C" fn(session: *mut FlagperfSession, count: *mut u32) -> *const FlagperfValue>;
/// Lends memory of `bytes` bytes for the input at `index`.
pub type FlagperfLend = Option<
    unsafe extern "C" fn(
        session: *mut FlagperfSession,
        index: u32,
        bytes: u64,
        buffer: *mut FlagperfBuffer,
    ) -> FlagperfStatus,
>;
/// Takes back memory that was lent.
pub type FlagperfGiveBack = Option<unsafe extern "C" fn(session: *mut FlagperfSession, buffer: FlagperfBuffer)>;
/// Starts to compute. The counts are those of the model.
///
/// Inputs are borrowed: they do not change until `sync` has returned, and the plug-in must not call their deleters.
/// Each input is either dense, row-major and in host memory (its `manager_ctx` is then null), or it is an output of an
/// earlier submit of this session, passed by the same pointer.
///
/// Outputs belong to the host: it calls the deleter of each output exactly once, from any thread, before it unloads the
/// session. Outputs have the types and shapes that the session declares. They may be incomplete until `sync` has
/// returned. An output in host memory (`kDLCPU`, `kDLCUDAHost`, `kDLROCMHost`) is dense, row-major and aligned to its
/// element size, and does not change until its deleter is called. The host reads any other output only through
/// `copy_to_host`. After a failure the host takes no outputs.
pub type FlagperfSubmit = Option<
    unsafe extern "C" fn(
        session: *mut FlagperfSession,
        inputs: *const *mut DLManagedTensorVersioned,
        input_count: u32,
        outputs: *mut *mut DLManagedTensorVersioned,
        output_count: u32,
    ) -> FlagperfStatus,
>;
/// Waits until all submitted work is complete.
pub type FlagperfSync = Option<unsafe extern "C" fn(session: *mut FlagperfSession) -> FlagperfStatus>;
/// Copies an output that is not in host memory to `to`, dense and row-major. `bytes` is the exact size.
pub type FlagperfCopyToHost = Option<
    unsafe extern "C" fn(
        session: *mut FlagperfSession,
        tensor: *const DLManagedTensorVersioned,
        to: *mut c_void,
        bytes: u64,
    ) -> FlagperfStatus,
>;
/// Returns the number of bytes in use on the device; `UINT64_MAX` if it is unknown.
pub type FlagperfDeviceMemory = Option<unsafe extern "C" fn(session: *mut FlagperfSession) -> u64>;
/// Returns the name of the device: `cpu`, `cuda:0 NVIDIA H200`. The text lives until the next call on the session.
pub type FlagperfDevice = Option<unsafe extern "C" fn(session: *mut FlagperfSession) -> *const c_char>;
/// Returns the number of threads that actually compute; 0 if it is unknown.
pub type FlagperfThreads = Option<unsafe extern "C" fn(session: *mut FlagperfSession) -> u32>;
/// Answers a script's question about the loaded model. `question` is a name (`layers`); `argument` and the answer are
/// JSON, and `argument` is `null` if there is none. The answer lives until the next call on the session.
///
/// Returns `FLAGPERF_BAD_OPTION` for an unknown question, with the question as `option`; `message` lists the known
/// ones.
pub type FlagperfAsk = Option<
    unsafe extern "C" fn(
        session: *mut FlagperfSession,
        question: *const c_char,
        argument: *const c_char,
        answer: *mut *const c_char,
    ) -> FlagperfStatus,
>;
/// Changes a setting of the loaded model for later submits. `setting` is a name (`profile`); `value` is JSON. The host
/// then requests the inputs and outputs again.
///
/// Returns `FLAGPERF_BAD_OPTION` for an unknown setting, with the setting as `option`; `message` lists the known ones.
pub type FlagperfTune = Option<
    unsafe extern "C" fn(session: *mut FlagperfSession, setting: *const c_char, value: *const c_char) -> FlagperfStatus,
>;
/// Ends a session. By then the host has deleted all its outputs and given back all its memory.
pub type FlagperfUnload = Option<unsafe extern "C" fn(session: *mut FlagperfSession)>;

/// A plug-in: its description and its functions. The table is constant and lives as long as the library.
///
/// Calls on one session never overlap, but may come from different threads; only deleters may be called at any time.
/// Calls on different sessions may overlap. No exception may leave a function. The host keeps what a plug-in writes to
/// standard output and standard error in its log.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FlagperfPlugin {
    /// `FLAGPERF_ABI_VERSION` of the header that the plug-in was built with.
    pub abi_version: u32,
    /// `sizeof(FlagperfPlugin)` in that header.
    pub struct_size: u32,
    /// Lower-case name: `mychip`.
    pub name: *const c_char,
    /// Version of the library behind the plug-in.
    pub version: *const c_char,
    /// One line that describes the engine.
    pub about: *const c_char,
    /// `FLAGPERF_FRAMEWORK`, `FLAGPERF_COMPILER`, or both.
    pub roles: u32,
    /// The kinds of files that `load` accepts. A framework must accept ONNX files.
    pub artifacts: u32,
    /// The floating-point types that the engine computes in.
    pub precisions: u32,
    /// Highest supported version of the ONNX operator set.
    pub opset_max: i64,
    /// Required.
    pub last_error: FlagperfLastError,
    /// Null if the engine works wherever its library loads.
    pub check: FlagperfCheck,
    /// Required.
    pub load: FlagperfLoadModel,
    /// Required.
    pub inputs: FlagperfValues,
    /// Required.
    pub outputs: FlagperfValues,
    /// Null if the host's own memory serves as well.
    pub lend: FlagperfLend,
    /// Required if there is `lend`.
    pub give_back: FlagperfGiveBack,
    /// Required.
    pub submit: FlagperfSubmit,
    /// Null if `submit` returns after all work is complete.
    pub sync: FlagperfSync,
    /// Null if every output is in host memory.
    pub copy_to_host: FlagperfCopyToHost,
    /// Null if the plug-in does not know it.
    pub device_memory: FlagperfDeviceMemory,
    /// Null if the device is the processor.
    pub device: FlagperfDevice,
    /// Null if the plug-in does not know it.
    pub threads: FlagperfThreads,
    /// Required.
    pub unload: FlagperfUnload,
    /// Null if the engine answers no questions.
    pub ask: FlagperfAsk,
    /// Null if a loaded model has no settings.
    pub tune: FlagperfTune,
    /// The options of the engine besides `threads`, as the text of a JSON array; null if the host shall not check them.
    /// Then the engine rejects unknown options when it loads a model. An entry has a `name`, a `kind` (`boolean`,
    /// `number`, `integer`, `text`, `choice`, `list`, `map`, `any`), `min` and `max` of a number if it has bounds, the
    /// `values` of a choice, a `default`, and `about`, one sentence:
    /// `[{"name": "level", "kind": "integer", "min": 0, "max": 3, "default": 2, "about": "how far the graph is rewritten"}]`.
    pub options: *const c_char,
}

// SAFETY: the table is constant and its texts live as long as the library, as the interface requires.
unsafe impl Send for FlagperfPlugin {}
// SAFETY: as above.
unsafe impl Sync for FlagperfPlugin {}

unsafe extern "C" {
    /// The one symbol that a plug-in exports. It returns the table of the plug-in.
    pub fn flagperf_plugin() -> *const FlagperfPlugin;
}

/// The type of the function `flagperf_plugin`.
pub type FlagperfEntry = unsafe extern "C" fn() -> *const FlagperfPlugin;

/// The name of the symbol that a plug-in exports.
pub const SYMBOL: &str = "flagperf_plugin";
