//! A loaded model. On the CPU, inputs and outputs are not copied; on a device, outputs stay there until they are
//! fetched.

use std::ops::Range;
use std::slice;
use std::thread::available_parallelism;

use flagperf_onnx::{GRADIENT, ValueInfo as OnnxValue, read_onnx};
use flagperf_onnx_exec::{Executor, OpError};
use flagperf_plugin::{Artifact, DType, Error, HostMemory, Input, LentMemory, Load, Output, Session, ValueInfo};
use tch::{Device, Tensor};

use crate::capture::OwnStream;
use crate::captured_run::CapturedRun;
use crate::cuda;
use crate::device_lock::DeviceLock;
use crate::device_output::DeviceOutput;
use crate::executor_error;
use crate::group::Group;
use crate::library::requested_bytes;
use crate::operators::Operators;
use crate::ops::TorchOps;
use crate::options::TorchOptions;
use crate::profile::{OPERATOR_TIMES, Profile, replayed_error};
use crate::ranges;
use crate::shim::{RunMode, allocate_pinned, copy_all, keep_freed_memory, prepare_devices};
use crate::tensor::{self, TorchTensor, sizes, torch_error};

/// A model loaded by libtorch.
pub struct TorchSession {
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    executor: Executor<TorchOps>,
    /// Whether the graph contains gradients that libtorch computes.
    differentiates: bool,
    threads: usize,
    device: Device,
    /// One captured run for each set of input shapes; `None` when runs are not captured.
    captured: Option<Vec<CapturedRun>>,
    /// The stream of the runs; `None` for that of all sessions.
    own_stream: Option<OwnStream>,
    /// The times of operators, when they are kept.
    profile: Option<Profile>,
    /// Whether runs and operators are ranges of an attached profiler.
    has_profiler: bool,
}

impl TorchSession {
    /// Loads an ONNX file.
    ///
    /// # Errors
    /// When libtorch does not support an option, the type or an operator, or the device is missing.
    pub(crate) fn load(load: &Load<'_>) -> Result<Self, Error> {
        let options = TorchOptions::read(load.options)?;
        options.check(load.precision)?;
        if let Device::Cuda(index) = options.device {
            cuda::open(index)?;
            prepare_devices(options.tf32);
        } else {
            keep_freed_memory();
        }
        let threads = if load.threads == 0 { available_parallelism().map_or(1, usize::from) } else { load.threads };
        set_threads(threads);
        let (Artifact::Onnx(path) | Artifact::Compiled(path)) = load.artifact;
        let graph = read_onnx(path).map_err(Error::failed)?;
        let differentiates = graph.nodes.iter().any(|node| node.op == GRADIENT);
        let (_lock, _mode) = (DeviceLock::shared(), RunMode::begin(differentiates));
        let is_beside = options.own_stream;
        let own_stream = match options.device {
            Device::Cuda(index) if is_beside => Some(OwnStream::new(index)?),
            _ => None,
        };
        let TorchOptions {
            device,
            channels_last,
            fused_convolutions,
            fused_elementwise,
            cuda_graph,
            operators,
            placement,
            group,
            ..
        } = options;
        let operators = Operators::open(&operators, device, placement)?;
        let group = group.map(|group| Group::join(&group, device)).transpose()?;
        let ops =
            TorchOps { channels_last, fused_convolutions, fused_elementwise, operators, group, ..TorchOps::on(device) };
        Ok(TorchSession {
            inputs: graph.inputs.iter().map(info).collect(),
            outputs: graph.outputs.iter().map(info).collect(),
            executor: Executor::load(&graph, ops).map_err(executor_error)?,
            differentiates,
            threads,
            device,
            captured: (cuda_graph && !is_beside).then(Vec::new),
            own_stream,
            profile: None,
            has_profiler: ranges::has_profiler(),
        })
    }

    /// Replays the captured run for inputs of these shapes, or captures it first.
    fn replay(&mut self, device_index: usize, inputs: &[Input<'_, DeviceOutput>]) -> Result<Vec<DeviceOutput>, Error> {
        let (device, executor) = (self.device, &self.executor);
        let captured = self.captured.as_mut().expect("the caller checked that runs are captured");
        let run_index = captured.iter().position(|run| run.matches(inputs));
        let run_index = match run_index {
            Some(run_index) => run_index,
            None => {
                captured.push(CapturedRun::capture(device_index, executor, &to_tensors(device, inputs)?)?);
                captured.len() - 1
            }
        };
        captured[run_index].replay(device, inputs)
    }

    /// Starts to compute on the current stream.
    fn compute(&mut self, inputs: &[Input<'_, DeviceOutput>]) -> Result<Vec<Output<DeviceOutput>>, Error> {
        if let (Device::Cuda(device_index), true) = (self.device, self.captured.is_some()) {
            return Ok(self.replay(device_index, inputs)?.into_iter().map(Output::Device).collect());
        }
        let mut tensors = to_tensors(self.device, inputs)?;
        if self.differentiates {
            tensors = tensors.into_iter().map(as_recordable).collect::<Result<_, _>>()?;
        }
        let outputs = self.execute(tensors)?;
        let ranges: Vec<Range<usize>> = inputs.iter().filter_map(address_range).collect();
        outputs.into_iter().map(|output| self.to_output(output, &ranges)).collect()
    }

    /// Runs the executor on copies of the inputs that a run changes: the host may still read them.
    fn execute(&mut self, mut inputs: Vec<TorchTensor>) -> Result<Vec<TorchTensor>, Error> {
        let changed = self.executor.changed_inputs().iter().chain(self.executor.overwritten_inputs());
        let own = duplicate_all(changed.clone().map(|i| &inputs[*i]))?;
        changed.zip(own).for_each(|(i, own)| inputs[*i] = own);
        match &mut self.profile {
            None if self.has_profiler => ranges::run(&self.executor, inputs).map_err(executor_error),
            None => self.executor.run(inputs).map_err(executor_error),
            Some(profile) => profile.run(&self.executor, inputs),
        }
    }

    /// Wraps an output for the host: on a device it stays there, and on the CPU it is copied when it would share the
    /// memory of an input.
    fn to_output(&self, tensor: TorchTensor, inputs: &[Range<usize>]) -> Result<Output<DeviceOutput>, Error> {
        let contiguous = tensor.0.f_detach().and_then(|output| output.f_contiguous());
        let contiguous = contiguous.map_err(|error| to_plugin_error(torch_error(error)))?;
        if tensor.0.device() != Device::Cpu {
            return Ok(Output::Device(DeviceOutput::new(TorchTensor(contiguous))));
        }
        let address = tensor.0.data_ptr() as usize;
        let shares_input = inputs.iter().any(|input| input.contains(&address));
        let own = if shares_input { duplicate_all([&TorchTensor(contiguous)])?.remove(0).0 } else { contiguous };
        let (shape, dtype) = (tensor::shape(&own), plugin_dtype(&own)?);
        Ok(Output::Host { shape, dtype, memory: Box::new(HostOutput(TorchTensor(own))) })
    }
}

impl Drop for TorchSession {
    fn drop(&mut self) {
        let _lock = DeviceLock::shared();
        self.captured = None;
    }
}

impl Session for TorchSession {
    type Tensor = DeviceOutput;

    fn inputs(&self) -> Vec<ValueInfo> {
        self.inputs.clone()
    }

    fn outputs(&self) -> Vec<ValueInfo> {
        self.outputs.clone()
    }

    /// Lends pinned memory, which a device reads directly. On the CPU the host's own memory is equally fast.
    fn lend(&mut self, _: usize, bytes: usize) -> Result<Option<Box<dyn LentMemory>>, Error> {
        if self.device == Device::Cpu {
            return Ok(None);
        }
        let _lock = DeviceLock::shared();
        let memory = allocate_pinned(bytes).ok_or(Error::OutOfMemory { bytes: bytes as u64 })?;
        Ok(Some(Box::new(PinnedMemory(memory))))
    }

    fn submit(&mut self, inputs: &[Input<'_, DeviceOutput>]) -> Result<Vec<Output<DeviceOutput>>, Error> {
        set_threads(self.threads);
        let captures = self.captured.as_ref().is_some_and(|runs| !runs.iter().any(|run| run.matches(inputs)));
        let _lock = if captures { DeviceLock::exclusive() } else { DeviceLock::shared() };
        let _mode = RunMode::begin(self.differentiates);
        match self.own_stream.take() {
            None => self.compute(inputs),
            Some(stream) => {
                let outputs = stream.use_during(|| self.compute(inputs));
                self.own_stream = Some(stream);
                outputs
            }
        }
    }

    fn sync(&mut self) -> Result<(), Error> {
        if let Device::Cuda(device_index) = self.device {
            let _lock = DeviceLock::shared();
            tch::Cuda::synchronize(device_index as i64);
        }
        Ok(())
    }

    fn copy_to_host(&mut self, output: &DeviceOutput, to: &mut [u8]) -> Result<(), Error> {
        let _lock = DeviceLock::shared();
        tensor::download(&output.tensor()?.0, to).map_err(to_plugin_error)
    }

    fn device_memory(&self) -> Option<u64> {
        match self.device {
            Device::Cuda(_) => cuda::memory_in_use(),
            _ => None,
        }
    }

    fn device(&self) -> String {
        match self.device {
            Device::Cuda(index) => {
                format!("cuda:{index} {}", cuda::name(index).unwrap_or_default()).trim_end().to_owned()
            }
            _ => "cpu".to_owned(),
        }
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn ask(&mut self, question: &str, _: &str) -> Result<String, Error> {
        match (question, &mut self.profile) {
            (OPERATOR_TIMES, Some(profile)) => profile.take(),
            _ => Err(Error::unknown(question, &[OPERATOR_TIMES])),
        }
    }

    fn tune(&mut self, setting: &str, value: &str) -> Result<(), Error> {
        match setting {
            OPERATOR_TIMES if self.captured.is_some() => Err(replayed_error()),
            OPERATOR_TIMES => {
                self.profile = (value == "true").then(Profile::default);
                Ok(())
            }
            _ => Err(Error::unknown(setting, &[OPERATOR_TIMES])),
        }
    }
}

/// A dense output on the CPU.
struct HostOutput(TorchTensor);

impl HostMemory for HostOutput {
    fn bytes(&self) -> &[u8] {
        let tensor = &self.0.0;
        let bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
        if bytes == 0 {
            return &[];
        }
        // SAFETY: the tensor is dense, so it owns `bytes` bytes at this address while it lives; nothing writes to it.
        unsafe { slice::from_raw_parts(tensor.data_ptr().cast::<u8>().cast_const(), bytes) }
    }
}

/// Pinned memory, in a tensor of bytes.
struct PinnedMemory(Tensor);

impl LentMemory for PinnedMemory {
    fn bytes_mut(&mut self) -> &mut [u8] {
        if self.0.numel() == 0 {
            return &mut [];
        }
        // SAFETY: the tensor is dense, consists of bytes and outlives the slice; nothing else refers to it.
        unsafe { slice::from_raw_parts_mut(self.0.data_ptr().cast(), self.0.numel()) }
    }
}

/// Wraps inputs without a copy, or starts copying them to the device. The host leaves their memory unchanged until everything has
/// been computed.
pub(crate) fn to_tensors(device: Device, inputs: &[Input<'_, DeviceOutput>]) -> Result<Vec<TorchTensor>, Error> {
    inputs.iter().map(|input| to_tensor(device, input)).collect()
}

fn to_tensor(device: Device, input: &Input<'_, DeviceOutput>) -> Result<TorchTensor, Error> {
    let view = match input {
        Input::Own(own) => return own.tensor(),
        Input::Host(view) => view,
    };
    let (size, kind) = (sizes(view.shape), tensor::kind(dtype(view.dtype)?).map_err(to_plugin_error)?);
    let strides: Vec<i64> = (0..size.len()).map(|axis| size[axis + 1..].iter().product()).collect();
    // SAFETY: the bytes match the shape and type, dense and row-major, and the host leaves them unchanged until
    // `sync` has returned; outputs that would share them are copied.
    let tensor = unsafe { Tensor::f_from_blob(view.bytes.as_ptr(), &size, &strides, kind, Device::Cpu) };
    let tensor = match device {
        Device::Cpu => tensor,
        device => tensor.and_then(|x| x.f_to_device_(device, kind, true, false)),
    };
    tensor.map(TorchTensor).map_err(|error| to_plugin_error(torch_error(error)))
}

/// Returns the tensor in the same memory, in a form of which computations can be recorded: the output of a session that records
/// nothing is not. The host keeps inputs until the session is synchronised.
fn as_recordable(tensor: TorchTensor) -> Result<TorchTensor, Error> {
    let x = &tensor.0;
    if !x.is_inference() {
        return Ok(tensor);
    }
    // SAFETY: the memory has this shape, these strides and this type, and the host keeps its tensor until `sync` has returned.
    let same = unsafe { Tensor::f_from_blob(x.data_ptr().cast(), &x.size(), &x.stride(), x.kind(), x.device()) };
    same.map(TorchTensor).map_err(|error| to_plugin_error(torch_error(error)))
}

/// Copies tensors to new memory.
pub(crate) fn duplicate_all<'a>(tensors: impl IntoIterator<Item = &'a TorchTensor>) -> Result<Vec<TorchTensor>, Error> {
    let tensors: Vec<&TorchTensor> = tensors.into_iter().collect();
    let own = tensors.iter().map(|tensor| tensor.0.f_empty_like().map(TorchTensor));
    let own = own.collect::<Result<Vec<_>, _>>().map_err(|error| to_plugin_error(torch_error(error)))?;
    copy_all(&own.iter().collect::<Vec<_>>(), &tensors).map_err(to_plugin_error)?;
    Ok(own)
}

/// Sets libtorch's number of threads, which is global but partly stored in each computing thread.
fn set_threads(threads: usize) {
    let threads = i32::try_from(threads).unwrap_or(i32::MAX);
    if tch::get_num_threads() != threads {
        tch::set_num_threads(threads);
    }
}

/// Returns the address range of an input in host memory.
fn address_range(input: &Input<'_, DeviceOutput>) -> Option<Range<usize>> {
    let Input::Host(view) = input else { return None };
    let start = view.bytes.as_ptr() as usize;
    Some(start..start + view.bytes.len())
}

fn info(info: &OnnxValue) -> ValueInfo {
    ValueInfo { name: info.name.clone(), spec: info.spec.to_string() }
}

fn dtype(dtype: DType) -> Result<flagperf_onnx::DType, Error> {
    dtype.name().parse().map_err(Error::failed)
}

pub(crate) fn plugin_dtype(tensor: &Tensor) -> Result<DType, Error> {
    let name = tensor::dtype(tensor.kind()).name();
    DType::from_name(name).ok_or_else(|| Error::failed(format!("the interface has no type `{name}`")))
}

/// Converts an error of libtorch outside the graph, and recognizes failed allocations.
pub(crate) fn to_plugin_error(error: OpError) -> Error {
    let message = error.to_string();
    requested_bytes(&message).map_or_else(|| Error::failed(error), |bytes| Error::OutOfMemory { bytes })
}
