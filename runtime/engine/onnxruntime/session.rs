//! A loaded model in ONNX Runtime.

use std::path::Path;

use flagperf_onnx::ValueInfo;
use indexmap::IndexMap;
use ort::value::{Outlet, ValueType};

use super::device::Device;
use super::options::Settings;
use super::tensor::{dtype, lend, take};
use super::{failed, library, placement};
use crate::engine::{EngineError, HeapMemory, LentMemory, Session, Value, check_inputs};
use crate::tensor::{Dim, TensorSpec};
use crate::units::Bytes;

/// A session: on the processor, inputs are views and outputs are ONNX Runtime's own memory.
pub(super) struct OrtSession {
    session: ort::session::Session,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    /// Where it computes, unless that is the processor.
    on: Option<Device>,
    device: String,
    threads: usize,
    nodes: IndexMap<String, u64>,
}

impl OrtSession {
    /// Loads a file that ONNX Runtime reads.
    ///
    /// # Errors
    /// When the library, the provider or the file cannot be used, or no node runs on the provider asked for.
    pub(super) fn load(path: &Path, settings: &Settings<'_>) -> Result<Self, EngineError> {
        let library = library::open(settings.library.as_deref())?;
        let session = build(&library.environment, path, settings)?;
        let infos = |outlets: &[Outlet]| outlets.iter().map(info).collect::<Result<Vec<_>, _>>();
        let (inputs, outputs) = (infos(session.inputs())?, infos(session.outputs())?);
        let nodes = placement::nodes_by_provider(&session).map_err(|error| failed(&error))?;
        let provider = settings.provider;
        if !nodes.is_empty() && nodes.get(provider.canonical).is_none_or(|count| *count == 0) {
            let got: Vec<String> = nodes.iter().map(|(name, count)| format!("{name} {count}")).collect();
            let reason =
                format!("no node of the model runs on provider `{}` (nodes: {})", provider.name, got.join(", "));
            return Err(EngineError::Failed(reason));
        }
        let on = Device::of(&session, settings)?;
        let device = on.as_ref().map_or_else(|| provider.name.to_owned(), Device::name);
        Ok(OrtSession { session, inputs, outputs, on, device, threads: settings.threads, nodes })
    }
}

fn build(
    environment: &ort::environment::Environment,
    path: &Path,
    settings: &Settings<'_>,
) -> Result<ort::session::Session, EngineError> {
    let provider = settings.provider.ready(&settings.provider_options)?;
    let mut builder = ort::session::Session::builder(environment)
        .map_err(|error| failed(&error))?
        .with_execution_providers([provider])
        .map_err(|error| failed(&error))?
        .with_optimization_level(settings.optimization)
        .map_err(|error| failed(&error))?
        .with_intra_threads(settings.threads)
        .map_err(|error| failed(&error))?;
    let own = settings.session_options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    for (key, value) in own.chain([placement::COUNTED]) {
        builder = builder.with_config_entry(key, value).map_err(|error| failed(&error))?;
    }
    builder.commit_from_file(path).map_err(|error| match failed(&error) {
        EngineError::Failed(reason) => EngineError::Failed(format!("`{}`: {reason}", path.display())),
        other => other,
    })
}

/// What an input or output is, as the session tells it.
fn info(outlet: &Outlet) -> Result<ValueInfo, EngineError> {
    let name = outlet.name().to_owned();
    let ValueType::Tensor { ty, shape, dimension_symbols } = outlet.dtype() else {
        return Err(EngineError::Failed(format!("`{name}` is no tensor but {}", outlet.dtype())));
    };
    let dim = |(size, symbol): (&i64, &String)| match usize::try_from(*size) {
        Ok(size) => Dim::Fixed(size),
        Err(_) if symbol.is_empty() => Dim::Unknown,
        Err(_) => Dim::Named(symbol.clone()),
    };
    let dims = shape.iter().zip(dimension_symbols.iter()).map(dim).collect();
    let spec = TensorSpec { dims, dtype: dtype(&name, *ty)? };
    Ok(ValueInfo { name, spec })
}

impl Session for OrtSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    fn lend(&mut self, _index: usize, bytes: usize) -> Result<Box<dyn LentMemory>, EngineError> {
        match &self.on {
            Some(device) => device.lend(&self.session, bytes),
            None => HeapMemory::zeroed(bytes).map(|memory| Box::new(memory) as Box<dyn LentMemory>),
        }
    }

    fn submit(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.inputs, inputs)?;
        if let Some(device) = &mut self.on {
            let names = self.inputs.iter().map(|info| info.name.as_str());
            let inputs: Vec<(&str, Value)> = names.zip(inputs.iter().cloned()).collect();
            return device.run(&mut self.session, &inputs, &self.outputs);
        }
        let tensors = inputs.iter().map(Value::to_host).collect::<Result<Vec<_>, _>>()?;
        let lent = tensors.iter().map(lend).collect::<Result<Vec<_>, _>>().map_err(|error| failed(&error))?;
        let outputs = self.session.run(lent.as_slice()).map_err(|error| failed(&error))?;
        outputs.into_iter().map(|(name, value)| take(name, value).map(Value::Host)).collect()
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        self.on.as_ref().map_or(Ok(()), Device::sync)
    }

    fn device(&self) -> String {
        self.device.clone()
    }

    fn device_memory(&self) -> Option<Bytes> {
        self.on.as_ref()?.card()?.memory()
    }

    fn driver(&self) -> Option<String> {
        Some(self.on.as_ref()?.card()?.driver.clone())
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn nodes_by_provider(&self) -> IndexMap<String, u64> {
        self.nodes.clone()
    }
}
