//! An engine plug-in in Rust around the executor of `flagperf-onnx`, as the framework `interpreter` is.
//!
//! Outputs stay in the executor's form until the host requests a copy, and can be inputs again without a copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use flagperf_onnx::{Tensor, read_onnx};
use flagperf_onnx_exec::{CpuOps, ExecError, Executor, TensorOps};
use flagperf_plugin::dlpack::{DLDevice, DLDeviceType};
use flagperf_plugin::{
    Artifact, DType, DeviceTensor, Engine, EngineInfo, Error, Input, Load, Output, Session, ValueInfo,
};
use rayon::{ThreadPool, ThreadPoolBuilder};

flagperf_plugin::export!(Interpreter);

/// The executor of `flagperf-onnx`, as a framework and a compiler.
pub struct Interpreter;

impl Engine for Interpreter {
    type Session = InterpreterSession;

    const INFO: EngineInfo = EngineInfo {
        name: "interpreter-plugin",
        version: env!("CARGO_PKG_VERSION"),
        about: "the interpreter as a plug-in: runs the graph operator by operator on the processor",
        framework: true,
        compiler: true,
        onnx: true,
        compiled: false,
        differentiates: false,
        shares_tensors: false,
        precisions: &[DType::F32],
        opset_max: 20,
        options: Some("[]"),
    };

    fn load(load: &Load<'_>) -> Result<InterpreterSession, Error> {
        let options: BTreeMap<String, serde_json::Value> = serde_json::from_str(load.options).map_err(Error::failed)?;
        if let Some(option) = options.into_keys().next() {
            return Err(Error::BadOption { option, reason: "unknown (this engine has no options)".to_owned() });
        }
        let (Artifact::Onnx(path) | Artifact::Compiled(path)) = load.artifact;
        let graph = read_onnx(path).map_err(Error::failed)?;
        let info = |info: &flagperf_onnx::ValueInfo| ValueInfo { name: info.name.clone(), spec: info.spec.to_string() };
        Ok(InterpreterSession {
            inputs: graph.inputs.iter().map(info).collect(),
            outputs: graph.outputs.iter().map(info).collect(),
            dtypes: graph.outputs.iter().map(|info| info.spec.dtype).collect(),
            executor: Executor::load(&graph, CpuOps).map_err(to_plugin_error)?,
            pool: ThreadPoolBuilder::new().num_threads(load.threads).build().map_err(Error::failed)?,
        })
    }
}

/// A graph that the executor runs.
pub struct InterpreterSession {
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    dtypes: Vec<flagperf_onnx::DType>,
    executor: Executor<CpuOps>,
    /// The executor computes with the thread pool in which it is called.
    pool: ThreadPool,
}

type NativeTensor = <CpuOps as TensorOps>::Tensor;

/// An output that stays in the executor's form.
pub struct InterpreterTensor {
    tensor: Arc<NativeTensor>,
    dtype: DType,
}

impl DeviceTensor for InterpreterTensor {
    fn shape(&self) -> Vec<usize> {
        CpuOps.shape(&self.tensor)
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns a device other than the processor, because the layout is the executor's own and the host must request a copy.
    fn device(&self) -> DLDevice {
        DLDevice { device_type: DLDeviceType::EXTDEV, device_id: 0 }
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.tensor) as usize
    }
}

impl Session for InterpreterSession {
    type Tensor = InterpreterTensor;

    fn inputs(&self) -> Vec<ValueInfo> {
        self.inputs.clone()
    }

    fn outputs(&self) -> Vec<ValueInfo> {
        self.outputs.clone()
    }

    fn submit(&mut self, inputs: &[Input<'_, InterpreterTensor>]) -> Result<Vec<Output<InterpreterTensor>>, Error> {
        let inputs = inputs.iter().map(upload).collect::<Result<_, _>>()?;
        let tensors = self.pool.install(|| self.executor.run(inputs)).map_err(to_plugin_error)?;
        let output = |(tensor, dtype): (NativeTensor, &flagperf_onnx::DType)| {
            let dtype = DType::from_name(dtype.name()).ok_or_else(|| Error::failed("unsupported element type"))?;
            Ok(Output::Device(InterpreterTensor { tensor: Arc::new(tensor), dtype }))
        };
        tensors.into_iter().zip(&self.dtypes).map(output).collect()
    }

    fn copy_to_host(&mut self, tensor: &InterpreterTensor, to: &mut [u8]) -> Result<(), Error> {
        let copied = CpuOps.download(&tensor.tensor, onnx_dtype(tensor.dtype)?).map_err(Error::failed)?;
        to.copy_from_slice(copied.bytes());
        Ok(())
    }

    fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }
}

/// Returns the executor's own tensor if the input is one, else a copy of the input.
fn upload(input: &Input<'_, InterpreterTensor>) -> Result<NativeTensor, Error> {
    match input {
        Input::Own(own) => Ok(NativeTensor::clone(&own.tensor)),
        Input::Host(view) => {
            let tensor = Tensor::from_bytes(view.shape, onnx_dtype(view.dtype)?, view.bytes).map_err(Error::failed)?;
            CpuOps.upload(&tensor).map_err(Error::failed)
        }
    }
}

fn onnx_dtype(dtype: DType) -> Result<flagperf_onnx::DType, Error> {
    dtype.name().parse().map_err(Error::failed)
}

fn to_plugin_error(error: ExecError) -> Error {
    match error {
        ExecError::UnknownOperator { node, op } => Error::UnknownOperator { op, node },
        error => Error::failed(error),
    }
}
