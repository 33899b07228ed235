//! Converts a graph to an [`ExecutionPlan`]: names become slots, nodes become steps, weights become host tensors.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::op::Op;
use super::resolve::resolve;
use super::{ExecError, OpError};
use flagperf_onnx::{Graph, Node, Tensor, TensorSpec, WeightReader, infer_values};

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
}

/// A graph whose values are slots.
#[derive(Debug, Default)]
pub(super) struct ExecutionPlan {
    pub steps: Vec<Step>,
    pub inputs: Vec<Slot>,
    pub outputs: Vec<Slot>,
    pub constants: HashMap<Slot, Tensor>,
    /// The names of the weights.
    pub weights: HashMap<Slot, String>,
    /// The shape and type of each value, as far as they are known.
    pub specs: Vec<Option<TensorSpec>>,
}

impl ExecutionPlan {
    /// Returns the plan of a graph, with one step per node.
    pub fn new(graph: &Graph) -> Result<Self, ExecError> {
        // Files rarely declare the values between inputs and outputs.
        let inferred: HashMap<String, TensorSpec> = infer_values(graph).0.into_iter().collect();
        let mut plan = ExecutionPlan::default();
        let mut slots = HashMap::new();
        for input in &graph.inputs {
            let slot = plan.add_slot(Some(input.spec.clone()));
            plan.inputs.push(slot);
            slots.insert(input.name.clone(), slot);
        }
        let mut weights = WeightReader::new(graph);
        for name in graph.weights.keys() {
            let slot = plan.add_constant(weights.tensor(name)?);
            plan.weights.insert(slot, name.clone());
            slots.insert(name.clone(), slot);
        }
        let read = read_values(graph);
        for node in &graph.nodes {
            plan.add_node(graph, &inferred, &needed_outputs(node, &read), &mut slots)?;
        }
        for output in &graph.outputs {
            plan.outputs.push(find_slot(&slots, &output.name, &output.name)?);
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
            let is_on_host = shape || step.inputs.iter().flatten().all(|slot| on_host[*slot]);
            step.outputs.iter().for_each(|slot| on_host[*slot] = is_on_host);
        }
        on_host
    }

    fn add_node(
        &mut self,
        graph: &Graph,
        inferred: &HashMap<String, TensorSpec>,
        node: &Node,
        slots: &mut HashMap<String, Slot>,
    ) -> Result<(), ExecError> {
        if node.op == "Constant" && node.domain.is_empty() {
            let unknown = || OpError::unsupported("a constant that is neither a tensor nor numbers");
            let value = node.constant().ok_or_else(|| node_error(&node.name, &node.op, unknown()))?;
            let slot = self.add_constant(value);
            slots.extend(node.outputs.first().map(|name| (name.clone(), slot)));
            return Ok(());
        }
        let op = resolve(node, graph.opset)?;
        let read =
            |name: &String| if name.is_empty() { Ok(None) } else { find_slot(slots, name, &node.name).map(Some) };
        let inputs = node.inputs.iter().map(read).collect::<Result<_, _>>()?;
        let output_count = op.output_count(node.outputs.len());
        if let Some(name) = node.outputs.iter().skip(output_count).find(|name| !name.is_empty()) {
            let place = node.outputs.iter().position(|output| output == name).unwrap_or_default();
            return Err(node_error(&node.name, &node.op, OpError::unsupported(format!("output {place} (`{name}`)"))));
        }
        let mut outputs = Vec::new();
        for name in node.outputs.iter().take(output_count) {
            let slot = self.add_slot(inferred.get(name).or_else(|| graph.values.get(name)).cloned());
            if !name.is_empty() {
                slots.insert(name.clone(), slot);
            }
            outputs.push(slot);
        }
        self.steps.push(Step { name: node.name.clone(), op_name: node.op.clone(), op, inputs, outputs });
        Ok(())
    }
}

/// Returns whether a constant is kept on the host. Single numbers and lists of integers are: they are shapes, axes,
/// bounds and factors.
pub(super) fn stays_on_host(constant: &Tensor) -> bool {
    const LONGEST_LIST: usize = 64;
    let list = constant.shape().len() <= 1 && constant.len() <= LONGEST_LIST && !constant.dtype().is_float();
    list || constant.len() == 1
}

/// Returns the error of a node.
pub(super) fn node_error(node: &str, op: &str, reason: OpError) -> ExecError {
    ExecError::Node { node: node.to_owned(), op: op.to_owned(), reason }
}

/// Returns the names of the values that nodes or outputs of the graph read.
fn read_values(graph: &Graph) -> HashSet<&str> {
    let inputs = graph.nodes.iter().flat_map(|node| &node.inputs).map(String::as_str);
    inputs.chain(graph.outputs.iter().map(|output| output.name.as_str())).collect()
}

/// Returns the node with its outputs up to the last that is read. The number of outputs of a `Split` is a parameter.
fn needed_outputs<'a>(node: &'a Node, read: &HashSet<&str>) -> Cow<'a, Node> {
    let needed = node.outputs.iter().rposition(|name| read.contains(name.as_str())).map_or(1, |last| last + 1);
    let name = |name: &String| if read.contains(name.as_str()) { name.clone() } else { String::new() };
    let outputs: Vec<String> = node.outputs.iter().take(needed).map(name).collect();
    if outputs == node.outputs || node.op == "Split" {
        return Cow::Borrowed(node);
    }
    Cow::Owned(Node { outputs, ..node.clone() })
}

fn find_slot(slots: &HashMap<String, Slot>, name: &str, reader: &str) -> Result<Slot, ExecError> {
    let undefined = || ExecError::UndefinedValue { reader: reader.to_owned(), value: name.to_owned() };
    slots.get(name).copied().ok_or_else(undefined)
}
