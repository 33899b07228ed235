//! Operators of the vendor as custom operators of ONNX Runtime: libraries with the interface of `flagperf_operator.h`.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Arc;

use flagperf_onnx::{Attribute, Graph, Node, infer_shapes};
use flagperf_plugin::Error;
use flagperf_plugin::operator::{OperatorAttribute, OperatorLibrary, OperatorTensor};
use indexmap::IndexMap;
use ort::operator::{
    BoxedKernel, ComputeContext, KernelContext, Operator, OperatorDomain, OperatorInput, OperatorOutput,
};
use ort::value::{DynTensorValueType, TensorElementType};

use super::tensor::element_type;
use super::to_engine_error;
use crate::{EngineError, Unavailable};
use flagperf_core::tensor::DType;

/// Returns the operators of the vendor that a graph uses, of which `used` has the folders; `None` if it uses none.
///
/// # Errors
/// When a library is missing, the type of a value is not known, or an attribute is neither an integer nor a number.
pub(super) fn domain_of(
    graph: &Graph,
    used: &IndexMap<String, PathBuf>,
    provider: &str,
) -> Result<Option<OperatorDomain>, EngineError> {
    let Some((vendor, _)) = used.keys().next().and_then(|name| name.split_once('.')) else { return Ok(None) };
    let mut domain = OperatorDomain::new(vendor).map_err(|error| to_engine_error(&error))?;
    let types = value_types(graph);
    for (name, folder) in used {
        let kind = if provider == CPU { "cpu" } else { "cuda" };
        let library = OperatorLibrary::open(name, folder, kind).map_err(|error| match error {
            Error::Unavailable { reason, remedy } => Unavailable { reason, remedy }.into(),
            error => EngineError::Failed(error.to_string()),
        })?;
        let library = Arc::new(library);
        let nodes: Vec<&Node> =
            graph.nodes.iter().filter(|node| name.split_once('.') == Some((&*node.domain, &*node.op))).collect();
        let attributes = attribute_names(&nodes)?;
        let operators = nodes.iter().map(|node| VendorOperator::of_node(node, &types, provider, &attributes, &library));
        for operator in with_one_arity(operators.collect::<Result<_, _>>()?) {
            domain = domain.add(operator).map_err(|error| to_engine_error(&error))?;
        }
    }
    Ok(Some(domain))
}

/// Returns one operator for all uses whose types agree. ONNX Runtime wants the same number of inputs of all operators of a name: an input
/// that any use lacks is optional.
fn with_one_arity(uses: Vec<VendorOperator>) -> Vec<VendorOperator> {
    let count = uses.iter().map(|operator| operator.inputs.len()).max().unwrap_or(0);
    let dtype = |operator: &VendorOperator, place: usize| operator.inputs.get(place).copied().flatten();
    let optional: Vec<bool> =
        (0..count).map(|place| uses.iter().any(|operator| dtype(operator, place).is_none())).collect();
    let mut known: Vec<VendorOperator> = Vec::new();
    for mut operator in uses {
        operator.inputs.resize(count, None);
        operator.optional.clone_from(&optional);
        match known.iter_mut().find(|other| other.agrees_with(&operator)) {
            Some(other) => other.inputs.iter_mut().zip(operator.inputs).for_each(|(own, more)| *own = own.or(more)),
            None => known.push(operator),
        }
    }
    known
}

/// Returns the names of the attributes that any of the nodes has.
fn attribute_names(nodes: &[&Node]) -> Result<BTreeSet<String>, EngineError> {
    let mut names = BTreeSet::new();
    for node in nodes {
        for (name, value) in &node.attributes {
            if !matches!(value, Attribute::Int(_) | Attribute::Float(_)) {
                let Node { name: node, domain, op, .. } = node;
                let reason =
                    format!("node `{node}` ({domain}.{op}): the attribute `{name}` is neither an integer nor a number");
                return Err(EngineError::Failed(reason));
            }
            names.insert(name.clone());
        }
    }
    Ok(names)
}

/// ONNX Runtime's name of the processor.
const CPU: &str = "CPUExecutionProvider";

/// Returns the types of the values of a graph, as far as they are known.
fn value_types(graph: &Graph) -> HashMap<String, DType> {
    let mut inferred = graph.clone();
    infer_shapes(&mut inferred);
    let outputs = graph.outputs.iter().map(|output| (output.name.clone(), output.spec.clone()));
    outputs.chain(inferred.specs()).map(|(name, spec)| (name, spec.dtype)).collect()
}

/// An operator with the types of its uses: ONNX Runtime selects it by them.
struct VendorOperator {
    name: String,
    provider: String,
    /// The types; `None` for an omitted input.
    inputs: Vec<Option<DType>>,
    /// Whether an input may be omitted.
    optional: Vec<bool>,
    outputs: Vec<DType>,
    /// The names of the attributes that a node may have.
    attributes: BTreeSet<String>,
    library: Arc<OperatorLibrary>,
}

impl VendorOperator {
    fn of_node(
        node: &Node,
        types: &HashMap<String, DType>,
        provider: &str,
        attributes: &BTreeSet<String>,
        library: &Arc<OperatorLibrary>,
    ) -> Result<Self, EngineError> {
        let dtype = |name: &String| {
            let unknown =
                || format!("node `{}` ({}.{}): the type of `{name}` is not known", node.name, node.domain, node.op);
            types.get(name).copied().ok_or_else(|| EngineError::Failed(unknown()))
        };
        let input = |name: &String| if name.is_empty() { Ok(None) } else { dtype(name).map(Some) };
        Ok(VendorOperator {
            name: node.op.clone(),
            provider: provider.to_owned(),
            inputs: node.inputs.iter().map(input).collect::<Result<_, _>>()?,
            optional: Vec::new(),
            outputs: node.outputs.iter().map(dtype).collect::<Result<_, _>>()?,
            attributes: attributes.clone(),
            library: library.clone(),
        })
    }

    /// Returns whether no type differs, as far as both have one.
    fn agrees_with(&self, other: &VendorOperator) -> bool {
        let agree = |(a, b): (&Option<DType>, &Option<DType>)| a.is_none() || b.is_none() || a == b;
        self.outputs == other.outputs && self.inputs.iter().zip(&other.inputs).all(agree)
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
        self.inputs.iter().zip(&self.optional).map(|(dtype, is_optional)| {
            let dtype = dtype.map_or(TensorElementType::Float32, element_type);
            if *is_optional { OperatorInput::optional(dtype) } else { OperatorInput::required(dtype) }
        })
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        self.outputs.iter().map(|dtype| OperatorOutput::required(element_type(*dtype)))
    }

    fn create_kernel<'attr>(&self, context: &KernelContext<'attr>) -> ort::Result<BoxedKernel<'attr>> {
        let attribute = |name: &String| {
            let number = || context.get::<f32>(name).map(|number| OperatorAttribute::Number(f64::from(number)));
            let value = context.get::<i64>(name).map(OperatorAttribute::Integer).or_else(number);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn node(attributes: &[(&str, Attribute)]) -> Node {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Node { name: "n".into(), op: "scale".into(), domain: "chip".into(), attributes, ..Node::default() }
    }

    #[test]
    fn an_attribute_that_only_a_later_node_has_is_known_and_text_is_refused() {
        let nodes = [node(&[("axis", Attribute::Int(1))]), node(&[("epsilon", Attribute::Float(0.5))])];
        let names = attribute_names(&nodes.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["axis", "epsilon"]);
        let error = attribute_names(&[&node(&[("mode", Attribute::String("a".into()))])]).unwrap_err().to_string();
        assert_eq!(error, "node `n` (chip.scale): the attribute `mode` is neither an integer nor a number");
    }
}
