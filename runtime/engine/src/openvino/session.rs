//! A model loaded by OpenVINO.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use flagperf_onnx::{Graph, ValueInfo};
use memmap2::Mmap;

use super::api::{CompiledModel, Core, OpenVinoResult, Port, Request};
use super::options::{OpenVinoOptions, PRECISION_PROPERTY, THREADS};
use super::pool::Pool;
use super::request::{SharedRequest, finished_output, pending_output};
use super::tensor::{HostTensor, dtype_of};
use super::{classify_error, library, strip_source_locations};
use crate::{EngineError, LentMemory, OperatorTime, RunProfile, Session, SessionFacts, Value, check_inputs, model};
use flagperf_core::tensor::{DType, Dim, Tensor, TensorSpec};
use flagperf_core::units::Seconds;

/// The file that a session is loaded from.
#[derive(Clone, Copy)]
pub(super) enum ModelSource<'a> {
    /// A model file that OpenVINO reads and compiles; `graph` is the parsed graph of an ONNX file.
    File { path: &'a Path, graph: Option<&'a Graph> },
    /// A compiled model that OpenVINO exported.
    Exported(&'a Path),
}

/// A session. Inputs are views; outputs lie in the memory of the request that computed them, or are copies when many
/// are kept.
pub(super) struct OpenVinoSession {
    compiled: CompiledModel,
    requests: Arc<Pool<Request>>,
    /// The requests started since the last sync; always empty when batches run one at a time.
    in_flight: Vec<Arc<SharedRequest>>,
    concurrent_batches: bool,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    device: String,
    threads: usize,
    warnings: Vec<String>,
    /// For each run, the mean times of its nodes in all runs so far; `None` when they are not kept.
    profile: Option<Vec<RunProfile>>,
}

impl OpenVinoSession {
    /// Loads a model with a dynamic batch dimension.
    ///
    /// # Errors
    /// When the library, the device, a property or the file cannot be used, or OpenVINO would compute on another device
    /// or in another type than requested.
    pub(super) fn load(source: ModelSource<'_>, settings: &OpenVinoOptions<'_>) -> Result<Self, EngineError> {
        let core =
            Core::new(&library::open(settings.library.as_deref())?).map_err(|message| classify_error(&message))?;
        let name = device_name(&core, settings).map_err(|error| match source {
            ModelSource::File { graph: Some(graph), .. } => model::name_first_tensor(error, graph),
            _ => error,
        })?;
        let compiled = compile(&core, source, settings)?;
        let devices = check_placement(&compiled, settings)?;
        let device = format!("{} {}", settings.device.to_lowercase(), name.unwrap_or(devices));
        // Devices that use no CPU threads do not have this property.
        let threads = compiled.property(THREADS).ok().and_then(|threads| threads.parse().ok()).unwrap_or(0);
        let infos =
            |ports: OpenVinoResult<Vec<Port>>| ports?.iter().map(value_info).collect::<OpenVinoResult<Vec<_>>>();
        let inputs = infos(compiled.inputs()).map_err(|message| classify_error(&message))?;
        let outputs = infos(compiled.outputs()).map_err(|message| classify_error(&message))?;
        let (inputs, outputs) = match source {
            ModelSource::File { graph: Some(graph), .. } => (
                match_declared("inputs", &graph.inputs, &inputs)?,
                match_declared("outputs", &graph.outputs, &outputs)?,
            ),
            _ => (inputs, outputs),
        };
        if let (ModelSource::File { path, .. }, Some(folder)) = (source, &settings.export) {
            export(&compiled, path, folder)?;
        }
        let (requests, in_flight, concurrent_batches) = (Arc::default(), Vec::new(), settings.concurrent_batches);
        let warnings = Vec::new();
        Ok(OpenVinoSession {
            compiled,
            requests,
            in_flight,
            concurrent_batches,
            inputs,
            outputs,
            device,
            threads,
            warnings,
            profile: settings.is_profiled.then(Vec::new),
        })
    }

    /// Adds what the session warns of.
    pub(super) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    fn infer(&mut self, tensors: Vec<Tensor>) -> OpenVinoResult<Vec<Value>> {
        let request = Arc::new(SharedRequest::new(self.requests.lease(|| self.compiled.request())?));
        let indexed_outputs = self.outputs.iter().enumerate();
        if self.concurrent_batches && !tensors.is_empty() {
            request.start(tensors)?;
            let outputs = indexed_outputs.map(|(index, info)| pending_output(&request, index, &info.spec)).collect();
            self.in_flight.push(request);
            return Ok(outputs);
        }
        request.infer(&tensors)?;
        if let Some(profile) = &mut self.profile {
            profile.push(request.node_times()?);
        }
        if request.pin() {
            return indexed_outputs.map(|(index, _)| finished_output(&request, index).map(Value::Host)).collect();
        }
        // Copying is not part of the computation, so it is deferred until the host fetches the output.
        Ok(indexed_outputs.map(|(index, info)| pending_output(&request, index, &info.spec)).collect())
    }
}

impl Drop for OpenVinoSession {
    /// Waits for the running computations, which read the mapped weights of an imported model.
    fn drop(&mut self) {
        self.in_flight.drain(..).for_each(|request| _ = request.wait());
        self.requests.close();
    }
}

/// Checks that the device exists and supports the type, and returns the device's own name; `None` for a virtual device.
fn device_name(core: &Core, settings: &OpenVinoOptions<'_>) -> Result<Option<String>, EngineError> {
    if settings.is_virtual_device() {
        return Ok(None);
    }
    let read = |key| {
        core.property(settings.device, key).map_err(|message| {
            let available = core.devices().map_or_else(|_| String::new(), |devices| devices.join(", "));
            let (device, cause) = (settings.device, strip_source_locations(&message));
            settings.device_error(format!("`{device}` cannot be used: {cause} (available: {available})"))
        })
    };
    let capability = if settings.precision == DType::F16 { "FP16" } else { "FP32" };
    let capabilities = read("OPTIMIZATION_CAPABILITIES")?;
    if !capabilities.split_whitespace().any(|word| word == capability) {
        let supported = format!("on `{}`: {}", settings.device, capabilities.to_lowercase().replace("fp", "f"));
        let requested = settings.precision;
        return Err(EngineError::Precision { engine: "openvino", requested, first_tensor: None, supported });
    }
    read("FULL_DEVICE_NAME").map(Some)
}

fn compile(core: &Core, source: ModelSource<'_>, settings: &OpenVinoOptions<'_>) -> Result<CompiledModel, EngineError> {
    let properties: Vec<_> = settings.properties.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let compile_error =
        |path: &Path, message: &str| settings.property_error(message).unwrap_or_else(|| error_at(path, message));
    match source {
        ModelSource::File { path, .. } => {
            let model = core.read(path).map_err(|message| error_at(path, &message))?;
            core.compile(&model, settings.device, &properties).map_err(|message| compile_error(path, &message))
        }
        ModelSource::Exported(path) => {
            for property in properties {
                core.set(settings.device, property).map_err(|message| compile_error(path, &message))?;
            }
            // SAFETY: truncating the file while it is mapped ends the process, a risk of every mapped file.
            let blob = File::open(path).and_then(|file| unsafe { Mmap::map(&file) });
            let blob = blob.map_err(|error| EngineError::Failed(format!("`{}`: {error}", path.display())))?;
            core.import(blob, settings.device).map_err(|message| error_at(path, &message))
        }
    }
}

/// Writes the compiled model to a folder, under the name of the model's file: `resnet50.onnx` becomes `resnet50.blob`.
fn export(compiled: &CompiledModel, model: &Path, folder: &Path) -> Result<(), EngineError> {
    let folder_error = |error: std::io::Error| EngineError::Failed(format!("`{}`: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(folder_error)?;
    let path = folder.join(model.with_extension("blob").file_name().unwrap_or_default());
    compiled.export(&path).map_err(|message| error_at(&path, &message))
}

/// Checks that the compiled model computes on the requested device and in the requested type, and returns the devices.
fn check_placement(compiled: &CompiledModel, settings: &OpenVinoOptions<'_>) -> Result<String, EngineError> {
    let read = |key| compiled.property(key).map_err(|message| classify_error(&message));
    let devices = read("EXECUTION_DEVICES")?;
    let is_other = |device: &str| !device.starts_with(settings.device);
    if !settings.is_virtual_device() && devices.split_whitespace().any(is_other) {
        return Err(settings.device_error(format!("the model would run on `{devices}`, not on `{}`", settings.device)));
    }
    let actual = if settings.is_virtual_device() {
        device_precisions(&read("DEVICE_PROPERTIES")?).into_iter().map(str::to_owned).collect()
    } else {
        vec![read(PRECISION_PROPERTY)?]
    };
    let requested = settings.precision.to_string();
    if actual.is_empty() || actual.iter().any(|precision| *precision != requested) {
        let (device, actual) = (settings.device, actual.join(", "));
        let reason = format!("`{device}` would compute in `{actual}`, not in `{requested}`");
        return Err(EngineError::Failed(reason));
    }
    Ok(devices)
}

/// Extracts the type of each device from the properties of a virtual device:
/// `{CPU:{..,INFERENCE_PRECISION_HINT:f32,..}}`.
fn device_precisions(properties: &str) -> Vec<&str> {
    let values = properties.split(PRECISION_PROPERTY).skip(1).filter_map(|rest| rest.strip_prefix(':'));
    values.filter_map(|rest| rest.split([',', '}']).next()).collect()
}

/// Returns for the last run the mean times of its nodes in the later half of the runs, and for the others nothing: from mean times that
/// begin with the slow first runs, those of each run would be mostly rounding.
fn mean_of_later_half(runs: Vec<RunProfile>) -> Vec<RunProfile> {
    let (count, half) = (runs.len(), runs.len() / 2);
    let mut means: Vec<RunProfile> = runs.iter().map(|_| Vec::new()).collect();
    if let Some(last) = means.last_mut() {
        let earlier = half.checked_sub(1).map(|index| &runs[index]);
        let mut begin_s = Seconds::default();
        for (place, node) in runs[count - 1].iter().enumerate() {
            let known = earlier.and_then(|run| run.get(place)).filter(|known| known.name == node.name);
            let before = known.map_or(node.time_s.0, |known| known.time_s.0);
            let mean = (node.time_s.0 * count as f64 - before * half as f64) / (count - half) as f64;
            let time_s = Seconds(mean.max(0.0));
            last.push(OperatorTime { begin_s, time_s, ..node.clone() });
            begin_s = begin_s + time_s;
        }
    }
    means
}

/// Converts OpenVINO's message to an error that contains the file's path.
fn error_at(path: &Path, message: &str) -> EngineError {
    match classify_error(message) {
        EngineError::Failed(reason) => EngineError::Failed(format!("`{}`: {reason}", path.display())),
        other => other,
    }
}

/// Refuses integers that OpenVINO cuts to 32 bits without a word.
fn check_integers(name: &str, tensor: &Tensor) -> Result<(), EngineError> {
    let integers = tensor.as_slice::<i64>().unwrap_or_default();
    let large = integers.iter().find(|x| i32::try_from(**x).is_err());
    let error = |x| EngineError::Failed(format!("input `{name}`: `{x}` does not fit in OpenVINO's 32-bit integers"));
    large.map_or(Ok(()), |x| Err(error(x)))
}

/// Converts the description of an input or output of the compiled model.
fn value_info(port: &Port) -> OpenVinoResult<ValueInfo> {
    let name = port.name()?;
    let dims = port.dims()?.ok_or_else(|| format!("`{name}` has an unknown number of dimensions"))?;
    let dims = dims.into_iter().map(|size| size.map_or(Dim::Unknown, Dim::Fixed)).collect();
    Ok(ValueInfo { spec: TensorSpec { dims, dtype: dtype_of(port.element_type()?)? }, name })
}

/// Checks that the compiled inputs or outputs match the file's, and returns the file's: OpenVINO drops the names of
/// dimensions and renames values.
fn match_declared(kind: &str, file: &[ValueInfo], compiled: &[ValueInfo]) -> Result<Vec<ValueInfo>, EngineError> {
    let matches = |(file, compiled): (&ValueInfo, &ValueInfo)| {
        file.spec.dtype == compiled.spec.dtype && file.spec.dims.len() == compiled.spec.dims.len()
    };
    if file.len() == compiled.len() && file.iter().zip(compiled).all(matches) {
        return Ok(file.to_vec());
    }
    let list = |infos: &[ValueInfo]| {
        infos.iter().map(|info| format!("`{}` {}", info.name, info.spec)).collect::<Vec<_>>().join(", ")
    };
    let (file, compiled) = (list(file), list(compiled));
    Err(EngineError::Failed(format!("OpenVINO's {kind} are {compiled}, but the model declares {file}")))
}

impl Session for OpenVinoSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    fn lend(&mut self, _: usize, bytes: usize) -> Result<Box<dyn LentMemory>, EngineError> {
        let memory = HostTensor::zeroed(bytes).map_err(|_| EngineError::OutOfMemory { bytes: bytes as u64 })?;
        Ok(Box::new(memory))
    }

    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.inputs, inputs)?;
        let tensors = inputs.iter().map(Value::to_host).collect::<Result<Vec<_>, _>>()?;
        self.inputs.iter().zip(&tensors).try_for_each(|(info, tensor)| check_integers(&info.name, tensor))?;
        self.infer(tensors).map_err(|message| classify_error(&message))
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        let results: Vec<OpenVinoResult<()>> = self.in_flight.drain(..).map(|request| request.wait()).collect();
        results.into_iter().collect::<OpenVinoResult<()>>().map_err(|message| classify_error(&message))
    }

    fn operator_times(&mut self) -> Result<Option<Vec<RunProfile>>, EngineError> {
        Ok(self.profile.as_mut().map(|profile| mean_of_later_half(std::mem::take(profile))))
    }

    fn facts(&self) -> SessionFacts {
        SessionFacts {
            device: self.device.clone(),
            threads: self.threads,
            warnings: self.warnings.clone(),
            ..SessionFacts::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_precision_of_every_device_is_extracted() {
        let message =
            "{CPU:{A:1,INFERENCE_PRECISION_HINT:f32,B:INFERENCE_PRECISION_HINT C},GPU:{INFERENCE_PRECISION_HINT:f16}}";
        assert_eq!(device_precisions(message), ["f32", "f16"]);
        assert!(device_precisions("{}").is_empty());
    }

    #[test]
    fn the_slow_first_runs_are_no_part_of_the_mean_times() {
        // Runs of 9, 3, 1 and 1 s have these means so far.
        let run = |mean: f64| {
            let time_s = Seconds(mean);
            let node =
                |name: &str| OperatorTime { name: name.into(), operator: String::new(), begin_s: Seconds(0.0), time_s };
            vec![node("a"), node("b")]
        };
        let means = mean_of_later_half([9.0, 6.0, 13.0 / 3.0, 3.5].map(run).to_vec());
        assert!(means[..3].iter().all(Vec::is_empty));
        let times: Vec<_> = means[3].iter().map(|time| (time.begin_s.0, time.time_s.0)).collect();
        assert_eq!(times, [(0.0, 1.0), (1.0, 1.0)]);
        assert!(mean_of_later_half(Vec::new()).is_empty());
    }

    #[test]
    fn compiled_inputs_that_differ_from_the_files_are_rejected() {
        let info = |name: &str, spec: &str| ValueInfo { name: name.to_owned(), spec: spec.parse().unwrap() };
        let file = [info("x", "N,3,f32")];
        assert_eq!(match_declared("inputs", &file, &[info("x/renamed", "?,3,f32")]).unwrap(), file);
        for other in [&[info("x", "?,3,f16")][..], &[info("x", "?,3,1,f32")], &[]] {
            let error = match_declared("outputs", &file, other).unwrap_err().to_string();
            assert!(error.ends_with(", but the model declares `x` N,3,f32"), "{error}");
        }
    }
}
