//! From an ONNX file to an engine. Needs no GPU where TensorRT needs none.

use std::path::Path;

use flagperf_plugin::Error;
use trtx::builder::MemoryPoolType;
use trtx::builder_config::BuilderConfig;
use trtx::{Builder, BuilderFlag, NetworkDefinition, OnnxParser, OptProfileSelector, ProfilingVerbosity, Tensor};

use crate::log::{explained, logger};
use crate::options::Options;
use crate::shapes::{Profile, written};
use crate::values::{self, Value};

/// An engine as it goes to a file, with the inputs and outputs in the order of the model.
pub struct Built {
    /// What TensorRT loads.
    pub engine: Vec<u8>,
    /// What it is fed.
    pub inputs: Vec<Value>,
    /// What it gives.
    pub outputs: Vec<Value>,
}

/// A parsed model. The network is part of the parser, which keeps the weights that it refers to.
struct Parsed(*mut OnnxParser<'static>);

impl Parsed {
    fn new(path: &Path, network: NetworkDefinition<'static>) -> Result<Self, Error> {
        let mut parser = explained("the parser cannot be made", || OnnxParser::new(network, logger()?))?;
        let name = path.to_str().ok_or_else(|| Error::Failed(format!("`{}` is no name", path.display())))?;
        let what = format!("`{name}` cannot be parsed");
        // 2: the parser says warnings and what is worse.
        explained(&what, || parser.parse_from_file(name, 2))?;
        Ok(Parsed(Box::into_raw(Box::new(parser))))
    }

    /// trtx lends the network for as long as the parser lives; here it is for as long as this does.
    fn network(&mut self) -> &mut NetworkDefinition<'static> {
        // SAFETY: the parser lives until this is dropped, and nobody else has it.
        unsafe { (*self.0).network_mut() }
    }
}

impl Drop for Parsed {
    fn drop(&mut self) {
        // SAFETY: made from a box in `new`, taken back once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Builds an engine for batches of `batch_size` or, where there are any, for the profiles.
///
/// # Errors
/// An operator that TensorRT lacks; a shape or profile that does not fit the model; what TensorRT says.
pub fn build(path: &Path, options: &Options, batch_size: usize) -> Result<Built, Error> {
    let mut builder = explained("the builder cannot be made", || Builder::new(logger()?))?;
    let network = explained("the network cannot be made", || builder.create_network(0))?;
    let mut parsed = Parsed::new(path, network)?;
    let network = parsed.network();
    if options.profiles.is_empty() {
        fix_batch(network, batch_size)?;
    }
    let [inputs, outputs] = [inputs(network)?, outputs(network)?];
    let mut config = configured(&mut builder, options)?;
    for profile in &options.profiles {
        add_profile(&mut builder, &mut config, &inputs, profile)?;
    }
    let what = format!("no engine can be built from `{}`", path.display());
    let engine = explained(&what, || builder.build_serialized_network(network, &mut config))?;
    Ok(Built { engine: engine.to_vec(), inputs, outputs })
}

fn configured(builder: &mut Builder<'static>, options: &Options) -> Result<BuilderConfig<'static>, Error> {
    let mut config = explained("the builder cannot be configured", || builder.create_config())?;
    // So that the question `layers` has an answer.
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

/// Gives an open first dimension the size of the batch, which is what an export of fixed shapes would have.
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
            let shape = written(&sizes).replace("-1", "?");
            let reason = format!("input `{name}` is `{shape}`: more than the batch is open, `true` takes `minShapes`");
            return Err(Error::BadOption { option: "has_dynamic_axis".to_owned(), reason });
        }
    }
    Ok(())
}

/// Adds a profile, which must have every open input.
fn add_profile(
    builder: &mut Builder<'static>,
    config: &mut BuilderConfig<'static>,
    inputs: &[Value],
    profile: &Profile,
) -> Result<(), Error> {
    let refuse = |reason| Error::BadOption { option: "minShapes".to_owned(), reason };
    if let Some(name) = profile.min.keys().find(|name| !inputs.iter().any(|input| input.name == **name)) {
        let known = inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(refuse(format!("the model has no input `{name}` (known: {known})")));
    }
    let mut made = explained("the profile cannot be made", || builder.creata_optimization_profile())?;
    for input in inputs.iter().filter(|input| input.sizes.contains(&-1)) {
        let sides = [
            (OptProfileSelector::kMIN, &profile.min),
            (OptProfileSelector::kOPT, &profile.opt),
            (OptProfileSelector::kMAX, &profile.max),
        ];
        for (side, shapes) in sides {
            let shape = shapes.get(&input.name).ok_or_else(|| refuse(format!("input `{}` is missing", input.name)))?;
            let fits = shape.len() == input.sizes.len()
                && shape.iter().zip(&input.sizes).all(|(size, open)| *open == -1 || size == open);
            if !fits {
                let (given, takes) = (written(shape), written(&input.sizes).replace("-1", "?"));
                return Err(refuse(format!("`{}:{given}` does not fit the model, which takes `{takes}`", input.name)));
            }
            let dims = values::dims(shape)?;
            explained("the profile is refused", || made.set_dimensions(&input.name, side, &dims))?;
        }
    }
    explained("the profile is refused", || config.add_optimization_profile(&mut made)).map(|_| ())
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
