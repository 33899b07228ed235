//! The session of a model that a plug-in has loaded.

use std::ffi::CString;
use std::ptr::{NonNull, null, null_mut};
use std::slice;
use std::sync::Arc;

use flagperf_onnx::ValueInfo;
use flagperf_plugin::abi::{FlagperfBuffer, FlagperfLoad};
use flagperf_plugin::dlpack::DLManagedTensorVersioned;
use indexmap::IndexMap;
use serde_json::Value as Json;

use super::calls::{SessionHandle, c_folder, c_path, copy_text, interface_error};
use super::library::PluginLibrary;
use super::model_file::ModelFile;
use super::questions;
use super::tensor::{BorrowedInput, PluginOutput, PluginTensor};
use crate::operators::{OPERATORS_OPTION, hashed_libraries, used_operators};
use crate::{EngineError, HeapMemory, LentMemory, LoadOptions, RunProfile, Session, SessionFacts, Value, check_inputs};
use flagperf_core::tensor::{HostMemory, NamedSizes, TensorSpec};
use flagperf_core::units::Bytes;

/// The session of a model that a plug-in has loaded.
pub(super) struct PluginSession {
    handle: Arc<SessionHandle>,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    /// Inputs that the plug-in may read until the session is synchronised.
    input_buffers: Vec<InputBuffer>,
    /// The libraries of the vendor's operators that the model uses, with their hashes.
    operators: IndexMap<String, String>,
    /// Whether the plug-in keeps the times of operators, or why not; `None` when nothing asked for them.
    profile: Option<Result<(), EngineError>>,
}

/// The setting with which a plug-in keeps the times of operators, and the question about them.
const OPERATOR_TIMES: &str = "operator_times";

/// An input that a plug-in may read.
enum InputBuffer {
    /// Memory of the host.
    Host(BorrowedInput),
    /// An output of the same session; `_value` prevents its deletion while it is in use.
    Plugin { _value: Value, tensor: *mut DLManagedTensorVersioned },
}

// SAFETY: the pointer belongs to the value beside it, which may be sent; it is passed only to calls of the session.
unsafe impl Send for InputBuffer {}

impl PluginSession {
    /// Loads a model. The plug-in must declare the inputs and outputs of the graph, if the host could read it.
    pub(super) fn load(
        library: &'static PluginLibrary,
        model: ModelFile,
        options: &LoadOptions,
    ) -> Result<Self, EngineError> {
        let path = c_path(&model.path)?;
        let mut extra = options.extra.clone();
        extra.retain(|_, value| !value.is_null());
        let operators = model.graph.as_ref().map(|graph| used_operators(graph, &options.folder)).unwrap_or_default();
        if !operators.is_empty() {
            let libraries: IndexMap<&String, _> =
                operators.iter().map(|(name, path)| (name, path.to_string_lossy())).collect();
            let libraries = serde_json::to_value(libraries).map_err(|error| EngineError::Failed(error.to_string()))?;
            extra.insert(OPERATORS_OPTION.to_owned(), libraries);
        }
        let extra = serde_json::to_string(&extra).map_err(|error| EngineError::Failed(error.to_string()))?;
        let extra = CString::new(extra).expect("JSON escapes zero bytes");
        let log_folder = options.config.get("log_dir").and_then(|folder| folder.as_str()).map(c_folder).transpose()?;
        let load = FlagperfLoad {
            struct_size: size_of::<FlagperfLoad>() as u32,
            artifact: model.kind,
            path: path.as_ptr(),
            options: extra.as_ptr(),
            threads: u32::try_from(options.threads).unwrap_or(u32::MAX),
            batch_size: u32::try_from(options.batch_size).unwrap_or(u32::MAX),
            precision: flagperf_plugin::DType::from_name(options.precision.name())
                .map_or(0, flagperf_plugin::DType::bit),
            log_folder: log_folder.as_ref().map_or(null(), |folder| folder.as_ptr()),
        };
        let handle = SessionHandle::load(library, &load, options.precision, model.folder)
            .map_err(|error| error.with_first_tensor(model.first_tensor))?;
        let inputs = handle.declared_values("inputs", library.table.inputs)?;
        let outputs = handle.declared_values("outputs", library.table.outputs)?;
        if let Some(graph) = &model.graph {
            check_against_model(library, "inputs", &inputs, &graph.inputs)?;
            check_against_model(library, "outputs", &outputs, &graph.outputs)?;
        }
        let operators = hashed_libraries(&operators);
        let profile = options.profile.as_ref().map(|_| questions::tune(&handle, OPERATOR_TIMES, &Json::Bool(true)));
        let (handle, input_buffers) = (Arc::new(handle), Vec::new());
        Ok(PluginSession { handle, inputs, outputs, input_buffers, operators, profile })
    }

    /// Takes ownership of the tensors that the plug-in returned, and checks that there is one for each output and that
    /// it matches the declaration.
    fn take_outputs(
        &self,
        inputs: &[Value],
        tensors: &[*mut DLManagedTensorVersioned],
    ) -> Result<Vec<Value>, EngineError> {
        let library = self.handle.library;
        let borrowed: Vec<_> = self.input_buffers.iter().map(InputBuffer::as_ptr).collect();
        let mut outputs = Vec::new();
        for (index, (info, tensor)) in self.outputs.iter().zip(tensors).enumerate() {
            let name = &info.name;
            // The host must not delete a tensor twice, nor one that it does not own.
            let is_repeated = tensors[..index].contains(tensor) || borrowed.contains(tensor);
            outputs.push(match NonNull::new(*tensor) {
                None => Err(interface_error(library, &format!("returned no output `{name}`"))),
                Some(_) if is_repeated => {
                    let reason = format!("returned an input or another output again as output `{name}`");
                    Err(interface_error(library, &reason))
                }
                // SAFETY: the plug-in wrote it as an output, once.
                Some(tensor) => unsafe { PluginOutput::from_raw(&self.handle, name, tensor) },
            });
        }
        let values: Vec<Value> = outputs
            .into_iter()
            .map(|output| output.map(|output| Value::Device(Arc::new(PluginTensor::new(output)))))
            .collect::<Result<_, _>>()?;
        self.check_outputs(inputs, &values)?;
        Ok(values)
    }

    /// Checks shapes and element types against the declaration. A named dimension must have the same size everywhere.
    fn check_outputs(&self, inputs: &[Value], outputs: &[Value]) -> Result<(), EngineError> {
        let mut sizes = NamedSizes::default();
        for (info, value) in self.inputs.iter().zip(inputs) {
            matches_declaration(&info.spec, &value.spec(), &mut sizes);
        }
        for (info, value) in self.outputs.iter().zip(outputs) {
            if !matches_declaration(&info.spec, &value.spec(), &mut sizes) {
                let (name, returned, declared) = (&info.name, value.spec(), &info.spec);
                let what = format!("returned output `{name}` as `{returned}`, but declares `{declared}`");
                return Err(interface_error(self.handle.library, &what));
            }
        }
        Ok(())
    }
}

impl InputBuffer {
    fn as_ptr(&self) -> *mut DLManagedTensorVersioned {
        match self {
            InputBuffer::Host(borrowed) => borrowed.as_ptr(),
            InputBuffer::Plugin { tensor, .. } => *tensor,
        }
    }
}

/// Whether a tensor matches its declaration; adds the sizes of named dimensions to `sizes`.
fn matches_declaration<'a>(declared: &'a TensorSpec, actual: &TensorSpec, sizes: &mut NamedSizes<'a>) -> bool {
    let Some(shape) = actual.fixed_shape() else { return false };
    declared.admits(&shape, actual.dtype) && sizes.bind(declared, &shape).is_ok()
}

/// Checks that a plug-in declares the inputs or outputs of the model: the same names in the same order, the same
/// element types and ranks, and equal sizes where both are fixed. `what` is "inputs" or "outputs", for messages.
fn check_against_model(
    library: &PluginLibrary,
    what: &str,
    declared: &[ValueInfo],
    model: &[ValueInfo],
) -> Result<(), EngineError> {
    let is_same = |(ours, theirs): (&ValueInfo, &ValueInfo)| {
        let sizes = ours.spec.dims.iter().zip(&theirs.spec.dims);
        ours.name == theirs.name
            && ours.spec.dtype == theirs.spec.dtype
            && ours.spec.dims.len() == theirs.spec.dims.len()
            && sizes.filter_map(|(a, b)| a.fixed().zip(b.fixed())).all(|(a, b)| a == b)
    };
    if declared.len() == model.len() && model.iter().zip(declared).all(is_same) {
        return Ok(());
    }
    let list = |infos: &[ValueInfo]| {
        infos.iter().map(|info| format!("`{}: {}`", info.name, info.spec)).collect::<Vec<_>>().join(", ")
    };
    let what = format!("declares the {what} {}, the model has {}", list(declared), list(model));
    Err(interface_error(library, &what))
}

impl Session for PluginSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    fn lend(&mut self, index: usize, bytes: usize) -> Result<Box<dyn LentMemory>, EngineError> {
        let mut buffer = FlagperfBuffer { data: null_mut(), bytes: 0, handle: null_mut() };
        if let Some(lend) = self.handle.library.table.lend {
            // SAFETY: the session is loaded; the location of the buffer lives as long as the call.
            self.handle.call(|_, session| unsafe { lend(session, index as u32, bytes as u64, &raw mut buffer) })?;
        }
        if buffer.data.is_null() {
            return HeapMemory::zeroed(bytes).map(|memory| Box::new(memory) as Box<dyn LentMemory>);
        }
        let lent = LentBuffer { buffer, handle: self.handle.clone() };
        if buffer.bytes != bytes as u64 || !buffer.data.addr().is_multiple_of(8) {
            let what = format!(
                "lent {} bytes at {:p}, but {bytes} bytes at a multiple of 8 were requested",
                buffer.bytes, buffer.data
            );
            return Err(interface_error(self.handle.library, &what));
        }
        Ok(Box::new(lent))
    }

    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.inputs, inputs)?;
        let buffers = inputs.iter().map(|value| self.borrow_input(value)).collect::<Result<Vec<_>, _>>()?;
        if !self.handle.is_pending() {
            self.input_buffers.clear();
        }
        let first = self.input_buffers.len();
        self.input_buffers.extend(buffers);
        let borrowed: Vec<_> = self.input_buffers[first..].iter().map(InputBuffer::as_ptr).collect();
        let mut tensors = vec![null_mut(); self.outputs.len()];
        self.handle.submit(|table, session| {
            let submit = table.submit.expect("the table was checked");
            let (input_count, output_count) = (borrowed.len() as u32, tensors.len() as u32);
            // SAFETY: the session is loaded; the inputs are kept until it is synchronised; `tensors` has one place for
            // each output that the session declares.
            unsafe { submit(session, borrowed.as_ptr(), input_count, tensors.as_mut_ptr(), output_count) }
        })?;
        self.take_outputs(inputs, &tensors)
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        let result = self.handle.synchronize();
        self.input_buffers.clear();
        result
    }

    fn facts(&self) -> SessionFacts {
        let table = &self.handle.library.table;
        let device = table.device.map_or_else(
            || "cpu".to_owned(),
            // SAFETY: the session is loaded; the text lives until the next call, which waits for this one.
            |device| self.handle.query(|_, session| unsafe { copy_text(device(session)) }).unwrap_or_default(),
        );
        // SAFETY: the session is loaded.
        let threads = table.threads.map_or(0, |threads| self.handle.query(|_, session| unsafe { threads(session) }));
        SessionFacts {
            device,
            threads: threads as usize,
            plugin: Some(self.handle.library.plugin_facts()),
            operators: self.operators.clone(),
            ..SessionFacts::default()
        }
    }

    fn device_memory(&self) -> Option<Bytes> {
        let memory = self.handle.library.table.device_memory?;
        // SAFETY: the session is loaded.
        let bytes = self.handle.query(|_, session| unsafe { memory(session) });
        (bytes != u64::MAX).then_some(Bytes(bytes))
    }

    fn operator_times(&mut self) -> Result<Option<Vec<RunProfile>>, EngineError> {
        let Some(profile) = self.profile.clone() else { return Ok(None) };
        profile?;
        let answer = questions::ask(&self.handle, OPERATOR_TIMES, &Json::Null)?;
        let times = serde_json::from_value(answer).map_err(|error| {
            let what = format!("returned an answer to `{OPERATOR_TIMES}` that is no list of runs: {error}");
            interface_error(self.handle.library, &what)
        });
        times.map(Some)
    }

    fn ask(&mut self, question: &str, argument: &Json) -> Result<Json, EngineError> {
        questions::ask(&self.handle, question, argument)
    }

    fn tune(&mut self, setting: &str, value: &Json) -> Result<(), EngineError> {
        questions::tune(&self.handle, setting, value)?;
        let table = &self.handle.library.table;
        self.inputs = self.handle.declared_values("inputs", table.inputs)?;
        self.outputs = self.handle.declared_values("outputs", table.outputs)?;
        Ok(())
    }
}

impl PluginSession {
    /// Prepares an input for a submit: the plug-in's own tensor if it comes from this session, else host memory.
    fn borrow_input(&self, value: &Value) -> Result<InputBuffer, EngineError> {
        if let Value::Device(tensor) = value
            && let Some(own) = tensor.as_any().downcast_ref::<PluginTensor>()
            && let Some(tensor) = own.raw_for(&self.handle)
        {
            return Ok(InputBuffer::Plugin { _value: value.clone(), tensor });
        }
        value.to_host().map(|tensor| InputBuffer::Host(BorrowedInput::new(tensor)))
    }
}

impl Drop for PluginSession {
    fn drop(&mut self) {
        // The plug-in may still read the inputs. Nothing can use the outputs any more, so an error is of no interest.
        let _ = self.handle.synchronize();
    }
}

/// Input memory that a plug-in lends to the host.
struct LentBuffer {
    buffer: FlagperfBuffer,
    handle: Arc<SessionHandle>,
}

// SAFETY: only this buffer accesses the memory until it is given back.
unsafe impl Send for LentBuffer {}
// SAFETY: as above.
unsafe impl Sync for LentBuffer {}

impl HostMemory for LentBuffer {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the plug-in lent this number of bytes.
        unsafe { slice::from_raw_parts(self.buffer.data.cast(), self.buffer.bytes as usize) }
    }
}

impl LentMemory for LentBuffer {
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only access.
        unsafe { slice::from_raw_parts_mut(self.buffer.data.cast(), self.buffer.bytes as usize) }
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        let give_back = self.handle.library.table.give_back.expect("required with `lend`");
        // SAFETY: the session is loaded, and each buffer is given back once.
        self.handle.query(|_, session| unsafe { give_back(session, self.buffer) });
    }
}
