//! The interface itself, as C sees it. `include/flagperf_plugin.h` is made from this file.
//!
//! Every text is UTF-8 and ends with a zero byte. Numbers that stand for kinds are plain integers, because a plug-in may
//! send any.

use std::ffi::{c_char, c_void};

use dlpark::ffi::DLManagedTensorVersioned;

/// Version of this interface. It changes when anything here does, but for what is appended to `FlagperfPlugin` and
/// `FlagperfLoad`: that shows in `struct_size`.
pub const FLAGPERF_ABI_VERSION: u32 = 1;

/// How a call ended.
pub type FlagperfStatus = i32;
/// It did what it was asked to do.
pub const FLAGPERF_OK: FlagperfStatus = 0;
/// It did not; `message` says why.
pub const FLAGPERF_FAILED: FlagperfStatus = 1;
/// Something is missing on this machine; `hint` says how to get it.
pub const FLAGPERF_UNAVAILABLE: FlagperfStatus = 2;
/// Memory could not be had; `bytes` says how much was asked for.
pub const FLAGPERF_OUT_OF_MEMORY: FlagperfStatus = 3;
/// The model has an operator that the engine lacks: `op`, `node`.
pub const FLAGPERF_UNKNOWN_OPERATOR: FlagperfStatus = 4;
/// An option, question or setting that the engine does not know, or a value that it does not take: `option`.
pub const FLAGPERF_BAD_OPTION: FlagperfStatus = 5;
/// The type to compute in is declared, and lacking with this device or these options; `message` says which it has there.
pub const FLAGPERF_LACKS_PRECISION: FlagperfStatus = 6;

/// In `roles`: it can validate; the host gives it an ONNX file.
pub const FLAGPERF_FRAMEWORK: u32 = 1;
/// In `roles`: it can infer.
pub const FLAGPERF_COMPILER: u32 = 2;

/// In `artifacts`, and the kind of a file to load: an ONNX file, with its weights beside it when they are large. The
/// host has read it before: it is whole, its types and operator set are among those that the plug-in declares.
pub const FLAGPERF_ONNX: u32 = 1;
/// In `artifacts`, and the kind of a file to load: one that the engine made earlier, which the host does not look into.
pub const FLAGPERF_COMPILED: u32 = 2;

/// In `precisions`, and the type to compute in: 64 bits.
pub const FLAGPERF_F64: u32 = 1;
/// Likewise: 32 bits.
pub const FLAGPERF_F32: u32 = 2;
/// Likewise: 16 bits, IEEE 754.
pub const FLAGPERF_F16: u32 = 4;
/// Likewise: the upper half of 32 bits.
pub const FLAGPERF_BF16: u32 = 8;

/// Why the last call that did not end with `FLAGPERF_OK` failed.
#[repr(C)]
#[derive(Debug)]
pub struct FlagperfError {
    /// What happened: a lower-case fragment with the value in backticks. Never null.
    pub message: *const c_char,
    /// What to do about it, or null.
    pub hint: *const c_char,
    /// `FLAGPERF_BAD_OPTION`: the option.
    pub option: *const c_char,
    /// `FLAGPERF_UNKNOWN_OPERATOR`: the operator.
    pub op: *const c_char,
    /// `FLAGPERF_UNKNOWN_OPERATOR`: the node, or null.
    pub node: *const c_char,
    /// `FLAGPERF_OUT_OF_MEMORY`: bytes asked for.
    pub bytes: u64,
}

/// An input or output of a model.
#[repr(C)]
#[derive(Debug)]
pub struct FlagperfValue {
    /// Its name in the model.
    pub name: *const c_char,
    /// Dimensions, then the element type: `N,3,224,224,f32`. A dimension is a size, a name that stands for one size in
    /// the whole model, or `?`. The types are `f64`, `f32`, `f16`, `bf16`, `i64`, `i32`, `i8`, `u8`, `bool`.
    pub spec: *const c_char,
}

/// What to load, and how.
#[repr(C)]
#[derive(Debug)]
pub struct FlagperfLoad {
    /// Size of this struct in the host; fields beyond it are not there.
    pub struct_size: u32,
    /// `FLAGPERF_ONNX` or `FLAGPERF_COMPILED`: one of those in `artifacts`.
    pub artifact: u32,
    /// The file. It stays as it is until the session is unloaded.
    pub path: *const c_char,
    /// The engine's own options from the configuration: the text of one JSON object. An option that the engine does not
    /// know is an error, never ignored.
    pub options: *const c_char,
    /// Threads to compute with; 0 is as many as the process may use.
    pub threads: u32,
    /// Rows of a full batch. Other numbers of rows may follow when the model's first dimension is open.
    pub batch_size: u32,
    /// The type to compute in (`FLAGPERF_F32`): one of those in `precisions`. Computing in another one is an error.
    pub precision: u32,
    /// The folder of the case's logs and results, for files that are worth keeping; null when there is none.
    pub log_folder: *const c_char,
}

/// Memory that a session lends, to be filled by the host and handed back to it as an input.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FlagperfBuffer {
    /// Host memory (pinned, shared, what is taken fastest), aligned to 8 bytes; null when the host's own is as good.
    pub data: *mut c_void,
    /// Its size: exactly what was asked for.
    pub bytes: u64,
    /// The plug-in's own.
    pub handle: *mut c_void,
}

/// A loaded model. What is in it is the plug-in's own.
pub enum FlagperfSession {}

/// Why the last call on this thread failed. Never null after such a call; the texts stay until the next call on this
/// thread.
pub type FlagperfLastError = Option<unsafe extern "C" fn() -> *const FlagperfError>;
/// Whether the engine works on this machine: driver, device, libraries.
pub type FlagperfCheck = Option<unsafe extern "C" fn() -> FlagperfStatus>;
/// Loads, and for a compiler compiles, a model. `session` is written on success only.
pub type FlagperfLoadModel =
    Option<unsafe extern "C" fn(load: *const FlagperfLoad, session: *mut *mut FlagperfSession) -> FlagperfStatus>;
/// What the model is fed, or gives, in the order of the model. The texts stay until the session is tuned or unloaded.
pub type FlagperfValues =
    Option<unsafe extern "C" fn(session: *mut FlagperfSession, count: *mut u32) -> *const FlagperfValue>;
/// Lends memory of `bytes` for the input at `index`.
pub type FlagperfLend = Option<
    unsafe extern "C" fn(
        session: *mut FlagperfSession,
        index: u32,
        bytes: u64,
        buffer: *mut FlagperfBuffer,
    ) -> FlagperfStatus,
>;
/// Takes lent memory back.
pub type FlagperfGiveBack = Option<unsafe extern "C" fn(session: *mut FlagperfSession, buffer: FlagperfBuffer)>;
/// Begins to compute. Counts are those of the model.
///
/// Inputs are lent: they stay as they are until `sync` has returned, and their deleters are not to be called. Each is
/// either dense, row-major and in host memory (its `manager_ctx` is null), or an output of an earlier submit of this
/// session: the very pointer.
///
/// Outputs are the host's: it calls the deleter of each exactly once, from any thread, before the session is unloaded.
/// They are of the types and shapes that the session declares. They may be under way until `sync` has returned. One in
/// host memory (`kDLCPU`, `kDLCUDAHost`, `kDLROCMHost`) is dense, row-major and aligned to its elements, and does not
/// change until its deleter is called; any other is read by `copy_to_host` only. After a failure the host takes none.
pub type FlagperfSubmit = Option<
    unsafe extern "C" fn(
        session: *mut FlagperfSession,
        inputs: *const *mut DLManagedTensorVersioned,
        input_count: u32,
        outputs: *mut *mut DLManagedTensorVersioned,
        output_count: u32,
    ) -> FlagperfStatus,
>;
/// Waits until everything submitted is computed.
pub type FlagperfSync = Option<unsafe extern "C" fn(session: *mut FlagperfSession) -> FlagperfStatus>;
/// Copies an output that is not in host memory to `to`: dense, row-major, exactly `bytes`.
pub type FlagperfCopyToHost = Option<
    unsafe extern "C" fn(
        session: *mut FlagperfSession,
        tensor: *const DLManagedTensorVersioned,
        to: *mut c_void,
        bytes: u64,
    ) -> FlagperfStatus,
>;
/// Bytes in use on the device; `UINT64_MAX` when unknown.
pub type FlagperfDeviceMemory = Option<unsafe extern "C" fn(session: *mut FlagperfSession) -> u64>;
/// The device: `cpu`, `cuda:0 NVIDIA H200`. The text stays until the next call on the session.
pub type FlagperfDevice = Option<unsafe extern "C" fn(session: *mut FlagperfSession) -> *const c_char>;
/// Threads that it really computes with; 0 when it does not say.
pub type FlagperfThreads = Option<unsafe extern "C" fn(session: *mut FlagperfSession) -> u32>;
/// Answers a question of a script's about the loaded model, as JSON. `question` is a name (`layers`); `argument` is JSON,
/// `null` when there is none. The answer stays until the next call on the session.
///
/// `FLAGPERF_BAD_OPTION` with the question as `option` when it is not one that the engine answers; `message` says which are.
pub type FlagperfAsk = Option<
    unsafe extern "C" fn(
        session: *mut FlagperfSession,
        question: *const c_char,
        argument: *const c_char,
        answer: *mut *const c_char,
    ) -> FlagperfStatus,
>;
/// Changes a setting of the loaded model, for what is submitted from now on. `setting` is a name (`profile`); `value` is
/// JSON. The host then asks for inputs and outputs again.
///
/// `FLAGPERF_BAD_OPTION` as with a question.
pub type FlagperfTune = Option<
    unsafe extern "C" fn(session: *mut FlagperfSession, setting: *const c_char, value: *const c_char) -> FlagperfStatus,
>;
/// Ends a session. No output and no lent memory of it is with the host any more.
pub type FlagperfUnload = Option<unsafe extern "C" fn(session: *mut FlagperfSession)>;

/// A plug-in: what it is, and its functions. Constant; it stays as long as the library.
///
/// Calls on one session never overlap, but may come from different threads; only deleters may run at any time. Calls on
/// different sessions may overlap. No exception may leave a function. What is written to standard output or error is
/// kept in the host's log.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FlagperfPlugin {
    /// `FLAGPERF_ABI_VERSION` of the header that the plug-in was built with.
    pub abi_version: u32,
    /// `sizeof(FlagperfPlugin)` in that header.
    pub struct_size: u32,
    /// Lower-case name: `mychip`.
    pub name: *const c_char,
    /// Version of the library behind it.
    pub version: *const c_char,
    /// One line on what it is.
    pub about: *const c_char,
    /// `FLAGPERF_FRAMEWORK`, `FLAGPERF_COMPILER`, or both.
    pub roles: u32,
    /// The kinds of files that `load` takes. A framework takes ONNX files.
    pub artifacts: u32,
    /// The floating-point types that it computes in.
    pub precisions: u32,
    /// Highest version of the ONNX operator set that it knows.
    pub opset_max: i64,
    /// Required.
    pub last_error: FlagperfLastError,
    /// Null when the engine works wherever its library loads.
    pub check: FlagperfCheck,
    /// Required.
    pub load: FlagperfLoadModel,
    /// Required.
    pub inputs: FlagperfValues,
    /// Required.
    pub outputs: FlagperfValues,
    /// Null when the host's own memory is as good as any.
    pub lend: FlagperfLend,
    /// Required beside `lend`.
    pub give_back: FlagperfGiveBack,
    /// Required.
    pub submit: FlagperfSubmit,
    /// Null when `submit` computes to the end.
    pub sync: FlagperfSync,
    /// Null when every output is in host memory.
    pub copy_to_host: FlagperfCopyToHost,
    /// Null when it does not say.
    pub device_memory: FlagperfDeviceMemory,
    /// Null for a processor.
    pub device: FlagperfDevice,
    /// Null when it does not say.
    pub threads: FlagperfThreads,
    /// Required.
    pub unload: FlagperfUnload,
    /// Null when it answers no questions.
    pub ask: FlagperfAsk,
    /// Null when nothing of a loaded model can be changed.
    pub tune: FlagperfTune,
}

// SAFETY: the table is constant and its texts stay as long as the library (part of the interface).
unsafe impl Send for FlagperfPlugin {}
// SAFETY: as above.
unsafe impl Sync for FlagperfPlugin {}

unsafe extern "C" {
    /// The one symbol that a plug-in exports: returns its table.
    pub fn flagperf_plugin() -> *const FlagperfPlugin;
}

/// The type of that symbol.
pub type FlagperfEntry = unsafe extern "C" fn() -> *const FlagperfPlugin;

/// The name of that symbol.
pub const SYMBOL: &str = "flagperf_plugin";
