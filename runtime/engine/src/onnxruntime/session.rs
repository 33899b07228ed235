//! A model loaded by ONNX Runtime.

use std::path::{Path, PathBuf};

use flagperf_onnx::{Graph, ValueInfo};
use indexmap::IndexMap;
use ort::operator::OperatorDomain;
use ort::value::{Outlet, ValueType};

use super::device::CudaDevice;
use super::operators::domain_of;
use super::options::OrtOptions;
use super::request::RequestedProvider;
use super::tensor::{dtype, from_ort, to_ort};
use super::{library, placement, profile, to_engine_error};
use crate::model::ModelSource;
use crate::operators::{hashed_libraries, used_operators};
use crate::{EngineError, HeapMemory, LentMemory, RunProfile, Session, SessionFacts, Value, check_inputs};
use flagperf_core::tensor::{Dim, TensorSpec};
use flagperf_core::units::Bytes;

/// A session. On the CPU, inputs are views and outputs are ONNX Runtime's own memory.
pub(super) struct OrtSession {
    session: ort::session::Session,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    /// The CUDA device that the session computes on; `None` for any other provider.
    cuda: Option<CudaDevice>,
    device: String,
    threads: usize,
    nodes: IndexMap<String, u64>,
    operators: IndexMap<String, String>,
    warnings: Vec<String>,
    is_profiled: bool,
}

impl OrtSession {
    /// Loads a model file. `graph` is its contents, if they are known; its operators of a vendor are in the vendor's folder.
    ///
    /// # Errors
    /// When the library, the provider or the file cannot be used, or no node runs on the requested provider.
    pub(super) fn load(
        path: &Path,
        settings: &OrtOptions<'_>,
        graph: Option<&Graph>,
        vendor: &Path,
    ) -> Result<Self, EngineError> {
        let library = library::open(settings.library.as_deref())?;
        let used = graph.map(|graph| used_operators(graph, vendor)).unwrap_or_default();
        let operators =
            graph.map(|graph| domain_of(graph, &used, settings.provider.canonical())).transpose()?.flatten();
        let (session, reported_device) = build(&library.environment, path, settings, operators)?;
        let infos = |outlets: &[Outlet]| outlets.iter().map(value_info).collect::<Result<Vec<_>, _>>();
        let (inputs, outputs) = (infos(session.inputs())?, infos(session.outputs())?);
        let nodes = placement::nodes_by_provider(&session).map_err(|error| to_engine_error(&error))?;
        check_placement(&nodes, settings.provider)?;
        let cuda = CudaDevice::of_session(&session, settings)?;
        let device = match &cuda {
            Some(cuda) => cuda.name(),
            None => reported_device.unwrap_or_else(|| settings.provider.name().to_owned()),
        };
        let (threads, operators, warnings) = (settings.threads, hashed_libraries(&used), Vec::new());
        let is_profiled = settings.profile.is_some();
        Ok(OrtSession { session, inputs, outputs, cuda, device, threads, nodes, operators, warnings, is_profiled })
    }

    /// Replaces what ONNX Runtime inferred about inputs and outputs by what the file declares, and adds the warnings.
    ///
    /// # Errors
    /// When ONNX Runtime has other inputs or outputs.
    pub(super) fn with_declared(self, source: &ModelSource) -> Result<Self, EngineError> {
        let (inputs, outputs) = (source.graph.inputs.clone(), source.graph.outputs.clone());
        for (declared, own) in [(&inputs, &self.inputs), (&outputs, &self.outputs)] {
            let is_same =
                |(one, other): (&ValueInfo, &ValueInfo)| one.name == other.name && one.spec.dtype == other.spec.dtype;
            if declared.len() != own.len() || !declared.iter().zip(own).all(is_same) {
                let list = |infos: &[ValueInfo]| {
                    infos.iter().map(|info| format!("`{}` {}", info.name, info.spec)).collect::<Vec<_>>().join(", ")
                };
                let (own, declared) = (list(own), list(declared));
                let reason = format!("ONNX Runtime has {own}, but the model declares {declared}");
                return Err(EngineError::Failed(reason));
            }
        }
        Ok(OrtSession { inputs, outputs, warnings: source.warnings.clone(), ..self })
    }
}

/// Checks that the provider runs nodes of the model. ONNX Runtime may report no nodes at all: a provider of the table is
/// then trusted, because it did register.
fn check_placement(nodes: &IndexMap<String, u64>, provider: RequestedProvider<'_>) -> Result<(), EngineError> {
    let name = provider.name();
    if nodes.get(provider.canonical()).is_some_and(|count| *count > 0) {
        return Ok(());
    }
    match (nodes.is_empty(), provider) {
        (true, RequestedProvider::Known(_)) => Ok(()),
        (true, RequestedProvider::Other(_)) => Err(EngineError::Failed(format!(
            "ONNX Runtime does not report which nodes of the model run on provider `{name}`, so they may run on another"
        ))),
        (false, _) => {
            let counts: Vec<String> = nodes.iter().map(|(name, count)| format!("{name} {count}")).collect();
            let counts = counts.join(", ");
            Err(EngineError::Failed(format!("no node of the model runs on provider `{name}` (nodes: {counts})")))
        }
    }
}

/// Creates the session. Returns also the name of the device that ONNX Runtime reports for the provider, if it does.
fn build(
    environment: &ort::environment::Environment,
    path: &Path,
    settings: &OrtOptions<'_>,
    operators: Option<OperatorDomain>,
) -> Result<(ort::session::Session, Option<String>), EngineError> {
    let builder = ort::session::Session::builder(environment).map_err(|error| to_engine_error(&error))?;
    let (builder, device) = settings.provider.register(builder, environment, settings)?;
    let mut builder = builder
        .with_optimization_level(settings.optimization)
        .map_err(|error| to_engine_error(&error))?
        .with_intra_threads(settings.threads)
        .map_err(|error| to_engine_error(&error))?;
    let entries = settings.session_options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    for (key, value) in entries.chain([placement::RECORD_ASSIGNMENT]) {
        builder = builder.with_config_entry(key, value).map_err(|error| to_engine_error(&error))?;
    }
    if let Some(path) = &settings.profile {
        // ONNX Runtime says nothing when it cannot write there.
        let folder = path.parent().unwrap_or(path);
        std::fs::create_dir_all(folder)
            .map_err(|error| EngineError::Failed(format!("`{}`: {error}", folder.display())))?;
        builder = builder.with_profiling(path).map_err(|error| to_engine_error(&error))?;
    }
    if let Some(operators) = operators {
        builder = builder.with_operators(operators).map_err(|error| to_engine_error(&error))?;
    }
    let session = builder.commit_from_file(path).map_err(|error| match to_engine_error(&error) {
        EngineError::Failed(reason) => EngineError::Failed(format!("`{}`: {reason}", path.display())),
        other => other,
    })?;
    Ok((session, device))
}

/// Converts the description of an input or output.
fn value_info(outlet: &Outlet) -> Result<ValueInfo, EngineError> {
    let name = outlet.name().to_owned();
    let ValueType::Tensor { ty, shape, dimension_symbols } = outlet.dtype() else {
        return Err(EngineError::Failed(format!("`{name}` is not a tensor but {}", outlet.dtype())));
    };
    let dim = |(size, symbol): (&i64, &String)| match usize::try_from(*size) {
        Ok(size) => Dim::Fixed(size),
        // Some exporters write `?` for every dimension that they do not know.
        Err(_) if symbol.is_empty() || symbol == "?" => Dim::Unknown,
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
        match &self.cuda {
            Some(device) => device.lend(&self.session, bytes),
            None => HeapMemory::zeroed(bytes).map(|memory| Box::new(memory) as Box<dyn LentMemory>),
        }
    }

    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.inputs, inputs)?;
        if let Some(device) = &mut self.cuda {
            let names = self.inputs.iter().map(|info| info.name.as_str());
            let inputs: Vec<(&str, Value)> = names.zip(inputs.iter().cloned()).collect();
            return device.run(&mut self.session, &inputs, &self.outputs);
        }
        let tensors = inputs.iter().map(Value::to_host).collect::<Result<Vec<_>, _>>()?;
        let views =
            tensors.iter().map(to_ort).collect::<Result<Vec<_>, _>>().map_err(|error| to_engine_error(&error))?;
        let outputs = self.session.run(views.as_slice()).map_err(|error| to_engine_error(&error))?;
        outputs.into_iter().map(|(name, value)| from_ort(name, value).map(Value::Host)).collect()
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        self.cuda.as_ref().map_or(Ok(()), CudaDevice::sync)
    }

    /// Ends the profile, so that later runs have no times.
    fn operator_times(&mut self) -> Result<Option<Vec<RunProfile>>, EngineError> {
        if !std::mem::take(&mut self.is_profiled) {
            return Ok(None);
        }
        let path = self.session.end_profiling().map_err(|error| to_engine_error(&error))?;
        let profile = profile::read(&PathBuf::from(path))?;
        // Of a node on another device, ONNX Runtime's profile has the time of its launch.
        Ok(Some(profile).filter(|_| self.cuda.is_none()))
    }

    fn facts(&self) -> SessionFacts {
        SessionFacts {
            device: self.device.clone(),
            driver: self.cuda.as_ref().and_then(|device| Some(device.nvml()?.driver.clone())),
            threads: self.threads,
            nodes_by_provider: self.nodes.clone(),
            operators: self.operators.clone(),
            warnings: self.warnings.clone(),
            ..SessionFacts::default()
        }
    }

    fn device_memory(&self) -> Option<Bytes> {
        self.cuda.as_ref()?.nvml()?.memory_used()
    }
}
