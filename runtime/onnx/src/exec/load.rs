//! From a graph to a [`Plan`]: names become slots, nodes become steps, weights become host tensors.

use std::collections::HashMap;

use super::op::Op;
use super::resolve::resolve;
use super::{ExecError, OpError};
use crate::{Attribute, Graph, Node, Tensor, TensorSpec, WeightReader, check};

/// The place of a value while a graph runs.
pub(super) type Slot = usize;

/// One operator with the slots it reads and fills.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The node's name, for messages.
    pub name: String,
    /// The node's operator, for messages.
    pub op_name: String,
    pub op: Op,
    pub inputs: Vec<Option<Slot>>,
    pub outputs: Vec<Slot>,
}

/// A graph over slots.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub steps: Vec<Step>,
    pub inputs: Vec<Slot>,
    pub outputs: Vec<Slot>,
    pub constants: HashMap<Slot, Tensor>,
    /// What is known of each value's shape and type.
    pub specs: Vec<Option<TensorSpec>>,
}

impl Plan {
    /// The plan of a graph, node by node.
    pub fn new(graph: &Graph) -> Result<Self, ExecError> {
        // Files seldom say what lies between inputs and outputs.
        let (inferred, _) = check::run(graph, check::begin(graph));
        let inferred: HashMap<String, TensorSpec> = inferred.into_iter().collect();
        let mut plan = Plan::default();
        let mut slots = HashMap::new();
        for input in &graph.inputs {
            let slot = plan.slot(Some(input.spec.clone()));
            plan.inputs.push(slot);
            slots.insert(input.name.as_str(), slot);
        }
        let mut weights = WeightReader::new(graph);
        for name in graph.weights.keys() {
            let slot = plan.constant(weights.tensor(name)?);
            slots.insert(name, slot);
        }
        for node in &graph.nodes {
            plan.add(graph, &inferred, node, &mut slots)?;
        }
        for output in &graph.outputs {
            plan.outputs.push(find(&slots, &output.name, &output.name)?);
        }
        Ok(plan)
    }

    /// A new place for a value.
    pub fn slot(&mut self, spec: Option<TensorSpec>) -> Slot {
        self.specs.push(spec);
        self.specs.len() - 1
    }

    /// A new constant.
    pub fn constant(&mut self, tensor: Tensor) -> Slot {
        let slot = self.slot(Some(tensor.spec()));
        self.constants.insert(slot, tensor);
        slot
    }

    /// How many steps and outputs read each slot.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.specs.len()];
        for slot in self.steps.iter().flat_map(|step| step.inputs.iter().flatten()).chain(&self.outputs) {
            uses[*slot] += 1;
        }
        uses
    }

    /// Whether each value is on the host while the graph runs: small constants, shapes, and what follows from them.
    pub fn on_host(&self) -> Vec<bool> {
        let mut there = vec![false; self.specs.len()];
        for (slot, constant) in &self.constants {
            there[*slot] = stays_on_host(constant);
        }
        for step in &self.steps {
            let shape = matches!(step.op, Op::Shape { .. });
            let here = shape || step.inputs.iter().flatten().all(|slot| there[*slot]);
            step.outputs.iter().for_each(|slot| there[*slot] = here);
        }
        there
    }

    fn add<'a>(
        &mut self,
        graph: &'a Graph,
        inferred: &HashMap<String, TensorSpec>,
        node: &'a Node,
        slots: &mut HashMap<&'a str, Slot>,
    ) -> Result<(), ExecError> {
        if node.op == "Constant" && node.domain.is_empty() {
            let slot = self.constant(constant(node).map_err(|reason| failure(&node.name, &node.op, reason))?);
            slots.extend(node.outputs.first().map(|name| (name.as_str(), slot)));
            return Ok(());
        }
        let op = resolve(node, graph.opset)?;
        let read = |name: &String| if name.is_empty() { Ok(None) } else { find(slots, name, &node.name).map(Some) };
        let inputs = node.inputs.iter().map(read).collect::<Result<_, _>>()?;
        // Of optional further outputs (the mask of Dropout, the statistics of BatchNormalization) none is made.
        let made = if let Op::Split { parts, .. } = op { parts } else { 1 };
        let mut outputs = Vec::new();
        for name in node.outputs.iter().take(made) {
            let slot = self.slot(inferred.get(name).or_else(|| graph.values.get(name)).cloned());
            slots.insert(name, slot);
            outputs.push(slot);
        }
        self.steps.push(Step { name: node.name.clone(), op_name: node.op.clone(), op, inputs, outputs });
        Ok(())
    }
}

/// Whether a constant is kept on the host: single numbers and lists of integers are shapes, axes, bounds, factors.
pub(super) fn stays_on_host(constant: &Tensor) -> bool {
    const LONGEST_LIST: usize = 64;
    let list = constant.shape().len() <= 1 && constant.len() <= LONGEST_LIST && !constant.dtype().is_float();
    list || constant.len() == 1
}

/// The error of a node.
pub(super) fn failure(node: &str, op: &str, reason: OpError) -> ExecError {
    ExecError::Node { node: node.to_owned(), op: op.to_owned(), reason }
}

fn find(slots: &HashMap<&str, Slot>, name: &str, reader: &str) -> Result<Slot, ExecError> {
    let undefined = || ExecError::UndefinedValue { reader: reader.to_owned(), value: name.to_owned() };
    slots.get(name).copied().ok_or_else(undefined)
}

/// The value of a node `Constant`, in whichever of its attributes it is.
fn constant(node: &Node) -> Result<Tensor, OpError> {
    let vector = |result: Result<Tensor, crate::TensorError>| result.map_err(OpError::library);
    let unknown = || OpError::lacks("a constant that is neither a tensor nor numbers");
    match node.attributes.iter().next().ok_or_else(unknown)? {
        (name, Attribute::Tensor(tensor)) if name == "value" => Ok(tensor.clone()),
        (_, Attribute::Float(number)) => Ok(Tensor::scalar(*number)),
        (_, Attribute::Int(number)) => Ok(Tensor::scalar(*number)),
        (_, Attribute::Floats(numbers)) => vector(Tensor::from_vec([numbers.len()], numbers.clone())),
        (_, Attribute::Ints(numbers)) => vector(Tensor::from_vec([numbers.len()], numbers.clone())),
        _ => Err(unknown()),
    }
}
