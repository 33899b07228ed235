//! Replaces the calls of a file's own functions by their nodes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use prost::Message;

use super::proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use crate::limits::NESTING_MAX;

/// The most nodes and the most bytes after replacing: functions that call each other could otherwise multiply without end.
const NODES_MAX: usize = 200_000;
const BYTES_MAX: usize = 1 << 30;
/// The most functions that are called within each other.
const CALLS_MAX: usize = 200;

/// Returns a model's graph, in which each call of a function is replaced by the nodes of the function, and the functions, if
/// some are still called: those written for another version of the standard operator set. The names of the nodes and of their
/// values begin with the name of the calling node.
///
/// # Errors
/// When a function is malformed, calls itself, or the graph would have too many nodes.
pub(super) fn inline<'m>(
    model: &ModelProto,
    graph: &'m GraphProto,
    opset: i64,
) -> Result<(Cow<'m, GraphProto>, Vec<Vec<u8>>), String> {
    if model.functions.is_empty() {
        return Ok((Cow::Borrowed(graph), Vec::new()));
    }
    let Inlined { nodes, left } = inlined(model, graph, opset)?;
    let functions = if left.is_empty() { Vec::new() } else { model.functions.clone() };
    Ok((Cow::Owned(GraphProto { node: nodes, ..graph.clone() }), functions))
}

/// The nodes of a graph without calls of functions.
struct Inlined {
    nodes: Vec<NodeProto>,
    /// The names of functions that are still called.
    left: Vec<String>,
}

fn inlined(model: &ModelProto, graph: &GraphProto, opset: i64) -> Result<Inlined, String> {
    let mut functions = HashMap::new();
    for encoded in &model.functions {
        let function = FunctionProto::decode(&encoded[..]).map_err(|error| format!("a function: {error}"))?;
        let key = (standard_domain(function.domain()), function.name().to_owned(), function.overload().to_owned());
        if let Some(first) = functions.insert(key, function) {
            return Err(format!("the function `{}.{}` is defined twice", first.domain(), first.name()));
        }
    }
    let mut names = Names::default();
    names.add_graph(graph, 0)?;
    let mut inliner = Inliner { functions: &functions, opset, names, nodes: Vec::new(), bytes: 0, left: Vec::new() };
    for node in &graph.node {
        inliner.add(node.clone(), &mut Vec::new(), 0)?;
    }
    Ok(Inlined { nodes: inliner.nodes, left: inliner.left })
}

/// The domain, name and overload of a function.
type Key = (String, String, String);

/// The names of a model.
#[derive(Default)]
struct Names {
    values: HashSet<String>,
    nodes: HashSet<String>,
}

impl Names {
    /// Adds the names of a graph and of its subgraphs.
    fn add_graph(&mut self, graph: &GraphProto, depth: usize) -> Result<(), String> {
        if depth > NESTING_MAX {
            return Err(format!("subgraphs are nested more than {NESTING_MAX} levels deep"));
        }
        self.values.extend(graph.initializer.iter().filter_map(|tensor| tensor.name.clone()));
        self.values.extend(graph.input.iter().filter_map(|info| info.name.clone()));
        for node in &graph.node {
            self.values.extend(node.input.iter().chain(&node.output).cloned());
            self.nodes.extend(node.name.clone());
            for encoded in node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs)) {
                self.add_graph(&decode(encoded)?, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Returns a name like `name` that no node has.
    fn node(&mut self, name: String) -> String {
        unused(&mut self.nodes, name)
    }

    /// Returns a name like `name` that no value has.
    fn value(&mut self, name: String) -> String {
        unused(&mut self.values, name)
    }
}

fn unused(names: &mut HashSet<String>, name: String) -> String {
    let mut numbered = name.clone();
    let mut number = 1;
    while !names.insert(numbered.clone()) {
        number += 1;
        numbered = format!("{name}_{number}");
    }
    numbered
}

fn decode(graph: &[u8]) -> Result<GraphProto, String> {
    GraphProto::decode(graph).map_err(|error| format!("a subgraph: {error}"))
}

/// Returns a domain; the standard one has two names.
fn standard_domain(name: &str) -> String {
    if name == "ai.onnx" { String::new() } else { name.to_owned() }
}

struct Inliner<'a> {
    functions: &'a HashMap<Key, FunctionProto>,
    /// The version of the standard operator set that the graph uses.
    opset: i64,
    names: Names,
    nodes: Vec<NodeProto>,
    /// The size of all nodes that were added.
    bytes: usize,
    left: Vec<String>,
}

impl Inliner<'_> {
    /// Adds a node, or the nodes of the function that it calls. `calls` are the functions around it, and `depth` is the number of
    /// subgraphs around it.
    fn add(&mut self, mut node: NodeProto, calls: &mut Vec<Key>, depth: usize) -> Result<(), String> {
        if node.name().is_empty() {
            node.name = Some(self.names.node(node.op_type().to_owned()));
        }
        let key = (standard_domain(node.domain()), node.op_type().to_owned(), node.overload().to_owned());
        let Some(function) = self.functions.get(&key) else { return self.add_plain(node, calls, depth) };
        let name = format!("{}.{}", key.0, key.1);
        let standard = function.opset_import.iter().find(|set| standard_domain(set.domain()).is_empty());
        if standard.and_then(|set| set.version).is_some_and(|version| version != self.opset) {
            self.left.push(name);
            return self.add_plain(node, calls, depth);
        }
        if calls.contains(&key) {
            return Err(format!("the function `{name}` calls itself"));
        }
        if calls.len() >= CALLS_MAX {
            return Err(format!("functions call each other more than {CALLS_MAX} levels deep, at last `{name}`"));
        }
        if node.input.len() > function.input.len() {
            let (given, known) = (node.input.len(), function.input.len());
            return Err(format!(
                "node `{}` gives the function `{name}` {given} inputs, and it has {known}",
                node.name()
            ));
        }
        calls.push(key);
        let mut call = Call::of(&node, function, &mut self.names);
        for inner in &function.node {
            let inner = call.node(inner, &mut self.names)?;
            self.add(inner, calls, depth)?;
        }
        calls.pop();
        // A function may return what it receives.
        for (formal, actual) in function.output.iter().zip(&node.output).filter(|(_, actual)| !actual.is_empty()) {
            let value = &call.values[formal];
            if value != actual {
                let name = Some(self.names.node(format!("{}/{formal}", node.name())));
                let (input, output) = (vec![value.clone()], vec![actual.clone()]);
                let op_type = Some("Identity".to_owned());
                self.push(NodeProto { name, op_type, input, output, ..NodeProto::default() })?;
            }
        }
        Ok(())
    }

    /// Adds a node that calls no function, but whose subgraphs may.
    fn add_plain(&mut self, mut node: NodeProto, calls: &mut Vec<Key>, depth: usize) -> Result<(), String> {
        for encoded in
            node.attribute.iter_mut().flat_map(|attribute| attribute.g.iter_mut().chain(&mut attribute.graphs))
        {
            let graph = decode(encoded)?;
            if depth >= NESTING_MAX {
                return Err(format!("subgraphs are nested more than {NESTING_MAX} levels deep"));
            }
            let outer = std::mem::take(&mut self.nodes);
            for inner in graph.node {
                self.add(inner, calls, depth + 1)?;
            }
            let nodes = std::mem::replace(&mut self.nodes, outer);
            *encoded = GraphProto { node: nodes, ..graph }.encode_to_vec();
        }
        self.push(node)
    }

    fn push(&mut self, node: NodeProto) -> Result<(), String> {
        self.bytes += node.encoded_len();
        if self.nodes.len() >= NODES_MAX || self.bytes > BYTES_MAX {
            return Err(format!(
                "its functions are more than {NODES_MAX} nodes or {BYTES_MAX} bytes where they are called"
            ));
        }
        self.nodes.push(node);
        Ok(())
    }
}

/// A call of a function.
struct Call<'a> {
    node: &'a NodeProto,
    /// The attributes of the call, and the defaults of the function.
    attributes: HashMap<&'a str, &'a AttributeProto>,
    /// The values of the graph by their names in the function.
    values: HashMap<String, String>,
}

impl<'a> Call<'a> {
    fn of(node: &'a NodeProto, function: &'a FunctionProto, names: &mut Names) -> Self {
        let attributes = function.attribute_proto.iter().chain(&node.attribute);
        let attributes = attributes.map(|attribute| (attribute.name(), attribute)).collect();
        let inputs = function.input.iter().enumerate();
        let values = inputs.map(|(place, formal)| (formal.clone(), node.input.get(place).cloned().unwrap_or_default()));
        let mut call = Call { node, attributes, values: values.collect() };
        for (place, formal) in function.output.iter().enumerate() {
            match node.output.get(place).filter(|name| !name.is_empty()) {
                Some(actual) if !call.values.contains_key(formal) => {
                    call.values.insert(formal.clone(), actual.clone());
                }
                _ => drop(call.value(formal, names)),
            }
        }
        call
    }

    /// Returns the name that a value of the function has in the graph.
    fn value(&mut self, name: &str, names: &mut Names) -> String {
        if name.is_empty() {
            return String::new();
        }
        if let Some(known) = self.values.get(name) {
            return known.clone();
        }
        let unused = names.value(format!("{}/{name}", self.node.name()));
        self.values.insert(name.to_owned(), unused.clone());
        unused
    }

    fn node(&mut self, inner: &NodeProto, names: &mut Names) -> Result<NodeProto, String> {
        let own = if inner.name().is_empty() { inner.op_type() } else { inner.name() };
        let name = Some(names.node(format!("{}/{own}", self.node.name())));
        let mut attribute = Vec::new();
        for inner in &inner.attribute {
            attribute.extend(self.attribute(inner, names)?);
        }
        let mut rename = |values: &[String]| values.iter().map(|value| self.value(value, names)).collect();
        let (input, output) = (rename(&inner.input), rename(&inner.output));
        Ok(NodeProto { name, attribute, input, output, ..inner.clone() })
    }

    /// Returns an attribute of a node as the call sets it; `None` if the call leaves it out.
    fn attribute(&mut self, inner: &AttributeProto, names: &mut Names) -> Result<Option<AttributeProto>, String> {
        if let Some(reference) = inner.ref_attr_name.as_deref().filter(|name| !name.is_empty()) {
            let actual = self.attributes.get(reference);
            return Ok(actual.map(|actual| AttributeProto { name: inner.name.clone(), ..(*actual).clone() }));
        }
        let mut renamed = inner.clone();
        for encoded in renamed.g.iter_mut().chain(&mut renamed.graphs) {
            *encoded = self.subgraph(decode(encoded)?, names)?.encode_to_vec();
        }
        Ok(Some(renamed))
    }

    /// Returns a subgraph in which every value has its name in the graph.
    fn subgraph(&mut self, graph: GraphProto, names: &mut Names) -> Result<GraphProto, String> {
        let mut infos = |infos: Vec<ValueInfoProto>| -> Vec<ValueInfoProto> {
            let rename = |info: ValueInfoProto| ValueInfoProto { name: Some(self.value(info.name(), names)), ..info };
            infos.into_iter().map(rename).collect()
        };
        let (input, output, value_info) = (infos(graph.input), infos(graph.output), infos(graph.value_info));
        let mut initializer = graph.initializer;
        for tensor in &mut initializer {
            tensor.name = Some(self.value(tensor.name(), names));
        }
        let node = graph.node.iter().map(|node| self.node(node, names)).collect::<Result<_, _>>()?;
        Ok(GraphProto { node, input, output, value_info, initializer, ..graph })
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::OperatorSetIdProto;
    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn node(name: &str, domain: &str, op: &str, input: &[&str], output: &[&str]) -> NodeProto {
        let [name, domain, op] = [name, domain, op].map(|text| Some(text.to_owned()));
        NodeProto { name, domain, op_type: op, input: texts(input), output: texts(output), ..NodeProto::default() }
    }

    fn function(name: &str, input: &[&str], output: &[&str], node: Vec<NodeProto>) -> FunctionProto {
        let set = OperatorSetIdProto { domain: None, version: Some(18) };
        FunctionProto {
            name: Some(name.to_owned()),
            domain: Some("own".to_owned()),
            input: texts(input),
            output: texts(output),
            node,
            opset_import: vec![set],
            ..FunctionProto::default()
        }
    }

    fn inline(functions: &[FunctionProto], node: Vec<NodeProto>) -> Result<Inlined, String> {
        let functions = functions.iter().map(Message::encode_to_vec).collect();
        let model = ModelProto { functions, ..ModelProto::default() };
        inlined(&model, &GraphProto { node, ..GraphProto::default() }, 18)
    }

    fn shown(inlined: &Inlined) -> Vec<String> {
        let show = |node: &NodeProto| {
            format!("{}: {} = {}({})", node.name(), node.output.join(","), node.op_type(), node.input.join(","))
        };
        inlined.nodes.iter().map(show).collect()
    }

    #[test]
    fn a_call_becomes_the_nodes_of_the_function_with_names_of_its_own() {
        let square = function("square", &["a"], &["b"], vec![node("", "", "Mul", &["a", "a"], &["b"])]);
        let inner =
            vec![node("s", "own", "square", &["x"], &["t"]), node("n", "", "Clip", &["t", "", "bound"], &["y"])];
        let outer = function("outer", &["x", "bound"], &["y", "t", "x"], inner);
        let calls = vec![
            node("one", "own", "outer", &["v"], &["w", "", "same"]),
            // The name is taken.
            node("two", "", "Neg", &["w"], &["one/t"]),
        ];
        let found = inline(&[square, outer], calls).unwrap();
        let expected = [
            "one/s/Mul: one/t_2 = Mul(v,v)",
            "one/n: w = Clip(one/t_2,,)",
            "one/x: same = Identity(v)",
            "two: one/t = Neg(w)",
        ];
        assert_eq!(shown(&found), expected);
        assert_eq!(found.left, Vec::<String>::new());
    }

    #[test]
    fn attributes_come_from_the_call_or_the_function_and_subgraphs_are_renamed() {
        let int =
            |name: &str, i| AttributeProto { name: Some(name.into()), i: Some(i), kind: Some(2), ..Default::default() };
        let refers = |name: &str, to: &str| AttributeProto {
            name: Some(name.into()),
            ref_attr_name: Some(to.into()),
            kind: Some(2),
            ..Default::default()
        };
        let mut softmax = node("m", "", "Softmax", &["x"], &["t"]);
        softmax.attribute = vec![refers("axis", "own_axis"), refers("gone", "nobody"), refers("to", "default")];
        let branch = GraphProto { node: vec![node("b", "", "Neg", &["t"], &["u"])], ..GraphProto::default() };
        let mut choice = node("c", "", "If", &["x"], &["y"]);
        let encoded = Some(branch.encode_to_vec());
        choice.attribute =
            vec![AttributeProto { name: Some("then_branch".into()), g: encoded, kind: Some(5), ..Default::default() }];
        let mut own = function("f", &["x"], &["y"], vec![softmax, choice]);
        own.attribute_proto = vec![int("default", 7)];
        let mut call = node("call", "own", "f", &["v"], &["w"]);
        call.attribute = vec![int("own_axis", 3)];
        let found = inline(&[own], vec![call]).unwrap();
        let attributes =
            |node: &NodeProto| node.attribute.iter().map(|own| (own.name().to_owned(), own.i())).collect::<Vec<_>>();
        assert_eq!(attributes(&found.nodes[0]), [("axis".to_owned(), 3), ("to".to_owned(), 7)]);
        let branch = GraphProto::decode(found.nodes[1].attribute[0].g()).unwrap();
        assert_eq!((&branch.node[0].input, &branch.node[0].output), (&texts(&["call/t"]), &texts(&["call/u"])));
    }

    #[test]
    fn nodes_have_names_of_their_own_and_branches_call_functions_too() {
        let twice = vec![node("", "", "Exp", &["a"], &["t"]), node("", "", "Exp", &["t"], &["b"])];
        let own = function("f", &["a"], &["b"], twice);
        let branch = GraphProto { node: vec![node("f", "own", "f", &["v"], &["u"])], ..GraphProto::default() };
        let encoded = Some(branch.encode_to_vec());
        let mut choice = node("", "", "If", &["c"], &["y"]);
        choice.attribute =
            vec![AttributeProto { name: Some("then_branch".into()), g: encoded, kind: Some(5), ..Default::default() }];
        let found = inline(&[own], vec![node("f", "own", "f", &["v"], &["w"]), choice]).unwrap();
        let branch = GraphProto::decode(found.nodes[2].attribute[0].g()).unwrap();
        let shown = shown(&Inlined { nodes: [&found.nodes[..2], &branch.node].concat(), left: Vec::new() });
        let expected =
            ["f/Exp: f/t = Exp(v)", "f/Exp_2: w = Exp(f/t)", "f/Exp_3: f/t_2 = Exp(v)", "f/Exp_4: u = Exp(f/t_2)"];
        assert_eq!(shown, expected);
        let known = function("f", &["a"], &["b"], Vec::new());
        let error =
            inline(std::slice::from_ref(&known), vec![node("n", "own", "f", &["v", "w"], &["y"])]).err().unwrap();
        assert_eq!(error, "node `n` gives the function `own.f` 2 inputs, and it has 1");
        let error = inline(&[known.clone(), known], Vec::new()).err().unwrap();
        assert_eq!(error, "the function `own.f` is defined twice");
    }

    #[test]
    fn functions_that_call_themselves_or_multiply_are_refused_and_other_versions_stay() {
        let own = function("f", &["x"], &["y"], vec![node("n", "own", "g", &["x"], &["y"])]);
        let back = function("g", &["x"], &["y"], vec![node("n", "own", "f", &["x"], &["y"])]);
        let error = inline(&[own, back], vec![node("call", "own", "f", &["v"], &["w"])]).err().unwrap();
        assert_eq!(error, "the function `own.f` calls itself");

        // Each calls the next one twelve times.
        let level = |depth: usize| {
            let next = format!("f{}", depth + 1);
            let calls = (0..12).map(|n| node(&format!("n{n}"), "own", &next, &["x"], &[&format!("y{n}")])).collect();
            function(&format!("f{depth}"), &["x"], &["y0"], calls)
        };
        let levels: Vec<_> = (0..12).map(level).collect();
        let error = inline(&levels, vec![node("call", "own", "f0", &["v"], &["w"])]).err().unwrap();
        assert_eq!(error, "its functions are more than 200000 nodes or 1073741824 bytes where they are called");

        let mut older = function("f", &["x"], &["y"], vec![node("n", "", "Neg", &["x"], &["y"])]);
        older.opset_import[0].version = Some(17);
        let found = inline(&[older], vec![node("call", "own", "f", &["v"], &["w"])]).unwrap();
        assert_eq!((shown(&found), found.left), (vec!["call: w = f(v)".to_owned()], texts(&["own.f"])));
    }
}
