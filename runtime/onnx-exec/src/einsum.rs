//! ONNX's operator `Einsum`: a sum of products over labelled dimensions, computed pair by pair as matrix products.

use super::OpError;
use super::indexing::{advance, row_major_strides, upload_indices};
use super::normalize::widen;
use super::operands::Operands;
use super::ops::{Reduce, TensorOps};

/// The name of a dimension: a letter, or a number for each dimension that an ellipsis stands for, counted from the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Letter(char),
    Ellipsis(usize),
}

/// The labels of one operand or of the result.
#[derive(Clone, Debug)]
struct Term {
    before: Vec<char>,
    after: Vec<char>,
    has_ellipsis: bool,
}

/// A parsed equation.
#[derive(Clone, Debug)]
pub(super) struct Equation {
    terms: Vec<Term>,
    result: Option<Term>,
}

impl Equation {
    /// Parses an equation such as `bij,bjk->bik`.
    pub fn parse(text: &str) -> Result<Self, OpError> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (operands, result) = match text.split_once("->") {
            Some((operands, result)) => (operands, Some(Term::parse(result)?)),
            None => (text.as_str(), None),
        };
        Ok(Equation { terms: operands.split(',').map(Term::parse).collect::<Result<_, _>>()?, result })
    }

    /// Returns the labels of the result. Without a result in the equation, they are the dimensions of the ellipsis and
    /// then the letters that occur once, in alphabetic order.
    fn result_labels(&self, labels: &[Vec<Label>]) -> Result<Vec<Label>, OpError> {
        let ellipsis = labels.iter().flatten().map(|label| if let Label::Ellipsis(i) = label { i + 1 } else { 0 });
        let ellipsis_rank = ellipsis.max().unwrap_or(0);
        if let Some(result) = &self.result {
            let own = result.labels(result.letter_count() + if result.has_ellipsis { ellipsis_rank } else { 0 })?;
            let known = own.iter().all(|label| labels.iter().flatten().any(|other| other == label));
            let unique = own.iter().enumerate().all(|(i, label)| !own[..i].contains(label));
            return if known && unique { Ok(own) } else { Err(invalid("the result has unknown or repeated labels")) };
        }
        let mut letters: Vec<char> =
            self.terms.iter().flat_map(|term| term.before.iter().chain(&term.after)).copied().collect();
        letters.sort_unstable();
        let once = letters.chunk_by(|a, b| a == b).filter(|same| same.len() == 1).map(|same| Label::Letter(same[0]));
        Ok((0..ellipsis_rank).rev().map(Label::Ellipsis).chain(once).collect())
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, OpError> {
        let (before, after, has_ellipsis) = match text.split_once("...") {
            Some((before, after)) => (before, after, true),
            None => (text, "", false),
        };
        if let Some(other) = before.chars().chain(after.chars()).find(|c| !c.is_ascii_alphabetic()) {
            return Err(invalid(&format!("`{other}` is not a letter")));
        }
        Ok(Term { before: before.chars().collect(), after: after.chars().collect(), has_ellipsis })
    }

    fn letter_count(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// Returns the labels of a tensor of this rank.
    fn labels(&self, rank: usize) -> Result<Vec<Label>, OpError> {
        let rest = rank.checked_sub(self.letter_count()).filter(|rest| self.has_ellipsis || *rest == 0);
        let rest = rest.ok_or_else(|| invalid(&format!("a term does not match a tensor of {rank} dimensions")))?;
        let ellipsis = (0..rest).rev().map(Label::Ellipsis);
        let letters = |letters: &[char]| letters.iter().copied().map(Label::Letter).collect::<Vec<_>>();
        Ok(letters(&self.before).into_iter().chain(ellipsis).chain(letters(&self.after)).collect())
    }
}

fn invalid(reason: &str) -> OpError {
    OpError::invalid_operands(format!("attribute `equation`: {reason}"))
}

/// A tensor whose dimensions have labels, no two the same.
struct Labelled<T> {
    tensor: T,
    labels: Vec<Label>,
}

/// Computes the equation of the inputs.
pub(super) fn einsum<O: TensorOps>(operands: &Operands<O>, equation: &Equation) -> Result<O::Tensor, OpError> {
    let ops = operands.ops;
    if equation.terms.len() != operands.len() {
        return Err(invalid(&format!("{} terms for {} inputs", equation.terms.len(), operands.len())));
    }
    let dtype = operands.dtype(0)?;
    let mut labels = Vec::new();
    let mut parts = Vec::new();
    for (i, term) in equation.terms.iter().enumerate() {
        let tensor = widen(ops, &operands.tensor(i)?)?;
        labels.push(term.labels(ops.shape(&tensor).len())?);
        parts.push(take_diagonals(ops, Labelled { tensor, labels: labels[i].clone() })?);
    }
    let result = equation.result_labels(&labels)?;
    let sizes = Sizes::new(ops, &parts)?;
    let mut parts = parts.into_iter();
    let mut product = parts.next().ok_or_else(|| invalid("there are no terms"))?;
    while let Some(next) = parts.next() {
        let later = parts.as_slice().iter().flat_map(|part| part.labels.iter());
        let kept: Vec<Label> = result.iter().chain(later).copied().collect();
        product = multiply(ops, &sizes, product, next, &kept)?;
    }
    let product = sum_labels(ops, product, |label| result.contains(label))?;
    let order: Vec<usize> = positions(&product.labels, &result);
    let permuted = ops.permute(&product.tensor, &order)?;
    let shape: Vec<usize> = result.iter().map(|label| sizes.of(*label)).collect();
    ops.cast(&ops.expand(&permuted, &shape)?, dtype)
}

/// The size of each label. A dimension of size 1 is broadcast.
struct Sizes(Vec<(Label, usize)>);

impl Sizes {
    fn new<O: TensorOps>(ops: &O, parts: &[Labelled<O::Tensor>]) -> Result<Self, OpError> {
        let mut sizes: Vec<(Label, usize)> = Vec::new();
        for part in parts {
            for (label, size) in part.labels.iter().zip(ops.shape(&part.tensor)) {
                match sizes.iter_mut().find(|(known, _)| known == label) {
                    None => sizes.push((*label, size)),
                    Some((_, known)) if *known == 1 => *known = size,
                    Some((_, known)) if *known == size || size == 1 => {}
                    Some((_, known)) => return Err(invalid(&format!("a label has the sizes {known} and {size}"))),
                }
            }
        }
        Ok(Sizes(sizes))
    }

    fn of(&self, label: Label) -> usize {
        self.0.iter().find(|(known, _)| *known == label).map_or(1, |(_, size)| *size)
    }
}

fn positions(labels: &[Label], wanted: &[Label]) -> Vec<usize> {
    wanted.iter().filter_map(|label| labels.iter().position(|own| own == label)).collect()
}

/// Returns the tensor with one dimension for labels that occur twice: its diagonal.
fn take_diagonals<O: TensorOps>(ops: &O, x: Labelled<O::Tensor>) -> Result<Labelled<O::Tensor>, OpError> {
    let mut labels: Vec<Label> = Vec::new();
    x.labels.iter().for_each(|label| {
        if !labels.contains(label) {
            labels.push(*label)
        }
    });
    if labels.len() == x.labels.len() {
        return Ok(x);
    }
    let shape = ops.shape(&x.tensor);
    let strides = row_major_strides(&shape);
    let (mut sizes, mut steps) = (Vec::new(), Vec::new());
    for label in &labels {
        let own = (0..shape.len()).filter(|i| x.labels[*i] == *label);
        let (all, step): (Vec<usize>, Vec<usize>) = own.map(|i| (shape[i], strides[i])).unzip();
        if all.iter().any(|size| *size != all[0]) {
            return Err(invalid(&format!("a repeated label has the sizes {all:?}")));
        }
        sizes.push(all[0]);
        steps.push(step.iter().sum::<usize>());
    }
    let mut at = vec![0; sizes.len()];
    let mut places = Vec::new();
    for _ in 0..sizes.iter().product() {
        places.push(at.iter().zip(&steps).map(|(at, step)| at * step).sum());
        advance(&mut at, &sizes);
    }
    let flat = ops.reshape(&x.tensor, &[shape.iter().product()])?;
    Ok(Labelled { tensor: ops.gather(&flat, &upload_indices(ops, &sizes, &places)?, 0)?, labels })
}

/// Sums over the dimensions whose labels are not kept.
fn sum_labels<O: TensorOps>(
    ops: &O,
    x: Labelled<O::Tensor>,
    is_kept: impl Fn(&Label) -> bool,
) -> Result<Labelled<O::Tensor>, OpError> {
    let axes: Vec<usize> = (0..x.labels.len()).filter(|i| !is_kept(&x.labels[*i])).collect();
    if axes.is_empty() {
        return Ok(x);
    }
    let tensor = super::evaluate::drop_axes(ops, &ops.reduce(Reduce::Sum, &x.tensor, &axes)?, &axes)?;
    Ok(Labelled { tensor, labels: x.labels.into_iter().filter(is_kept).collect() })
}

/// Multiplies two tensors and sums over the labels that are not kept: a product of matrices for each common label that
/// is kept.
fn multiply<O: TensorOps>(
    ops: &O,
    sizes: &Sizes,
    a: Labelled<O::Tensor>,
    b: Labelled<O::Tensor>,
    kept: &[Label],
) -> Result<Labelled<O::Tensor>, OpError> {
    let a = sum_labels(ops, a, |label| kept.contains(label) || b.labels.contains(label))?;
    let b = sum_labels(ops, b, |label| kept.contains(label) || a.labels.contains(label))?;
    let select = |labels: &[Label], others: &[Label], common: bool, keep: bool| -> Vec<Label> {
        let wanted = |label: &&Label| others.contains(label) == common && (!common || kept.contains(label) == keep);
        labels.iter().filter(wanted).copied().collect()
    };
    let batch = select(&a.labels, &b.labels, true, true);
    let summed = select(&a.labels, &b.labels, true, false);
    let (rows, columns) = (select(&a.labels, &b.labels, false, true), select(&b.labels, &a.labels, false, true));
    let left = as_matrices(ops, sizes, &a, [&batch, &rows, &summed])?;
    let right = as_matrices(ops, sizes, &b, [&batch, &summed, &columns])?;
    let labels = [batch, rows, columns].concat();
    let shape: Vec<usize> = labels.iter().map(|label| sizes.of(*label)).collect();
    Ok(Labelled { tensor: ops.reshape(&ops.matmul(&left, &right)?, &shape)?, labels })
}

/// Returns the tensor as a batch of matrices, whose dimensions are three groups of labels.
fn as_matrices<O: TensorOps>(
    ops: &O,
    sizes: &Sizes,
    x: &Labelled<O::Tensor>,
    groups: [&Vec<Label>; 3],
) -> Result<O::Tensor, OpError> {
    let order = positions(&x.labels, &groups.map(Vec::as_slice).concat());
    let size = |label: &Label| sizes.of(*label);
    let full: Vec<usize> = groups.iter().flat_map(|group| group.iter().map(size)).collect();
    let expanded = ops.expand(&ops.permute(&x.tensor, &order)?, &full)?;
    ops.reshape(&expanded, &groups.map(|group| group.iter().map(size).product()))
}
