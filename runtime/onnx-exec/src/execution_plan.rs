//! Converts a graph to an [`ExecutionPlan`]: names become slots, nodes become steps, weights become host tensors.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::op::Op;
use super::resolve::{has_kernel, resolve};
use super::{ExecError, OpError};
use flagperf_onnx::{
    Attribute, DType, Graph, InferError, MODERN_OPSET, Node, OPSET_NEWEST, Operator, Subgraph, TRAINING_DOMAIN, Tensor,
    TensorSpec, UninferredNode, ValueInfo, WeightReader, captured_names, find_operator, infer_values, lower, upgrade,
};

/// Levels of subgraphs.
const BODIES_MAX: usize = 16;

/// Operators for which the number of outputs has a meaning.
const PARTS: [&str; 4] = ["If", "Loop", "Scan", "Split"];

/// The index of a value while a graph runs.
pub(super) type Slot = usize;

/// One operator, with the slots that it reads and writes.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Name of the node, for messages.
    pub name: String,
    /// Operator of the node, for messages.
    pub op_name: String,
    pub op: Op,
    pub inputs: Vec<Option<Slot>>,
    pub outputs: Vec<Slot>,
    /// The subgraphs that the step runs. Their last inputs are the last inputs of the step.
    pub bodies: Vec<ExecutionPlan>,
}

/// A graph whose values are slots.
#[derive(Clone, Debug, Default)]
pub(super) struct ExecutionPlan {
    pub steps: Vec<Step>,
    pub inputs: Vec<Slot>,
    pub outputs: Vec<Slot>,
    /// The indices of the inputs that steps overwrite.
    pub overwritten: Vec<usize>,
    /// How many of the last inputs are values of the graph around a subgraph.
    pub captured: usize,
    pub constants: HashMap<Slot, Tensor>,
    /// The names of the weights.
    pub weights: HashMap<Slot, String>,
    /// The shape and type of each value, as far as they are known.
    pub specs: Vec<Option<TensorSpec>>,
}

/// What is known while the nodes of a graph are added.
struct Scope<'a> {
    graph: &'a Graph,
    inferred: HashMap<String, TensorSpec>,
    /// The version of the operator set in the file.
    opset: i64,
    depth: usize,
    slots: HashMap<String, Slot>,
}

impl ExecutionPlan {
    /// Returns the plan of a graph, with one step per node.
    pub fn of_graph(graph: &Graph) -> Result<Self, ExecError> {
        let inputs = graph.inputs.iter().map(|input| (input.name.clone(), Some(input.spec.clone()))).collect();
        let outputs: Vec<String> = graph.outputs.iter().map(|output| output.name.clone()).collect();
        ExecutionPlan::new(graph, inputs, &outputs, 0)
    }

    /// Returns the plan of the nodes of a graph, which may be a subgraph `depth` levels below the model's graph.
    fn new(
        graph: &Graph,
        inputs: Vec<(String, Option<TensorSpec>)>,
        outputs: &[String],
        depth: usize,
    ) -> Result<Self, ExecError> {
        // Subgraphs are of the version that the file has.
        let (opset, graph) = (graph.opset, &*decomposed(graph)?);
        // Files rarely declare the values between inputs and outputs.
        let (inferred, uninferred) = infer_values(graph);
        let inferred: HashMap<String, TensorSpec> = inferred.into_iter().collect();
        check_types(graph, &inferred, &uninferred)?;
        let mut plan = ExecutionPlan::default();
        let mut scope = Scope { graph, inferred, opset, depth, slots: HashMap::new() };
        for (name, spec) in inputs {
            let slot = plan.add_slot(spec);
            plan.inputs.push(slot);
            scope.slots.insert(name, slot);
        }
        let mut weights = WeightReader::new(graph);
        for name in graph.weights.keys() {
            let slot = plan.add_constant(weights.tensor(name)?);
            plan.weights.insert(slot, name.clone());
            scope.slots.insert(name.clone(), slot);
        }
        let read = read_values(graph, outputs, opset);
        for node in &graph.nodes {
            plan.add_node(&needed_outputs(node, &read), &mut scope)?;
        }
        for output in outputs {
            plan.outputs.push(find_slot(&scope.slots, output, output)?);
        }
        Ok(plan)
    }

    /// Adds a slot.
    pub fn add_slot(&mut self, spec: Option<TensorSpec>) -> Slot {
        self.specs.push(spec);
        self.specs.len() - 1
    }

    /// Adds a constant and returns its slot.
    pub fn add_constant(&mut self, tensor: Tensor) -> Slot {
        let slot = self.add_slot(Some(tensor.spec()));
        self.constants.insert(slot, tensor);
        slot
    }

    /// Returns how often each slot is read by steps and outputs.
    pub fn use_counts(&self) -> Vec<usize> {
        let mut uses = vec![0; self.specs.len()];
        for slot in self.steps.iter().flat_map(|step| step.inputs.iter().flatten()).chain(&self.outputs) {
            uses[*slot] += 1;
        }
        uses
    }

    /// Returns for each value whether it is on the host while the graph runs. Small constants, shapes, and values
    /// computed from them are.
    pub fn values_on_host(&self) -> Vec<bool> {
        let mut on_host = vec![false; self.specs.len()];
        for (slot, constant) in &self.constants {
            on_host[*slot] = stays_on_host(constant);
        }
        for step in &self.steps {
            let shape = matches!(step.op, Op::Shape { .. } | Op::Size);
            let is_plain = !matches!(
                step.op,
                Op::Control(_) | Op::Custom(_) | Op::MeanOverProcesses { .. } | Op::Broadcast { .. }
            );
            let is_on_host = shape || is_plain && step.inputs.iter().flatten().all(|slot| on_host[*slot]);
            step.outputs.iter().for_each(|slot| on_host[*slot] = is_on_host);
        }
        on_host
    }

    fn add_node(&mut self, node: &Node, scope: &mut Scope<'_>) -> Result<(), ExecError> {
        if node.op == "Constant" && node.domain.is_empty() {
            let unknown = || OpError::unsupported("a constant that is neither a tensor nor numbers");
            let value = node.constant().ok_or_else(|| node_error(&node.name, &node.op, unknown()))?;
            let slot = self.add_constant(value);
            scope.slots.extend(node.outputs.first().map(|name| (name.clone(), slot)));
            return Ok(());
        }
        let op = resolve(node, scope.graph.opset)?;
        let slots = &scope.slots;
        let read =
            |name: &String| if name.is_empty() { Ok(None) } else { find_slot(slots, name, &node.name).map(Some) };
        let mut inputs = node.inputs.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if let Op::Gradient { .. } = op {
            let missing = || node_error(&node.name, &node.op, OpError::invalid_operands("attribute `y` is missing"));
            let loss = differentiated_value(node).ok_or_else(missing)?;
            inputs.push(Some(find_slot(slots, loss, &node.name)?));
            self.record_leaves(&mut inputs);
        }
        let mut bodies = Vec::new();
        if let Op::Control(control) = &op {
            let captured = self.captured_values(node, scope);
            inputs.extend(captured.iter().map(|(_, slot)| Some(*slot)));
            for name in control.bodies() {
                bodies.push(self.body(node, name, &captured, scope)?);
            }
        }
        let output_count = op.output_count(node.outputs.len());
        if let Some(name) = node.outputs.iter().skip(output_count).find(|name| !name.is_empty()) {
            let place = node.outputs.iter().position(|output| output == name).unwrap_or_default();
            return Err(node_error(&node.name, &node.op, OpError::unsupported(format!("output {place} (`{name}`)"))));
        }
        let mut outputs = Vec::new();
        for name in node.outputs.iter().take(output_count) {
            let slot = self.add_slot(scope.inferred.get(name).or_else(|| scope.graph.values.get(name)).cloned());
            if !name.is_empty() {
                scope.slots.insert(name.clone(), slot);
            }
            outputs.push(slot);
        }
        self.steps.push(Step { name: node.name.clone(), op_name: node.op.clone(), op, inputs, outputs, bodies });
        Ok(())
    }

    /// Lets the steps so far, and the inputs of the gradient that follows, read recorded leaves.
    fn record_leaves(&mut self, inputs: &mut [Option<Slot>]) {
        let leaves: Vec<Slot> = inputs.iter().rev().skip(1).rev().flatten().copied().collect();
        let recorded: HashMap<Slot, Slot> =
            leaves.iter().map(|leaf| (*leaf, self.add_slot(self.specs[*leaf].clone()))).collect();
        let readers = self.steps.iter_mut().map(|step| &mut step.inputs[..]).chain([inputs]);
        for slot in readers.flat_map(|inputs| inputs.iter_mut().flatten()) {
            *slot = recorded.get(slot).copied().unwrap_or(*slot);
        }
        let record = Step {
            name: "record".to_owned(),
            op_name: "Record".to_owned(),
            op: Op::Record,
            outputs: leaves.iter().map(|leaf| recorded[leaf]).collect(),
            inputs: leaves.into_iter().map(Some).collect(),
            bodies: Vec::new(),
        };
        self.steps.insert(0, record);
    }

    /// Returns the values that the subgraphs of a node read from the graph around it.
    fn captured_values(&self, node: &Node, scope: &Scope<'_>) -> Vec<(String, Slot)> {
        let mut names: Vec<String> = captured_names(node, scope.opset).into_iter().collect();
        names.sort_unstable();
        names.into_iter().filter_map(|name| scope.slots.get(&name).copied().map(|slot| (name, slot))).collect()
    }

    /// Returns the plan of a subgraph of a node.
    fn body(
        &self,
        node: &Node,
        attribute: &str,
        captured: &[(String, Slot)],
        scope: &Scope<'_>,
    ) -> Result<ExecutionPlan, ExecError> {
        let failed = |reason: String| {
            node_error(&node.name, &node.op, OpError::invalid_operands(format!("attribute `{attribute}`: {reason}")))
        };
        if scope.depth >= BODIES_MAX {
            return Err(failed(format!("more than {BODIES_MAX} levels of subgraphs")));
        }
        let decoded = node.attributes.get(attribute).map(|attribute| Subgraph::decode(attribute, scope.opset));
        let body = decoded.transpose().map_err(failed)?.flatten();
        let mut body = body.ok_or_else(|| failed("there is no subgraph".to_owned()))?;
        let known = |name: &String| body.graph.inputs.iter().find(|input| input.name == *name).map(|i| i.spec.clone());
        let mut inputs: Vec<_> = body.inputs.iter().map(|name| (name.clone(), known(name))).collect();
        for (name, slot) in captured {
            let spec = self.specs[*slot].clone();
            body.graph.inputs.extend(spec.clone().map(|spec| ValueInfo { name: name.clone(), spec }));
            inputs.push((name.clone(), spec));
        }
        let mut plan = ExecutionPlan::new(&body.graph, inputs, &body.outputs, scope.depth + 1)?;
        plan.captured = captured.len();
        Ok(plan)
    }
}

/// Returns whether a constant is kept on the host. Single numbers and lists of integers are: they are shapes, axes,
/// bounds and factors.
pub(super) fn stays_on_host(constant: &Tensor) -> bool {
    const LONGEST_LIST: usize = 64;
    let list = constant.shape().len() <= 1 && constant.len() <= LONGEST_LIST && !constant.dtype().is_float();
    (list || constant.len() == 1) && is_exact_on_host(constant)
}

/// Returns whether the numbers of the host, in f64, represent all integers of a tensor. The largest integers stand for no
/// bound, and survive the conversion.
fn is_exact_on_host(constant: &Tensor) -> bool {
    const EXACT_MAX: u64 = 1 << 53;
    let is_exact = |value: &i64| value.unsigned_abs() <= EXACT_MAX || matches!(*value, i64::MIN | i64::MAX);
    constant.as_slice::<i64>().is_ok_and(|values| values.iter().all(is_exact)) || constant.dtype() != DType::I64
}

/// Returns the error of a node.
pub(super) fn node_error(node: &str, op: &str, reason: OpError) -> ExecError {
    ExecError::Node { node: node.to_owned(), op: op.to_owned(), reason }
}

/// Refuses a node whose inputs have element types that its operator does not accept; names these inputs and weights.
fn check_types(
    graph: &Graph,
    inferred: &HashMap<String, TensorSpec>,
    uninferred: &[UninferredNode],
) -> Result<(), ExecError> {
    let refused = uninferred.iter().find(|node| matches!(node.reason, InferError::Types(_)));
    let Some((refused, node)) = refused
        .and_then(|refused| graph.nodes.iter().find(|node| node.name == refused.node).map(|node| (refused, node)))
    else {
        return Ok(());
    };
    let known = |name: &String| {
        let weight = graph.weights.get(name).map(|weight| format!("weight `{name}` is `{}`", weight.spec.dtype));
        let input = graph.inputs.iter().find(|input| input.name == *name).map(|input| &input.spec);
        weight.or_else(|| Some(format!("`{name}` is `{}`", input.or(inferred.get(name))?.dtype)))
    };
    let types: Vec<String> = node.inputs.iter().filter_map(known).collect();
    let reason = format!("{} ({})", refused.reason, types.join(", "));
    Err(node_error(&node.name, &node.op, OpError::invalid_operands(reason)))
}

/// Returns the names of the values that nodes, their subgraphs, or the outputs read.
fn read_values(graph: &Graph, outputs: &[String], opset: i64) -> HashSet<String> {
    let inputs = graph.nodes.iter().flat_map(|node| node.inputs.iter().cloned().chain(captured_names(node, opset)));
    let losses = graph.nodes.iter().filter_map(differentiated_value).map(str::to_owned);
    inputs.chain(losses).chain(outputs.iter().cloned()).collect()
}

/// Returns the value that a `Gradient` differentiates; `None` for another operator.
fn differentiated_value(node: &Node) -> Option<&str> {
    match node.attributes.get("y") {
        Some(Attribute::String(loss)) if node.domain == TRAINING_DOMAIN => Some(loss),
        _ => None,
    }
}

/// Returns the node with its outputs up to the last that is read. That number is a parameter of a `Split`, and
/// determines which outputs of a subgraph are which.
fn needed_outputs<'a>(node: &'a Node, read: &HashSet<String>) -> Cow<'a, Node> {
    let needed = node.outputs.iter().rposition(|name| read.contains(name.as_str())).map_or(1, |last| last + 1);
    let name = |name: &String| if read.contains(name.as_str()) { name.clone() } else { String::new() };
    let outputs: Vec<String> = node.outputs.iter().take(needed).map(name).collect();
    if outputs == node.outputs || PARTS.contains(&node.op.as_str()) {
        return Cow::Borrowed(node);
    }
    Cow::Owned(Node { outputs, ..node.clone() })
}

fn find_slot(slots: &HashMap<String, Slot>, name: &str, reader: &str) -> Result<Slot, ExecError> {
    let undefined = || ExecError::UndefinedValue { reader: reader.to_owned(), value: name.to_owned() };
    slots.get(name).copied().ok_or_else(undefined)
}

/// Returns the graph with the operators for which the executor has no implementation decomposed, as far as they can be.
fn decomposed(graph: &Graph) -> Result<Cow<'_, Graph>, ExecError> {
    let lacks = |node: &&Node| {
        let is_composite = find_operator(&node.op).is_some_and(Operator::is_composite);
        node.domain.is_empty() && is_composite && !has_kernel(&node.op)
    };
    let lacking: Vec<&str> = graph.nodes.iter().filter(lacks).map(|node| node.op.as_str()).collect();
    let is_old = graph.opset < MODERN_OPSET;
    let modern = if is_old { Cow::Owned(upgrade(graph)?) } else { Cow::Borrowed(graph) };
    if lacking.is_empty() { Ok(modern) } else { Ok(Cow::Owned(lower(&modern, OPSET_NEWEST, &lacking)?)) }
}
