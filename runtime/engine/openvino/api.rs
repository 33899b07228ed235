//! OpenVINO's C interface made safe: whatever is created is freed, every status is read.
//!
//! Only [`super::library`] opens what is behind it; a [`Core`] is made from an opened library.

use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use memmap2::Mmap;
use openvino_sys::{self as sys, ov_status_e};

use super::library::Library;
use super::tensor::HostTensor;
use crate::tensor::Tensor;

/// What OpenVINO says when it cannot.
pub(super) type Outcome<T> = Result<T, String>;

/// A property and its value, both in OpenVINO's words.
pub(super) type Property<'a> = (&'a str, &'a str);

/// The status of a call; when it is not well, what the library says of it.
pub(super) fn checked(status: ov_status_e) -> Outcome<()> {
    if status == ov_status_e::OK {
        return Ok(());
    }
    // SAFETY: the library gives a text of its own that the caller frees, or nothing.
    let said = unsafe { sys::ov_get_last_err_msg() };
    let said = if said.is_null() { String::new() } else { taken(said) };
    Err(if said.is_empty() { format!("{status:?}") } else { said })
}

/// A text that the library hands over.
fn taken(text: *const c_char) -> String {
    // SAFETY: the library gave a text that ends with a zero and is ours to free.
    unsafe {
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        sys::ov_free(text);
        owned
    }
}

fn c_text(text: &[u8]) -> Outcome<CString> {
    CString::new(text).map_err(|_| format!("`{}` has a zero inside", String::from_utf8_lossy(text).escape_debug()))
}

/// Properties as C takes them, with the texts that they point to.
struct Properties {
    pairs: Vec<sys::ov_property_t>,
    _texts: Vec<CString>,
}

impl Properties {
    fn new(properties: &[Property<'_>]) -> Outcome<Self> {
        let texts = properties.iter().flat_map(|(key, value)| [key, value]);
        let texts = texts.map(|text| c_text(text.as_bytes())).collect::<Outcome<Vec<_>>>()?;
        let pair = |both: &[CString]| sys::ov_property_t { key: both[0].as_ptr(), value: both[1].as_ptr().cast() };
        Ok(Properties { pairs: texts.chunks(2).map(pair).collect(), _texts: texts })
    }
}

macro_rules! owned {
    ($(#[$doc:meta])* $name:ident, $raw:ident, $free:ident) => {
        $(#[$doc])*
        pub(super) struct $name(*mut sys::$raw);

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: made by the library, freed once.
                unsafe { sys::$free(self.0) }
            }
        }

        // SAFETY: OpenVINO's objects belong to no thread.
        unsafe impl Send for $name {}
        // SAFETY: through a shared reference an object is only asked, which OpenVINO allows from several threads.
        unsafe impl Sync for $name {}
    };
}

owned!(
    /// OpenVINO's devices and readers, with settings of their own.
    Core, ov_core_t, ov_core_free
);
owned!(
    /// A model as it was read.
    Model, ov_model_t, ov_model_free
);
owned!(CompiledModel, ov_compiled_model_t, ov_compiled_model_free);
owned!(
    /// One computation at a time, with its inputs and outputs.
    Request, ov_infer_request_t, ov_infer_request_free
);
owned!(
    /// An input or output of a compiled model.
    Port, ov_output_const_port_t, ov_output_const_port_free
);

/// A model compiled for a device; what it was imported from stays mapped as long.
pub(super) struct Compiled {
    model: CompiledModel,
    _imported: Option<Mmap>,
}

impl Core {
    /// A core of an opened library.
    pub(super) fn new(_: &Library) -> Outcome<Self> {
        let mut core = ptr::null_mut();
        // SAFETY: the library is open, and the place for the result is ours.
        checked(unsafe { sys::ov_core_create(&mut core) })?;
        Ok(Core(core))
    }

    /// What a device says of itself.
    pub(super) fn property(&self, device: &str, key: &str) -> Outcome<String> {
        let (device, key) = (c_text(device.as_bytes())?, c_text(key.as_bytes())?);
        let mut value = ptr::null_mut();
        // SAFETY: both texts live through the call, and the text given is ours to free.
        checked(unsafe { sys::ov_core_get_property(self.0, device.as_ptr(), key.as_ptr(), &mut value) })?;
        Ok(taken(value))
    }

    /// The devices of this machine that it can use.
    pub(super) fn devices(&self) -> Outcome<Vec<String>> {
        let mut given = sys::ov_available_devices_t { devices: ptr::null_mut(), size: 0 };
        // SAFETY: the place for the result is ours; the names end with zeros and are freed once, after they are copied.
        unsafe {
            checked(sys::ov_core_get_available_devices(self.0, &mut given))?;
            let name = |index| CStr::from_ptr(*given.devices.add(index)).to_string_lossy().into_owned();
            let names = (0..given.size).map(name).collect();
            sys::ov_available_devices_free(&mut given);
            Ok(names)
        }
    }

    /// Sets a property of a device for whatever this core loads from now on.
    pub(super) fn set(&self, device: &str, property: Property<'_>) -> Outcome<()> {
        let (device, one) = (c_text(device.as_bytes())?, Properties::new(&[property])?);
        // SAFETY: the texts live through the call, and there is one pair of them.
        checked(unsafe { sys::ov_core_set_properties(self.0, device.as_ptr(), 1, one.pairs.as_ptr()) })
    }

    /// Reads a model file: ONNX, or OpenVINO's own `.xml` with the `.bin` beside it.
    pub(super) fn read(&self, path: &Path) -> Outcome<Model> {
        let path = c_text(path.as_os_str().as_bytes())?;
        let mut model = ptr::null_mut();
        // SAFETY: the path lives through the call; no path of weights means those that the model names.
        checked(unsafe { sys::ov_core_read_model(self.0, path.as_ptr(), ptr::null(), &mut model) })?;
        Ok(Model(model))
    }

    /// Compiles a model for a device.
    pub(super) fn compile(&self, model: &Model, device: &str, properties: &[Property<'_>]) -> Outcome<Compiled> {
        let (device, all) = (c_text(device.as_bytes())?, Properties::new(properties)?);
        let (count, pairs) = (all.pairs.len(), all.pairs.as_ptr());
        let mut compiled = ptr::null_mut();
        // SAFETY: model and texts live through the call, and there are `count` pairs.
        checked(unsafe {
            sys::ov_core_compile_model_props(self.0, model.0, device.as_ptr(), count, pairs, &mut compiled)
        })?;
        Ok(Compiled { model: CompiledModel(compiled), _imported: None })
    }

    /// Loads what [`Compiled::export`] wrote, for a device.
    pub(super) fn import(&self, blob: Mmap, device: &str) -> Outcome<Compiled> {
        let device = c_text(device.as_bytes())?;
        let (content, size) = (blob.as_ptr().cast(), blob.len());
        let mut compiled = ptr::null_mut();
        // SAFETY: `size` bytes are mapped from `content` on, and stay so while the model lives.
        checked(unsafe { sys::ov_core_import_model(self.0, content, size, device.as_ptr(), &mut compiled) })?;
        Ok(Compiled { model: CompiledModel(compiled), _imported: Some(blob) })
    }
}

impl Compiled {
    /// What the compiled model says of itself.
    pub(super) fn property(&self, key: &str) -> Outcome<String> {
        let key = c_text(key.as_bytes())?;
        let mut value = ptr::null_mut();
        // SAFETY: the key lives through the call, and the text given is ours to free.
        checked(unsafe { sys::ov_compiled_model_get_property(self.model.0, key.as_ptr(), &mut value) })?;
        Ok(taken(value))
    }

    /// Writes the compiled model to a file.
    pub(super) fn export(&self, path: &Path) -> Outcome<()> {
        let path = c_text(path.as_os_str().as_bytes())?;
        // SAFETY: the path lives through the call.
        checked(unsafe { sys::ov_compiled_model_export_model(self.model.0, path.as_ptr()) })
    }

    /// A request of its own.
    pub(super) fn request(&self) -> Outcome<Request> {
        let mut request = ptr::null_mut();
        // SAFETY: the place for the result is ours.
        checked(unsafe { sys::ov_compiled_model_create_infer_request(self.model.0, &mut request) })?;
        Ok(Request(request))
    }

    /// Its inputs, in the order of the file.
    pub(super) fn inputs(&self) -> Outcome<Vec<Port>> {
        self.ports(sys::ov_compiled_model_inputs_size, sys::ov_compiled_model_input_by_index)
    }

    /// Its outputs, in the order of the file.
    pub(super) fn outputs(&self) -> Outcome<Vec<Port>> {
        self.ports(sys::ov_compiled_model_outputs_size, sys::ov_compiled_model_output_by_index)
    }

    fn ports(&self, count: CountPorts, port: PortAt) -> Outcome<Vec<Port>> {
        let mut many = 0;
        // SAFETY: the place for the result is ours.
        checked(unsafe { count(self.model.0, &mut many) })?;
        let at = |index| {
            let mut given = ptr::null_mut();
            // SAFETY: as above, and `index` is less than the count that the library gave.
            checked(unsafe { port(self.model.0, index, &mut given) })?;
            Ok(Port(given))
        };
        (0..many).map(at).collect()
    }
}

type CountPorts = unsafe fn(*const sys::ov_compiled_model_t, *mut usize) -> ov_status_e;
type PortAt = unsafe fn(*const sys::ov_compiled_model_t, usize, *mut *mut sys::ov_output_const_port_t) -> ov_status_e;

impl Port {
    /// One of its names.
    pub(super) fn name(&self) -> Outcome<String> {
        let mut name = ptr::null_mut();
        // SAFETY: the text given is ours to free.
        checked(unsafe { sys::ov_port_get_any_name(self.0, &mut name) })?;
        Ok(taken(name))
    }

    /// OpenVINO's element type.
    pub(super) fn element_type(&self) -> Outcome<sys::ov_element_type_e> {
        let mut given = sys::ov_element_type_e::DYNAMIC;
        // SAFETY: the place for the result is ours.
        checked(unsafe { sys::ov_port_get_element_type(self.0, &mut given) })?;
        Ok(given)
    }

    /// Its dimensions, `None` for one that is open; `None` for all when their number is open.
    pub(super) fn dims(&self) -> Outcome<Option<Vec<Option<usize>>>> {
        let rank = sys::ov_dimension_t { min: 0, max: 0 };
        let mut shape = sys::ov_partial_shape_t { rank, dims: ptr::null_mut() };
        // SAFETY: the place for the result is ours.
        checked(unsafe { sys::ov_port_get_partial_shape(self.0, &mut shape) })?;
        let fixed = |dim: &sys::ov_dimension_t| usize::try_from(dim.min).ok().filter(|_| dim.min == dim.max);
        let dims = fixed(&shape.rank).map(|rank| match rank {
            0 => Vec::new(),
            // SAFETY: the library gave `rank` dimensions.
            _ => unsafe { std::slice::from_raw_parts(shape.dims, rank) }.iter().map(fixed).collect(),
        });
        // SAFETY: what the library filled above is freed once.
        unsafe { sys::ov_partial_shape_free(&mut shape) };
        Ok(dims)
    }
}

impl Request {
    /// Lends it the memory of its inputs, which the caller keeps until it has computed.
    pub(super) fn set_inputs(&mut self, inputs: &[Tensor]) -> Outcome<()> {
        for (index, input) in inputs.iter().enumerate() {
            let view = HostTensor::over(input)?;
            // SAFETY: the request takes a share of the view; the memory under it is the caller's promise.
            checked(unsafe { sys::ov_infer_request_set_input_tensor_by_index(self.0, index, view.as_ptr()) })?;
        }
        Ok(())
    }

    /// Computes, and waits until it is done.
    pub(super) fn infer(&mut self) -> Outcome<()> {
        // SAFETY: the request is nobody else's meanwhile.
        checked(unsafe { sys::ov_infer_request_infer(self.0) })
    }

    /// Begins to compute.
    pub(super) fn start(&mut self) -> Outcome<()> {
        // SAFETY: the request is nobody else's until it is waited for.
        checked(unsafe { sys::ov_infer_request_start_async(self.0) })
    }

    /// Waits until what was begun is done.
    pub(super) fn wait(&mut self) -> Outcome<()> {
        // SAFETY: as above.
        checked(unsafe { sys::ov_infer_request_wait(self.0) })
    }

    /// The output at `index`, in the request's own memory: the next computation writes over it.
    pub(super) fn output(&self, index: usize) -> Outcome<HostTensor> {
        let mut tensor = ptr::null_mut();
        // SAFETY: the place for the result is ours.
        checked(unsafe { sys::ov_infer_request_get_output_tensor_by_index(self.0, index, &mut tensor) })?;
        Ok(HostTensor::from_raw(tensor))
    }
}
