//! Dropout in training: masks that every engine computes equally, in standard operators.
//!
//! The generator computes with i32 numbers below 2³¹ and the operators Add, Mul, Div, Mod and Greater alone: engines lack shifts
//! and bitwise operators (version 18), compute i64 as i32 (rten), or round floats differently. It has two parts:
//!
//! 1. Every row and every column of all masks has a counter of its own. A Feistel network over the field of the prime p = 46,337
//!    with the cube as round function (MiMC-2p/p: Albrecht et al. 2016, "MiMC", section 2.2) encrypts the counters, with the seed
//!    and the number of the step as key, to pairs of numbers below p: (a, b) for a row, (c, d) for a column.
//! 2. An element is dropped if (a·c + b + d) mod p is less than the ratio times p. These numbers are uniform, and those of two
//!    rows or two columns are independent of each other. The costly part thus works on rows and columns, not on elements.

use super::{StepScalars, TrainingError};
use crate::lower::{NodeList, Rewriting, required};
use crate::{DType, Graph, Node, Tensor};

/// The largest prime whose square is less than 2³¹. Three does not divide p - 1, so that each number has one cube root. The
/// largest sum, (p - 1)² + 2·(p - 1), is less than 2³¹, too.
const PRIME: i32 = 46_337;

/// The constants of the rounds: digits of π.
const ROUNDS: [i32; 8] = [31_415, 9_265, 35_897, 9_323, 8_462, 6_433, 8_327, 9_502];

/// A Dropout that drops elements.
struct Mask {
    ratio: f64,
    sizes: Vec<i64>,
    /// The number of leading dimensions of `sizes` that make up the rows.
    split: usize,
    /// The counter of the first row; those of the columns follow those of the rows.
    first: i64,
}

impl Mask {
    fn rows(&self) -> i64 {
        self.sizes[..self.split].iter().product()
    }

    fn columns(&self) -> i64 {
        self.sizes[self.split..].iter().product()
    }
}

/// Returns the graph in which each Dropout with a ratio multiplies its input by a mask of this step. The inputs of
/// [`StepScalars`] must be inputs of the graph already.
pub(super) fn draw_masks(graph: &Graph) -> Result<Graph, TrainingError> {
    let mut rewriting = Rewriting::without_nodes(graph);
    let is_dropout = |node: &Node| node.op == "Dropout" && node.domain.is_empty();
    let failed = |node: &Node, reason| TrainingError::Node { node: node.name.clone(), op: node.op.clone(), reason };
    let (mut masks, mut end) = (Vec::new(), 0);
    for node in graph.nodes.iter().filter(|node| is_dropout(node)) {
        let mask = rewriting.extend(&node.name, |n| read_mask(n, node, end)).map_err(|reason| failed(node, reason))?;
        end = mask.as_ref().map_or(end, |mask| mask.first + mask.rows() + mask.columns());
        masks.push(mask);
    }
    let drawn = masks.iter().any(Option::is_some).then(|| rewriting.extend("dropout", |n| encrypt_counters(n, end)));
    let mut masks = masks.into_iter();
    for node in &graph.nodes {
        if !is_dropout(node) {
            rewriting.keep(node.clone());
            continue;
        }
        let mask = masks.next().flatten();
        let added = rewriting.extend(&node.name, |n| match (&mask, &drawn) {
            (Some(mask), Some(drawn)) => apply(n, node, mask, drawn),
            _ => keep_all(n, node),
        });
        added.map_err(|reason| failed(node, reason))?;
    }
    Ok(rewriting.finish())
}

/// Returns the mask of a node, whose counters begin with `first`; `None` if the node drops nothing.
fn read_mask(n: &NodeList<'_>, node: &Node, first: i64) -> Result<Option<Mask>, String> {
    let constant = |i: usize, what: &str| match node.inputs.get(i).filter(|name| !name.is_empty()) {
        None => Ok(None),
        Some(name) => match n.known(name).map(Tensor::to_f64).as_deref() {
            Some([number]) => Ok(Some(*number)),
            _ => Err(format!("`{what}` is not a constant")),
        },
    };
    let ratio = constant(1, "ratio")?.unwrap_or(0.5);
    if !(0.0..1.0).contains(&ratio) {
        return Err(format!("`ratio` is {ratio}, but must be at least 0 and below 1"));
    }
    if ratio == 0.0 || constant(2, "training_mode")? == Some(0.0) {
        return Ok(None);
    }
    let x = required(node, 0)?;
    let spec = n.spec(x)?;
    let sizes = spec.fixed_shape().ok_or_else(|| format!("not every size of `{x}` (`{spec}`) is known"))?;
    let sizes: Vec<i64> = sizes.into_iter().map(|size| size as i64).collect();
    let counters = |split: usize| sizes[..split].iter().product::<i64>() + sizes[split..].iter().product::<i64>();
    let split = (0..=sizes.len()).min_by_key(|split| counters(*split)).unwrap_or(0);
    if first + counters(split) > i64::from(i32::MAX) {
        return Err("the masks of the graph have more than 2^31 rows and columns".to_owned());
    }
    Ok(Some(Mask { ratio, sizes, split, first }))
}

/// Adds the pairs of numbers of all counters.
fn encrypt_counters(n: &mut NodeList<'_>, end: i64) -> [String; 2] {
    let prime = n.number(f64::from(PRIME), DType::I32);
    let [.., seed, step] = StepScalars::NAMES;
    let digits = |n: &mut NodeList<'_>, x: &str| [n.add("Mod", &[x, &prime]), n.add("Div", &[x, &prime])];
    let [step, seed] = [step, seed].map(|name| n.cast(name, DType::I32));
    let keys = [digits(n, &step), digits(n, &seed)].concat();
    let [start, end, one] = [0, end, 1].map(|number| n.number(number as f64, DType::I32));
    let counters = n.add("Range", &[&start, &end, &one]);
    let [mut left, mut right] = digits(n, &counters);
    for (round, constant) in ROUNDS.into_iter().enumerate() {
        let constant = n.number(f64::from(constant), DType::I32);
        let key = n.add("Add", &[&keys[round % keys.len()], &constant]);
        let sum = n.add("Add", &[&right, &key]);
        let base = n.add("Mod", &[&sum, &prime]);
        let square = n.add("Mul", &[&base, &base]);
        let square = n.add("Mod", &[&square, &prime]);
        let cube = n.add("Mul", &[&square, &base]);
        let cube = n.add("Mod", &[&cube, &prime]);
        let sum = n.add("Add", &[&left, &cube]);
        left = std::mem::replace(&mut right, n.add("Mod", &[&sum, &prime]));
    }
    [left, right]
}

/// Adds the product of the input with its mask, in which kept elements are 1 / (1 - ratio).
fn apply(n: &mut NodeList<'_>, node: &Node, mask: &Mask, drawn: &[String; 2]) -> Result<(), String> {
    let x = required(node, 0)?;
    let dtype = n.spec(x)?.dtype;
    let middle = mask.first + mask.rows();
    let part = |n: &mut NodeList<'_>, drawn: &str, [start, end]: [i64; 2], shape: [i64; 2]| {
        let slice = n.slice(drawn, 0, [start, end, 1]);
        n.reshape(&slice, &shape)
    };
    let [a, b] = [0, 1].map(|i| part(n, &drawn[i], [mask.first, middle], [mask.rows(), 1]));
    let [c, d] = [0, 1].map(|i| part(n, &drawn[i], [middle, middle + mask.columns()], [1, mask.columns()]));
    let product = n.add("Mul", &[&a, &c]);
    let sum = n.add("Add", &[&product, &b]);
    let sum = n.add("Add", &[&sum, &d]);
    let prime = n.number(f64::from(PRIME), DType::I32);
    let number = n.add("Mod", &[&sum, &prime]);
    let last_dropped = n.number((mask.ratio * f64::from(PRIME)).round() - 1.0, DType::I32);
    let is_kept = n.add("Greater", &[&number, &last_dropped]);
    // In 16 bits, 1 / (1 - ratio) would be off by up to 0.4 %, for every element.
    let wide = if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype };
    let kept = n.cast(&is_kept, wide);
    let factors = n.scale(&kept, 1.0 / (1.0 - mask.ratio), wide);
    let factors = n.reshape(&factors, &mask.sizes);
    let x = n.widen(x, dtype);
    if wide == dtype {
        n.define("Mul", &[&x, &factors], &node.outputs[0]);
    } else {
        let product = n.add("Mul", &[&x, &factors]);
        n.define_cast(&product, dtype, &node.outputs[0]);
    }
    if let Some(output) = node.outputs.get(1).filter(|name| !name.is_empty()) {
        let sizes = n.ints(&mask.sizes);
        n.define("Reshape", &[&is_kept, &sizes], output);
    }
    Ok(())
}

/// Adds the identity in place of a Dropout that drops nothing.
fn keep_all(n: &mut NodeList<'_>, node: &Node) -> Result<(), String> {
    let x = required(node, 0)?;
    n.define("Identity", &[x], &node.outputs[0]);
    if let Some(output) = node.outputs.get(1).filter(|name| !name.is_empty()) {
        let equal = n.add("Equal", &[x, x]);
        n.define("Identity", &[&equal], output);
    }
    Ok(())
}
