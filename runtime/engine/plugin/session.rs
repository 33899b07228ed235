//! A model loaded by a plug-in.

use std::ffi::CString;
use std::ptr::{NonNull, null, null_mut};
use std::slice;
use std::sync::Arc;

use flagperf_onnx::ValueInfo;
use flagperf_plugin::abi::{FlagperfBuffer, FlagperfLoad};
use flagperf_plugin::dlpack::DLManagedTensorVersioned;
use indexmap::IndexMap;
use serde_json::Value as Json;

use super::calls::{Handle, c_folder, c_path, malformed, text};
use super::given::Model;
use super::library::Library;
use super::questions;
use super::tensor::{Given, Lent, PluginTensor};
use crate::engine::{EngineError, HeapMemory, LentMemory, Options, Session, Value, check_inputs};
use crate::event::PluginFacts;
use crate::tensor::{Dim, HostMemory, TensorSpec};
use crate::units::Bytes;

/// A model loaded by a plug-in.
pub(super) struct PluginSession {
    handle: Arc<Handle>,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    /// What the plug-in may read until it is synchronised.
    held: Vec<Held>,
}

/// An input on loan.
enum Held {
    /// The host's.
    Host(Lent),
    /// The plug-in's own, which must not be deleted meanwhile.
    Own { _value: Value, tensor: *mut DLManagedTensorVersioned },
}

// SAFETY: the pointer is the own value's, which may be sent; it is only passed to the session's calls.
unsafe impl Send for Held {}

impl PluginSession {
    /// Loads a model; the plug-in must see the inputs and outputs that the host knows it has.
    pub(super) fn load(library: &'static Library, model: Model, asked: &Options) -> Result<Self, EngineError> {
        let path = c_path(&model.path)?;
        let own: IndexMap<&String, _> = asked.extra.iter().filter(|(_, value)| !value.is_null()).collect();
        let own = serde_json::to_string(&own).map_err(|error| EngineError::Failed(error.to_string()))?;
        let own = CString::new(own).expect("JSON escapes zero bytes");
        let log_folder = asked.config.get("log_dir").and_then(|folder| folder.as_str()).map(c_folder).transpose()?;
        let load = FlagperfLoad {
            struct_size: size_of::<FlagperfLoad>() as u32,
            artifact: model.kind,
            path: path.as_ptr(),
            options: own.as_ptr(),
            threads: u32::try_from(asked.threads).unwrap_or(u32::MAX),
            batch_size: u32::try_from(asked.batch_size).unwrap_or(u32::MAX),
            precision: flagperf_plugin::DType::named(asked.precision.name()).map_or(0, flagperf_plugin::DType::bit),
            log_folder: log_folder.as_ref().map_or(null(), |folder| folder.as_ptr()),
        };
        let handle = Handle::load(library, &load, asked.precision, model.folder)?;
        let inputs = handle.values("inputs", library.table.inputs)?;
        let outputs = handle.values("outputs", library.table.outputs)?;
        if let Some(graph) = &model.graph {
            agree(library, "inputs", &inputs, &graph.inputs)?;
            agree(library, "outputs", &outputs, &graph.outputs)?;
        }
        Ok(PluginSession { handle: Arc::new(handle), inputs, outputs, held: Vec::new() })
    }

    /// Checks what the plug-in gave: one tensor an output, each as declared.
    fn take(&self, inputs: &[Value], tensors: &[*mut DLManagedTensorVersioned]) -> Result<Vec<Value>, EngineError> {
        let library = self.handle.library;
        let lent: Vec<_> = self.held.iter().map(Held::tensor).collect();
        let mut given = Vec::new();
        for (index, (info, tensor)) in self.outputs.iter().zip(tensors).enumerate() {
            let name = &info.name;
            // Deleting one twice, or one that is not given away, would be our fault.
            let again = tensors[..index].contains(tensor) || lent.contains(tensor);
            given.push(match NonNull::new(*tensor) {
                None => Err(malformed(library, &format!("gave no output `{name}`"))),
                Some(_) if again => Err(malformed(library, &format!("gave a tensor twice, as output `{name}` too"))),
                // SAFETY: the plug-in wrote it as an output, once.
                Some(tensor) => unsafe { Given::take(&self.handle, name, tensor) },
            });
        }
        let values: Vec<Value> = given
            .into_iter()
            .map(|given| given.map(|given| Value::Device(Arc::new(PluginTensor::new(given)))))
            .collect::<Result<_, _>>()?;
        self.check_outputs(inputs, &values)?;
        Ok(values)
    }

    /// Checks shapes and types against those declared, names of dimensions included.
    fn check_outputs(&self, inputs: &[Value], outputs: &[Value]) -> Result<(), EngineError> {
        let mut sizes = IndexMap::new();
        for (info, value) in self.inputs.iter().zip(inputs) {
            fits(&info.spec, &value.spec(), &mut sizes);
        }
        for (info, value) in self.outputs.iter().zip(outputs) {
            if !fits(&info.spec, &value.spec(), &mut sizes) {
                let (name, given, declared) = (&info.name, value.spec(), &info.spec);
                let what = format!("gave output `{name}` as `{given}`, it declares `{declared}`");
                return Err(malformed(self.handle.library, &what));
            }
        }
        Ok(())
    }
}

impl Held {
    fn tensor(&self) -> *mut DLManagedTensorVersioned {
        match self {
            Held::Host(lent) => lent.as_ptr(),
            Held::Own { tensor, .. } => *tensor,
        }
    }
}

/// Whether a tensor is as declared; sizes of named dimensions are kept in `sizes`.
fn fits<'a>(declared: &'a TensorSpec, given: &TensorSpec, sizes: &mut IndexMap<&'a str, usize>) -> bool {
    let Some(shape) = given.fixed_shape() else { return false };
    declared.admits(&shape, given.dtype)
        && declared.dims.iter().zip(shape).all(|(dim, size)| match dim {
            Dim::Named(name) => *sizes.entry(name).or_insert(size) == size,
            _ => true,
        })
}

/// Checks that a plug-in sees the inputs or outputs of the model: the same names in the same order, the same types, and
/// no other sizes where both say one.
fn agree(library: &Library, what: &str, declared: &[ValueInfo], model: &[ValueInfo]) -> Result<(), EngineError> {
    let same = |(ours, theirs): (&ValueInfo, &ValueInfo)| {
        let sizes = ours.spec.dims.iter().zip(&theirs.spec.dims);
        ours.name == theirs.name
            && ours.spec.dtype == theirs.spec.dtype
            && ours.spec.dims.len() == theirs.spec.dims.len()
            && sizes.filter_map(|(a, b)| a.fixed().zip(b.fixed())).all(|(a, b)| a == b)
    };
    if declared.len() == model.len() && model.iter().zip(declared).all(same) {
        return Ok(());
    }
    let listed = |infos: &[ValueInfo]| {
        infos.iter().map(|info| format!("`{}: {}`", info.name, info.spec)).collect::<Vec<_>>().join(", ")
    };
    let what = format!("declares the {what} {}, the model has {}", listed(declared), listed(model));
    Err(malformed(library, &what))
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
            // SAFETY: the session is loaded; the place of the buffer lives as long as the call.
            self.handle.call(|_, session| unsafe { lend(session, index as u32, bytes as u64, &raw mut buffer) })?;
        }
        if buffer.data.is_null() {
            return HeapMemory::zeroed(bytes).map(|memory| Box::new(memory) as Box<dyn LentMemory>);
        }
        let lent = Buffer { buffer, handle: self.handle.clone() };
        if buffer.bytes != bytes as u64 || !buffer.data.addr().is_multiple_of(8) {
            let what =
                format!("lent {} bytes at {:p}, {bytes} at a multiple of 8 were asked for", buffer.bytes, buffer.data);
            return Err(malformed(self.handle.library, &what));
        }
        Ok(Box::new(lent))
    }

    fn submit(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.inputs, inputs)?;
        let held = inputs.iter().map(|value| self.hold(value)).collect::<Result<Vec<_>, _>>()?;
        if !self.handle.is_under_way() {
            self.held.clear();
        }
        let first = self.held.len();
        self.held.extend(held);
        let given: Vec<_> = self.held[first..].iter().map(Held::tensor).collect();
        let mut tensors = vec![null_mut(); self.outputs.len()];
        self.handle.begin(|table, session| {
            let submit = table.submit.expect("the table was checked");
            let (input_count, output_count) = (given.len() as u32, tensors.len() as u32);
            // SAFETY: the session is loaded; inputs are held until it is synchronised; there are as many places for
            // outputs as it declares.
            unsafe { submit(session, given.as_ptr(), input_count, tensors.as_mut_ptr(), output_count) }
        })?;
        self.take(inputs, &tensors)
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        let result = self.handle.finish();
        self.held.clear();
        result
    }

    fn device_memory(&self) -> Option<Bytes> {
        let memory = self.handle.library.table.device_memory?;
        // SAFETY: the session is loaded.
        let bytes = self.handle.ask(|_, session| unsafe { memory(session) });
        (bytes != u64::MAX).then_some(Bytes(bytes))
    }

    fn device(&self) -> String {
        let Some(device) = self.handle.library.table.device else { return "cpu".to_owned() };
        // SAFETY: the session is loaded; the text stays until the next call, which waits for this one.
        self.handle.ask(|_, session| unsafe { text(device(session)) }).unwrap_or_default()
    }

    fn threads(&self) -> usize {
        let Some(threads) = self.handle.library.table.threads else { return 0 };
        // SAFETY: the session is loaded.
        self.handle.ask(|_, session| unsafe { threads(session) }) as usize
    }

    fn ask(&mut self, question: &str, argument: &Json) -> Result<Json, EngineError> {
        questions::ask(&self.handle, question, argument)
    }

    fn tune(&mut self, setting: &str, value: &Json) -> Result<(), EngineError> {
        questions::tune(&self.handle, setting, value)?;
        let table = &self.handle.library.table;
        self.inputs = self.handle.values("inputs", table.inputs)?;
        self.outputs = self.handle.values("outputs", table.outputs)?;
        Ok(())
    }

    fn plugin(&self) -> Option<PluginFacts> {
        Some(self.handle.library.record())
    }
}

impl PluginSession {
    /// An input for a submit: the plug-in's own tensor where it is one, else the host's memory.
    fn hold(&self, value: &Value) -> Result<Held, EngineError> {
        if let Value::Device(tensor) = value
            && let Some(own) = tensor.as_any().downcast_ref::<PluginTensor>()
            && let Some(tensor) = own.of(&self.handle)
        {
            return Ok(Held::Own { _value: value.clone(), tensor });
        }
        value.to_host().map(|tensor| Held::Host(Lent::new(tensor)))
    }
}

impl Drop for PluginSession {
    fn drop(&mut self) {
        // What is held may still be read; that computing failed interests nobody any more.
        let _ = self.handle.finish();
    }
}

/// Memory that a plug-in lends.
struct Buffer {
    buffer: FlagperfBuffer,
    handle: Arc<Handle>,
}

// SAFETY: the memory is this buffer's alone until it is given back.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl HostMemory for Buffer {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the plug-in lent so many bytes.
        unsafe { slice::from_raw_parts(self.buffer.data.cast(), self.buffer.bytes as usize) }
    }
}

impl LentMemory for Buffer {
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has them.
        unsafe { slice::from_raw_parts_mut(self.buffer.data.cast(), self.buffer.bytes as usize) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let give_back = self.handle.library.table.give_back.expect("required beside `lend`");
        // SAFETY: the session is loaded, and each buffer is given back once.
        self.handle.ask(|_, session| unsafe { give_back(session, self.buffer) });
    }
}
