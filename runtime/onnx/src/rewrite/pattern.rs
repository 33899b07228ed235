//! Patterns: sub-graphs with unknowns.
//!
//! ```text
//! # The last line is the node whose output stays; all others are removed with their match.
//! mean = ReduceMean<axes=$axes, keepdims=1>(x)
//! d    = Sub(x, mean)
//! y    = Div(d, Sqrt(Add(ReduceMean<axes=$axes, keepdims=1>(Pow(d, 2) | Mul(d, d)), epsilon)))
//! epsilon: number
//! ```
//!
//! A name that no line defines stands for any value, and for the same value everywhere; `name: number` and
//! `name: constant` restrict it. A number stands for a constant with this value in every element. `a | b` is either. The
//! operands of commutative operators match in both orders. `$name` is an unknown attribute. `_` is an omitted input.
//! Other nodes may not read the values inside of a match, except those declared as `name: shared`.

use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};

use super::parse;
use crate::Attribute;

/// A sub-graph with unknowns.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The names of values, in the order in which they appear.
    pub(super) names: Vec<Name>,
    /// The definitions, in the order of the text.
    pub(super) lines: Vec<Line>,
    /// The names of unknown attributes.
    pub(super) variables: Vec<String>,
}

/// A name in a pattern.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub text: String,
    pub restriction: Restriction,
    /// The line that defines the name, and the number of the output; `None` for an unknown value.
    pub definition: Option<(usize, usize)>,
}

/// Which values a name stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Restriction {
    #[default]
    Any,
    /// A constant of one element.
    Number,
    /// A weight or constant.
    Constant,
    /// Any value, which nodes outside of the match may read, too.
    Shared,
}

impl Restriction {
    /// Every restriction with the word that declares it.
    pub const WORDS: [(&'static str, Restriction); 3] =
        [("number", Restriction::Number), ("constant", Restriction::Constant), ("shared", Restriction::Shared)];
}

/// The definition of one or several names.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The number of the line in the text, from 1.
    pub number: usize,
    pub outputs: Vec<usize>,
    pub term: Term,
}

/// What a value may be.
#[derive(Clone, Debug)]
pub(super) enum Term {
    /// A name, by its index.
    Name(usize),
    /// A constant with this number in every element.
    Number(f64),
    /// An integer tensor, in a replacement: `[0, -1]`.
    List(Vec<i64>),
    /// An omitted input.
    Omitted,
    /// The output of a node.
    Node(NodeTerm),
    /// One of several.
    Either(Vec<Term>),
}

/// A node with unknowns.
#[derive(Clone, Debug)]
pub(super) struct NodeTerm {
    pub domain: String,
    pub op: String,
    pub attributes: Vec<(String, AttributeTerm)>,
    pub inputs: Vec<Term>,
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(super) enum AttributeTerm {
    Value(Attribute),
    /// An unknown, by its index in the variables.
    Variable(usize),
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When the text is not a pattern; the error has the line.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let pattern = parse::parse(text)?;
        pattern.check_acyclic()?;
        Ok(pattern)
    }

    /// Returns the last line, whose output stays in the graph.
    pub(super) fn root(&self) -> &Line {
        self.lines.last().expect("the parser refuses a pattern without a line")
    }

    /// Returns the name of the output that stays in the graph.
    pub(super) fn output_name(&self) -> &str {
        &self.names[self.root().outputs[0]].text
    }

    /// Returns the names of the inputs of the last node; `None` for one that has none.
    pub(super) fn input_names(&self) -> Vec<Option<&str>> {
        let name = |term: &Term| match term {
            Term::Name(name) => Some(self.names[*name].text.as_str()),
            _ => None,
        };
        match &self.root().term {
            Term::Node(node) => node.inputs.iter().map(name).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the names of the attributes of the last node, and whether each is an unknown.
    pub(super) fn attribute_names(&self) -> Vec<(&str, bool)> {
        let Term::Node(node) = &self.root().term else { return Vec::new() };
        node.attributes.iter().map(|(name, term)| (name.as_str(), matches!(term, AttributeTerm::Variable(_)))).collect()
    }

    /// Returns the operators that the node of a line may have.
    pub(super) fn operators_of<'p>(&'p self, line: &'p Line) -> Vec<&'p str> {
        let mut operators = Vec::new();
        self.add_operators(&line.term, &mut operators);
        operators
    }

    fn add_operators<'p>(&'p self, term: &'p Term, operators: &mut Vec<&'p str>) {
        match term {
            Term::Node(node) => operators.push(&node.op),
            Term::Either(terms) => terms.iter().for_each(|term| self.add_operators(term, operators)),
            Term::Name(name) => {
                if let Some((line, _)) = self.names[*name].definition {
                    self.add_operators(&self.lines[line].term, operators);
                }
            }
            Term::Number(_) | Term::List(_) | Term::Omitted => {}
        }
    }

    /// Returns whether a value may be one of several.
    pub(super) fn has_alternatives(&self) -> bool {
        let is_either = |term: &Term| matches!(term, Term::Either(_));
        self.lines.iter().any(|line| is_either(&line.term))
            || self.nodes().iter().any(|node| node.inputs.iter().any(is_either))
    }

    /// Returns the nodes, in the order of the text.
    pub(super) fn nodes(&self) -> Vec<&NodeTerm> {
        let mut nodes = Vec::new();
        self.lines.iter().for_each(|line| add_nodes(&line.term, &mut nodes));
        nodes
    }

    /// Returns the number of nodes of the smallest sub-graph that the pattern describes.
    pub(super) fn node_count(&self) -> usize {
        self.count_term(&Term::Name(self.root().outputs[0]), &mut HashSet::new())
    }

    /// Returns the nodes of the smallest sub-graph of a term, without those of lines that were counted before.
    fn count_term(&self, term: &Term, counted: &mut HashSet<usize>) -> usize {
        match term {
            Term::Name(name) => match self.names[*name].definition {
                Some((line, _)) if counted.insert(line) => self.count_term(&self.lines[line].term, counted),
                _ => 0,
            },
            Term::Node(node) => 1 + node.inputs.iter().map(|input| self.count_term(input, counted)).sum::<usize>(),
            Term::Either(terms) => {
                let counts = terms.iter().map(|term| {
                    let mut own = counted.clone();
                    (self.count_term(term, &mut own), own)
                });
                let (count, own) = counts.min_by_key(|(count, _)| *count).unwrap_or_default();
                *counted = own;
                count
            }
            Term::Number(_) | Term::List(_) | Term::Omitted => 0,
        }
    }

    /// Refuses a name that depends on itself.
    fn check_acyclic(&self) -> Result<(), PatternError> {
        // 0: not visited, 1: on the path, 2: done.
        let mut states = vec![0u8; self.lines.len()];
        for line in 0..self.lines.len() {
            self.visit(line, &mut states)?;
        }
        Ok(())
    }

    fn visit(&self, line: usize, states: &mut [u8]) -> Result<(), PatternError> {
        match states[line] {
            1 => {
                let Line { number, outputs, .. } = &self.lines[line];
                let name = &self.names[outputs[0]].text;
                return Err(PatternError { line: *number, reason: format!("`{name}` depends on itself") });
            }
            2 => return Ok(()),
            _ => states[line] = 1,
        }
        let mut names = Vec::new();
        term_names(&self.lines[line].term, &mut names);
        for name in names {
            if let Some((before, _)) = self.names[name].definition {
                self.visit(before, states)?;
            }
        }
        states[line] = 2;
        Ok(())
    }
}

fn add_nodes<'p>(term: &'p Term, nodes: &mut Vec<&'p NodeTerm>) {
    match term {
        Term::Node(node) => {
            nodes.push(node);
            node.inputs.iter().for_each(|input| add_nodes(input, nodes));
        }
        Term::Either(terms) => terms.iter().for_each(|term| add_nodes(term, nodes)),
        _ => {}
    }
}

fn term_names(term: &Term, names: &mut Vec<usize>) {
    match term {
        Term::Name(name) => names.push(*name),
        Term::Node(node) => node.inputs.iter().for_each(|input| term_names(input, names)),
        Term::Either(terms) => terms.iter().for_each(|term| term_names(term, names)),
        Term::Number(_) | Term::List(_) | Term::Omitted => {}
    }
}

impl Display for NodeTerm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.domain.is_empty() {
            write!(f, "{}.", self.domain)?;
        }
        f.write_str(&self.op)
    }
}

/// Why a text is not a pattern or a replacement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the pattern: {reason}")]
pub struct PatternError {
    /// The line in the text, from 1.
    pub line: usize,
    pub reason: String,
}
