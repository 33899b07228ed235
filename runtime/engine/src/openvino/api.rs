//! A safe interface to OpenVINO's C functions: every object is freed, and every status is checked.
//!
//! Only [`super::library`] opens the library; creating a [`Core`] requires an opened one.

use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use memmap2::Mmap;
use openvino_sys::{self as sys, ov_status_e};

use super::library::OpenVinoLibrary;
use super::tensor::HostTensor;
use crate::{OperatorTime, RunProfile};
use flagperf_core::tensor::Tensor;
use flagperf_core::units::Seconds;

/// A result whose error is OpenVINO's own message.
pub(super) type OpenVinoResult<T> = Result<T, String>;

/// A property and its value, both under OpenVINO's names.
pub(super) type Property<'a> = (&'a str, &'a str);

/// Checks the status of a call, and returns the library's last error message when it failed.
pub(super) fn check_status(status: ov_status_e) -> OpenVinoResult<()> {
    if status == ov_status_e::OK {
        return Ok(());
    }
    // SAFETY: the library returns a string that the caller frees, or null.
    let message = unsafe { sys::ov_get_last_err_msg() };
    let message = if message.is_null() { String::new() } else { take_string(message) };
    Err(if message.is_empty() { format!("{status:?}") } else { message })
}

/// Copies and frees a string that the library allocated.
fn take_string(text: *const c_char) -> String {
    // SAFETY: the library returned a NUL-terminated string, which the caller owns.
    unsafe {
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        sys::ov_free(text);
        owned
    }
}

fn c_string(text: &[u8]) -> OpenVinoResult<CString> {
    CString::new(text).map_err(|_| format!("`{}` contains a NUL byte", String::from_utf8_lossy(text).escape_debug()))
}

/// Properties for the C interface, with the strings that they point to.
struct Properties {
    pairs: Vec<sys::ov_property_t>,
    _texts: Vec<CString>,
}

impl Properties {
    fn new(properties: &[Property<'_>]) -> OpenVinoResult<Self> {
        let texts = properties.iter().flat_map(|(key, value)| [key, value]);
        let texts = texts.map(|text| c_string(text.as_bytes())).collect::<OpenVinoResult<Vec<_>>>()?;
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
                // SAFETY: the library created the object, and it is freed once.
                unsafe { sys::$free(self.0) }
            }
        }

        // SAFETY: OpenVINO's objects are not bound to a thread.
        unsafe impl Send for $name {}
        // SAFETY: a shared reference only allows queries, which OpenVINO supports from several threads.
        unsafe impl Sync for $name {}
    };
}

owned!(
    /// An OpenVINO core: its devices, its model readers and their properties.
    Core, ov_core_t, ov_core_free
);
owned!(
    /// A model that was read and not compiled yet.
    Model, ov_model_t, ov_model_free
);
owned!(RawCompiledModel, ov_compiled_model_t, ov_compiled_model_free);
owned!(
    /// An inference request: it runs one computation at a time, and owns its inputs and outputs.
    Request, ov_infer_request_t, ov_infer_request_free
);
owned!(
    /// An input or output of a compiled model.
    Port, ov_output_const_port_t, ov_output_const_port_free
);

/// A model compiled for a device. The file that it was imported from stays mapped while the model lives.
pub(super) struct CompiledModel {
    model: RawCompiledModel,
    _imported: Option<Mmap>,
}

impl Core {
    /// Creates a core of an opened library.
    pub(super) fn new(_: &OpenVinoLibrary) -> OpenVinoResult<Self> {
        let mut core = ptr::null_mut();
        // SAFETY: the library is open, and the out-pointer is valid.
        check_status(unsafe { sys::ov_core_create(&mut core) })?;
        Ok(Core(core))
    }

    /// Reads a property of a device.
    pub(super) fn property(&self, device: &str, key: &str) -> OpenVinoResult<String> {
        let (device, key) = (c_string(device.as_bytes())?, c_string(key.as_bytes())?);
        let mut value = ptr::null_mut();
        // SAFETY: both strings outlive the call, and the caller frees the returned string.
        check_status(unsafe { sys::ov_core_get_property(self.0, device.as_ptr(), key.as_ptr(), &mut value) })?;
        Ok(take_string(value))
    }

    /// Returns the names of the available devices.
    pub(super) fn devices(&self) -> OpenVinoResult<Vec<String>> {
        let mut devices = sys::ov_available_devices_t { devices: ptr::null_mut(), size: 0 };
        // SAFETY: the out-pointer is valid; the names are NUL-terminated, and are freed once after they are copied.
        unsafe {
            check_status(sys::ov_core_get_available_devices(self.0, &mut devices))?;
            let name = |index| CStr::from_ptr(*devices.devices.add(index)).to_string_lossy().into_owned();
            let names = (0..devices.size).map(name).collect();
            sys::ov_available_devices_free(&mut devices);
            Ok(names)
        }
    }

    /// Sets a property of a device for all models that this core loads later.
    pub(super) fn set(&self, device: &str, property: Property<'_>) -> OpenVinoResult<()> {
        let (device, one) = (c_string(device.as_bytes())?, Properties::new(&[property])?);
        // SAFETY: the strings outlive the call, and there is exactly one pair.
        check_status(unsafe { sys::ov_core_set_properties(self.0, device.as_ptr(), 1, one.pairs.as_ptr()) })
    }

    /// Reads a model file: ONNX, or OpenVINO's own `.xml` with the `.bin` beside it.
    pub(super) fn read(&self, path: &Path) -> OpenVinoResult<Model> {
        let path = c_string(path.as_os_str().as_bytes())?;
        let mut model = ptr::null_mut();
        // SAFETY: the path outlives the call; a null path of weights selects those that the model names.
        check_status(unsafe { sys::ov_core_read_model(self.0, path.as_ptr(), ptr::null(), &mut model) })?;
        Ok(Model(model))
    }

    /// Compiles a model for a device.
    pub(super) fn compile(
        &self,
        model: &Model,
        device: &str,
        properties: &[Property<'_>],
    ) -> OpenVinoResult<CompiledModel> {
        let (device, all) = (c_string(device.as_bytes())?, Properties::new(properties)?);
        let (count, pairs) = (all.pairs.len(), all.pairs.as_ptr());
        let mut compiled = ptr::null_mut();
        // SAFETY: the model and the strings outlive the call, and there are `count` pairs.
        check_status(unsafe {
            sys::ov_core_compile_model_props(self.0, model.0, device.as_ptr(), count, pairs, &mut compiled)
        })?;
        Ok(CompiledModel { model: RawCompiledModel(compiled), _imported: None })
    }

    /// Loads a file that [`CompiledModel::export`] wrote, for a device.
    pub(super) fn import(&self, blob: Mmap, device: &str) -> OpenVinoResult<CompiledModel> {
        let device = c_string(device.as_bytes())?;
        let (content, size) = (blob.as_ptr().cast(), blob.len());
        let mut compiled = ptr::null_mut();
        // SAFETY: `size` bytes are mapped at `content`, and stay mapped while the model lives.
        check_status(unsafe { sys::ov_core_import_model(self.0, content, size, device.as_ptr(), &mut compiled) })?;
        Ok(CompiledModel { model: RawCompiledModel(compiled), _imported: Some(blob) })
    }
}

impl CompiledModel {
    /// Reads a property of the compiled model.
    pub(super) fn property(&self, key: &str) -> OpenVinoResult<String> {
        let key = c_string(key.as_bytes())?;
        let mut value = ptr::null_mut();
        // SAFETY: the key outlives the call, and the caller frees the returned string.
        check_status(unsafe { sys::ov_compiled_model_get_property(self.model.0, key.as_ptr(), &mut value) })?;
        Ok(take_string(value))
    }

    /// Writes the compiled model to a file.
    pub(super) fn export(&self, path: &Path) -> OpenVinoResult<()> {
        let path = c_string(path.as_os_str().as_bytes())?;
        // SAFETY: the path outlives the call.
        check_status(unsafe { sys::ov_compiled_model_export_model(self.model.0, path.as_ptr()) })
    }

    /// Creates an inference request.
    pub(super) fn request(&self) -> OpenVinoResult<Request> {
        let mut request = ptr::null_mut();
        // SAFETY: the out-pointer is valid.
        check_status(unsafe { sys::ov_compiled_model_create_infer_request(self.model.0, &mut request) })?;
        Ok(Request(request))
    }

    /// Returns the inputs, in the order of the file.
    pub(super) fn inputs(&self) -> OpenVinoResult<Vec<Port>> {
        self.ports(sys::ov_compiled_model_inputs_size, sys::ov_compiled_model_input_by_index)
    }

    /// Returns the outputs, in the order of the file.
    pub(super) fn outputs(&self) -> OpenVinoResult<Vec<Port>> {
        self.ports(sys::ov_compiled_model_outputs_size, sys::ov_compiled_model_output_by_index)
    }

    fn ports(&self, count: CountPorts, port: PortAt) -> OpenVinoResult<Vec<Port>> {
        let mut port_count = 0;
        // SAFETY: the out-pointer is valid.
        check_status(unsafe { count(self.model.0, &mut port_count) })?;
        let port_at = |index| {
            let mut raw = ptr::null_mut();
            // SAFETY: as above, and `index` is less than the count that the library returned.
            check_status(unsafe { port(self.model.0, index, &mut raw) })?;
            Ok(Port(raw))
        };
        (0..port_count).map(port_at).collect()
    }
}

type CountPorts = unsafe fn(*const sys::ov_compiled_model_t, *mut usize) -> ov_status_e;
type PortAt = unsafe fn(*const sys::ov_compiled_model_t, usize, *mut *mut sys::ov_output_const_port_t) -> ov_status_e;

impl Port {
    /// Returns one of the port's names.
    pub(super) fn name(&self) -> OpenVinoResult<String> {
        let mut name = ptr::null_mut();
        // SAFETY: the out-pointer is valid, and the caller frees the returned string.
        check_status(unsafe { sys::ov_port_get_any_name(self.0, &mut name) })?;
        Ok(take_string(name))
    }

    /// Returns OpenVINO's element type.
    pub(super) fn element_type(&self) -> OpenVinoResult<sys::ov_element_type_e> {
        let mut element_type = sys::ov_element_type_e::DYNAMIC;
        // SAFETY: the out-pointer is valid.
        check_status(unsafe { sys::ov_port_get_element_type(self.0, &mut element_type) })?;
        Ok(element_type)
    }

    /// Returns the dimensions, with `None` for an open one; `None` instead of all of them when the rank is open.
    pub(super) fn dims(&self) -> OpenVinoResult<Option<Vec<Option<usize>>>> {
        let rank = sys::ov_dimension_t { min: 0, max: 0 };
        let mut shape = sys::ov_partial_shape_t { rank, dims: ptr::null_mut() };
        // SAFETY: the out-pointer is valid.
        check_status(unsafe { sys::ov_port_get_partial_shape(self.0, &mut shape) })?;
        let fixed = |dim: &sys::ov_dimension_t| usize::try_from(dim.min).ok().filter(|_| dim.min == dim.max);
        let dims = fixed(&shape.rank).map(|rank| match rank {
            0 => Vec::new(),
            // SAFETY: the library returned `rank` dimensions.
            _ => unsafe { std::slice::from_raw_parts(shape.dims, rank) }.iter().map(fixed).collect(),
        });
        // SAFETY: the library filled the shape above, and it is freed once.
        unsafe { sys::ov_partial_shape_free(&mut shape) };
        Ok(dims)
    }
}

impl Request {
    /// Sets the inputs to views of these tensors, which the caller keeps alive until the computation has finished.
    pub(super) fn set_inputs(&mut self, inputs: &[Tensor]) -> OpenVinoResult<()> {
        for (index, input) in inputs.iter().enumerate() {
            let view = HostTensor::over(input)?;
            // SAFETY: the request holds its own reference to the view; the caller keeps the memory under it alive.
            check_status(unsafe { sys::ov_infer_request_set_input_tensor_by_index(self.0, index, view.as_ptr()) })?;
        }
        Ok(())
    }

    /// Runs the computation, and waits until it has finished.
    pub(super) fn infer(&mut self) -> OpenVinoResult<()> {
        // SAFETY: the exclusive reference rules out other uses of the request during the call.
        check_status(unsafe { sys::ov_infer_request_infer(self.0) })
    }

    /// Starts the computation.
    pub(super) fn start(&mut self) -> OpenVinoResult<()> {
        // SAFETY: the caller does not use the request again before waiting for it.
        check_status(unsafe { sys::ov_infer_request_start_async(self.0) })
    }

    /// Waits until the started computation has finished.
    pub(super) fn wait(&mut self) -> OpenVinoResult<()> {
        // SAFETY: as above.
        check_status(unsafe { sys::ov_infer_request_wait(self.0) })
    }

    /// Returns the times of the nodes that the last computation executed, in order: for each the mean of all computations of the
    /// request. OpenVINO does not tell when a node ran, so each begins where the one before ends.
    pub(super) fn node_times(&self) -> OpenVinoResult<RunProfile> {
        let mut list = sys::ov_profiling_info_list_t { profiling_infos: ptr::null_mut(), size: 0 };
        // SAFETY: the out-pointer is valid.
        check_status(unsafe { sys::ov_infer_request_get_profiling_info(self.0, &mut list) })?;
        let text = |text: *const c_char| match text.is_null() {
            true => String::new(),
            // SAFETY: the library returned a NUL-terminated string, which lives until the list is freed.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        let infos = match list.size {
            0 => &[],
            // SAFETY: the library returned `size` elements.
            size => unsafe { std::slice::from_raw_parts(list.profiling_infos, size) },
        };
        let executed = infos.iter().filter(|info| info.status == sys::ov_profiling_info_t_Status::EXECUTED);
        let mut begin_s = Seconds::default();
        let times = executed.map(|info| {
            let time_s = Seconds(info.real_time as f64 / 1e6);
            let time = OperatorTime { name: text(info.node_name), operator: text(info.node_type), begin_s, time_s };
            begin_s = begin_s + time_s;
            time
        });
        let times = times.collect();
        // SAFETY: the library filled the list above, and it is freed once.
        unsafe { sys::ov_profiling_info_list_free(&mut list) };
        Ok(times)
    }

    /// Returns the output at `index`, in the request's own memory, which the next computation overwrites.
    pub(super) fn output(&self, index: usize) -> OpenVinoResult<HostTensor> {
        let mut tensor = ptr::null_mut();
        // SAFETY: the out-pointer is valid.
        check_status(unsafe { sys::ov_infer_request_get_output_tensor_by_index(self.0, index, &mut tensor) })?;
        Ok(HostTensor::from_raw(tensor))
    }
}
