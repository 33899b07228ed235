//! Building an engine from an ONNX file. This needs a GPU only where the library itself does.

use std::path::Path;

use flagperf_plugin::Error;
use trtx::builder::MemoryPoolType;
use trtx::builder_config::BuilderConfig;
use trtx::{Builder, BuilderFlag, NetworkDefinition, OnnxParser, OptProfileSelector, ProfilingVerbosity, Tensor};

use crate::log::{logger, with_logged_errors};
use crate::options::TensorRtOptions;
use crate::shapes::{Profile, format_shape};
use crate::values::{self, Value};

/// A serialized engine, with the inputs and outputs in the order of the model.
pub struct BuiltEngine {
    /// The serialized engine, which TensorRT loads.
    pub engine: Vec<u8>,
    /// The inputs.
    pub inputs: Vec<Value>,
    /// The outputs.
    pub outputs: Vec<Value>,
}

/// A parsed model. The parser owns the network and the weights that the network refers to.
struct ParsedModel(*mut OnnxParser<'static>);

impl ParsedModel {
    fn new(path: &Path, network: NetworkDefinition<'static>) -> Result<Self, Error> {
        let mut parser = with_logged_errors("the parser cannot be created", || OnnxParser::new(network, logger()?))?;
        let name =
            path.to_str().ok_or_else(|| Error::Failed(format!("the path `{}` is not valid UTF-8", path.display())))?;
        let what = format!("`{name}` cannot be parsed");
        // Severity 2: the parser logs warnings and errors.
        with_logged_errors(&what, || parser.parse_from_file(name, 2))?;
        Ok(ParsedModel(Box::into_raw(Box::new(parser))))
    }

    /// Returns the network, which lives as long as the parser.
    fn network(&mut self) -> &mut NetworkDefinition<'static> {
        // SAFETY: the parser lives until `self` is dropped, and nothing else refers to it.
        unsafe { (*self.0).network_mut() }
    }
}

impl Drop for ParsedModel {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box in `new`, and the box is restored once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Builds an engine for the profiles, or for batches of `batch_size` when there are no profiles.
///
/// # Errors
/// For an unsupported operator, a shape or profile that does not match the model, and TensorRT's own errors.
pub fn build(path: &Path, options: &TensorRtOptions, batch_size: usize) -> Result<BuiltEngine, Error> {
    let mut builder = with_logged_errors("the builder cannot be created", || Builder::new(logger()?))?;
    let network = with_logged_errors("the network cannot be created", || builder.create_network(0))?;
    let mut parsed = ParsedModel::new(path, network)?;
    let network = parsed.network();
    if options.profiles.is_empty() {
        fix_batch(network, batch_size)?;
    }
    let [inputs, outputs] = [inputs(network)?, outputs(network)?];
    let mut config = create_config(&mut builder, options)?;
    for profile in &options.profiles {
        add_profile(&mut builder, &mut config, &inputs, profile)?;
    }
    let what = format!("no engine can be built from `{}`", path.display());
    let engine = with_logged_errors(&what, || builder.build_serialized_network(network, &mut config))?;
    Ok(BuiltEngine { engine: engine.to_vec(), inputs, outputs })
}

fn create_config(builder: &mut Builder<'static>, options: &TensorRtOptions) -> Result<BuilderConfig<'static>, Error> {
    let mut config = with_logged_errors("the builder cannot be configured", || builder.create_config())?;
    // The question `layers` needs the details.
    config.set_profiling_verbosity(ProfilingVerbosity::kDETAILED);
    if options.tf32 {
        config.set_flag(BuilderFlag::kTF32);
    } else {
        config.clear_flag(BuilderFlag::kTF32);
    }
    if let Some(bytes) = options.workspace_bytes {
        config.set_memory_pool_limit(MemoryPoolType::kWORKSPACE, bytes);
    }
    Ok(config)
}

/// Sets an open first dimension to the batch size, as in a model exported with fixed shapes.
fn fix_batch(network: &mut NetworkDefinition<'static>, batch_size: usize) -> Result<(), Error> {
    let batch = i64::try_from(batch_size).map_err(Error::failed)?;
    for index in 0..network.nb_inputs() {
        let mut tensor = network.input(index).map_err(Error::failed)?;
        let Value { name, mut sizes, .. } = value(network, &tensor)?;
        if sizes.first() == Some(&-1) {
            sizes[0] = batch;
            tensor.set_dimensions(network, &sizes);
        }
        if sizes.contains(&-1) {
            let shape = format_shape(&sizes).replace("-1", "?");
            let reason = format!(
                "input `{name}` is `{shape}`: a dimension other than the batch is open, which needs `true` and `minShapes`"
            );
            return Err(Error::BadOption { option: "has_dynamic_axis".to_owned(), reason });
        }
    }
    Ok(())
}

/// Adds a profile, which must contain every input with an open dimension.
fn add_profile(
    builder: &mut Builder<'static>,
    config: &mut BuilderConfig<'static>,
    inputs: &[Value],
    profile: &Profile,
) -> Result<(), Error> {
    let profile_error = |reason| Error::BadOption { option: "minShapes".to_owned(), reason };
    if let Some(name) = profile.min.keys().find(|name| !inputs.iter().any(|input| input.name == **name)) {
        let known = inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(profile_error(format!("the model has no input `{name}` (known: {known})")));
    }
    let mut added = with_logged_errors("the profile cannot be created", || builder.creata_optimization_profile())?;
    for input in inputs.iter().filter(|input| input.sizes.contains(&-1)) {
        let sides = [
            (OptProfileSelector::kMIN, &profile.min),
            (OptProfileSelector::kOPT, &profile.opt),
            (OptProfileSelector::kMAX, &profile.max),
        ];
        for (side, shapes) in sides {
            let missing = || profile_error(format!("input `{}` is missing", input.name));
            let shape = shapes.get(&input.name).ok_or_else(missing)?;
            let fits = shape.len() == input.sizes.len()
                && shape.iter().zip(&input.sizes).all(|(size, open)| *open == -1 || size == open);
            if !fits {
                let (given, expected) = (format_shape(shape), format_shape(&input.sizes).replace("-1", "?"));
                let reason = format!("`{}:{given}` does not match the model, which expects `{expected}`", input.name);
                return Err(profile_error(reason));
            }
            let dims = values::dims(shape)?;
            with_logged_errors("the profile is rejected", || added.set_dimensions(&input.name, side, &dims))?;
        }
    }
    with_logged_errors("the profile is rejected", || config.add_optimization_profile(&mut added)).map(|_| ())
}

fn inputs(network: &NetworkDefinition<'static>) -> Result<Vec<Value>, Error> {
    let tensors = (0..network.nb_inputs()).map(|index| network.input(index).map_err(Error::failed));
    tensors.map(|tensor| value(network, &tensor?)).collect()
}

fn outputs(network: &NetworkDefinition<'static>) -> Result<Vec<Value>, Error> {
    let tensors = (0..network.nb_outputs()).map(|index| network.output(index).map_err(Error::failed));
    tensors.map(|tensor| value(network, &tensor?)).collect()
}

fn value(network: &NetworkDefinition<'static>, tensor: &Tensor<'static>) -> Result<Value, Error> {
    let name = tensor.name(network).map_err(Error::failed)?;
    let sizes = tensor.dimensions(network).map_err(Error::failed)?;
    let dtype = values::dtype(&name, tensor.data_type(network))?;
    Ok(Value { name, sizes, dtype })
}
