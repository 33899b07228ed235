//! Checks of scripts for what makes figures worthless: an evaluator without the truth, a model that does not run, or runs
//! on fewer rows. They compare two trees and report only what the later one adds.

use std::collections::BTreeSet;

use super::graph::{FunctionKey, ScriptTree};
use super::tree::FilePath;
use flagperf_script::{FunctionOutline, NodeKind, SyntaxNode};

/// Functions of tensors that return a part of their rows.
const PART_FUNCTIONS: [&str; 6] = ["slice", "split", "chunk", "gather", "index", "rows"];

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suspicion {
    /// The name of the check.
    pub(super) check: &'static str,
    pub(super) file: FilePath,
    pub(super) line: usize,
    pub(super) message: String,
}

/// Where something occurs: the file and the line.
type Place = (String, usize);

/// Checks every forward function that calls one of the `changed` functions, directly or not.
pub(super) fn check_forward(
    before: &ScriptTree<'_>,
    after: &ScriptTree<'_>,
    changed: &BTreeSet<FunctionKey>,
) -> Vec<Suspicion> {
    let mut found = Vec::new();
    for function in after.forward_functions() {
        let [old, new] = [before, after].map(|tree| Forward::read(tree, &function));
        if changed.is_disjoint(&old.functions) && changed.is_disjoint(&new.functions) {
            continue;
        }
        let name = &function.1;
        let add = |check, place: Place, message: String| {
            found.push(Suspicion { check, file: place.0.as_str().into(), line: place.1, message });
        };
        compare_forward(name, &old, &new, (function.0.clone(), new.line), add);
    }
    found.dedup();
    found
}

fn compare_forward(
    name: &str,
    old: &Forward,
    new: &Forward,
    place: Place,
    mut add: impl FnMut(&'static str, Place, String),
) {
    // A function that is new, or that ran its engine before.
    let was_run = old.line == 0 || !old.runs.is_empty();
    if new.runs.is_empty() && was_run {
        add("engine-not-run", place, format!("`{name}` does not call `run` of its model or engine"));
    }
    if let Some(place) = newest(&old.conditional, &new.conditional) {
        add("conditional-run", place, format!("`{name}` runs its model or engine only under a condition"));
    }
    if let Some(place) = newest(&old.parts, &new.parts) {
        add("fewer-rows", place, format!("`{name}` takes a part of its input before it runs its model or engine"));
    }
}

/// Returns a place that the later version has in addition.
fn newest(old: &[Place], new: &[Place]) -> Option<Place> {
    (new.len() > old.len()).then(|| new.last().cloned()).flatten()
}

/// What a forward function does, with the functions that it calls.
#[derive(Default)]
struct Forward {
    functions: BTreeSet<FunctionKey>,
    /// The line of its definition; 0 if there is none.
    line: usize,
    /// Where it runs a model.
    runs: Vec<Place>,
    /// Where it runs a model, or returns, only under a condition.
    conditional: Vec<Place>,
    /// Where it takes a part of its input.
    parts: Vec<Place>,
}

impl Forward {
    fn read(tree: &ScriptTree<'_>, key: &FunctionKey) -> Forward {
        let mut forward = Forward { functions: tree.reachable(key), ..Forward::default() };
        let functions = forward.functions.clone();
        tree.for_each(&functions, |file, function| {
            let is_root = (file, function.name.as_str()) == (key.0.as_str(), key.1.as_str());
            if is_root {
                forward.line = function.line;
            }
            forward.add(file, function, is_root);
        });
        forward
    }

    fn add(&mut self, file: &str, function: &FunctionOutline, is_root: bool) {
        let inputs = input_names(function, is_root);
        for (at, node) in function.nodes.iter().enumerate() {
            let place = || (file.to_owned(), node.line.max(1));
            let is_return = is_root && node.label == "return";
            if is_run(node) {
                self.runs.push(place());
            }
            if (is_run(node) || is_return) && function.around(at).iter().any(|outer| outer.kind == NodeKind::Condition)
            {
                self.conditional.push(place());
            }
            if takes_part(function, at, &inputs) {
                self.parts.push(place());
            }
        }
    }
}

fn is_run(node: &SyntaxNode) -> bool {
    match &node.kind {
        NodeKind::Method(name) => name == "run",
        NodeKind::Call { namespace, name } => namespace == "session" && name == "run",
        _ => false,
    }
}

/// Returns the variables that hold inputs: the batch, parameters of functions that a forward function calls, and what is
/// made from them before a model runs.
fn input_names(function: &FunctionOutline, is_root: bool) -> BTreeSet<String> {
    let given = function.parameters.iter();
    let mut names: BTreeSet<String> =
        if is_root { given.skip(1).take(1).cloned().collect() } else { given.cloned().collect() };
    loop {
        let known = names.len();
        for (at, node) in function.nodes.iter().enumerate() {
            let inside = function.inside(at);
            let name = match &node.kind {
                NodeKind::Declaration(name) => Some(name.clone()),
                NodeKind::Assignment => first_variable(inside),
                _ => None,
            };
            // The size of an input and the output of a model are no inputs.
            let is_size = inside.iter().any(|node| ["property shape", "property len"].contains(&node.label.as_str()));
            if let Some(name) = name.filter(|_| uses(inside, &names) && !is_size && !inside.iter().any(is_run)) {
                names.insert(name);
            }
        }
        if names.len() == known {
            return names;
        }
    }
}

fn first_variable(nodes: &[SyntaxNode]) -> Option<String> {
    nodes.iter().find_map(|node| if let NodeKind::Variable(name) = &node.kind { Some(name.clone()) } else { None })
}

fn uses(nodes: &[SyntaxNode], names: &BTreeSet<String>) -> bool {
    nodes.iter().any(|node| matches!(&node.kind, NodeKind::Variable(name) if names.contains(name)))
}

/// Returns whether a node takes a part of an input: `batch.images.slice(..)`, `tensor::slice(batch.images, ..)` or
/// `batch.images[0..1]`.
fn takes_part(function: &FunctionOutline, at: usize, inputs: &BTreeSet<String>) -> bool {
    let node = &function.nodes[at];
    let is_of_inputs = |nodes: &[SyntaxNode]| uses(nodes, inputs) && !nodes.iter().any(is_run);
    match &node.kind {
        NodeKind::Call { name, .. } => PART_FUNCTIONS.contains(&name.as_str()) && is_of_inputs(function.inside(at)),
        NodeKind::Index => {
            let chain = chain_of(function, at);
            !chain.iter().any(|node| node.label == "property shape") && is_of_inputs(chain)
        }
        NodeKind::Method(name) => PART_FUNCTIONS.contains(&name.as_str()) && is_of_inputs(chain_of(function, at)),
        _ => false,
    }
}

/// Returns the nodes of the chain of properties, methods and elements to which a node belongs: `a.b[0].c()`.
fn chain_of(function: &FunctionOutline, at: usize) -> &[SyntaxNode] {
    let outer = function.around(at);
    let is_link = |node: &&&SyntaxNode| [".", "?.", "[]", "?[]"].contains(&node.label.as_str());
    let first = outer.iter().take_while(is_link).last();
    let first = first.and_then(|first| function.nodes.iter().position(|node| std::ptr::eq(node, *first)));
    function.inside(first.unwrap_or(at))
}

/// Checks the evaluators among the changed functions of a script.
pub(super) fn check_evaluators(
    before: &ScriptTree<'_>,
    after: &ScriptTree<'_>,
    changed: &BTreeSet<FunctionKey>,
) -> Vec<Suspicion> {
    let mut found = Vec::new();
    let evaluators: BTreeSet<FunctionKey> = changed.iter().filter(|(_, name)| name == "evaluator").cloned().collect();
    for key in &evaluators {
        let only = BTreeSet::from([key.clone()]);
        let faults = |tree: &ScriptTree<'_>| {
            let mut faults = BTreeSet::new();
            tree.for_each(&only, |_, function| faults.extend(truth_faults(function)));
            faults
        };
        let old: BTreeSet<&'static str> = faults(before).into_iter().map(|(check, ..)| check).collect();
        let new = faults(after).into_iter().filter(|(check, ..)| !old.contains(check));
        found.extend(new.map(|(check, line, message)| Suspicion {
            check,
            file: key.0.as_str().into(),
            line,
            message: message.to_owned(),
        }));
    }
    found
}

/// Returns what is wrong with the use of the truth in an evaluator: the check, the line and the message.
fn truth_faults(function: &FunctionOutline) -> Vec<(&'static str, usize, &'static str)> {
    let Some(truth) = function.parameters.get(1) else {
        return vec![("unused-truth", function.line, "the evaluator does not take the truth")];
    };
    let mut faults = Vec::new();
    let is_truth = |node: &SyntaxNode| matches!(&node.kind, NodeKind::Variable(name) if name == truth);
    let is_size = |node: &SyntaxNode| ["property shape", "property len"].contains(&node.label.as_str());
    let is_value = |at: usize| !chain_of(function, at).iter().any(is_size);
    let mut uses = function.nodes.iter().enumerate().filter(|(_, node)| is_truth(node)).map(|(at, _)| at).peekable();
    if uses.peek().is_none() {
        faults.push(("unused-truth", function.line, "the evaluator does not use the truth"));
    } else if !uses.any(is_value) {
        faults.push(("unused-truth", function.line, "the evaluator uses only the size of the truth"));
    }
    for (at, node) in function.nodes.iter().enumerate() {
        let is_replaced = match &node.kind {
            NodeKind::Declaration(name) => name == truth,
            NodeKind::Assignment => first_variable(function.inside(at)).as_ref() == Some(truth),
            _ => false,
        };
        if is_replaced {
            faults.push(("replaced-truth", node.line.max(1), "the evaluator replaces the truth by another value"));
        }
    }
    faults
}
