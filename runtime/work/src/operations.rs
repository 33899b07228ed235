//! Counts the multiply-adds of the runs in the measured passes.
//!
//! A session counts how often it ran on inputs of which sizes; after each pass, the host infers the shapes of the graph
//! for these sizes. Counting runs instead of reading one figure from the graph covers a decoding loop, a diffusion loop
//! and an image network alike, and computes nothing while a pass is timed.

use std::collections::HashMap;

use flagperf_onnx::{Graph, NamedSizes};
use indexmap::IndexMap;

use flagperf_core::tensor::Dim;
use flagperf_script::ModelRuns;

/// Counts the multiply-adds of a model's runs. Computes nothing while a pass runs.
pub struct OperationCounter {
    graphs: IndexMap<String, CountedGraph>,
    rows: u64,
    /// The multiply-adds of all runs; `None` when those of a run are unknown.
    total: Option<u64>,
}

impl OperationCounter {
    /// Creates a counter for the graphs of a model by name; there are none when the host does not read the model.
    pub fn new(graphs: IndexMap<String, Graph>) -> Self {
        let total = if graphs.is_empty() { None } else { Some(0) };
        let counted = |(name, graph)| (name, CountedGraph { graph, known: HashMap::new() });
        OperationCounter { graphs: graphs.into_iter().map(counted).collect(), rows: 0, total }
    }

    /// Adds the runs of a pass over `rows` rows, padding included.
    pub fn add_pass(&mut self, runs: &IndexMap<String, ModelRuns>, rows: u64) {
        self.rows += rows;
        for (name, runs) in runs {
            let added = self.graphs.get_mut(name).and_then(|graph| graph.multiply_adds(runs));
            self.total = self.total.zip(added).and_then(|(total, added)| total.checked_add(added));
        }
    }

    /// Returns the multiply-adds per row of the passes so far; `None` when a shape is unknown.
    pub fn per_sample(&self) -> Option<u64> {
        self.total?.checked_div(self.rows)
    }
}

/// A graph with the multiply-adds that are known so far: most passes have the sizes of the first.
struct CountedGraph {
    graph: Graph,
    /// The multiply-adds of a run by the sizes of its inputs.
    known: HashMap<Vec<usize>, Option<u64>>,
}

impl CountedGraph {
    /// Returns the multiply-adds of all runs.
    fn multiply_adds(&mut self, runs: &ModelRuns) -> Option<u64> {
        let CountedGraph { graph, known } = self;
        let mut one = |(sizes, count): &(Vec<usize>, u64)| {
            let run = known.entry(sizes.clone()).or_insert_with(|| run_multiply_adds(graph, &runs.dims, sizes));
            run.and_then(|run| run.checked_mul(*count))
        };
        if runs.is_complete { runs.runs.iter().map(&mut one).sum() } else { None }
    }
}

/// Returns the multiply-adds of one run with these sizes of the inputs' dimensions.
fn run_multiply_adds(graph: &Graph, dims: &[(String, usize)], sizes: &[usize]) -> Option<u64> {
    let mut named = NamedSizes::default();
    for ((input, axis), size) in dims.iter().zip(sizes) {
        let spec = &graph.inputs.iter().find(|info| info.name == *input)?.spec;
        if let Some(Dim::Named(name)) = spec.dims.get(*axis) {
            named.bind_name(name, *size).ok()?;
        }
    }
    flagperf_onnx::multiply_adds(graph, &named)
}

#[cfg(test)]
mod tests {
    use flagperf_onnx::{GraphBuilder, layers};

    use super::*;

    fn counter() -> OperationCounter {
        let mut b = GraphBuilder::new("product");
        let x = b.input("x", "N,L,4,f32".parse().unwrap()).unwrap();
        let y = layers::linear(&mut b, "fc", &x, layers::Linear::new(4, 3)).unwrap();
        b.output("y", &y).unwrap();
        OperationCounter::new([("decoder".to_owned(), b.finish().unwrap())].into())
    }

    fn runs(runs: Vec<(Vec<usize>, u64)>, is_complete: bool) -> IndexMap<String, ModelRuns> {
        let dims = vec![("x".to_owned(), 0), ("x".to_owned(), 1)];
        [("decoder".to_owned(), ModelRuns { dims, runs, is_complete })].into()
    }

    #[test]
    fn each_run_counts_with_its_own_sizes_and_the_sum_is_divided_by_the_rows_of_the_passes() {
        let mut counter = counter();
        assert_eq!(counter.per_sample(), None, "nothing ran");
        counter.add_pass(&runs(vec![(vec![2, 5], 1), (vec![2, 1], 10)], true), 2);
        assert_eq!(counter.per_sample(), Some((5 + 10) * 4 * 3));
        counter.add_pass(&runs(vec![(vec![2, 1], 1)], true), 2);
        assert_eq!(counter.per_sample(), Some((5 + 10 + 1) * 4 * 3 / 2));
    }

    #[test]
    fn runs_of_too_many_sizes_or_of_an_unread_model_are_unknown() {
        let mut counter = counter();
        counter.add_pass(&runs(vec![(vec![2, 5], 1)], false), 2);
        assert_eq!(counter.per_sample(), None);
        let mut unread = OperationCounter::new(IndexMap::new());
        unread.add_pass(&runs(vec![(vec![2, 5], 1)], true), 2);
        assert_eq!(unread.per_sample(), None);
    }
}
