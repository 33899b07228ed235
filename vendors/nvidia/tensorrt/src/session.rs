//! A loaded model: an engine that was built from an ONNX file or read from a file.

use std::path::{Path, PathBuf};

use flagperf_plugin::{Artifact, Error, Input, LentMemory, Load, Output, Session, ValueInfo};

use crate::builder;
use crate::cuda::Gpu;
use crate::engine_file::{self, Description};
use crate::gpu_engine::GpuEngine;
use crate::library;
use crate::memory::PinnedBuffer;
use crate::options::{Device, TensorRtOptions};
use crate::questions;
use crate::tensor::GpuTensor;
use crate::values::Value;
use crate::variant::{BOUND_TO_GPU, TITLE};

/// A loaded model.
pub struct TensorRtSession {
    pub(crate) inputs: Vec<Value>,
    pub(crate) outputs: Vec<Value>,
    /// The engine's description; `None` for a file that another program wrote.
    pub(crate) description: Option<Description>,
    /// The engine on its GPU; `None` with `device: none`, when the engine is only built and written.
    pub(crate) gpu_engine: Option<GpuEngine>,
}

impl TensorRtSession {
    /// Builds an engine from an ONNX file, or reads an engine file.
    pub(crate) fn load(load: &Load<'_>) -> Result<Self, Error> {
        let options = TensorRtOptions::read(load.options)?;
        for plugin in &options.plugins {
            library::open_plugin(plugin)?;
        }
        for (name, folder) in &options.operators {
            library::open_operator(name, folder)?;
        }
        if !(options.plugins.is_empty() && options.operators.is_empty()) {
            library::check_parser()?;
        }
        match load.artifact {
            Artifact::Onnx(model) => Self::build(model, load, &options),
            Artifact::Compiled(engine) => Self::read(engine, &options),
        }
    }

    fn build(model: &Path, load: &Load<'_>, options: &TensorRtOptions) -> Result<Self, Error> {
        // Checked first, because building an engine for a missing GPU would waste minutes.
        let gpu = match options.device {
            Device::Cuda(index) => Some(Gpu::open(index)?),
            Device::None if options.trt_tmp_path.is_some() => None,
            Device::None => return Err(device_error("`none` requires `trt_tmp_path`, to store the engine")),
        };
        let built = builder::build(model, options, load.batch_size)?;
        let description = Description {
            library: TITLE.to_owned(),
            version: library::open()?.to_owned(),
            gpu: gpu.as_ref().map(|gpu| gpu.description.clone()),
            model: model.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            precision: load.precision.name().to_owned(),
            profiles: options.profiles.clone(),
        };
        if let Some(path) = &options.trt_tmp_path {
            engine_file::write(&resolve(path, load.log_folder), &built.engine, &description)?;
        }
        let (inputs, outputs) = (built.inputs, built.outputs);
        let values = Some([inputs.clone(), outputs.clone()]);
        let gpu_engine = gpu.map(|gpu| GpuEngine::new(&gpu, &built.engine, options, &description.profiles, values));
        Ok(TensorRtSession { inputs, outputs, description: Some(description), gpu_engine: gpu_engine.transpose()? })
    }

    fn read(path: &Path, options: &TensorRtOptions) -> Result<Self, Error> {
        let Device::Cuda(index) = options.device else {
            return Err(device_error("`none` can only build an engine, not load one"));
        };
        if !options.profiles.is_empty() {
            let reason = "a loaded engine always uses the profiles that it was built with".to_owned();
            return Err(Error::BadOption { option: "has_dynamic_axis".to_owned(), reason });
        }
        let (engine, description) = engine_file::read(path)?;
        if let Some(description) = &description {
            description.check_library(path, library::open()?)?;
        }
        let gpu = Gpu::open(index)?;
        if let Some(description) = description.as_ref().filter(|_| BOUND_TO_GPU) {
            description.check_gpu(path, &gpu.description)?;
        }
        let profiles = description.as_ref().map(|description| description.profiles.as_slice()).unwrap_or_default();
        let gpu_engine = GpuEngine::new(&gpu, &engine, options, profiles, None)?;
        let [inputs, outputs] = gpu_engine.values();
        Ok(TensorRtSession { inputs, outputs, description, gpu_engine: Some(gpu_engine) })
    }

    /// Returns the engine on its GPU.
    ///
    /// # Errors
    /// When the engine was built with `device: none`.
    pub(crate) fn gpu_engine(&mut self) -> Result<&mut GpuEngine, Error> {
        let not_loaded = || Error::failed("the engine was only built, because of `device: none`, and cannot be run");
        self.gpu_engine.as_mut().ok_or_else(not_loaded)
    }
}

/// Resolves `trt_tmp_path` against the folder of the logs, as FlagPerf does.
fn resolve(path: &Path, log_folder: Option<&Path>) -> PathBuf {
    log_folder.map_or_else(|| path.to_owned(), |folder| folder.join(path))
}

fn device_error(reason: &str) -> Error {
    Error::BadOption { option: "device".to_owned(), reason: reason.to_owned() }
}

impl Session for TensorRtSession {
    type Tensor = GpuTensor;

    fn inputs(&self) -> Vec<ValueInfo> {
        self.inputs.iter().map(Value::info).collect()
    }

    fn outputs(&self) -> Vec<ValueInfo> {
        self.outputs.iter().map(Value::info).collect()
    }

    /// Lends pinned memory, which a GPU reads directly.
    fn lend(&mut self, _: usize, bytes: usize) -> Result<Option<Box<dyn LentMemory>>, Error> {
        let Some(gpu_engine) = &self.gpu_engine else { return Ok(None) };
        PinnedBuffer::new(gpu_engine.gpu(), bytes).map(|memory| Some(Box::new(memory) as Box<dyn LentMemory>))
    }

    fn submit(&mut self, inputs: &[Input<'_, GpuTensor>]) -> Result<Vec<Output<GpuTensor>>, Error> {
        self.gpu_engine()?.submit(inputs)
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.gpu_engine.as_ref().map_or(Ok(()), GpuEngine::wait)
    }

    fn copy_to_host(&mut self, tensor: &GpuTensor, to: &mut [u8]) -> Result<(), Error> {
        self.gpu_engine()?.download(tensor, to)
    }

    fn device_memory(&self) -> Option<u64> {
        self.gpu_engine.as_ref()?.gpu().memory_in_use()
    }

    fn device(&self) -> String {
        let gpu = self.gpu_engine.as_ref().map(GpuEngine::gpu);
        gpu.map_or_else(|| "none".to_owned(), |gpu| format!("cuda:{} {}", gpu.index, gpu.description.name))
    }

    fn ask(&mut self, question: &str, argument: &str) -> Result<String, Error> {
        questions::ask(self, question, argument)
    }

    fn tune(&mut self, setting: &str, value: &str) -> Result<(), Error> {
        questions::tune(self, setting, value)
    }
}
