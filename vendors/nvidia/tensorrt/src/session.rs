//! A loaded model: an engine that was built or read, and the GPU that runs it.

use std::path::{Path, PathBuf};

use flagperf_plugin::{Artifact, Error, Input, LentMemory, Load, Output, Session, ValueInfo};

use crate::building;
use crate::cuda::Gpu;
use crate::flavour::{BOUND_TO_GPU, TITLE};
use crate::kept::{self, Description};
use crate::library;
use crate::memory::PinnedBuffer;
use crate::options::{Device, Options};
use crate::questions;
use crate::running::Running;
use crate::tensor::GpuTensor;
use crate::values::Value;

/// A loaded model.
pub struct TensorRtSession {
    pub(crate) inputs: Vec<Value>,
    pub(crate) outputs: Vec<Value>,
    /// What the engine was built for; unknown of a file of somebody else's.
    pub(crate) description: Option<Description>,
    /// Not there when the engine was only to be built and kept.
    pub(crate) running: Option<Running>,
}

impl TensorRtSession {
    /// Builds an engine from an ONNX file, or reads one.
    pub(crate) fn load(load: &Load<'_>) -> Result<Self, Error> {
        let options = Options::read(load.options)?;
        for plugin in &options.plugins {
            library::open_plugin(plugin)?;
        }
        match load.artifact {
            Artifact::Onnx(model) => Self::build(model, load, &options),
            Artifact::Compiled(engine) => Self::read(engine, &options),
        }
    }

    fn build(model: &Path, load: &Load<'_>, options: &Options) -> Result<Self, Error> {
        // Before minutes are spent on an engine for a GPU that is not there.
        let gpu = match options.device {
            Device::Cuda(index) => Some(Gpu::open(index)?),
            Device::None if options.trt_tmp_path.is_some() => None,
            Device::None => return Err(refuse("`none` has nothing to do without `trt_tmp_path`")),
        };
        let built = building::build(model, options, load.batch_size)?;
        let description = Description {
            library: TITLE.to_owned(),
            version: library::open()?.to_owned(),
            gpu: gpu.as_ref().map(|gpu| gpu.facts.clone()),
            model: model.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            precision: load.precision.name().to_owned(),
            profiles: options.profiles.clone(),
        };
        if let Some(path) = &options.trt_tmp_path {
            kept::keep(&place(path, load.log_folder), &built.engine, &description)?;
        }
        let (inputs, outputs) = (built.inputs, built.outputs);
        let values = Some([inputs.clone(), outputs.clone()]);
        let running = gpu.map(|gpu| Running::new(&gpu, &built.engine, options, &description.profiles, values));
        Ok(TensorRtSession { inputs, outputs, description: Some(description), running: running.transpose()? })
    }

    fn read(path: &Path, options: &Options) -> Result<Self, Error> {
        let Device::Cuda(index) = options.device else { return Err(refuse("`none` builds engines, and loads none")) };
        if !options.profiles.is_empty() {
            let reason = "an engine that is loaded has the profiles that it was built with".to_owned();
            return Err(Error::BadOption { option: "has_dynamic_axis".to_owned(), reason });
        }
        let (engine, description) = kept::read(path)?;
        if let Some(description) = &description {
            description.check_library(path, library::open()?)?;
        }
        let gpu = Gpu::open(index)?;
        if let Some(description) = description.as_ref().filter(|_| BOUND_TO_GPU) {
            description.check_gpu(path, &gpu.facts)?;
        }
        let profiles = description.as_ref().map(|description| description.profiles.as_slice()).unwrap_or_default();
        let running = Running::new(&gpu, &engine, options, profiles, None)?;
        let [inputs, outputs] = running.values();
        Ok(TensorRtSession { inputs, outputs, description, running: Some(running) })
    }

    /// What runs, or why nothing does.
    pub(crate) fn running(&mut self) -> Result<&mut Running, Error> {
        let nothing = || Error::failed("the engine was built for no device (`device: none`), it cannot be run here");
        self.running.as_mut().ok_or_else(nothing)
    }
}

/// FlagPerf counts `trt_tmp_path` from the folder of the logs.
fn place(path: &Path, log_folder: Option<&Path>) -> PathBuf {
    log_folder.map_or_else(|| path.to_owned(), |folder| folder.join(path))
}

fn refuse(reason: &str) -> Error {
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

    /// Pinned memory, from which a GPU reads by itself.
    fn lend(&mut self, _: usize, bytes: usize) -> Result<Option<Box<dyn LentMemory>>, Error> {
        let Some(running) = &self.running else { return Ok(None) };
        PinnedBuffer::new(running.gpu(), bytes).map(|memory| Some(Box::new(memory) as Box<dyn LentMemory>))
    }

    fn submit(&mut self, inputs: &[Input<'_, GpuTensor>]) -> Result<Vec<Output<GpuTensor>>, Error> {
        self.running()?.submit(inputs)
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.running.as_ref().map_or(Ok(()), Running::wait)
    }

    fn copy_to_host(&mut self, tensor: &GpuTensor, to: &mut [u8]) -> Result<(), Error> {
        self.running()?.download(tensor, to)
    }

    fn device_memory(&self) -> Option<u64> {
        self.running.as_ref()?.gpu().memory_in_use()
    }

    fn device(&self) -> String {
        let gpu = self.running.as_ref().map(Running::gpu);
        gpu.map_or_else(|| "none".to_owned(), |gpu| format!("cuda:{} {}", gpu.index, gpu.facts.name))
    }

    fn ask(&mut self, question: &str, argument: &str) -> Result<String, Error> {
        questions::ask(self, question, argument)
    }

    fn tune(&mut self, setting: &str, value: &str) -> Result<(), Error> {
        questions::tune(self, setting, value)
    }
}
