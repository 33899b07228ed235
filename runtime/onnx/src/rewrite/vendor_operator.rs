//! Operators that a vendor brings: nodes of the vendor's domain, with what they compute in standard operators.

use std::collections::BTreeSet;

use super::matched::Match;
use super::pattern::Term;
use super::replace::{Replacement, Rewrite, RewriteError, replace};
use crate::{Attribute, DType, Graph, Node, OPSET, TensorSpec, ValueInfo, check};
use indexmap::IndexMap;

/// An operator of a vendor.
#[derive(Clone, Debug)]
pub struct VendorOperator {
    domain: String,
    name: String,
    /// The element types of the outputs that it supports.
    dtypes: Vec<DType>,
    forms: Vec<Form>,
}

/// A way in which the operator is used, and what it then computes.
#[derive(Clone, Debug)]
struct Form {
    operator: Replacement,
    standard: Replacement,
    /// Values whose shapes and types have to be equal.
    equal: Vec<String>,
}

impl VendorOperator {
    /// Returns an operator without forms. The domain is the vendor's name.
    pub fn new(domain: &str, name: &str, dtypes: Vec<DType>) -> Self {
        VendorOperator { domain: domain.to_owned(), name: name.to_owned(), dtypes, forms: Vec::new() }
    }

    /// Returns the operator's name with its domain.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.domain, self.name)
    }

    /// Returns the names of the attributes that a node may have.
    pub fn attribute_names(&self) -> BTreeSet<&str> {
        self.forms.iter().flat_map(|form| form.operator.template.attribute_names()).map(|(name, _)| name).collect()
    }

    /// Adds a form: a node of the operator, `y = chip.norm<axis=$axis>(x, scale)`, and the text of the standard operators that
    /// compute the same output.
    ///
    /// # Errors
    /// When a text is not a pattern, the first one is not one node of this operator with all that the second one reads, the
    /// second one uses other operators than those of the standard, or `equal` is not a list of its values.
    pub fn add_form(&mut self, operator: &str, standard: &str, equal: &[String]) -> Result<(), String> {
        let read = |text: &str| Replacement::parse(text).map_err(|error| format!("`{text}`: {error}"));
        let (operator, standard) = (read(operator)?, read(standard)?);
        let name = self.full_name();
        match &operator.template.root().term {
            Term::Node(node)
                if operator.template.lines.len() == 1 && (&node.domain, &node.op) == (&self.domain, &self.name) => {}
            _ => return Err(format!("a form must be one line with one node of the operator `{name}`")),
        }
        let [own, other] = [&operator, &standard].map(|form| form.template.output_name());
        if own != other {
            return Err(format!("the node defines `{own}`, and the standard operators define `{other}`"));
        }
        if let Some(node) = standard.template.nodes().into_iter().find(|node| !node.domain.is_empty()) {
            return Err(format!("`standard` uses `{node}`, which is no operator of the standard"));
        }
        if standard.template.has_alternatives() {
            return Err("`standard` has alternatives; each is a form of its own".to_owned());
        }
        let inputs: Vec<&str> = operator.template.input_names().into_iter().flatten().collect();
        if let Some(twice) = inputs.iter().enumerate().find(|(place, name)| inputs[..*place].contains(name)) {
            return Err(format!("the node has the input `{}` twice", twice.1));
        }
        let read =
            standard.template.names.iter().filter(|name| name.definition.is_none()).map(|name| name.text.as_str());
        if let Some(missing) = read.into_iter().find(|name| !inputs.contains(name)) {
            return Err(format!("`standard` reads `{missing}`, which is no input of the node"));
        }
        let is_read = |name: &&&str| standard.template.names.iter().any(|known| known.text == ***name);
        if let Some(unused) = inputs.iter().find(|name| !is_read(name)) {
            return Err(format!("the node has the input `{unused}`, which `standard` does not read"));
        }
        let variables = &standard.template.variables;
        if let Some(missing) = variables.iter().find(|name| !operator.template.variables.contains(name)) {
            return Err(format!("`standard` has the attribute `${missing}`, which the node has not"));
        }
        if equal.len() == 1 || equal.iter().enumerate().any(|(place, name)| equal[..place].contains(name)) {
            return Err(format!("`equal` must list two different values or more, not `{}`", equal.join("`, `")));
        }
        let is_known = |name: &&String| standard.template.names.iter().any(|known| known.text == **name);
        if let Some(unknown) = equal.iter().find(|name| !is_known(name)) {
            return Err(format!("`equal` lists `{unknown}`, which is not a value of the standard operators"));
        }
        self.forms.push(Form { operator, standard, equal: equal.to_vec() });
        Ok(())
    }

    /// Returns a graph of one node of the operator, in the form whose inputs and attributes have these names.
    ///
    /// # Errors
    /// When no form has these inputs and attributes, or the standard operators do not accept them.
    pub fn node_graph(
        &self,
        inputs: &IndexMap<String, TensorSpec>,
        attributes: &IndexMap<String, Attribute>,
    ) -> Result<Graph, String> {
        let form = self.forms.iter().find(|form| {
            let names: Vec<&str> = form.operator.template.input_names().into_iter().flatten().collect();
            let has_inputs = names.len() == inputs.len() && names.iter().all(|name| inputs.contains_key(*name));
            let named = form.operator.template.attribute_names();
            let is_set = |(name, unknown): &(&str, bool)| !unknown || attributes.contains_key(*name);
            let is_named = |name: &String| named.iter().any(|(known, _)| known == name);
            has_inputs && named.iter().all(is_set) && attributes.keys().all(is_named)
        });
        let list = |names: Vec<&String>| names.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let form = form.ok_or_else(|| {
            let (own, set) = (list(inputs.keys().collect()), list(attributes.keys().collect()));
            format!("no form has the inputs {own} and the attributes {set}")
        })?;
        if inputs.is_empty() {
            return Err("a node has at least one input".to_owned());
        }
        let names = form.operator.template.input_names();
        let output = form.operator.template.output_name().to_owned();
        let node = Node {
            name: self.name.clone(),
            op: self.name.clone(),
            domain: self.domain.clone(),
            inputs: names.iter().map(|name| name.unwrap_or_default().to_owned()).collect(),
            outputs: vec![output.clone()],
            attributes: attributes.clone(),
        };
        let input = |name: &&str| ValueInfo { name: (*name).to_owned(), spec: inputs[*name].clone() };
        let mut graph = Graph {
            name: self.name.clone(),
            opset: OPSET,
            inputs: names.iter().flatten().map(input).collect(),
            outputs: vec![ValueInfo { name: output.clone(), spec: inputs[0].clone() }],
            nodes: vec![node],
            domains: IndexMap::from([(self.domain.clone(), 1)]),
            operators: vec![self.clone()],
            ..Graph::default()
        };
        let standard = expand_operators(&graph).map_err(|error| error.to_string())?;
        check(&Graph { outputs: Vec::new(), ..standard.clone() }).map_err(|error| error.to_string())?;
        let spec = standard.values.get(&output).ok_or("the shape of its output cannot be inferred")?;
        graph.values.insert(output, spec.clone());
        graph.outputs[0].spec = spec.clone();
        Ok(graph)
    }

    /// Replaces every place that computes what the operator computes by a node of the operator.
    ///
    /// # Errors
    /// When a node of an older operator set has no newer form.
    pub fn insert(&self, graph: &Graph) -> Result<Rewrite, RewriteError> {
        let mut prepared = graph.clone();
        prepared.operators.retain(|known| known.full_name() != self.full_name());
        prepared.operators.push(self.clone());
        let mut all = Rewrite::of(prepared);
        for Form { operator, standard, equal } in &self.forms {
            all.replace(&standard.template, &mut |found| {
                let dtype = found.output().map(|spec| spec.dtype);
                let dtype = dtype.ok_or("the type of its output is not known")?;
                if !self.dtypes.contains(&dtype) {
                    return Err(format!("`{}` does not compute in `{dtype}`", self.full_name()));
                }
                let specs: Vec<_> = equal.iter().map(|name| found.spec(name)).collect();
                if specs.windows(2).any(|pair| pair[0] != pair[1]) {
                    return Err(format!("`{}` do not have the same shape and type", equal.join("`, `")));
                }
                Ok(operator.clone())
            })?;
        }
        Ok(all.without_replaced_misses())
    }

    /// Replaces every node of the operator by the standard operators that compute the same.
    ///
    /// # Errors
    /// When a node has none of the forms.
    fn expand(&self, mut graph: Graph) -> Result<Graph, RewriteError> {
        for Form { operator, standard, .. } in &self.forms {
            let named = operator.template.attribute_names();
            let is_named = |name: &String| named.iter().any(|(known, _)| known == name);
            // An attribute that the form does not name might mean something else.
            let mut build = |found: &Match<'_, '_>| match found.node().attributes.keys().all(is_named) {
                true => Ok(standard.clone()),
                false => Err(String::new()),
            };
            graph = replace(&graph, &operator.template, &mut build)?.graph;
        }
        match graph.nodes.iter().find(|node| (&node.domain, &node.op) == (&self.domain, &self.name)) {
            Some(node) => Err(RewriteError::Replacement {
                node: node.name.clone(),
                reason: format!("its inputs and attributes are those of no form of `{}`", self.full_name()),
            }),
            None => Ok(graph),
        }
    }
}

/// Returns a graph with the vendor's operators that it knows replaced by standard ones.
///
/// # Errors
/// When a node has none of the forms of its operator.
pub fn expand_operators(graph: &Graph) -> Result<Graph, RewriteError> {
    let is_used = |operator: &&VendorOperator| {
        graph.nodes.iter().any(|node| (&node.domain, &node.op) == (&operator.domain, &operator.name))
    };
    graph.operators.iter().filter(is_used).try_fold(graph.clone(), |graph, operator| operator.expand(graph))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator() -> VendorOperator {
        VendorOperator::new("chip", "scale", vec![DType::F32])
    }

    #[test]
    fn mistakes_in_a_form_are_named() {
        let refusal = |node: &str, standard: &str, equal: &[&str]| {
            let equal: Vec<String> = equal.iter().map(|name| (*name).to_owned()).collect();
            operator().add_form(node, standard, &equal).unwrap_err()
        };
        let node = "y = chip.scale<by=$by>(a, b)";
        let cases = [
            (
                node,
                "y = chip.scale<by=$by>(a, b)",
                &[][..],
                "`standard` uses `chip.scale`, which is no operator of the standard",
            ),
            (node, "y = Add(a, Mul(b, c))", &[], "`standard` reads `c`, which is no input of the node"),
            (node, "y = Relu(a)", &[], "the node has the input `b`, which `standard` does not read"),
            (node, "y = Concat<axis=$axis>(a, b)", &[], "`standard` has the attribute `$axis`, which the node has not"),
            (node, "y = Add(a, b) | Add(b, a)", &[], "`standard` has alternatives; each is a form of its own"),
            ("y = chip.scale(a, a)", "y = Add(a, a)", &[], "the node has the input `a` twice"),
            (node, "y = Add(a, b)", &["a"], "`equal` must list two different values or more, not `a`"),
            (node, "y = Add(a, b)", &["a", "a"], "`equal` must list two different values or more, not `a`, `a`"),
        ];
        for (node, standard, equal, reason) in cases {
            assert_eq!(refusal(node, standard, equal), reason);
        }
    }

    #[test]
    fn the_attributes_of_all_forms_are_listed_once() {
        let mut chip = operator();
        chip.add_form("y = chip.scale<by=$by>(a)", "y = LeakyRelu<alpha=$by>(a)", &[]).unwrap();
        chip.add_form("y = chip.scale<by=$by, at=$at>(a)", "y = LeakyRelu<alpha=$by>(Softmax<axis=$at>(a))", &[])
            .unwrap();
        assert_eq!(chip.attribute_names().into_iter().collect::<Vec<_>>(), ["at", "by"]);
    }

    #[test]
    fn a_node_with_an_attribute_that_no_form_names_is_not_replaced() {
        let mut chip = operator();
        chip.add_form("y = chip.scale<by=$by>(a)", "y = LeakyRelu<alpha=$by>(a)", &[]).unwrap();
        let expanded = |attributes: &[(&str, f32)]| {
            let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), Attribute::Float(*value)));
            let inputs = IndexMap::from([("a".to_owned(), "4,f32".parse().unwrap())]);
            let known = IndexMap::from([("by".to_owned(), Attribute::Float(0.5))]);
            let mut graph = chip.node_graph(&inputs, &known).unwrap();
            graph.nodes[0].attributes = attributes.collect();
            expand_operators(&graph).map(|graph| graph.nodes[0].op.clone()).map_err(|error| error.to_string())
        };
        assert_eq!(expanded(&[("by", 0.5)]), Ok("LeakyRelu".to_owned()));
        let reason = "the replacement at node `scale`: its inputs and attributes are those of no form of `chip.scale`";
        assert_eq!(expanded(&[("by", 0.5), ("mode", 1.0)]), Err(reason.to_owned()));
    }
}
