//! The nodes of a replacement at one place, written from its template.

use indexmap::IndexMap;

use super::matched::Match;
use super::pattern::{AttributeTerm, NodeTerm, Term};
use super::replace::Replacement;
use crate::{Attribute, DType, Node, Tensor};

/// The nodes and constants that replace a place.
pub(super) struct Added {
    pub nodes: Vec<Node>,
    pub constants: Vec<(String, Tensor)>,
}

/// Writes a replacement at one place. The outputs of its last line get the names of the outputs that stay.
pub(super) fn instantiate(
    found: Match<'_, '_>,
    replacement: &Replacement,
    unused_name: &mut dyn FnMut(&str) -> String,
) -> Result<Added, String> {
    let last = replacement.template.root();
    let mut names = vec![None; replacement.template.names.len()];
    for (output, name) in last.outputs.iter().zip(&found.node().outputs) {
        names[*output] = Some(name.clone());
    }
    let mut instance = Instance { found, replacement, names, nodes: Vec::new(), constants: Vec::new(), unused_name };
    instance.value(last.outputs[0])?;
    Ok(Added { nodes: instance.nodes, constants: instance.constants })
}

/// A replacement at one place.
struct Instance<'i, 'g> {
    found: Match<'i, 'g>,
    replacement: &'i Replacement,
    /// For each name of the replacement, the value.
    names: Vec<Option<String>>,
    nodes: Vec<Node>,
    constants: Vec<(String, Tensor)>,
    unused_name: &'i mut dyn FnMut(&str) -> String,
}

impl Instance<'_, '_> {
    fn output_name(&self) -> &str {
        self.found.node().outputs.first().map_or("", String::as_str)
    }

    fn constant(&mut self, tensor: Tensor) -> String {
        let name = format!("{}.constant", self.output_name());
        let name = (self.unused_name)(&name);
        self.constants.push((name.clone(), tensor));
        name
    }

    /// Returns the value of a name, whose node is added if a line defines it.
    fn value(&mut self, name: usize) -> Result<String, String> {
        let known = &self.replacement.template.names[name];
        let Some((line, output)) = known.definition else {
            if let Some((_, tensor)) = self.replacement.constants.iter().find(|(own, _)| *own == known.text) {
                let (tensor, unused) = (tensor.clone(), format!("{}.{}", self.output_name(), known.text));
                let unused = (self.unused_name)(&unused);
                self.constants.push((unused.clone(), tensor));
                return Ok(unused);
            }
            let bound = self.found.bound(&known.text).map(|value| self.found.index.name(value).to_owned());
            return bound.ok_or_else(|| format!("`{}` is not a value of the pattern", known.text));
        };
        let defined = self.replacement.template.lines[line].outputs.clone();
        let is_added =
            self.nodes.iter().any(|node| self.names[name].as_ref().is_some_and(|value| node.outputs.contains(value)));
        if !is_added {
            for output in &defined {
                if self.names[*output].is_none() {
                    let text = format!("{}.{}", self.output_name(), self.replacement.template.names[*output].text);
                    self.names[*output] = Some((self.unused_name)(&text));
                }
            }
            let outputs: Vec<String> =
                defined.iter().map(|output| self.names[*output].clone().unwrap_or_default()).collect();
            let Term::Node(node) = &self.replacement.template.lines[line].term else {
                return Err(format!("`{}` must be a node", known.text));
            };
            self.node(node, outputs)?;
        }
        let place = defined.get(output).copied().unwrap_or(name);
        self.names[place].clone().ok_or_else(|| format!("`{}` is not defined", known.text))
    }

    fn node(&mut self, term: &NodeTerm, outputs: Vec<String>) -> Result<(), String> {
        let inputs = term.inputs.iter().map(|input| self.input(input)).collect::<Result<Vec<_>, _>>()?;
        let attributes = term.attributes.iter().map(|(name, value)| Ok((name.clone(), self.attribute(value)?)));
        let mut attributes = attributes.collect::<Result<IndexMap<_, _>, String>>()?;
        let is_last = outputs.first().map(String::as_str) == Some(self.output_name());
        if is_last {
            attributes.extend(self.replacement.attributes.clone());
        }
        let name = if is_last { self.found.node().name.clone() } else { outputs[0].clone() };
        self.nodes.push(Node { name, op: term.op.clone(), domain: term.domain.clone(), inputs, outputs, attributes });
        Ok(())
    }

    fn input(&mut self, term: &Term) -> Result<String, String> {
        match term {
            Term::Name(name) => self.value(*name),
            Term::Omitted => Ok(String::new()),
            Term::Number(number) => {
                let dtype = self.found.output().map_or(DType::F32, |spec| spec.dtype);
                Ok(self.constant(Tensor::scalar(*number).cast(dtype)))
            }
            Term::List(list) => {
                let tensor = Tensor::from_vec([list.len()], list.clone()).map_err(|error| error.to_string())?;
                Ok(self.constant(tensor))
            }
            Term::Node(node) => {
                let output = format!("{}.{}", self.output_name(), node.op.to_lowercase());
                let output = (self.unused_name)(&output);
                self.node(node, vec![output.clone()])?;
                Ok(output)
            }
            Term::Either(_) => Err("a replacement has no alternatives".to_owned()),
        }
    }

    fn attribute(&self, term: &AttributeTerm) -> Result<Attribute, String> {
        let variable = match term {
            AttributeTerm::Value(value) => return Ok(value.clone()),
            AttributeTerm::Variable(variable) => &self.replacement.template.variables[*variable],
        };
        let number = || self.found.number(variable).map(|number| Attribute::Float(number as f32));
        let value = self.found.attribute(variable).cloned().or_else(number);
        value.ok_or_else(|| format!("`${variable}` is neither an attribute nor a number of the pattern"))
    }
}
