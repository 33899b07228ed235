//! One graph of what several processes compute together, for an engine that is no member of their group.

use std::collections::HashSet;

use super::TrainingError;
use super::list_operators::{ALL_REDUCE, OWN_DOMAIN};
use crate::{Attribute, Graph, Node, ValueInfo};

/// Returns the graph that computes what `processes` processes with the weights of `graph` compute: its inputs are those of each process
/// in turn, and each [`ALL_REDUCE`] is the mean of the values of all of them. Values of the first process keep their names.
///
/// # Errors
/// When a subgraph reads a value that differs between the processes.
pub(super) fn join_processes(graph: &Graph, processes: u32) -> Result<Graph, TrainingError> {
    let mut joined = Graph { nodes: Vec::new(), inputs: Vec::new(), ..graph.clone() };
    joined.domains.shift_remove(OWN_DOMAIN);
    for process in 0..processes {
        let of_process = |input: &ValueInfo| ValueInfo { name: name_of(&input.name, process), ..input.clone() };
        joined.inputs.extend(graph.inputs.iter().map(of_process));
    }
    // The values that each process has of its own; all have the same of the others.
    let mut own: HashSet<&str> = graph.inputs.iter().map(|input| input.name.as_str()).collect();
    for node in &graph.nodes {
        let is_own = |name: &String| own.contains(name.as_str());
        if node.domain == OWN_DOMAIN && node.op == ALL_REDUCE {
            for (input, mean) in node.inputs.iter().zip(&node.outputs) {
                let values =
                    (0..processes).map(|process| if is_own(input) { name_of(input, process) } else { input.clone() });
                joined.nodes.push(Node {
                    name: mean.clone(),
                    op: "Mean".to_owned(),
                    inputs: values.collect(),
                    outputs: vec![mean.clone()],
                    ..Node::default()
                });
            }
        } else if node.inputs.iter().any(is_own) {
            if node.attributes.values().any(|attribute| matches!(attribute, Attribute::Encoded(_))) {
                let reason = "its subgraph cannot be computed for several processes together".to_owned();
                return Err(TrainingError::Node { node: node.name.clone(), op: node.op.clone(), reason });
            }
            for process in 0..processes {
                let named = |names: &[String]| -> Vec<String> {
                    names.iter().map(|name| if is_own(name) { name_of(name, process) } else { name.clone() }).collect()
                };
                let outputs = node.outputs.iter().map(|output| name_of(output, process)).collect();
                let name = name_of(&node.name, process);
                joined.nodes.push(Node { name, inputs: named(&node.inputs), outputs, ..node.clone() });
            }
            own.extend(node.outputs.iter().map(String::as_str));
        } else {
            joined.nodes.push(node.clone());
        }
    }
    Ok(joined)
}

/// Returns the name of a value of a process; an output that is left out has none.
fn name_of(name: &str, process: u32) -> String {
    if process == 0 || name.is_empty() { name.to_owned() } else { format!("{name} of process {process}") }
}
