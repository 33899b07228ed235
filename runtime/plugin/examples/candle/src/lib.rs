//! An engine plug-in in Rust: candle, driven by the executor of `flagperf-onnx`.
//!
//! Outputs stay in candle's form until the host requests a copy, and can be inputs again without a copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use flagperf_onnx::exec::{CandleOps, ExecError, Executor, TensorOps};
use flagperf_onnx::{Tensor, read_onnx};
use flagperf_plugin::dlpack::{DLDevice, DLDeviceType};
use flagperf_plugin::{
    Artifact, DType, DeviceTensor, Engine, EngineInfo, Error, Input, Load, Output, Session, ValueInfo,
};
use rayon::{ThreadPool, ThreadPoolBuilder};

flagperf_plugin::export!(Candle);

/// The engine candle, as a framework and a compiler.
pub struct Candle;

impl Engine for Candle {
    type Session = CandleSession;

    const INFO: EngineInfo = EngineInfo {
        name: "candle-plugin",
        version: env!("CARGO_PKG_VERSION"),
        about: "candle as a plug-in: runs the graph operator by operator on the processor",
        framework: true,
        compiler: true,
        onnx: true,
        compiled: false,
        precisions: &[DType::F32],
        opset_max: 20,
        options: Some("[]"),
    };

    fn load(load: &Load<'_>) -> Result<CandleSession, Error> {
        let options: BTreeMap<String, serde_json::Value> = serde_json::from_str(load.options).map_err(Error::failed)?;
        if let Some(option) = options.into_keys().next() {
            return Err(Error::BadOption { option, reason: "unknown (this engine has no options)".to_owned() });
        }
        let (Artifact::Onnx(path) | Artifact::Compiled(path)) = load.artifact;
        let graph = read_onnx(path).map_err(Error::failed)?;
        let info = |info: &flagperf_onnx::ValueInfo| ValueInfo { name: info.name.clone(), spec: info.spec.to_string() };
        Ok(CandleSession {
            inputs: graph.inputs.iter().map(info).collect(),
            outputs: graph.outputs.iter().map(info).collect(),
            dtypes: graph.outputs.iter().map(|info| info.spec.dtype).collect(),
            executor: Executor::load(&graph, CandleOps).map_err(to_plugin_error)?,
            pool: ThreadPoolBuilder::new().num_threads(load.threads).build().map_err(Error::failed)?,
        })
    }
}

/// A graph that candle runs.
pub struct CandleSession {
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    dtypes: Vec<flagperf_onnx::DType>,
    executor: Executor<CandleOps>,
    /// candle computes with the thread pool in which it is called.
    pool: ThreadPool,
}

type NativeTensor = <CandleOps as TensorOps>::Tensor;

/// An output that stays in candle's form.
pub struct CandleTensor {
    tensor: Arc<NativeTensor>,
    dtype: DType,
}

impl DeviceTensor for CandleTensor {
    fn shape(&self) -> Vec<usize> {
        CandleOps.shape(&self.tensor)
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns a device other than the processor, because the layout is candle's own and the host must request a copy.
    fn device(&self) -> DLDevice {
        DLDevice { device_type: DLDeviceType::EXTDEV, device_id: 0 }
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.tensor) as usize
    }
}

impl Session for CandleSession {
    type Tensor = CandleTensor;

    fn inputs(&self) -> Vec<ValueInfo> {
        self.inputs.clone()
    }

    fn outputs(&self) -> Vec<ValueInfo> {
        self.outputs.clone()
    }

    fn submit(&mut self, inputs: &[Input<'_, CandleTensor>]) -> Result<Vec<Output<CandleTensor>>, Error> {
        let inputs = inputs.iter().map(upload).collect::<Result<_, _>>()?;
        let tensors = self.pool.install(|| self.executor.run(inputs)).map_err(to_plugin_error)?;
        let output = |(tensor, dtype): (NativeTensor, &flagperf_onnx::DType)| {
            let dtype = DType::from_name(dtype.name()).ok_or_else(|| Error::failed("unsupported element type"))?;
            Ok(Output::Device(CandleTensor { tensor: Arc::new(tensor), dtype }))
        };
        tensors.into_iter().zip(&self.dtypes).map(output).collect()
    }

    fn copy_to_host(&mut self, tensor: &CandleTensor, to: &mut [u8]) -> Result<(), Error> {
        let copied = CandleOps.download(&tensor.tensor, onnx_dtype(tensor.dtype)?).map_err(Error::failed)?;
        to.copy_from_slice(copied.bytes());
        Ok(())
    }

    fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }
}

/// Returns candle's own tensor if the input is one, else a copy of the input.
fn upload(input: &Input<'_, CandleTensor>) -> Result<NativeTensor, Error> {
    match input {
        Input::Own(own) => Ok(NativeTensor::clone(&own.tensor)),
        Input::Host(view) => {
            let tensor = Tensor::from_bytes(view.shape, onnx_dtype(view.dtype)?, view.bytes).map_err(Error::failed)?;
            CandleOps.upload(&tensor).map_err(Error::failed)
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
