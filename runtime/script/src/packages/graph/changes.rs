//! What a script changed, and the access to its graphs.

use std::sync::Mutex;

use flagperf_config::{OperatorDescription, list_known};
use flagperf_core::event::{GraphChange, Level};
use flagperf_onnx::rewrite::{NearMiss, Replaced, Rewrite, VendorOperator};
use flagperf_onnx_exec::{ProofError, ProofLimits, RegionsProof, prove_regions};
use rhai::{EvalAltResult, NativeCallContext};

use crate::packages::nn::Graph;
use crate::sandbox::{Fallible, ScriptState, catch_panic, lock, script_state};

/// The most near misses and unproved places that are listed for one call.
const LISTED_MAX: usize = 20;
/// The seed of the inputs on which places are compared.
const PROOF_SEED: u64 = 0;

/// The changes of a script, each with the name of the graph.
#[derive(Default)]
pub(crate) struct Changes {
    list: Mutex<Vec<(String, GraphChange)>>,
    /// What a comparison of places accepts; `None` if the model is only checked, and places are not compared.
    limits: Mutex<Option<ProofLimits>>,
}

impl Changes {
    /// Starts a call of `export_model`.
    pub(crate) fn start(&self, limits: Option<ProofLimits>) {
        lock(&self.list).clear();
        *lock(&self.limits) = limits;
    }

    /// Returns the changes since [`Changes::start`].
    pub(crate) fn take(&self) -> Vec<(String, GraphChange)> {
        std::mem::take(&mut *lock(&self.list))
    }
}

/// One call of a function that changes a graph.
pub(super) struct Call {
    script: std::sync::Arc<ScriptState>,
    line: Option<usize>,
}

impl Call {
    pub(super) fn new(context: &NativeCallContext<'_>) -> Fallible<Self> {
        Ok(Call { script: script_state(context)?, line: context.call_position().line() })
    }

    /// Returns what an operator of the script's vendor computes.
    pub(super) fn vendor_operator(&self, name: &str) -> Fallible<VendorOperator> {
        let vendor = lock(&self.script.vendor).clone();
        let vendor = vendor.ok_or("only the script of a vendor has operators: <vendor>/export.rhai")?;
        let known = OperatorDescription::names(&vendor);
        if !known.iter().any(|known| known == name) {
            let known = list_known(name, known.iter().map(String::as_str));
            return Err(format!("the vendor has no operator `{name}` (known: {known})").into());
        }
        let definition = OperatorDescription::read(&vendor, name).and_then(|description| description.definition());
        definition.map_err(|finding| finding.to_string().into())
    }

    /// Calls `work`, which takes long for a large graph, with the complete graph. The time does not count as the script's.
    pub(super) fn read<T, E: ToString>(
        &self,
        graph: &Graph,
        work: impl FnOnce(&flagperf_onnx::Graph) -> Result<T, E>,
    ) -> Fallible<T> {
        graph.with_complete(|graph| {
            let done = self.script.budget.paused(|| catch_panic(|| work(graph)))?;
            done.map_err(|error| Box::<EvalAltResult>::from(error.to_string()))
        })
    }

    /// Calls `work` with the complete graph, keeps the graph that it returns, and notes the change.
    pub(super) fn change<T, E: ToString>(
        &self,
        graph: &Graph,
        work: impl FnOnce(&flagperf_onnx::Graph) -> Result<(flagperf_onnx::Graph, GraphChange, T), E>,
    ) -> Fallible<T> {
        let (changed, change, result) = self.read(graph, work)?;
        graph.set_complete(changed);
        self.note(&graph.name, change);
        Ok(result)
    }

    /// Keeps a graph in which places were replaced, after each was compared with what replaces it.
    pub(super) fn replace(&self, graph: &Graph, what: String, rewrite: Rewrite) -> Fallible<i64> {
        let Rewrite { graph: changed, replaced, near_misses } = rewrite;
        let limits = *lock(&self.script.changes.limits);
        let proof = match limits {
            None => RegionsProof::default(),
            Some(limits) => {
                self.script.budget.paused(|| catch_panic(|| prove_regions(&replaced, PROOF_SEED, limits)))?
            }
        };
        if let Some((node, error)) = proof.differs {
            let what = match error {
                ProofError::Differs { error, limit, .. } => format!(
                    "computes something else: its output differs by {error:.1e} of its largest value (at most {limit:.0e})"
                ),
                ProofError::TooCoarse { error, limit, .. } => format!(
                    "is too coarse an approximation: its relative L2 error is {error:.1e} (the case accepts {limit:.0e})"
                ),
                error => format!("is not possible: {error}"),
            };
            return Err(format!("what replaces the place at node `{node}` {what}").into());
        }
        let places = replaced.len();
        let unproved = proof.unproved.into_iter().map(|(node, reason)| format!("node `{node}`: {reason}"));
        let change = GraphChange {
            what,
            places: places as u64,
            distinct_places: proof.distinct as u64,
            error: (proof.distinct > 0).then_some(proof.error),
            approximation: proof.approximation,
            unproved: listed(unproved.collect()),
            near_misses: listed(near_misses.iter().map(describe_near_miss).collect()),
            ..GraphChange::default()
        };
        if places > 0 {
            graph.set_complete(changed);
        }
        self.note(&graph.name, describe_places(change, &replaced));
        Ok(places as i64)
    }

    fn note(&self, graph: &str, mut change: GraphChange) {
        let (script, line) = self.script.locate(self.line.unwrap_or(0));
        change.at = format!("{script}:{line}");
        let log = |text: &str| self.script.log(Level::Info, self.line, text);
        log(&format!("graph `{graph}`: {}: {}", change.what, places(change.places)));
        if let Some(error) = change.approximation {
            log(&format!("this is an approximation, with a relative L2 error of {error:.1e}"));
        }
        change.near_misses.iter().for_each(|miss| log(&format!("not replaced: {miss}")));
        change.unproved.iter().for_each(|place| log(&format!("not compared: {place}")));
        lock(&self.script.changes.list).push((graph.to_owned(), change));
    }
}

fn describe_places(change: GraphChange, replaced: &[Replaced]) -> GraphChange {
    let nodes: usize = replaced.iter().map(|place| place.nodes).sum();
    let what = if nodes > 0 { format!("{} ({nodes} nodes)", change.what) } else { change.what };
    GraphChange { what, ..change }
}

fn places(count: u64) -> String {
    if count == 1 { "1 place".to_owned() } else { format!("{count} places") }
}

fn describe_near_miss(miss: &NearMiss) -> String {
    format!("node `{}` ({} nodes agree): {}", miss.node, miss.nodes, miss.reason)
}

fn listed(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(LISTED_MAX);
    lines.truncate(LISTED_MAX);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}
