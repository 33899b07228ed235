//! The means over the processes that train one model together, each on batches of its own.

use indexmap::IndexMap;

use super::list_operators::{ALL_REDUCE, BROADCAST, OWN_DOMAIN, REDUCE, broadcast_node, reduce_node};
use super::parts::BatchResults;
use crate::{DType, Dim, Graph, Node, TensorSpec, ValueInfo};

/// The size of the gradients in one node: that of the buckets of PyTorch's `DistributedDataParallel`.
const BUCKET_BYTES: usize = 25 << 20;

/// Replaces the gradients of a batch by their means over the processes, each for its owner alone if the parameters have owners.
pub(super) fn reduce_gradients(
    graph: &mut Graph,
    gradients: &mut IndexMap<String, String>,
    owners: Option<&IndexMap<String, u32>>,
) {
    let specs: IndexMap<String, TensorSpec> =
        gradients.keys().map(|name| (name.clone(), graph.weights[name].spec.clone())).collect();
    for Bucket { root, names } in buckets(&specs, owners) {
        reduce_weights(graph, gradients, &names, root);
    }
}

/// Replaces the next statistics and the loss of a batch by their means over the processes. Returns the name of the loss. Statistics that
/// are equal in all processes stay as they are.
pub(super) fn reduce_results(
    graph: &mut Graph,
    results: &mut BatchResults,
    loss: &str,
    equal_statistics: bool,
) -> String {
    let statistics = results.statistics.keys().filter(|_| !equal_statistics).cloned().collect::<Vec<String>>();
    reduce_weights(graph, &mut results.statistics, &statistics, None);
    mean_of_number(graph, loss)
}

/// Tensors that are exchanged together.
pub(super) struct Bucket {
    /// The process that needs their means; `None` if all do.
    pub root: Option<u32>,
    pub names: Vec<String>,
}

/// Divides tensors into lists that are exchanged together: each of one type and one owner, and of at most a size unless it is a single
/// tensor. A backward pass computes the gradients of the last parameters first, so the first lists contain these.
pub(super) fn buckets(specs: &IndexMap<String, TensorSpec>, owners: Option<&IndexMap<String, u32>>) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    // The last bucket of each kind, and its size.
    let mut open: IndexMap<(Option<u32>, DType), (usize, usize)> = IndexMap::new();
    for (name, spec) in specs.iter().rev() {
        let root = owners.map(|owners| owners[name]);
        let bytes = spec.fixed_shape().unwrap_or_default().iter().product::<usize>() * spec.dtype.size();
        match open.get_mut(&(root, spec.dtype)).filter(|(_, filled)| *filled + bytes <= BUCKET_BYTES) {
            Some((index, filled)) => {
                buckets[*index].names.push(name.clone());
                *filled += bytes;
            }
            None => {
                open.insert((root, spec.dtype), (buckets.len(), bytes));
                buckets.push(Bucket { root, names: vec![name.clone()] });
            }
        }
    }
    buckets
}

/// Adds the mean of a number over the processes, and returns its name.
pub(super) fn mean_of_number(graph: &mut Graph, name: &str) -> String {
    let mean = format!("{name}.mean");
    let number = TensorSpec::new(Vec::<Dim>::new(), DType::F32);
    add_node(graph, vec![name.to_owned()], vec![(mean.clone(), number)], None);
    mean
}

/// Returns the graph of a process that exchanges nothing with the others: it takes its own values for those of all.
pub fn without_exchange(graph: &Graph) -> Graph {
    let mut alone = Graph { nodes: Vec::new(), ..graph.clone() };
    for node in &graph.nodes {
        if node.domain != OWN_DOMAIN || ![ALL_REDUCE, REDUCE, BROADCAST].contains(&node.op.as_str()) {
            alone.nodes.push(node.clone());
            continue;
        }
        alone.nodes.extend(node.inputs.iter().zip(&node.outputs).map(|(own, exchanged)| Node {
            name: exchanged.clone(),
            op: "Identity".to_owned(),
            inputs: vec![own.clone()],
            outputs: vec![exchanged.clone()],
            ..Node::default()
        }));
    }
    alone
}

/// Replaces what a batch computes of these weights by the means.
fn reduce_weights(graph: &mut Graph, values: &mut IndexMap<String, String>, weights: &[String], root: Option<u32>) {
    if weights.is_empty() {
        return;
    }
    let inputs: Vec<String> = weights.iter().map(|weight| values[weight].clone()).collect();
    let outputs: Vec<(String, TensorSpec)> =
        weights.iter().map(|weight| (format!("mean.{weight}"), graph.weights[weight].spec.clone())).collect();
    weights.iter().zip(&outputs).for_each(|(weight, (mean, _))| values[weight].clone_from(mean));
    add_node(graph, inputs, outputs, root);
}

fn add_node(graph: &mut Graph, inputs: Vec<String>, outputs: Vec<(String, TensorSpec)>, root: Option<u32>) {
    graph.nodes.push(reduce_node(root, inputs, outputs.iter().map(|(name, _)| name.clone()).collect()));
    graph.values.extend(outputs);
    graph.domains.insert(OWN_DOMAIN.to_owned(), 1);
}

/// Returns a graph that computes the mean of a tensor of f32 over the processes: with it, a host makes a decision together with the
/// others, or measures how fast they exchange tensors.
pub fn all_reduce_model(shape: &[usize]) -> Graph {
    let spec = TensorSpec::new(shape.iter().copied(), DType::F32);
    let mut graph = Graph { name: "all_reduce".to_owned(), opset: crate::OPSET, ..Graph::default() };
    graph.inputs.push(ValueInfo { name: "own".to_owned(), spec: spec.clone() });
    add_node(&mut graph, vec!["own".to_owned()], vec![("mean".to_owned(), spec.clone())], None);
    graph.outputs.push(ValueInfo { name: "mean".to_owned(), spec });
    graph
}

/// Returns a graph with which each process gets the tensor of f32 of the first one.
pub fn broadcast_model(shape: &[usize]) -> Graph {
    let info =
        |name: &str| ValueInfo { name: name.to_owned(), spec: TensorSpec::new(shape.iter().copied(), DType::F32) };
    Graph {
        name: "broadcast".to_owned(),
        opset: crate::OPSET,
        domains: IndexMap::from([(OWN_DOMAIN.to_owned(), 1)]),
        inputs: vec![info("own")],
        nodes: vec![broadcast_node(0, vec!["own".to_owned()], vec!["of_first".to_owned()])],
        outputs: vec![info("of_first")],
        ..Graph::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::Optimizer;
    use crate::{GraphBuilder, OptimizerKind, StateKind, TrainingOptions, layers, training_step};

    /// A layer whose weight is larger than a bucket, one with a normalization, and one more.
    fn step(processes: u32, sync_batch_norm: bool, accumulated_batches: u32) -> crate::TrainingStep {
        let mut graph = GraphBuilder::new("network");
        let g = &mut graph;
        let x = g.input("x", TensorSpec::new([2, 8], DType::F32)).unwrap();
        let y = layers::linear(g, "large", &x, layers::Linear::new(8, 1 << 20)).unwrap();
        let y = layers::linear(g, "small", &y, layers::Linear::new(1 << 20, 4)).unwrap();
        let y = layers::batch_norm(g, "norm", &y, layers::BatchNorm::default()).unwrap();
        let loss = layers::mean(g, "mean", &y, &[0, 1], false).unwrap();
        g.output("loss", &loss).unwrap();
        let optimizer = Optimizer {
            kind: OptimizerKind::Sgd { momentum: 0.0, nesterov: false },
            weight_decay: 0.0,
            norm_weight_decay: None,
            bias_weight_decay: None,
        };
        let options =
            TrainingOptions { processes, sync_batch_norm, accumulated_batches, ..TrainingOptions::new(optimizer) };
        training_step(&graph.finish().unwrap(), "loss", &options).unwrap()
    }

    #[test]
    fn gradients_are_reduced_in_buckets_from_the_last_and_statistics_and_loss_at_the_end() {
        let step = step(2, false, 1);
        for graph in [&step.graph, &step.undifferentiated] {
            let outputs: Vec<Vec<&str>> =
                exchanges(graph).map(|node| node.outputs.iter().map(String::as_str).collect()).collect();
            let norm = graph.outputs[1].name.as_str();
            let expected: [&[&str]; 5] = [
                &["mean.norm.bias", "mean.norm.weight", "mean.small.bias", "mean.small.weight", "mean.large.bias"],
                &["mean.large.weight"],
                &["mean.norm.running_mean", "mean.norm.running_var"],
                &["loss.mean"],
                &[norm],
            ];
            assert_eq!(outputs, expected.iter().map(|names| names.to_vec()).collect::<Vec<_>>());
            assert_eq!(graph.outputs[0].name, "loss.mean");
            let alone = without_exchange(graph);
            assert!(alone.nodes.iter().all(|node| node.op != ALL_REDUCE) && alone.outputs == graph.outputs);
        }
        for part in [&step.gradients, &step.perturbed, &step.update] {
            assert!(part.nodes.iter().all(|node| node.op != ALL_REDUCE), "the parts are those of one process");
        }
        assert!(step.states.iter().any(|state| state.kind == StateKind::Statistic));
    }

    fn exchanges(graph: &Graph) -> impl Iterator<Item = &Node> {
        graph.nodes.iter().filter(|node| node.op == ALL_REDUCE)
    }

    #[test]
    fn sums_of_gradients_are_reduced_by_the_last_batch_of_an_update_alone() {
        let step = step(2, false, 4);
        let accumulation = step.accumulation.unwrap();
        let sizes = |graph| exchanges(graph).map(|node| node.inputs.len()).collect::<Vec<_>>();
        for graph in [&step.graph, &step.undifferentiated] {
            // Statistics and loss, six sums in two buckets, and the norm.
            assert_eq!(sizes(graph), [2, 1, 5, 1, 1]);
        }
        for graph in [&accumulation.graph, &accumulation.undifferentiated] {
            // Statistics, loss and norm.
            assert_eq!(sizes(graph), [2, 1, 1]);
            let names =
                |infos: &[ValueInfo], from: usize| infos[from..].iter().map(|i| i.name.clone()).collect::<Vec<_>>();
            let read = accumulation.inputs.iter().map(|index| step.states[*index].name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&graph.inputs, graph.inputs.len() - read.len()), read);
            let next = accumulation.outputs.iter().map(|index| &step.states[*index]);
            assert!(next.clone().all(|state| state.kind != StateKind::Parameter));
            assert_eq!((next.count() + 2, graph.outputs.len()), (8 + 2, 10));
        }
        assert_eq!(step.exchanges.len(), 1);
        assert_eq!(step.exchanges[0].inputs.len(), 6);
    }

    #[test]
    fn one_process_reduces_nothing() {
        assert!(self::step(1, true, 1).graph.nodes.iter().all(|node| node.op != ALL_REDUCE));
    }
}
