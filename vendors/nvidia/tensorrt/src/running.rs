//! An engine on a GPU: one context, one stream, buffers that stay.
//!
//! CUDA graphs are captured from the second step of a shape on, where the library does not do it itself.

use std::collections::HashMap;
use std::sync::Arc;

use flagperf_plugin::{Error, HostView, Input, Output};
use trtx::{CudaEngine, ExecutionContext, LayerInformationFormat, Runtime};

use crate::cuda::{Gpu, Graph, Stream};
use crate::flavour::{IS_CAPTURED, context, fits};
use crate::log::{explained, logger};
use crate::memory::{DeviceBuffer, Pool};
use crate::options::Options;
use crate::shapes::{Profile, Shapes, written};
use crate::tensor::GpuTensor;
use crate::values::{self, Value};

/// Graphs that are kept, each for its own addresses.
const GRAPHS_MAX: usize = 16;

/// An engine on a GPU.
pub struct Running {
    // Dropped in this order: each needs those below it.
    graphs: HashMap<Vec<u64>, Graph>,
    context: ExecutionContext<'static>,
    engine: CudaEngine<'static>,
    _runtime: Runtime<'static>,
    stream: Stream,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    /// Where each input from the host's memory is copied to.
    fed: Vec<Option<DeviceBuffer>>,
    pool: Arc<Pool>,
    profiles: Vec<Profile>,
    /// The shapes of the inputs that are set.
    set: Option<Shapes>,
    /// Whether these shapes were run once, and may be captured.
    settled: bool,
    /// Whether graphs are captured here.
    captures: bool,
}

// SAFETY: TensorRT's objects and what trtx keeps beside them are this session's alone; calls on it never overlap, and
// each enters the GPU on its thread first.
unsafe impl Send for Running {}

impl Running {
    /// Loads an engine; `values` are its inputs and outputs in the order of the model, where that is known.
    ///
    /// # Errors
    /// When it does not fit, or there is not enough memory.
    pub fn new(
        gpu: &Arc<Gpu>,
        engine: &[u8],
        options: &Options,
        profiles: &[Profile],
        values: Option<[Vec<Value>; 2]>,
    ) -> Result<Self, Error> {
        gpu.enter()?;
        let mut runtime = explained("the runtime cannot be made", || Runtime::new(logger()?))?;
        fits(&runtime, engine)?;
        let mut loaded = explained("the engine cannot be loaded", || runtime.deserialize_cuda_engine(engine))?;
        let context = explained("the engine cannot be run", || context(&mut loaded, options.cuda_graph))?;
        let of_engine = values::of_engine(&loaded)?;
        let [inputs, outputs] = values.unwrap_or(of_engine);
        Ok(Running {
            graphs: HashMap::new(),
            context,
            engine: loaded,
            _runtime: runtime,
            stream: Stream::new(gpu)?,
            fed: inputs.iter().map(|_| None).collect(),
            inputs,
            outputs,
            pool: Pool::new(gpu),
            profiles: profiles.to_vec(),
            set: None,
            settled: false,
            captures: options.cuda_graph && IS_CAPTURED,
        })
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        self.stream.gpu()
    }

    /// Its inputs and outputs, in order.
    pub fn values(&self) -> [Vec<Value>; 2] {
        [self.inputs.clone(), self.outputs.clone()]
    }

    /// The shapes that are set.
    pub fn shapes(&self) -> Option<&Shapes> {
        self.set.as_ref()
    }

    /// The number of the profile that is in use.
    pub fn profile(&self) -> i32 {
        self.context.optimization_profile()
    }

    /// How many profiles the engine has.
    ///
    /// # Errors
    /// What TensorRT says.
    pub fn profile_count(&self) -> Result<usize, Error> {
        self.engine.nb_optimization_profiles().map(|count| count.max(0) as usize).map_err(Error::failed)
    }

    /// Uses another profile from now on.
    ///
    /// # Errors
    /// What TensorRT says.
    pub fn set_profile(&mut self, index: usize) -> Result<(), Error> {
        self.gpu().enter()?;
        let stream = self.stream.raw();
        explained("the profile cannot be set", || {
            // SAFETY: the stream lives.
            let set = unsafe { self.context.set_optimization_profile_async(index as i32, stream) };
            if set { Ok(()) } else { Err(trtx::Error::Runtime(format!("profile `{index}`"))) }
        })?;
        self.forget_shapes();
        self.stream.wait()
    }

    /// The layers, as TensorRT's inspector has them, in JSON.
    ///
    /// # Errors
    /// What TensorRT says.
    pub fn layers(&mut self) -> Result<String, Error> {
        self.gpu().enter()?;
        explained("the layers cannot be read", || {
            self.engine.create_engine_inspector()?.engine_information(LayerInformationFormat::kJSON)
        })
    }

    /// Begins to compute.
    ///
    /// # Errors
    /// When an input does not fit, memory is lacking, or TensorRT says so.
    pub fn submit(&mut self, inputs: &[Input<'_, GpuTensor>]) -> Result<Vec<Output<GpuTensor>>, Error> {
        self.gpu().enter()?;
        self.set_shapes(inputs)?;
        let mut addresses = Vec::with_capacity(self.inputs.len() + self.outputs.len());
        for (index, input) in inputs.iter().enumerate() {
            addresses.push(match input {
                Input::Own(own) => own.buffer.address(),
                Input::Host(view) => self.feed(index, view)?,
            });
        }
        let outputs = self.outputs.iter().map(|output| self.output(output)).collect::<Result<Vec<_>, _>>()?;
        addresses.extend(outputs.iter().map(|output| output.buffer.address()));
        self.run(addresses)?;
        Ok(outputs.into_iter().map(Output::Device).collect())
    }

    /// Waits until everything is computed.
    ///
    /// # Errors
    /// When computing failed.
    pub fn wait(&self) -> Result<(), Error> {
        self.gpu().enter()?;
        self.stream.wait()
    }

    /// Copies an output to the host's memory, and waits for it.
    ///
    /// # Errors
    /// When computing it failed.
    pub fn download(&self, tensor: &GpuTensor, to: &mut [u8]) -> Result<(), Error> {
        self.gpu().enter()?;
        let held = tensor.buffer.bytes();
        if held != to.len() {
            return Err(Error::Failed(format!("the output has `{held}` bytes, `{}` were asked for", to.len())));
        }
        // SAFETY: as many bytes lie there.
        unsafe { self.stream.download(to, tensor.buffer.address()) }
    }

    /// Sets the shapes of the inputs where they are not those of the step before.
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
        if self.set.as_ref() == Some(&given) {
            return Ok(());
        }
        self.forget_shapes();
        let profile = self.profile();
        for (name, shape) in &given {
            if let Some(shapes) = self.profiles.get(profile.max(0) as usize) {
                within(shapes, profile, name, shape)?;
            }
            let (dims, what) = (values::dims(shape)?, format!("input `{name}` cannot be `{}`", written(shape)));
            explained(&what, || self.context.set_input_shape(name, &dims))?;
        }
        self.set = Some(given);
        Ok(())
    }

    fn forget_shapes(&mut self) {
        self.graphs.clear();
        (self.set, self.settled) = (None, false);
    }

    /// Copies an input from the host's memory to the place that it has on the GPU; gives that.
    fn feed(&mut self, index: usize, view: &HostView<'_>) -> Result<u64, Error> {
        let place = &mut self.fed[index];
        let buffer = match place.take().filter(|buffer| buffer.bytes() == view.bytes.len()) {
            Some(buffer) => buffer,
            None => DeviceBuffer::new(self.stream.gpu(), view.bytes.len())?,
        };
        let address = place.insert(buffer).address();
        // SAFETY: the host leaves the bytes as they are until `sync` has returned, and the buffer is as long.
        unsafe { self.stream.upload(address, view.bytes) }?;
        Ok(address)
    }

    /// A place for an output, of the shape that it will have.
    fn output(&self, value: &Value) -> Result<GpuTensor, Error> {
        let dims = self.context.tensor_shape(&value.name).map_err(Error::failed)?;
        let sizes = usize::try_from(dims.nbDims).ok().and_then(|count| dims.d.get(..count));
        let shape = sizes.map(|sizes| sizes.iter().map(|size| usize::try_from(*size).ok()).collect::<Option<Vec<_>>>());
        let unknown = || Error::Failed(format!("the size of output `{}` depends on what is computed", value.name));
        let shape = shape.flatten().ok_or_else(unknown)?;
        let buffer = self.pool.take(shape.iter().product::<usize>() * value.dtype.size())?;
        Ok(GpuTensor { sizes: shape, dtype: value.dtype, gpu: self.gpu().index, buffer })
    }

    /// Puts a step on the stream: as a graph where one was captured with these addresses.
    fn run(&mut self, addresses: Vec<u64>) -> Result<(), Error> {
        if let Some(graph) = self.graphs.get(&addresses) {
            return graph.launch(&self.stream);
        }
        for (value, address) in self.inputs.iter().chain(&self.outputs).zip(&addresses) {
            // SAFETY: the buffers have the size of these shapes, and live until the stream was waited for.
            explained("a buffer is refused", || unsafe {
                self.context.set_tensor_address(&value.name, std::ptr::with_exposed_provenance_mut(*address as usize))
            })?;
        }
        let (context, stream) = (&mut self.context, &self.stream);
        // SAFETY: every input and output has its address.
        let mut enqueue = || explained("computing fails", || unsafe { context.enqueue_v3(stream.raw()) });
        if !(self.captures && self.settled) {
            enqueue()?;
            self.settled = true;
            return Ok(());
        }
        let graph = Graph::capture(stream, enqueue).map_err(|error| match error {
            Error::Failed(said) => Error::Failed(format!("{said} (in a CUDA graph; `cuda_graph: false` does without)")),
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

impl Drop for Running {
    fn drop(&mut self) {
        // What follows is torn down on this thread; that computing failed interests nobody any more.
        let _ = self.wait();
    }
}

/// Refuses a shape outside of the profile that is in use.
fn within(profile: &Profile, index: i32, name: &str, shape: &[i64]) -> Result<(), Error> {
    let (Some(min), Some(max)) = (profile.min.get(name), profile.max.get(name)) else { return Ok(()) };
    let fits =
        shape.len() == min.len() && shape.iter().zip(min).zip(max).all(|((size, min), max)| min <= size && size <= max);
    if fits {
        return Ok(());
    }
    let (given, min, max) = (written(shape), written(min), written(max));
    Err(Error::Failed(format!("input `{name}` is `{given}`, profile `{index}` takes `{min}` to `{max}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_outside_of_the_profile_is_named_with_what_it_takes() {
        let profile = Profile::read("x:1x3", "x:8x3", "x:16x3").unwrap();
        for shape in [[1, 3], [16, 3]] {
            within(&profile, 0, "x", &shape).unwrap();
        }
        within(&profile, 0, "fixed", &[7]).unwrap();
        let error = within(&profile, 1, "x", &[32, 3]).unwrap_err().to_string();
        assert_eq!(error, "input `x` is `32x3`, profile `1` takes `1x3` to `16x3`");
        assert!(within(&profile, 0, "x", &[4]).is_err());
    }
}
