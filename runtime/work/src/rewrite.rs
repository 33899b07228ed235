//! Compares a model with what scripts made of it, and describes the changes for the record.

use std::collections::BTreeMap;

use flagperf_onnx::Graph;
use flagperf_onnx_exec::{Compared, ProofError, ProofLimits, compare};
use flagperf_script::ModelRewrite;
use indexmap::IndexMap;

use super::phase::failure;
use flagperf_core::event::{Failure, GraphProof, GraphRewrite};
use flagperf_plan::Job;

/// The seed of the inputs on which graphs are compared.
const PROOF_SEED: u64 = 0;

/// Returns what a rewrite may change: a case accepts approximations by setting its own limit of agreement.
pub fn proof_limits(job: &Job) -> ProofLimits {
    let limits = job.parameters.agreement.get(job.settings.precision.name());
    ProofLimits { approximation: limits.and_then(|limits| limits.get("relative_l2")).copied() }
}

/// Compares each graph before and after the changes of a script.
///
/// # Errors
/// When a graph computes something else; the error names the first node that differs.
pub fn check_rewrite(rewrite: &ModelRewrite, limits: ProofLimits) -> Result<Vec<GraphRewrite>, Failure> {
    let ModelRewrite { script, before, after, changes } = rewrite;
    let mut rewrites = Vec::new();
    for (name, graph) in &after.graphs {
        let own = changes.iter().filter(|(changed, _)| *changed == graph.name).map(|(_, change)| change.clone());
        let mut described = GraphRewrite {
            graph: name.clone(),
            script: script.clone(),
            changes: own.collect(),
            ..GraphRewrite::default()
        };
        match before.graphs.get(name) {
            Some(before) => {
                described.nodes = [before.nodes.len() as u64, graph.nodes.len() as u64];
                described.operators = changed_operators(before, graph);
                described.proof = prove(script, before, graph, limits)?;
            }
            None => {
                described.nodes = [0, graph.nodes.len() as u64];
                described.proof.unproved = Some("the script adds the graph".to_owned());
            }
        }
        rewrites.push(described);
    }
    Ok(rewrites)
}

fn prove(script: &str, before: &Graph, after: &Graph, limits: ProofLimits) -> Result<GraphProof, Failure> {
    match compare(before, after, PROOF_SEED, limits) {
        Ok(Compared { error, limit, elements, same_outputs, approximation }) => {
            Ok(GraphProof { elements, same_outputs, error, limit, approximation, unproved: None })
        }
        Err(ProofError::Unproved(reason)) => Ok(GraphProof { unproved: Some(reason), ..GraphProof::default() }),
        Err(differs) => {
            let reason = format!("`{script}` changes what the graph `{}` computes: {differs}", after.name);
            Err(failure(&reason, "what a script does before the export must keep the results"))
        }
    }
}

/// Returns the operators of which the number changed, with both numbers.
fn changed_operators(before: &Graph, after: &Graph) -> IndexMap<String, [u64; 2]> {
    let mut counts: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (place, graph) in [before, after].into_iter().enumerate() {
        for node in &graph.nodes {
            let domain = if node.domain.is_empty() { String::new() } else { format!("{}.", node.domain) };
            counts.entry(format!("{domain}{}", node.op)).or_default()[place] += 1;
        }
    }
    counts.into_iter().filter(|(_, [before, after])| before != after).collect()
}
