//! A match as a condition sees it: the values, attributes and constants that the names of a pattern stand for.

use super::find::Found;
use super::index::GraphIndex;
use super::pattern::Pattern;
use crate::{Attribute, Node, Tensor, TensorSpec};

/// A match as a condition sees it.
pub struct Match<'m, 'g> {
    pub(super) index: &'m GraphIndex<'g>,
    pub(super) pattern: &'m Pattern,
    pub(super) found: &'m Found,
}

impl<'m, 'g> Match<'m, 'g> {
    pub(super) fn bound(&self, name: &str) -> Option<usize> {
        let place = self.pattern.names.iter().position(|known| known.text == name)?;
        self.found.values[place]
    }

    /// Returns the names of the pattern that stand for a value, with the name of that value.
    pub fn values(&self) -> impl Iterator<Item = (&'m str, &'g str)> {
        let (pattern, found, index) = (self.pattern, self.found, self.index);
        let bound = pattern.names.iter().zip(&found.values);
        bound.filter_map(move |(name, value)| Some((name.text.as_str(), index.name((*value)?))))
    }

    /// Returns the unknown attributes with their values.
    pub fn attributes(&self) -> impl Iterator<Item = (&'m str, &'m Attribute)> {
        let bound = self.pattern.variables.iter().zip(&self.found.attributes);
        bound.filter_map(|(name, value)| Some((name.as_str(), value.as_ref()?)))
    }

    /// Returns the shape and type of a value, if they are known.
    pub fn spec(&self, name: &str) -> Option<&'m TensorSpec> {
        self.index.spec(self.bound(name)?)
    }

    /// Returns the number that every element of a constant has.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.index.number(self.bound(name)?)
    }

    /// Returns whether a name of the pattern stands for a value in this match.
    pub fn has(&self, name: &str) -> bool {
        self.bound(name).is_some()
    }

    /// Returns a constant that is part of the graph.
    pub fn constant(&self, name: &str) -> Option<&'g Tensor> {
        self.index.constant(self.bound(name)?)
    }

    /// Returns the name in the graph of the value that a name of the pattern stands for.
    pub fn value_of(&self, name: &str) -> Option<&'g str> {
        Some(self.index.name(self.bound(name)?))
    }

    /// Returns a value of the graph if it is a constant that is part of the graph.
    pub fn constant_of(&self, value: &str) -> Option<&'g Tensor> {
        self.index.constant(self.index.value(value)?)
    }

    /// Returns an unknown attribute.
    pub fn attribute(&self, name: &str) -> Option<&'m Attribute> {
        self.attributes().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns the node whose output stays.
    pub fn node(&self) -> &'g Node {
        self.index.node(self.found.root)
    }

    /// Returns the node that computes a value of the pattern; without one, the last node.
    pub fn node_of(&self, name: &str) -> &'g Node {
        let producer = self.bound(name).and_then(|value| self.index.producer(value));
        producer.map_or_else(|| self.node(), |(number, _)| self.index.node(number))
    }

    /// Returns the shape and type of a value of the graph, if they are known.
    pub fn value_spec(&self, value: &str) -> Option<&'m TensorSpec> {
        self.index.spec(self.index.value(value)?)
    }

    /// Returns the node that computes a value of the graph.
    pub fn producer_of(&self, value: &str) -> Option<&'g Node> {
        self.index.value(value).and_then(|value| self.index.producer(value)).map(|(number, _)| self.index.node(number))
    }

    /// Returns the shape and type of the output that stays, if they are known.
    pub fn output(&self) -> Option<&'m TensorSpec> {
        let value = self.index.value(self.node().outputs.first()?)?;
        self.index.spec(value)
    }
}
