//! Finds the places of a graph that a pattern describes, and says how far the nearest others agree with it.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use super::index::{GraphIndex, Value, has_axes_input};
use super::pattern::{AttributeTerm, Line, NodeTerm, Pattern, Restriction, Term};
use crate::{Attribute, DType, Node, Tensor};

/// The most steps of the search at one node: patterns with many alternatives could otherwise take very long.
const STEPS_MAX: usize = 20_000;

/// A place of a graph that a pattern describes.
#[derive(Clone, Debug)]
pub struct Found {
    /// For each name of the pattern, the value.
    pub(super) values: Vec<Option<Value>>,
    /// For each unknown attribute, its value.
    pub(super) attributes: Vec<Option<Attribute>>,
    /// The nodes, by their numbers in the graph.
    pub(super) nodes: Vec<usize>,
    /// The node whose output stays.
    pub(super) root: usize,
}

/// A place that agrees with the larger part of a pattern, but not with all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    /// The last node of the place.
    pub node: String,
    /// How many nodes agree.
    pub nodes: usize,
    /// Their names.
    pub(super) names: Vec<String>,
    /// What does not agree.
    pub reason: String,
}

/// The search of one pattern in one graph.
pub(super) struct Search<'a, 'g> {
    pub index: &'a GraphIndex<'g>,
    pub pattern: &'a Pattern,
}

/// A term that a value has to agree with, before others.
struct Goal<'a> {
    term: &'a Term,
    value: Option<Value>,
    next: Option<&'a Goal<'a>>,
}

/// The search at one node.
struct Attempt<'a, 'g, 'f> {
    search: &'a Search<'a, 'g>,
    steps: Cell<usize>,
    /// Whether the first number that differs is overlooked, to see how much else agrees; then, which one was.
    excuses: bool,
    excused: Option<String>,
    /// Checks a complete match.
    accept: &'f mut dyn FnMut(&Found) -> Result<(), String>,
    nearest: RefCell<Nearest>,
}

/// The most nodes that agreed with a pattern, and what did not.
#[derive(Clone, Debug, Default)]
pub(super) struct Nearest {
    nodes: Vec<usize>,
    agreeing: usize,
    reason: String,
    /// Whether all nodes agreed, and a condition did not.
    is_complete: bool,
}

impl Search<'_, '_> {
    /// Returns the match whose last node is `root`, if `accept` agrees with it; otherwise how many nodes agreed, and what did
    /// not.
    pub fn at(&self, root: usize, accept: &mut dyn FnMut(&Found) -> Result<(), String>) -> Result<Found, Nearest> {
        let line = self.pattern.root();
        let mut accept = |found: &Found| self.refuse_readers(found).and_then(|()| accept(found));
        let strict = self.line_at(line, root, false, &mut accept);
        match strict {
            // A number may differ before most of the pattern was looked at.
            Err(nearest) if nearest.agreeing > 1 && !nearest.is_complete => {
                let mut refuse = |_: &Found| Err(String::new());
                let excused = self.line_at(line, root, true, &mut refuse).err().filter(|excused| excused.is_complete);
                Err(excused.unwrap_or(nearest))
            }
            strict => strict,
        }
    }

    /// Returns the match of a line whose node is `root`, as [`Search::at`] does.
    fn line_at(
        &self,
        line: &Line,
        root: usize,
        excuses: bool,
        accept: &mut dyn FnMut(&Found) -> Result<(), String>,
    ) -> Result<Found, Nearest> {
        let (index, pattern) = (self.index, self.pattern);
        let node = index.node(root);
        let Some(value) = node.outputs.first().and_then(|output| index.value(output)) else {
            return Err(Nearest::default());
        };
        let found = Found {
            values: vec![None; pattern.names.len()],
            attributes: vec![None; pattern.variables.len()],
            nodes: Vec::new(),
            root,
        };
        let (steps, nearest) = (Cell::new(0), RefCell::default());
        let mut attempt = Attempt { search: self, steps, excuses, excused: None, accept, nearest };
        let term = Term::Name(line.outputs[0]);
        let found = attempt.solve(Some(&Goal { term: &term, value: Some(value), next: None }), found);
        found.ok_or_else(|| attempt.nearest.into_inner())
    }

    /// Returns why the inner values of a match cannot be removed.
    fn refuse_readers(&self, found: &Found) -> Result<(), String> {
        let index = self.index;
        let inner: HashSet<usize> = found.nodes.iter().copied().collect();
        let shared: HashSet<Value> = (self.pattern.names.iter().zip(&found.values))
            .filter(|(name, _)| name.restriction == Restriction::Shared)
            .filter_map(|(_, value)| *value)
            .collect();
        for number in &found.nodes {
            let outputs = index.node(*number).outputs.iter().filter_map(|output| index.value(output));
            for value in outputs.filter(|value| *number != found.root && !shared.contains(value)) {
                if index.is_output(value) {
                    return Err(format!("the value `{}` inside is an output of the graph", index.name(value)));
                }
                if let Some(reader) = index.readers(value).iter().find(|reader| !inner.contains(reader)) {
                    let reader = index.node(*reader);
                    return Err(format!(
                        "node `{}` ({}) also reads the value `{}` inside",
                        reader.name,
                        reader.op,
                        index.name(value)
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Attempt<'_, '_, '_> {
    /// Returns the match in which all goals are met.
    fn solve(&mut self, goals: Option<&Goal<'_>>, found: Found) -> Option<Found> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > STEPS_MAX {
            return self.fail(&found, || format!("the search was ended after {STEPS_MAX} steps"));
        }
        let Some(Goal { term, value, next }) = goals else {
            let accepted = match self.excused.clone() {
                Some(excused) => Err(excused),
                None => (self.accept)(&found),
            };
            return match accepted {
                Ok(()) => Some(found),
                // Everything agrees but for a condition.
                Err(reason) => {
                    let agreeing = found.nodes.len() + self.search.pattern.node_count();
                    let mut nearest = self.nearest.borrow_mut();
                    if agreeing > nearest.agreeing {
                        *nearest = Nearest { nodes: found.nodes, agreeing, reason, is_complete: true };
                    }
                    None
                }
            };
        };
        match (term, value) {
            (Term::Either(terms), _) => terms
                .iter()
                .find_map(|term| self.solve(Some(&Goal { term, value: *value, next: *next }), found.clone())),
            (Term::Omitted, None) => self.solve(*next, found),
            (Term::Name(name), Some(value)) => self.solve_name(*name, *value, *next, found),
            (Term::Number(number), Some(value)) => {
                let index = self.search.index;
                let own = index.number(*value);
                match own.filter(|own| is_number(index.dtype(*value), *own, *number)) {
                    Some(_) => self.solve(*next, found),
                    None if self.excuses && own.is_some() && self.excused.is_none() => {
                        self.excused = Some(format!("`{}` is not the number {number}", index.name(*value)));
                        let solved = self.solve(*next, found);
                        self.excused = None;
                        solved
                    }
                    None => self.fail(&found, || format!("`{}` is not the number {number}", index.name(*value))),
                }
            }
            (Term::Node(node), Some(value)) => self.solve_node(node, (*value, 0), *next, found),
            (_, None) => self.fail(&found, || "an input is omitted".to_owned()),
            (Term::Omitted | Term::List(_), Some(value)) => {
                self.fail(&found, || format!("the input `{}` is not omitted", self.search.index.name(*value)))
            }
        }
    }

    fn solve_name(&mut self, name: usize, value: Value, next: Option<&Goal<'_>>, mut found: Found) -> Option<Found> {
        let Search { index, pattern } = self.search;
        let known = &pattern.names[name];
        if let Some(bound) = found.values[name] {
            if bound == value || index.is_same_number(bound, value) {
                return self.solve(next, found);
            }
            let [bound, value] = [bound, value].map(|value| index.name(value));
            return self.fail(&found, || format!("`{}` is both `{bound}` and `{value}`", known.text));
        }
        found.values[name] = Some(value);
        if let Some((line, output)) = known.definition {
            return self.solve_definition(&pattern.lines[line].term, (value, output), next, found);
        }
        let fits = match known.restriction {
            Restriction::Any | Restriction::Shared => true,
            Restriction::Constant => index.is_constant(value),
            Restriction::Number => index.number(value).is_some(),
        };
        if fits {
            return self.solve(next, found);
        }
        let what = if known.restriction == Restriction::Number { "a constant number" } else { "a constant" };
        self.fail(&found, || format!("`{}` is not {what}, as `{}` has to be", index.name(value), known.text))
    }

    /// Solves the term of a line, of which the value is one of the outputs.
    fn solve_definition(
        &mut self,
        term: &Term,
        value: (Value, usize),
        next: Option<&Goal<'_>>,
        found: Found,
    ) -> Option<Found> {
        match term {
            Term::Node(node) => self.solve_node(node, value, next, found),
            Term::Either(terms) => {
                terms.iter().find_map(|term| self.solve_definition(term, value, next, found.clone()))
            }
            term => self.solve(Some(&Goal { term, value: Some(value.0), next }), found),
        }
    }

    fn solve_node(
        &mut self,
        term: &NodeTerm,
        (value, output): (Value, usize),
        next: Option<&Goal<'_>>,
        mut found: Found,
    ) -> Option<Found> {
        let index = self.search.index;
        let Some((number, place)) = index.producer(value) else {
            return self.fail(&found, || format!("`{}` is not computed by `{term}`", index.name(value)));
        };
        let node = index.node(number);
        if node.op != term.op || node.domain != term.domain || place != output {
            return self.fail(&found, || match node.op == term.op && node.domain == term.domain {
                true => {
                    format!("`{}` is output {place} of node `{}` instead of {output}", index.name(value), node.name)
                }
                false => format!("node `{}` is `{}` instead of `{term}`", node.name, node.op),
            });
        }
        for (name, expected) in &term.attributes {
            let actual = index.attribute(node, name);
            let known = match expected {
                AttributeTerm::Value(value) => Some(value),
                AttributeTerm::Variable(variable) => match &found.attributes[*variable] {
                    Some(bound) => Some(bound),
                    None => {
                        found.attributes[*variable] = actual.clone();
                        actual.as_ref()
                    }
                },
            };
            let rank = || index.spec(index.value(node.inputs.first()?)?).map(|spec| spec.dims.len() as i64);
            if !known.zip(actual.as_ref()).is_some_and(|(known, actual)| is_same_attribute(name, known, actual, rank)) {
                let reason = format!("attribute `{name}` of node `{}` ({}) differs", node.name, node.op);
                return self.fail_at(&found, 1, || reason);
            }
        }
        let mut inputs: Vec<Option<Value>> = node.inputs.iter().map(|input| index.value(input)).collect();
        if has_axes_input(node) && term.inputs.len() == 1 && term.attributes.iter().any(|(name, _)| name == "axes") {
            inputs.truncate(1);
        }
        while inputs.len() > term.inputs.len() && inputs.last() == Some(&None) {
            inputs.pop();
        }
        if inputs.len() > term.inputs.len() {
            let [actual, expected] = [inputs.len(), term.inputs.len()];
            return self.fail(&found, || {
                format!("node `{}` ({}) has {actual} inputs instead of {expected}", node.name, node.op)
            });
        }
        if !found.nodes.contains(&number) {
            found.nodes.push(number);
        }
        inputs.resize(term.inputs.len(), None);
        if is_commutative(&term.op) && inputs.len() == 2 {
            let found = self.solve_inputs(&term.inputs, &inputs, next, found.clone());
            if found.is_some() {
                return found;
            }
            inputs.reverse();
        }
        self.solve_inputs(&term.inputs, &inputs, next, found)
    }

    /// Adds a goal for each input of a node, the last first.
    fn solve_inputs(
        &mut self,
        terms: &[Term],
        values: &[Option<Value>],
        next: Option<&Goal<'_>>,
        found: Found,
    ) -> Option<Found> {
        match (terms.split_last(), values.split_last()) {
            (Some((term, terms)), Some((value, values))) => {
                self.solve_inputs(terms, values, Some(&Goal { term, value: *value, next }), found)
            }
            _ => self.solve(next, found),
        }
    }

    /// Remembers the place that agreed most.
    fn fail(&self, found: &Found, reason: impl FnOnce() -> String) -> Option<Found> {
        self.fail_at(found, 0, reason)
    }

    /// The same, with the number of nodes beyond those found that agree in their operator.
    fn fail_at(&self, found: &Found, agreeing: usize, reason: impl FnOnce() -> String) -> Option<Found> {
        let mut nearest = self.nearest.borrow_mut();
        let agreeing = found.nodes.len() + agreeing;
        if agreeing > nearest.agreeing {
            *nearest = Nearest { nodes: found.nodes.clone(), agreeing, reason: reason(), is_complete: false };
        }
        None
    }
}

/// Returns whether two values of an attribute are the same; axes are counted from either side.
fn is_same_attribute(name: &str, a: &Attribute, b: &Attribute, rank: impl Fn() -> Option<i64>) -> bool {
    let from_start = |axis: &i64| if *axis < 0 { rank().map(|rank| axis + rank) } else { Some(*axis) };
    let same = |a: &i64, b: &i64| a == b || from_start(a).is_some_and(|axis| Some(axis) == from_start(b));
    match (a, b) {
        (Attribute::Int(a), Attribute::Int(b)) if name == "axis" => same(a, b),
        (Attribute::Ints(a), Attribute::Ints(b)) if name == "axes" => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        _ => a == b,
    }
}

/// Returns whether the order of an operator's operands has no meaning.
pub(super) fn is_commutative(op: &str) -> bool {
    matches!(op.strip_prefix("Bitwise").unwrap_or(op), "Add" | "Mul" | "And" | "Or" | "Xor" | "Max" | "Min" | "Equal")
}

/// Returns whether a constant of a type is a number as far as the type can represent it.
fn is_number(dtype: Option<DType>, own: f64, number: f64) -> bool {
    let rounded = dtype.map_or(number, |dtype| Tensor::scalar(number).cast(dtype).to_f64()[0]);
    own == number || (own - rounded).abs() <= 1e-6 * number.abs()
}

/// Operators that every model has: agreeing only in them resembles nothing.
const COMMON: [&str; 7] = ["Add", "Cast", "Div", "Mul", "Reshape", "Sub", "Transpose"];

/// Returns the places that `accept` agrees with, and the near misses. Later places come first in the search, so that a
/// place is found with as many nodes as it has, but in the result they are in order.
pub(super) fn find_with(
    search: &Search<'_, '_>,
    accept: &mut dyn FnMut(&Found) -> Result<(), String>,
) -> (Vec<Found>, Vec<NearMiss>) {
    let pattern = search.pattern;
    let operators: HashSet<&str> = pattern.operators_of(pattern.root()).into_iter().collect();
    // Fewer nodes are no near miss: a sum of a product begins many patterns.
    let count = pattern.node_count();
    let near = (count * 2 / 3).max(3).min(count);
    let (mut found, mut misses): (Vec<Found>, Vec<(usize, Nearest)>) = (Vec::new(), Vec::new());
    // The nodes of near misses so far.
    let mut covered: HashSet<usize> = HashSet::new();
    let nodes = &search.index.graph.nodes;
    let is_common = |op: &str| COMMON.contains(&op);
    let is_unspecific = pattern.nodes().iter().all(|node| is_common(&node.op));
    let resembles = |nearest: &Nearest| {
        let is_near = nearest.is_complete || nearest.agreeing >= near;
        let is_specific = || nearest.nodes.iter().any(|number| !is_common(nodes[*number].op.as_str()));
        is_near && !nearest.reason.is_empty() && (is_unspecific || is_specific())
    };
    for root in (0..nodes.len()).rev().filter(|root| operators.contains(nodes[*root].op.as_str())) {
        match search.at(root, accept) {
            Ok(place) => found.push(place),
            // A part of a larger near miss says nothing new.
            Err(nearest) if resembles(&nearest) && !covered.contains(&root) => {
                covered.extend(&nearest.nodes);
                misses.push((root, nearest));
            }
            // A condition that gives no reason says that the place is none.
            Err(nearest) if nearest.is_complete => covered.extend(&nearest.nodes),
            Err(_) => {}
        }
    }
    found.reverse();
    let matched: HashSet<usize> = found.iter().flat_map(|place| place.nodes.iter().copied()).collect();
    misses.retain(|(root, _)| !matched.contains(root));
    covered.extend(&matched);
    misses.extend(beginnings(search, near.max(3), &mut covered));
    misses.sort_by_key(|(root, _)| *root);
    let misses = misses.into_iter().map(|(root, Nearest { nodes, reason, .. })| NearMiss {
        node: search.index.node(root).name.clone(),
        nodes: nodes.len(),
        names: nodes.into_iter().map(|number| search.index.node(number).name.clone()).collect(),
        reason,
    });
    (found, misses.collect())
}

/// Returns the places that agree with a pattern up to a line before the last one, and are not used as in the pattern.
fn beginnings(search: &Search<'_, '_>, near: usize, covered: &mut HashSet<usize>) -> Vec<(usize, Nearest)> {
    let Search { index, pattern } = search;
    let nodes = &index.graph.nodes;
    let mut misses = Vec::new();
    let (_, lines) = pattern.lines.split_last().expect("the parser refuses a pattern without a line");
    for line in lines.iter().rev() {
        let mut operators = pattern.operators_of(line);
        operators.retain(|op| !COMMON.contains(op));
        for root in (0..nodes.len()).rev().filter(|root| operators.contains(&nodes[*root].op.as_str())) {
            if covered.contains(&root) {
                continue;
            }
            let Ok(place) = search.line_at(line, root, false, &mut |_| Ok(())) else { continue };
            let reader = index.value(&nodes[root].outputs[0]).and_then(|value| index.readers(value).first());
            if let Some(reader) = reader.filter(|_| place.nodes.len() >= near) {
                let Node { name, op, .. } = index.node(*reader);
                let reason =
                    format!("node `{name}` ({op}) reads its result `{}`, unlike the pattern", nodes[root].outputs[0]);
                covered.extend(&place.nodes);
                let agreeing = place.nodes.len();
                misses.push((root, Nearest { nodes: place.nodes, agreeing, reason, is_complete: false }));
            }
        }
    }
    misses
}
