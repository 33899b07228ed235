//! An engine plug-in in Rust: candle, by the executor of `flagperf-onnx`.
//!
//! Outputs stay candle's until they are asked for on the host, and are taken back as inputs without a copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use flagperf_onnx::exec::{CandleOps, ExecError, Executor, TensorOps};
use flagperf_onnx::{Tensor, read_onnx};
use flagperf_plugin::dlpack::{DLDevice, DLDeviceType};
use flagperf_plugin::{About, Artifact, DType, DeviceTensor, Engine, Error, Input, Load, Output, Session, ValueInfo};
use rayon::{ThreadPool, ThreadPoolBuilder};

flagperf_plugin::export!(Candle);

/// The framework and compiler candle.
pub struct Candle;

impl Engine for Candle {
    type Session = CandleSession;

    const ABOUT: About = About {
        name: "candle-plugin",
        version: env!("CARGO_PKG_VERSION"),
        about: "candle as a plug-in: runs the graph operator by operator on the processor",
        framework: true,
        compiler: true,
        onnx: true,
        compiled: false,
        precisions: &[DType::F32],
        opset_max: 20,
    };

    fn load(load: &Load<'_>) -> Result<CandleSession, Error> {
        let options: BTreeMap<String, serde_json::Value> = serde_json::from_str(load.options).map_err(Error::failed)?;
        if let Some(option) = options.into_keys().next() {
            return Err(Error::BadOption { option, reason: "unknown (this engine takes none)".to_owned() });
        }
        let (Artifact::Onnx(path) | Artifact::Compiled(path)) = load.artifact;
        let graph = read_onnx(path).map_err(Error::failed)?;
        let info = |info: &flagperf_onnx::ValueInfo| ValueInfo { name: info.name.clone(), spec: info.spec.to_string() };
        Ok(CandleSession {
            inputs: graph.inputs.iter().map(info).collect(),
            outputs: graph.outputs.iter().map(info).collect(),
            dtypes: graph.outputs.iter().map(|info| info.spec.dtype).collect(),
            executor: Executor::load(&graph, CandleOps).map_err(failed)?,
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
    /// candle computes with whatever pool it is called in.
    pool: ThreadPool,
}

type Native = <CandleOps as TensorOps>::Tensor;

/// An output that candle keeps.
pub struct CandleTensor {
    tensor: Arc<Native>,
    dtype: DType,
}

impl DeviceTensor for CandleTensor {
    fn shape(&self) -> Vec<usize> {
        CandleOps.shape(&self.tensor)
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    /// The processor; but the layout is candle's own, so that the host must ask for a copy.
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
        let tensors = self.pool.install(|| self.executor.run(inputs)).map_err(failed)?;
        let kept = |(tensor, dtype): (Native, &flagperf_onnx::DType)| {
            let dtype = DType::named(dtype.name()).ok_or_else(|| Error::failed("an unknown type"))?;
            Ok(Output::Device(CandleTensor { tensor: Arc::new(tensor), dtype }))
        };
        tensors.into_iter().zip(&self.dtypes).map(kept).collect()
    }

    fn copy_to_host(&mut self, tensor: &CandleTensor, to: &mut [u8]) -> Result<(), Error> {
        let copied = CandleOps.download(&tensor.tensor, dtype(tensor.dtype)?).map_err(Error::failed)?;
        to.copy_from_slice(copied.bytes());
        Ok(())
    }

    fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }
}

/// candle's own tensor where the input is one, else a copy of it.
fn upload(input: &Input<'_, CandleTensor>) -> Result<Native, Error> {
    match input {
        Input::Own(own) => Ok(Native::clone(&own.tensor)),
        Input::Host(view) => {
            let tensor = Tensor::from_bytes(view.shape, dtype(view.dtype)?, view.bytes).map_err(Error::failed)?;
            CandleOps.upload(&tensor).map_err(Error::failed)
        }
    }
}

fn dtype(dtype: DType) -> Result<flagperf_onnx::DType, Error> {
    dtype.name().parse().map_err(Error::failed)
}

fn failed(error: ExecError) -> Error {
    match error {
        ExecError::UnknownOperator { node, op } => Error::UnknownOperator { op, node },
        error => Error::failed(error),
    }
}
