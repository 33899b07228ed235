//! Operators on all parameters together, for engines whose library has kernels for lists of tensors.

use indexmap::IndexMap;

use super::optimizer::{Moments, OptimizerKind};
use crate::lower::NodeList;
use crate::{Attribute, Node, Tensor};

/// The domain of this project's own operators.
pub const OWN_DOMAIN: &str = "flagperf";

/// The operator that returns the norm of all its inputs together: the root of the sum of their squares, in f32.
pub const NORM: &str = "Norm";

/// The operator of a group of processes, which all run it in the same order on tensors of the same shapes. It returns the mean of each
/// input over the processes. Engines that compute gradients themselves may reduce the gradients in one node as soon as all of them exist.
pub const ALL_REDUCE: &str = "AllReduce";

/// Returns an [`ALL_REDUCE`].
pub(crate) fn all_reduce_node(inputs: Vec<String>, outputs: Vec<String>) -> Node {
    let (name, op, domain) = (format!("all_reduce.{}", outputs[0]), ALL_REDUCE.to_owned(), OWN_DOMAIN.to_owned());
    Node { name, op, domain, inputs, outputs, ..Node::default() }
}

/// The same for one process alone, whose number is the attribute `root`: what the outputs of the others are is not defined.
pub const REDUCE: &str = "Reduce";

/// Returns an [`ALL_REDUCE`], or a [`REDUCE`] for the process `root`.
pub(crate) fn reduce_node(root: Option<u32>, inputs: Vec<String>, outputs: Vec<String>) -> Node {
    let node = all_reduce_node(inputs, outputs);
    match root {
        None => node,
        Some(root) => Node { op: REDUCE.to_owned(), attributes: root_attribute(root), ..node },
    }
}

/// The operator of a group of processes that returns the inputs of the process whose number is the attribute `root`. Those of the other
/// processes have the same shapes, and are not read.
pub const BROADCAST: &str = "Broadcast";

/// The attribute of a [`BROADCAST`] and a [`REDUCE`].
pub const ROOT: &str = "root";

/// Returns a [`BROADCAST`].
pub(crate) fn broadcast_node(root: u32, inputs: Vec<String>, outputs: Vec<String>) -> Node {
    let (name, op, domain) = (format!("broadcast.{}", outputs[0]), BROADCAST.to_owned(), OWN_DOMAIN.to_owned());
    Node { name, op, domain, inputs, outputs, attributes: root_attribute(root) }
}

fn root_attribute(root: u32) -> IndexMap<String, Attribute> {
    IndexMap::from([(ROOT.to_owned(), Attribute::Int(root.into()))])
}

/// Adds the mean of a value over the processes.
pub(crate) fn mean_over_processes(n: &mut NodeList<'_>, x: &str) -> String {
    let mean = n.name(ALL_REDUCE);
    n.keep(all_reduce_node(vec![x.to_owned()], vec![mean.clone()]));
    mean
}

/// The operator that updates parameters. Its inputs are the numbers `learning_rate`, `mean_correction`, `square_correction` and
/// `update` of the step; a Boolean that states whether anything changes, which may be left out; then all parameters, the
/// gradient of each, and for each kind of memory what the optimizer remembers of each. The outputs are the next parameters,
/// then the next memory in the same order. The attribute `optimizer` names the rule, `settings` (f64) has the numbers of
/// [`UpdateRule::settings`].
pub const UPDATE: &str = "Update";

/// The number of inputs before the parameters.
pub const UPDATE_NUMBERS: usize = 5;

/// An update rule with the weight decay of the parameters that an [`UPDATE`] updates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateRule {
    /// The rule.
    pub kind: OptimizerKind,
    /// The weight of the parameters in their own decay, as in [`super::Optimizer::weight_decay`].
    pub weight_decay: f64,
}

impl UpdateRule {
    /// Returns the number of tensors that the rule remembers of each parameter.
    pub fn memory_count(&self) -> usize {
        self.kind.memory().len()
    }

    /// Returns the name of the rule, and its numbers: the weight decay, then the fields of the rule in their order.
    pub fn settings(&self) -> (&'static str, [f64; 4]) {
        let decay = self.weight_decay;
        let moments = |name, Moments { beta1, beta2, eps }| (name, [decay, beta1, beta2, eps]);
        match self.kind {
            OptimizerKind::Sgd { momentum, nesterov } => ("sgd", [decay, momentum, f64::from(nesterov), 0.0]),
            OptimizerKind::Adam(values) => moments("adam", values),
            OptimizerKind::AdamW(values) => moments("adamw", values),
            OptimizerKind::Lamb(values) => moments("lamb", values),
            OptimizerKind::RmsProp { alpha, eps, momentum } => ("rmsprop", [decay, alpha, eps, momentum]),
        }
    }

    /// Returns the names of the parameters of an [`UPDATE`] and of what the optimizer remembers of them.
    pub fn states(self, node: &Node) -> impl Iterator<Item = &String> {
        let lists = node.inputs.get(UPDATE_NUMBERS..).unwrap_or_default();
        let count = lists.len() / (2 + self.memory_count());
        lists[..count].iter().chain(&lists[2 * count..])
    }

    /// Reads the rule of an [`UPDATE`]; `None` for another operator, or if an attribute is missing or has another form.
    pub fn of_node(node: &Node) -> Option<Self> {
        if (node.domain.as_str(), node.op.as_str()) != (OWN_DOMAIN, UPDATE) {
            return None;
        }
        let (Attribute::String(name), Attribute::Tensor(settings)) =
            (node.attributes.get("optimizer")?, node.attributes.get("settings")?)
        else {
            return None;
        };
        let &[weight_decay, a, b, c] = settings.as_slice::<f64>().ok()? else { return None };
        let moments = Moments { beta1: a, beta2: b, eps: c };
        let kind = match name.as_str() {
            "sgd" => OptimizerKind::Sgd { momentum: a, nesterov: b != 0.0 },
            "adam" => OptimizerKind::Adam(moments),
            "adamw" => OptimizerKind::AdamW(moments),
            "lamb" => OptimizerKind::Lamb(moments),
            "rmsprop" => OptimizerKind::RmsProp { alpha: a, eps: b, momentum: c },
            _ => return None,
        };
        Some(UpdateRule { kind, weight_decay })
    }

    /// Makes the node. `inputs` and `outputs` are those of the operator.
    pub(super) fn node(&self, name: String, inputs: Vec<String>, outputs: Vec<String>) -> Node {
        let (optimizer, settings) = self.settings();
        let settings =
            Tensor::from_vec([settings.len()], settings.to_vec()).expect("the shape is the length of the list");
        let attributes =
            [("optimizer", Attribute::String(optimizer.to_owned())), ("settings", Attribute::Tensor(settings))];
        Node {
            name,
            op: UPDATE.to_owned(),
            domain: OWN_DOMAIN.to_owned(),
            inputs,
            outputs,
            attributes: attributes
                .map(|(name, value)| (name.to_owned(), value))
                .into_iter()
                .collect::<IndexMap<_, _>>(),
        }
    }
}
