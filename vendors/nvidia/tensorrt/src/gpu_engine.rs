//! An engine loaded on a GPU, with one context, one stream and fixed input buffers.
//!
//! Where the library does not capture CUDA graphs itself, they are captured here from the second step of a shape on.

use std::collections::HashMap;
use std::sync::Arc;

use flagperf_plugin::{Error, HostView, Input, Output};
use trtx::{CudaEngine, ExecutionContext, LayerInformationFormat, Runtime};

use crate::cuda::{Gpu, Graph, Stream};
use crate::log::{logger, with_logged_errors};
use crate::memory::{BufferPool, DeviceBuffer};
use crate::options::TensorRtOptions;
use crate::shapes::{Profile, Shapes, format_shape};
use crate::tensor::GpuTensor;
use crate::values::{self, Value};
use crate::variant::{NEEDS_CAPTURE, check_validity, create_context};

/// The number of graphs kept, each for its own set of addresses.
const GRAPHS_MAX: usize = 16;

/// An engine loaded on a GPU.
pub struct GpuEngine {
    // The fields are dropped in this order: each one needs those below it.
    graphs: HashMap<Vec<u64>, Graph>,
    context: ExecutionContext<'static>,
    engine: CudaEngine<'static>,
    _runtime: Runtime<'static>,
    stream: Stream,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    /// The buffer that each input in host memory is copied to.
    input_buffers: Vec<Option<DeviceBuffer>>,
    pool: Arc<BufferPool>,
    profiles: Vec<Profile>,
    /// The input shapes that are set in the context.
    current_shapes: Option<Shapes>,
    /// Whether a step has run with the current shapes, so that the next one can be captured.
    has_run: bool,
    /// Whether the plug-in captures graphs.
    captures: bool,
}

// SAFETY: this session exclusively owns TensorRT's objects and trtx's data for them; its calls never overlap, and each
// call first enters the GPU on its thread.
unsafe impl Send for GpuEngine {}

impl GpuEngine {
    /// Loads an engine; `values` are its inputs and outputs in the order of the model, if that order is known.
    ///
    /// # Errors
    /// When the engine cannot run on this machine, or memory runs out.
    pub fn new(
        gpu: &Arc<Gpu>,
        engine: &[u8],
        options: &TensorRtOptions,
        profiles: &[Profile],
        values: Option<[Vec<Value>; 2]>,
    ) -> Result<Self, Error> {
        gpu.enter()?;
        let mut runtime = with_logged_errors("the runtime cannot be created", || Runtime::new(logger()?))?;
        check_validity(&runtime, engine)?;
        let mut loaded = with_logged_errors("the engine cannot be loaded", || runtime.deserialize_cuda_engine(engine))?;
        let context =
            with_logged_errors("the engine cannot be run", || create_context(&mut loaded, options.cuda_graph))?;
        let engine_values = values::engine_values(&loaded)?;
        let [inputs, outputs] = values.unwrap_or(engine_values);
        Ok(GpuEngine {
            graphs: HashMap::new(),
            context,
            engine: loaded,
            _runtime: runtime,
            stream: Stream::new(gpu)?,
            input_buffers: inputs.iter().map(|_| None).collect(),
            inputs,
            outputs,
            pool: BufferPool::new(gpu),
            profiles: profiles.to_vec(),
            current_shapes: None,
            has_run: false,
            captures: options.cuda_graph && NEEDS_CAPTURE,
        })
    }

    /// The GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        self.stream.gpu()
    }

    /// The inputs and the outputs, in order.
    pub fn values(&self) -> [Vec<Value>; 2] {
        [self.inputs.clone(), self.outputs.clone()]
    }

    /// The current input shapes; `None` before the first step.
    pub fn shapes(&self) -> Option<&Shapes> {
        self.current_shapes.as_ref()
    }

    /// The number of the current profile.
    pub fn profile(&self) -> i32 {
        self.context.optimization_profile()
    }

    /// Returns the number of profiles.
    ///
    /// # Errors
    /// TensorRT's errors.
    pub fn profile_count(&self) -> Result<usize, Error> {
        self.engine.nb_optimization_profiles().map(|count| count.max(0) as usize).map_err(Error::failed)
    }

    /// Selects a profile for all later steps.
    ///
    /// # Errors
    /// TensorRT's errors.
    pub fn set_profile(&mut self, index: usize) -> Result<(), Error> {
        self.gpu().enter()?;
        let stream = self.stream.raw();
        with_logged_errors("the profile cannot be set", || {
            // SAFETY: the stream is alive.
            let set = unsafe { self.context.set_optimization_profile_async(index as i32, stream) };
            if set { Ok(()) } else { Err(trtx::Error::Runtime(format!("profile `{index}`"))) }
        })?;
        self.forget_shapes();
        self.stream.wait()
    }

    /// Returns the layers in JSON, from TensorRT's inspector.
    ///
    /// # Errors
    /// TensorRT's errors.
    pub fn layers(&mut self) -> Result<String, Error> {
        self.gpu().enter()?;
        with_logged_errors("the layers cannot be read", || {
            self.engine.create_engine_inspector()?.engine_information(LayerInformationFormat::kJSON)
        })
    }

    /// Starts a step.
    ///
    /// # Errors
    /// When an input does not match the engine or memory runs out, and TensorRT's own errors.
    pub fn submit(&mut self, inputs: &[Input<'_, GpuTensor>]) -> Result<Vec<Output<GpuTensor>>, Error> {
        self.gpu().enter()?;
        self.set_shapes(inputs)?;
        let mut addresses = Vec::with_capacity(self.inputs.len() + self.outputs.len());
        for (index, input) in inputs.iter().enumerate() {
            addresses.push(match input {
                Input::Own(own) => own.buffer.address(),
                Input::Host(view) => self.upload(index, view)?,
            });
        }
        let outputs = self.outputs.iter().map(|output| self.allocate_output(output)).collect::<Result<Vec<_>, _>>()?;
        addresses.extend(outputs.iter().map(|output| output.buffer.address()));
        self.run(addresses)?;
        Ok(outputs.into_iter().map(Output::Device).collect())
    }

    /// Waits until everything has been computed.
    ///
    /// # Errors
    /// When the computation failed.
    pub fn wait(&self) -> Result<(), Error> {
        self.gpu().enter()?;
        self.stream.wait()
    }

    /// Copies an output to host memory, and waits for the copy.
    ///
    /// # Errors
    /// When the output's computation or the copy failed.
    pub fn download(&self, tensor: &GpuTensor, to: &mut [u8]) -> Result<(), Error> {
        self.gpu().enter()?;
        let size = tensor.buffer.bytes();
        if size != to.len() {
            return Err(Error::Failed(format!("the output has `{size}` bytes, but `{}` were requested", to.len())));
        }
        // SAFETY: both sides have the same size.
        unsafe { self.stream.download(to, tensor.buffer.address()) }
    }

    /// Sets the input shapes, unless they are those of the previous step.
    fn set_shapes(&mut self, inputs: &[Input<'_, GpuTensor>]) -> Result<(), Error> {
        let given = inputs.iter().zip(&self.inputs).map(|(input, value)| {
            let shape = match input {
                Input::Own(own) => own.sizes.as_slice(),
                Input::Host(view) => view.shape,
            };
            let sizes = shape.iter().map(|size| i64::try_from(*size).map_err(Error::failed));
            Ok((value.name.clone(), sizes.collect::<Result<Vec<_>, _>>()?))
        });
        let given = given.collect::<Result<Shapes, Error>>()?;
        if self.current_shapes.as_ref() == Some(&given) {
            return Ok(());
        }
        self.forget_shapes();
        let profile = self.profile();
        for (name, shape) in &given {
            if let Some(shapes) = self.profiles.get(profile.max(0) as usize) {
                check_within_profile(shapes, profile, name, shape)?;
            }
            let (dims, what) = (values::dims(shape)?, format!("input `{name}` cannot be `{}`", format_shape(shape)));
            with_logged_errors(&what, || self.context.set_input_shape(name, &dims))?;
        }
        self.current_shapes = Some(given);
        Ok(())
    }

    fn forget_shapes(&mut self) {
        self.graphs.clear();
        (self.current_shapes, self.has_run) = (None, false);
    }

    /// Starts copying an input from host memory to its buffer on the GPU, and returns the buffer's address.
    fn upload(&mut self, index: usize, view: &HostView<'_>) -> Result<u64, Error> {
        let slot = &mut self.input_buffers[index];
        let buffer = match slot.take().filter(|buffer| buffer.bytes() == view.bytes.len()) {
            Some(buffer) => buffer,
            None => DeviceBuffer::new(self.stream.gpu(), view.bytes.len())?,
        };
        let address = slot.insert(buffer).address();
        // SAFETY: the host leaves the bytes unchanged until `sync` has returned, and the buffer has the same size.
        unsafe { self.stream.upload(address, view.bytes) }?;
        Ok(address)
    }

    /// Allocates an output in the shape that it will have.
    fn allocate_output(&self, value: &Value) -> Result<GpuTensor, Error> {
        let dims = self.context.tensor_shape(&value.name).map_err(Error::failed)?;
        let sizes = usize::try_from(dims.nbDims).ok().and_then(|count| dims.d.get(..count));
        let shape = sizes.map(|sizes| sizes.iter().map(|size| usize::try_from(*size).ok()).collect::<Option<Vec<_>>>());
        let unknown = || {
            Error::Failed(format!(
                "the size of output `{}` depends on the computed values, which is not supported",
                value.name
            ))
        };
        let shape = shape.flatten().ok_or_else(unknown)?;
        let buffer = self.pool.take(shape.iter().product::<usize>() * value.dtype.size())?;
        Ok(GpuTensor { sizes: shape, dtype: value.dtype, gpu: self.gpu().index, buffer })
    }

    /// Submits a step to the stream, as a graph when one was captured with these addresses.
    fn run(&mut self, addresses: Vec<u64>) -> Result<(), Error> {
        if let Some(graph) = self.graphs.get(&addresses) {
            return graph.launch(&self.stream);
        }
        for (value, address) in self.inputs.iter().chain(&self.outputs).zip(&addresses) {
            // SAFETY: the buffers have the size of these shapes, and live until the stream has been waited for.
            with_logged_errors("a buffer is rejected", || unsafe {
                self.context.set_tensor_address(&value.name, std::ptr::with_exposed_provenance_mut(*address as usize))
            })?;
        }
        let (context, stream) = (&mut self.context, &self.stream);
        // SAFETY: the addresses of all inputs and outputs are set.
        let mut enqueue =
            || with_logged_errors("the computation failed", || unsafe { context.enqueue_v3(stream.raw()) });
        if !(self.captures && self.has_run) {
            enqueue()?;
            self.has_run = true;
            return Ok(());
        }
        let graph = Graph::capture(stream, enqueue).map_err(|error| match error {
            Error::Failed(reason) => {
                Error::Failed(format!("{reason} (while capturing a CUDA graph; `cuda_graph: false` disables this)"))
            }
            error => error,
        })?;
        graph.launch(&self.stream)?;
        if self.graphs.len() == GRAPHS_MAX {
            self.graphs.clear();
        }
        self.graphs.insert(addresses, graph);
        Ok(())
    }
}

impl Drop for GpuEngine {
    fn drop(&mut self) {
        // Waiting also enters the GPU on this thread, which the drops that follow need. A failed computation no longer
        // matters.
        let _ = self.wait();
    }
}

/// Rejects a shape outside the current profile.
fn check_within_profile(profile: &Profile, index: i32, name: &str, shape: &[i64]) -> Result<(), Error> {
    let (Some(min), Some(max)) = (profile.min.get(name), profile.max.get(name)) else { return Ok(()) };
    let fits =
        shape.len() == min.len() && shape.iter().zip(min).zip(max).all(|((size, min), max)| min <= size && size <= max);
    if fits {
        return Ok(());
    }
    let (given, min, max) = (format_shape(shape), format_shape(min), format_shape(max));
    Err(Error::Failed(format!("input `{name}` is `{given}`, but profile `{index}` accepts `{min}` to `{max}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_shape_outside_the_profile_contains_the_limits() {
        let profile = Profile::parse("x:1x3", "x:8x3", "x:16x3").unwrap();
        for shape in [[1, 3], [16, 3]] {
            check_within_profile(&profile, 0, "x", &shape).unwrap();
        }
        check_within_profile(&profile, 0, "fixed", &[7]).unwrap();
        let error = check_within_profile(&profile, 1, "x", &[32, 3]).unwrap_err().to_string();
        assert_eq!(error, "input `x` is `32x3`, but profile `1` accepts `1x3` to `16x3`");
        assert!(check_within_profile(&profile, 0, "x", &[4]).is_err());
    }
}
