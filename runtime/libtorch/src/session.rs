//! A loaded model: inputs read where they lie, outputs lent as they lie in memory or kept on their device.

use std::ops::Range;
use std::slice;
use std::thread::available_parallelism;

use flagperf_onnx::exec::{Executor, OpError};
use flagperf_onnx::{ValueInfo as OnnxValue, read_onnx};
use flagperf_plugin::dlpack::{DLDevice, DLDeviceType};
use flagperf_plugin::{
    Artifact, DType, DeviceTensor, Error, HostMemory, Input, LentMemory, Load, Output, Session, ValueInfo,
};
use tch::{Device, Tensor};

use crate::capture::Captured;
use crate::cuda;
use crate::failed;
use crate::library::memory_asked_for;
use crate::ops::TorchOps;
use crate::options::Options;
use crate::shim::{InferenceMode, pinned, prepare_devices};
use crate::tensor::{self, Shared, sizes, torch_error};
use crate::turn::Turn;

/// A graph that libtorch runs.
pub struct TorchSession {
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    executor: Executor<TorchOps>,
    threads: usize,
    device: Device,
    /// One for each shape of the inputs, when runs are captured.
    captured: Option<Vec<Replay>>,
}

/// A captured run: what it reads and writes stays where it is.
struct Replay {
    inputs: Vec<Shared>,
    outputs: Vec<Shared>,
    run: Captured,
}

/// Runs before one is captured: PyTorch's own number, in which libraries choose their algorithms.
const WARMUPS: usize = 3;

impl TorchSession {
    /// Loads an ONNX file.
    ///
    /// # Errors
    /// When an option, the type or an operator is not what libtorch takes, or the device is not there.
    pub(crate) fn load(load: &Load<'_>) -> Result<Self, Error> {
        let options = Options::read(load.options)?;
        options.check(load.precision)?;
        if let Device::Cuda(index) = options.device {
            cuda::open(index)?;
            prepare_devices();
        }
        let threads = if load.threads == 0 { available_parallelism().map_or(1, usize::from) } else { load.threads };
        set_threads(threads);
        let (_turn, _inference) = (Turn::among_others(), InferenceMode::begin());
        let (Artifact::Onnx(path) | Artifact::Compiled(path)) = load.artifact;
        let graph = read_onnx(path).map_err(Error::failed)?;
        let Options { device, channels_last, fused_convolutions, cuda_graph } = options;
        let ops = TorchOps { device, channels_last, fused_convolutions };
        Ok(TorchSession {
            inputs: graph.inputs.iter().map(info).collect(),
            outputs: graph.outputs.iter().map(info).collect(),
            executor: Executor::load(&graph, ops).map_err(failed)?,
            threads,
            device,
            captured: cuda_graph.then(Vec::new),
        })
    }

    /// An input where it lies, or on its way to the device: it stays as it is until everything is computed.
    fn feed(&self, input: &Input<'_, Kept>) -> Result<Shared, Error> {
        let view = match input {
            Input::Own(own) => return Ok(own.0.clone()),
            Input::Host(view) => view,
        };
        let (size, kind) = (sizes(view.shape), tensor::kind(dtype(view.dtype)?));
        let strides: Vec<i64> = (0..size.len()).map(|axis| size[axis + 1..].iter().product()).collect();
        // SAFETY: the bytes are as many as the shape and type need, dense and row-major, and the host leaves them as
        // they are until `sync` has returned; outputs that would share them are copied.
        let there = unsafe { Tensor::f_from_blob(view.bytes.as_ptr(), &size, &strides, kind, Device::Cpu) };
        let there = match self.device {
            Device::Cpu => there,
            device => there.and_then(|x| x.f_to_device_(device, kind, true, false)),
        };
        there.map(Shared).map_err(|error| lacking(torch_error(error)))
    }

    /// Which captured run has inputs of these shapes, if there is one.
    fn captured_for(&self, inputs: &[Input<'_, Kept>]) -> Option<usize> {
        self.captured.as_ref()?.iter().position(|replay| replay.is_of(inputs))
    }

    /// Runs what was captured for inputs of these shapes, or captures it first. Gives copies: the next run overwrites.
    fn replay(&mut self, index: usize, place: Option<usize>, given: &[Shared]) -> Result<Vec<Shared>, Error> {
        let captured = self.captured.as_mut().expect("asked before");
        let place = match place {
            Some(place) => place,
            None => {
                captured.push(Replay::capture(index, &self.executor, given)?);
                captured.len() - 1
            }
        };
        let replay = &captured[place];
        for (kept, given) in replay.inputs.iter().zip(given) {
            copy(&kept.0, &given.0)?;
        }
        replay.run.replay()?;
        replay.outputs.iter().map(|output| duplicate(&output.0)).collect()
    }

    fn give(&self, made: Shared, inputs: &[Range<usize>]) -> Result<Output<Kept>, Error> {
        if made.0.device() != Device::Cpu {
            return made.0.f_contiguous().map(|x| Output::Device(Kept(Shared(x)))).map_err(|e| lacking(torch_error(e)));
        }
        let begins = made.0.data_ptr() as usize;
        let borrowed = inputs.iter().any(|input| input.contains(&begins));
        let own = made.0.f_contiguous().map_err(|error| lacking(torch_error(error)))?;
        let own = if borrowed { duplicate(&own)?.0 } else { own };
        let (shape, dtype) = (tensor::shape(&own), dtype_of(&own)?);
        Ok(Output::Host { shape, dtype, memory: Box::new(Memory(Shared(own))) })
    }
}

impl Drop for TorchSession {
    fn drop(&mut self) {
        let _turn = Turn::among_others();
        self.captured = None;
    }
}

impl Replay {
    /// Whether its inputs have the shapes of these.
    fn is_of(&self, inputs: &[Input<'_, Kept>]) -> bool {
        let size = |input: &Input<'_, Kept>| match input {
            Input::Own(own) => own.0.0.size(),
            Input::Host(view) => sizes(view.shape),
        };
        self.inputs.iter().map(|kept| kept.0.size()).eq(inputs.iter().map(size))
    }

    fn capture(index: usize, executor: &Executor<TorchOps>, given: &[Shared]) -> Result<Self, Error> {
        let inputs: Vec<Shared> = given.iter().map(|given| duplicate(&given.0)).collect::<Result<_, _>>()?;
        tch::Cuda::synchronize(index as i64);
        let (run, outputs) = Captured::capture(index, WARMUPS, || executor.run(inputs.clone()).map_err(failed))?;
        Ok(Replay { inputs, outputs, run })
    }
}

impl Session for TorchSession {
    type Tensor = Kept;

    fn inputs(&self) -> Vec<ValueInfo> {
        self.inputs.clone()
    }

    fn outputs(&self) -> Vec<ValueInfo> {
        self.outputs.clone()
    }

    /// Pinned memory, from which a device reads by itself; on the processor the host's own is as good.
    fn lend(&mut self, _: usize, bytes: usize) -> Result<Option<Box<dyn LentMemory>>, Error> {
        if self.device == Device::Cpu {
            return Ok(None);
        }
        let _turn = Turn::among_others();
        let memory = pinned(bytes).ok_or(Error::OutOfMemory { bytes: bytes as u64 })?;
        Ok(Some(Box::new(Pinned(memory))))
    }

    fn submit(&mut self, inputs: &[Input<'_, Kept>]) -> Result<Vec<Output<Kept>>, Error> {
        set_threads(self.threads);
        let place = self.captured_for(inputs);
        let captures = self.captured.is_some() && place.is_none();
        let _turn = if captures { Turn::alone() } else { Turn::among_others() };
        let _inference = InferenceMode::begin();
        let given: Vec<Shared> = inputs.iter().map(|input| self.feed(input)).collect::<Result<_, _>>()?;
        let made = match self.device {
            Device::Cuda(index) if self.captured.is_some() => self.replay(index, place, &given)?,
            _ => self.executor.run(given).map_err(failed)?,
        };
        let lent: Vec<Range<usize>> = inputs.iter().filter_map(addresses).collect();
        made.into_iter().map(|made| self.give(made, &lent)).collect()
    }

    fn sync(&mut self) -> Result<(), Error> {
        if let Device::Cuda(index) = self.device {
            let _turn = Turn::among_others();
            tch::Cuda::synchronize(index as i64);
        }
        Ok(())
    }

    fn copy_to_host(&mut self, kept: &Kept, to: &mut [u8]) -> Result<(), Error> {
        let _turn = Turn::among_others();
        tensor::download(&kept.0.0, to).map_err(lacking)
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
}

/// An output that stays on its device.
pub struct Kept(Shared);

impl DeviceTensor for Kept {
    fn shape(&self) -> Vec<usize> {
        tensor::shape(&self.0.0)
    }

    fn dtype(&self) -> DType {
        dtype_of(&self.0.0).expect("every type of ours has its name in the interface")
    }

    fn device(&self) -> DLDevice {
        let Device::Cuda(index) = self.0.0.device() else {
            unreachable!("outputs on the processor are lent to the host")
        };
        DLDevice { device_type: DLDeviceType::CUDA, device_id: index as i32 }
    }

    fn address(&self) -> usize {
        self.0.0.data_ptr() as usize
    }
}

/// An output on the processor, dense.
struct Memory(Shared);

impl HostMemory for Memory {
    fn bytes(&self) -> &[u8] {
        let tensor = &self.0.0;
        let bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
        if bytes == 0 {
            return &[];
        }
        // SAFETY: the tensor is dense, so that it has so many bytes there, as long as it lives; nothing writes to it.
        unsafe { slice::from_raw_parts(tensor.data_ptr().cast::<u8>().cast_const(), bytes) }
    }
}

/// Pinned memory: bytes in a tensor.
struct Pinned(Tensor);

impl LentMemory for Pinned {
    fn bytes_mut(&mut self) -> &mut [u8] {
        if self.0.numel() == 0 {
            return &mut [];
        }
        // SAFETY: a dense tensor of bytes that nobody else has; it lives as long as the slice.
        unsafe { slice::from_raw_parts_mut(self.0.data_ptr().cast(), self.0.numel()) }
    }
}

/// Fills a tensor on the device.
fn copy(to: &Tensor, from: &Tensor) -> Result<(), Error> {
    let mut to = to.shallow_clone();
    to.f_copy_(from).map(drop).map_err(|error| lacking(torch_error(error)))
}

/// The same values in memory of their own.
fn duplicate(tensor: &Tensor) -> Result<Shared, Error> {
    let own = tensor.f_empty_like().map_err(|error| lacking(torch_error(error)))?;
    copy(&own, tensor).map(|()| Shared(own))
}

/// libtorch has one number of threads, kept in part by each thread that computes.
fn set_threads(threads: usize) {
    let threads = i32::try_from(threads).unwrap_or(i32::MAX);
    if tch::get_num_threads() != threads {
        tch::set_num_threads(threads);
    }
}

fn addresses(input: &Input<'_, Kept>) -> Option<Range<usize>> {
    let Input::Host(view) = input else { return None };
    let begins = view.bytes.as_ptr() as usize;
    Some(begins..begins + view.bytes.len())
}

fn info(info: &OnnxValue) -> ValueInfo {
    ValueInfo { name: info.name.clone(), spec: info.spec.to_string() }
}

fn dtype(dtype: DType) -> Result<flagperf_onnx::DType, Error> {
    dtype.name().parse().map_err(Error::failed)
}

fn dtype_of(tensor: &Tensor) -> Result<DType, Error> {
    let name = tensor::dtype(tensor.kind()).name();
    DType::named(name).ok_or_else(|| Error::failed(format!("the interface has no type `{name}`")))
}

/// An error of libtorch outside the graph; a lack of memory is one of its own.
fn lacking(error: OpError) -> Error {
    let said = error.to_string();
    memory_asked_for(&said).map_or_else(|| Error::failed(error), |bytes| Error::OutOfMemory { bytes })
}
