//! Operators of the vendor as custom operators of ONNX Runtime: libraries with the interface of `flagperf_operator.h`.

use std::collections::HashMap;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;

use flagperf_onnx::{Attribute, Graph, Node, infer_values};
use flagperf_plugin::Error;
use flagperf_plugin::operator::{OperatorAttribute, OperatorLibrary, OperatorTensor};
use ort::operator::{
    BoxedKernel, ComputeContext, KernelContext, Operator, OperatorDomain, OperatorInput, OperatorOutput,
};
use ort::value::{DynTensorValueType, TensorElementType};

use super::tensor::element_type;
use super::to_engine_error;
use crate::operators::used_operators;
use crate::{EngineError, Unavailable};
use flagperf_core::tensor::{DType, TensorSpec};

/// Returns the operators of the vendor that a graph uses; `None` if it uses none.
///
/// # Errors
/// When a library is missing, or the type of a value is not known.
pub(super) fn domain_of(graph: &Graph, vendor: &Path, provider: &str) -> Result<Option<OperatorDomain>, EngineError> {
    let used = used_operators(graph, vendor);
    let Some((name, _)) = used.keys().next().and_then(|name| name.split_once('.')) else { return Ok(None) };
    let mut domain = OperatorDomain::new(name).map_err(|error| to_engine_error(&error))?;
    let types = value_types(graph);
    let mut libraries: HashMap<&str, Arc<OperatorLibrary>> = HashMap::new();
    let mut known: Vec<VendorOperator> = Vec::new();
    for node in graph.nodes.iter().filter(|node| node.domain == name) {
        if !libraries.contains_key(node.op.as_str()) {
            let file = if provider == CPU { "cpu.so" } else { "cuda.so" };
            let library = OperatorLibrary::open(&used[&format!("{name}.{}", node.op)].join(file));
            let library = library.map_err(|error| match error {
                Error::Unavailable { reason, remedy } => Unavailable { reason, remedy }.into(),
                error => EngineError::Failed(error.to_string()),
            })?;
            libraries.insert(&node.op, Arc::new(library));
        }
        let operator = VendorOperator::of_node(node, &types, provider, &libraries[node.op.as_str()])?;
        if !known.iter().any(|other| other.has_signature_of(&operator)) {
            known.push(operator);
        }
    }
    for operator in known {
        domain = domain.add(operator).map_err(|error| to_engine_error(&error))?;
    }
    Ok(Some(domain))
}

/// ONNX Runtime's name of the processor.
const CPU: &str = "CPUExecutionProvider";

fn value_types(graph: &Graph) -> HashMap<String, DType> {
    let of = |(name, spec): (&String, &TensorSpec)| (name.clone(), spec.dtype);
    let inputs = graph.inputs.iter().map(|input| (&input.name, &input.spec)).map(of);
    let outputs = graph.outputs.iter().map(|output| (&output.name, &output.spec)).map(of);
    let weights = graph.weights.iter().map(|(name, weight)| (name, &weight.spec)).map(of);
    let inferred = infer_values(graph).0.into_iter().map(|(name, spec)| (name, spec.dtype));
    graph.values.iter().map(of).chain(inputs).chain(outputs).chain(weights).chain(inferred).collect()
}

/// An operator with the types of one of its uses: ONNX Runtime selects it by them.
struct VendorOperator {
    name: String,
    provider: String,
    /// The types; `None` for an omitted input.
    inputs: Vec<Option<DType>>,
    outputs: Vec<DType>,
    /// The names of the attributes, and whether each is an integer.
    attributes: Vec<(String, bool)>,
    library: Arc<OperatorLibrary>,
}

impl VendorOperator {
    fn of_node(
        node: &Node,
        types: &HashMap<String, DType>,
        provider: &str,
        library: &Arc<OperatorLibrary>,
    ) -> Result<Self, EngineError> {
        let dtype = |name: &String| {
            let unknown =
                || format!("node `{}` ({}.{}): the type of `{name}` is not known", node.name, node.domain, node.op);
            types.get(name).copied().ok_or_else(|| EngineError::Failed(unknown()))
        };
        let input = |name: &String| if name.is_empty() { Ok(None) } else { dtype(name).map(Some) };
        let attributes = node.attributes.iter().map(|(name, value)| (name.clone(), matches!(value, Attribute::Int(_))));
        Ok(VendorOperator {
            name: node.op.clone(),
            provider: provider.to_owned(),
            inputs: node.inputs.iter().map(input).collect::<Result<_, _>>()?,
            outputs: node.outputs.iter().map(dtype).collect::<Result<_, _>>()?,
            attributes: attributes.collect(),
            library: library.clone(),
        })
    }

    fn has_signature_of(&self, other: &VendorOperator) -> bool {
        self.name == other.name && self.inputs == other.inputs && self.outputs == other.outputs
    }
}

impl Operator for VendorOperator {
    type Kernel<'attr> = BoxedKernel<'attr>;

    fn name(&self) -> &str {
        &self.name
    }

    fn execution_provider_type(&self) -> Option<&str> {
        Some(&self.provider)
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        self.inputs.iter().map(|dtype| match dtype {
            Some(dtype) => OperatorInput::required(element_type(*dtype)),
            None => OperatorInput::optional(TensorElementType::Float32),
        })
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        self.outputs.iter().map(|dtype| OperatorOutput::required(element_type(*dtype)))
    }

    fn create_kernel<'attr>(&self, context: &KernelContext<'attr>) -> ort::Result<BoxedKernel<'attr>> {
        let attribute = |(name, is_integer): &(String, bool)| {
            let value = match is_integer {
                true => context.get::<i64>(name).map(OperatorAttribute::Integer),
                false => context.get::<f32>(name).map(|number| OperatorAttribute::Number(f64::from(number))),
            };
            Some((name.clone(), value?))
        };
        let attributes: Vec<_> = self.attributes.iter().filter_map(attribute).collect();
        let kernel = Kernel {
            library: self.library.clone(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            attributes,
            on_device: self.provider != CPU,
        };
        Ok(Box::new(move |context: &ComputeContext| kernel.compute(context)))
    }
}

/// An operator of one node.
struct Kernel {
    library: Arc<OperatorLibrary>,
    inputs: Vec<Option<DType>>,
    outputs: Vec<DType>,
    attributes: Vec<(String, OperatorAttribute)>,
    on_device: bool,
}

impl Kernel {
    fn compute(&self, context: &ComputeContext) -> ort::Result<()> {
        let failed = |reason: String| ort::Error::new(reason);
        let mut inputs = Vec::new();
        for (place, dtype) in self.inputs.iter().enumerate() {
            let value = if dtype.is_some() { context.input(place)? } else { None };
            inputs.push(match (value, dtype) {
                (Some(value), Some(dtype)) => {
                    let value = value.downcast::<DynTensorValueType>()?;
                    Some(tensor(value.data_ptr().cast_mut(), value.shape().to_vec(), *dtype)?)
                }
                _ => None,
            });
        }
        let mut outputs = Vec::new();
        for (place, declared) in self.outputs.iter().enumerate() {
            let (shape, dtype) = self.library.output(&inputs, &self.attributes, place).map_err(failed)?;
            if dtype.name() != declared.name() {
                return Err(failed(format!("output {place} is `{}`, but declared as `{declared}`", dtype.name())));
            }
            let shape: Vec<i64> = shape.into_iter().map(|size| size as i64).collect();
            let Some(value) = context.output(place, shape.clone())? else {
                outputs.push(None);
                continue;
            };
            let value = value.downcast::<DynTensorValueType>()?;
            outputs.push(Some(tensor(value.data_ptr().cast_mut(), shape, *declared)?));
        }
        let stream = if self.on_device { context.stream()? } else { None };
        let stream = stream.map_or(null_mut(), |stream| stream.as_ptr());
        // SAFETY: ONNX Runtime allocated the tensors on the provider's device and frees them in the order of its stream; the
        // outputs have the shapes and types that the operator gave.
        unsafe { self.library.run(&inputs, &outputs, &self.attributes, stream.cast()) }.map_err(failed)
    }
}

fn tensor(data: *mut ort::sys::c_void, shape: Vec<i64>, dtype: DType) -> ort::Result<OperatorTensor> {
    let plugin_dtype = flagperf_plugin::DType::from_name(dtype.name());
    let plugin_dtype = plugin_dtype.ok_or_else(|| ort::Error::new(format!("tensors of `{dtype}`")))?;
    Ok(OperatorTensor { data: data.cast(), shape, dtype: plugin_dtype })
}
