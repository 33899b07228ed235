//! A loaded model in OpenVINO.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use flagperf_onnx::{Graph, ValueInfo};
use memmap2::Mmap;

use super::api::{Compiled, Core, Outcome, Port, Request};
use super::options::{PRECISION, Settings, THREADS};
use super::pool::Pool;
use super::request::{Slot, output, pending};
use super::tensor::{HostTensor, ours};
use super::{library, plain, understood};
use crate::engine::{EngineError, LentMemory, Session, Value, check_inputs};
use crate::tensor::{DType, Dim, Tensor, TensorSpec};

/// What is loaded.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// A file that OpenVINO reads and compiles; of an ONNX file, what we read in it.
    Model { path: &'a Path, graph: Option<&'a Graph> },
    /// A compiled model that it exported.
    Exported(&'a Path),
}

/// A session: inputs are views, outputs are the memory of the request that computed them, or copies when many are kept.
pub(super) struct OpenVinoSession {
    compiled: Compiled,
    requests: Arc<Pool<Request>>,
    /// Begun since the last sync; with one batch at a time, none.
    under_way: Vec<Arc<Slot>>,
    side_by_side: bool,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    device: String,
    threads: usize,
}

impl OpenVinoSession {
    /// Loads a file, with any number of rows.
    ///
    /// # Errors
    /// When the library, the device, a property or the file cannot be used, or OpenVINO would compute elsewhere or in
    /// another type than was asked for.
    pub(super) fn load(source: Source<'_>, settings: &Settings<'_>) -> Result<Self, EngineError> {
        let core = Core::new(&library::open(settings.library.as_deref())?).map_err(|said| understood(&said))?;
        let name = device_name(&core, settings)?;
        let compiled = compile(&core, source, settings)?;
        let placed = placed(&compiled, settings)?;
        let device = format!("{} {}", settings.device.to_lowercase(), name.unwrap_or(placed));
        // A device that has no threads of the processor does not know the property.
        let threads = compiled.property(THREADS).ok().and_then(|threads| threads.parse().ok()).unwrap_or(0);
        let infos = |ports: Outcome<Vec<Port>>| ports?.iter().map(info).collect::<Outcome<Vec<_>>>();
        let inputs = infos(compiled.inputs()).map_err(|said| understood(&said))?;
        let outputs = infos(compiled.outputs()).map_err(|said| understood(&said))?;
        let (inputs, outputs) = match source {
            Source::Model { graph: Some(graph), .. } => {
                (declared(&graph.inputs, &inputs)?, declared(&graph.outputs, &outputs)?)
            }
            _ => (inputs, outputs),
        };
        if let (Source::Model { path, .. }, Some(folder)) = (source, &settings.export) {
            export(&compiled, path, folder)?;
        }
        let (requests, under_way, side_by_side) = (Arc::default(), Vec::new(), settings.side_by_side);
        Ok(OpenVinoSession { compiled, requests, under_way, side_by_side, inputs, outputs, device, threads })
    }

    fn compute(&mut self, tensors: Vec<Tensor>) -> Outcome<Vec<Value>> {
        let slot = Arc::new(Slot::new(self.requests.lease(|| self.compiled.request())?));
        let each = self.outputs.iter().enumerate();
        if self.side_by_side && !tensors.is_empty() {
            slot.start(tensors)?;
            let outputs = each.map(|(index, info)| pending(&slot, index, &info.spec)).collect();
            self.under_way.push(slot);
            return Ok(outputs);
        }
        slot.infer(&tensors)?;
        if slot.pin() {
            return each.map(|(index, _)| output(&slot, index).map(Value::Host)).collect();
        }
        // Copying is no part of computing: it waits until the output is asked for.
        Ok(each.map(|(index, info)| pending(&slot, index, &info.spec)).collect())
    }
}

impl Drop for OpenVinoSession {
    /// What is under way reads weights that an imported model has mapped.
    fn drop(&mut self) {
        self.under_way.drain(..).for_each(|slot| _ = slot.wait());
        self.requests.close();
    }
}

/// The device's own name; refuses a device that is not there, or lacks the type. One over others has none.
fn device_name(core: &Core, settings: &Settings<'_>) -> Result<Option<String>, EngineError> {
    if settings.is_over_others() {
        return Ok(None);
    }
    let ask = |key| {
        core.property(settings.device, key).map_err(|said| {
            let has = core.devices().map_or_else(|_| String::new(), |devices| devices.join(", "));
            settings.refuse_device(format!("`{}` cannot be used: {} (there is: {has})", settings.device, plain(&said)))
        })
    };
    let word = if settings.precision == DType::F16 { "FP16" } else { "FP32" };
    let has = ask("OPTIMIZATION_CAPABILITIES")?;
    if !has.split_whitespace().any(|capability| capability == word) {
        let has = format!("on `{}`: {}", settings.device, has.to_lowercase().replace("fp", "f"));
        return Err(EngineError::Precision { engine: "openvino", asked: settings.precision, has });
    }
    ask("FULL_DEVICE_NAME").map(Some)
}

fn compile(core: &Core, source: Source<'_>, settings: &Settings<'_>) -> Result<Compiled, EngineError> {
    let properties: Vec<_> = settings.properties.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let refused = |path: &Path, said: &str| settings.refuse_property(said).unwrap_or_else(|| at(path, said));
    match source {
        Source::Model { path, .. } => {
            let model = core.read(path).map_err(|said| at(path, &said))?;
            core.compile(&model, settings.device, &properties).map_err(|said| refused(path, &said))
        }
        Source::Exported(path) => {
            for property in properties {
                core.set(settings.device, property).map_err(|said| refused(path, &said))?;
            }
            // SAFETY: a file that somebody else cuts off meanwhile ends the process; that is every mapped file's risk.
            let blob = File::open(path).and_then(|file| unsafe { Mmap::map(&file) });
            let blob = blob.map_err(|error| EngineError::Failed(format!("`{}`: {error}", path.display())))?;
            core.import(blob, settings.device).map_err(|said| at(path, &said))
        }
    }
}

/// Writes the compiled model of a file to a folder: `resnet50.onnx` becomes `resnet50.blob`.
fn export(compiled: &Compiled, model: &Path, folder: &Path) -> Result<(), EngineError> {
    let unwritten = |error: std::io::Error| EngineError::Failed(format!("`{}`: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(unwritten)?;
    let path = folder.join(model.with_extension("blob").file_name().unwrap_or_default());
    compiled.export(&path).map_err(|said| at(&path, &said))
}

/// The devices that it runs on; refuses a model that computes elsewhere or in another type than was asked for.
fn placed(compiled: &Compiled, settings: &Settings<'_>) -> Result<String, EngineError> {
    let ask = |key| compiled.property(key).map_err(|said| understood(&said));
    let devices = ask("EXECUTION_DEVICES")?;
    let other = |device: &str| !device.starts_with(settings.device);
    if !settings.is_over_others() && devices.split_whitespace().any(other) {
        return Err(settings.refuse_device(format!("the model would run on `{devices}`, not on `{}`", settings.device)));
    }
    let each = if settings.is_over_others() {
        precisions(&ask("DEVICE_PROPERTIES")?).into_iter().map(str::to_owned).collect()
    } else {
        vec![ask(PRECISION)?]
    };
    let asked = settings.precision.to_string();
    if each.is_empty() || each.iter().any(|real| *real != asked) {
        let (device, real) = (settings.device, each.join(", "));
        let reason = format!("`{device}` would compute in `{real}`, it was to compute in `{asked}`");
        return Err(EngineError::Failed(reason));
    }
    Ok(devices)
}

/// The type of each device in what a device over others says of them: `{CPU:{..,INFERENCE_PRECISION_HINT:f32,..}}`.
fn precisions(properties: &str) -> Vec<&str> {
    let values = properties.split(PRECISION).skip(1).filter_map(|rest| rest.strip_prefix(':'));
    values.filter_map(|rest| rest.split([',', '}']).next()).collect()
}

/// An error about a file.
fn at(path: &Path, said: &str) -> EngineError {
    match understood(said) {
        EngineError::Failed(reason) => EngineError::Failed(format!("`{}`: {reason}", path.display())),
        other => other,
    }
}

/// What an input or output is, as the compiled model tells it.
fn info(port: &Port) -> Outcome<ValueInfo> {
    let name = port.name()?;
    let dims = port.dims()?.ok_or_else(|| format!("`{name}` has an open number of dimensions"))?;
    let dims = dims.into_iter().map(|size| size.map_or(Dim::Unknown, Dim::Fixed)).collect();
    Ok(ValueInfo { spec: TensorSpec { dims, dtype: ours(port.element_type()?)? }, name })
}

/// What the file says of its inputs or outputs: OpenVINO forgets names of dimensions and renames values.
fn declared(file: &[ValueInfo], compiled: &[ValueInfo]) -> Result<Vec<ValueInfo>, EngineError> {
    let alike = |(file, compiled): (&ValueInfo, &ValueInfo)| {
        file.spec.dtype == compiled.spec.dtype && file.spec.dims.len() == compiled.spec.dims.len()
    };
    if file.len() == compiled.len() && file.iter().zip(compiled).all(alike) {
        return Ok(file.to_vec());
    }
    let list = |infos: &[ValueInfo]| {
        infos.iter().map(|info| format!("`{}` {}", info.name, info.spec)).collect::<Vec<_>>().join(", ")
    };
    let (file, compiled) = (list(file), list(compiled));
    Err(EngineError::Failed(format!("OpenVINO made {compiled} of the model's {file}")))
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

    fn submit(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.inputs, inputs)?;
        let tensors = inputs.iter().map(Value::to_host).collect::<Result<Vec<_>, _>>()?;
        self.compute(tensors).map_err(|said| understood(&said))
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        let waited: Vec<Outcome<()>> = self.under_way.drain(..).map(|slot| slot.wait()).collect();
        waited.into_iter().collect::<Outcome<()>>().map_err(|said| understood(&said))
    }

    fn device(&self) -> String {
        self.device.clone()
    }

    fn threads(&self) -> usize {
        self.threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_every_device_is_read() {
        let said =
            "{CPU:{A:1,INFERENCE_PRECISION_HINT:f32,B:INFERENCE_PRECISION_HINT C},GPU:{INFERENCE_PRECISION_HINT:f16}}";
        assert_eq!(precisions(said), ["f32", "f16"]);
        assert!(precisions("{}").is_empty());
    }

    #[test]
    fn inputs_that_openvino_made_something_else_of_are_refused() {
        let info = |name: &str, spec: &str| ValueInfo { name: name.to_owned(), spec: spec.parse().unwrap() };
        let file = [info("x", "N,3,f32")];
        assert_eq!(declared(&file, &[info("x/renamed", "?,3,f32")]).unwrap(), file);
        for other in [&[info("x", "?,3,f16")][..], &[info("x", "?,3,1,f32")], &[]] {
            let error = declared(&file, other).unwrap_err().to_string();
            assert!(error.ends_with("of the model's `x` N,3,f32"), "{error}");
        }
    }
}
