//! Batch normalization in training: the statistics are those of the batch, and the running statistics follow them. The batch is that of
//! one process, or those of all processes that train together, as in PyTorch's `SyncBatchNorm`.

use indexmap::IndexMap;

use super::TrainingError;
use super::list_operators::{OWN_DOMAIN, mean_over_processes};
use crate::lower::{NodeList, Rewriting, float, int, required};
use crate::{Attribute, Graph, Node};

/// Returns the graph in which each BatchNormalization uses the statistics of the batch, and the next value of each running
/// statistic by its name. The normalization is written out, or stays an operator in training mode if `keep_operator` is true and the
/// batch is that of one process. With several `processes`, the statistics are those of all their batches.
pub(super) fn use_batch_statistics(
    graph: &Graph,
    keep_operator: bool,
    processes: u32,
) -> Result<(Graph, IndexMap<String, String>), TrainingError> {
    let add: Normalization = match processes {
        0 | 1 if keep_operator => normalize_in_training_mode,
        0 | 1 => normalize_alone,
        _ => normalize_together,
    };
    let mut rewriting = Rewriting::without_nodes(graph);
    let mut next = IndexMap::new();
    for node in &graph.nodes {
        if node.op != "BatchNormalization" || !node.domain.is_empty() {
            rewriting.keep(node.clone());
            continue;
        }
        let statistics = rewriting
            .extend(&node.name, |nodes| add_normalization(nodes, node, add, processes.max(1)))
            .map_err(|reason| TrainingError::Node { node: node.name.clone(), op: node.op.clone(), reason })?;
        next.extend(node.inputs[3..5].iter().cloned().zip(statistics));
    }
    let mut graph = rewriting.finish();
    if processes > 1 {
        graph.domains.insert(OWN_DOMAIN.to_owned(), 1);
    }
    Ok((graph, next))
}

/// Adds a normalization with the statistics of the batch by `add`, and returns the next running mean and variance: as in PyTorch,
/// the running variance follows the unbiased one.
fn add_normalization(
    n: &mut NodeList<'_>,
    node: &Node,
    add: Normalization,
    processes: u32,
) -> Result<[String; 2], String> {
    if int(node, "training_mode").unwrap_or(0) != 0 {
        return Err("`training_mode` is set already".to_owned());
    }
    let x = required(node, 0)?;
    let spec = n.spec(x)?;
    let sizes = spec.fixed_shape().ok_or_else(|| format!("not every size of `{x}` (`{spec}`) is known"))?;
    let count = processes as usize * sizes.iter().product::<usize>() / sizes[1].max(1);
    if count < 2 {
        return Err("one value per channel has no variance".to_owned());
    }
    let wide = n.spec(required(node, 3)?)?.dtype;
    let [mean, variance] = add(n, node, &sizes)?;
    let kept = float(node, "momentum", 0.9);
    let unbiased = count as f64 / (count - 1) as f64;
    let parts = [(required(node, 3)?, mean, 1.0 - kept), (required(node, 4)?, variance, (1.0 - kept) * unbiased)];
    Ok(parts.map(|(running, batch, weight)| {
        let (old, new) = (n.scale(running, kept, wide), n.scale(&batch, weight, wide));
        n.add("Add", &[&old, &new])
    }))
}

/// Adds the normalization of an input with sizes, and returns the mean and the biased variance of the batch by channel.
type Normalization = fn(&mut NodeList<'_>, &Node, &[usize]) -> Result<[String; 2], String>;

/// The normalization as an operator, whose running statistics are those of the batch because nothing is kept of the old ones.
fn normalize_in_training_mode(n: &mut NodeList<'_>, node: &Node, _: &[usize]) -> Result<[String; 2], String> {
    let [mean, variance] = ["mean", "variance"].map(|statistic| n.name(statistic));
    let mut training = Node { outputs: vec![node.outputs[0].clone(), mean.clone(), variance.clone()], ..node.clone() };
    training.attributes.insert("momentum".to_owned(), Attribute::Float(0.0));
    training.attributes.insert("training_mode".to_owned(), Attribute::Int(1));
    n.keep(training);
    Ok([mean, variance])
}

/// The normalization in elementwise operators and means over the batch of this process.
fn normalize_alone(n: &mut NodeList<'_>, node: &Node, sizes: &[usize]) -> Result<[String; 2], String> {
    normalize(n, node, sizes, |_, mean| mean)
}

/// The same with means over the batches of all processes. The variance follows from the distances to their common mean: a mean of
/// squares, which could be exchanged together with the mean, has no digits left for the variance of values that are far from 0.
fn normalize_together(n: &mut NodeList<'_>, node: &Node, sizes: &[usize]) -> Result<[String; 2], String> {
    normalize(n, node, sizes, |n, mean| mean_over_processes(n, &mean))
}

/// Adds a normalization; `over_processes` adds the mean over the processes to a mean over the batch of this one.
fn normalize(
    n: &mut NodeList<'_>,
    node: &Node,
    sizes: &[usize],
    over_processes: fn(&mut NodeList<'_>, String) -> String,
) -> Result<[String; 2], String> {
    let (x, scale, bias) = (required(node, 0)?, required(node, 1)?, required(node, 2)?);
    let (wide, dtype) = (n.spec(required(node, 3)?)?.dtype, n.spec(x)?.dtype);
    let axes: Vec<i64> = (0..sizes.len() as i64).filter(|axis| *axis != 1).collect();
    let channel: Vec<i64> = (0..sizes.len()).map(|axis| if axis == 1 { -1 } else { 1 }).collect();
    let x = if wide == dtype { x.to_owned() } else { n.cast(x, wide) };
    let mean = n.reduce("ReduceMean", &x, &axes);
    let mean = over_processes(n, mean);
    let centred = n.add("Sub", &[&x, &mean]);
    let square = n.add("Mul", &[&centred, &centred]);
    let variance = n.reduce("ReduceMean", &square, &axes);
    let variance = over_processes(n, variance);
    let epsilon = n.number(float(node, "epsilon", 1e-5), wide);
    let shifted = n.add("Add", &[&variance, &epsilon]);
    let root = n.add("Sqrt", &[&shifted]);
    let [scale, bias] = [scale, bias].map(|factor| n.reshape(factor, &channel));
    let [scale, bias] = [scale, bias].map(|factor| if wide == dtype { factor } else { n.cast(&factor, wide) });
    let factor = n.add("Div", &[&scale, &root]);
    let scaled = n.add("Mul", &[&centred, &factor]);
    if wide == dtype {
        n.define("Add", &[&scaled, &bias], &node.outputs[0]);
    } else {
        let sum = n.add("Add", &[&scaled, &bias]);
        n.define_cast(&sum, dtype, &node.outputs[0]);
    }
    Ok([mean, variance].map(|statistic| n.reshape(&statistic, &[-1])))
}
