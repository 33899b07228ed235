//! Valid and nearly valid graphs that are meant to overflow the stack, memory or a counter. They are processed, or
//! refused with an error that names the node or value.

use flagperf_onnx::{
    Attribute, CheckError, Graph, LimitError, Node, Tensor, ValueInfo, Weight, WeightRole, WeightSource, check,
    check_limits, check_paths, count, infer_shapes, read_onnx, write_onnx,
};

/// Returns a graph with the input `x` and one output, the first output of the last node.
fn graph(x: &str, y: &str, nodes: Vec<Node>) -> Graph {
    let info = |name: &str, spec: &str| ValueInfo { name: name.to_owned(), spec: spec.parse().unwrap() };
    let outputs = vec![info(&nodes.last().unwrap().outputs[0], y)];
    Graph { name: "hostile".to_owned(), opset: 20, inputs: vec![info("x", x)], outputs, nodes, ..Graph::default() }
}

fn node<const N: usize>(op: &str, inputs: &[&str], output: &str, attributes: [(&str, Attribute); N]) -> Node {
    Node {
        name: format!("{output}.{op}"),
        op: op.to_owned(),
        inputs: inputs.iter().map(|&name| name.to_owned()).collect(),
        outputs: vec![output.to_owned()],
        attributes: attributes.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
        ..Node::default()
    }
}

fn constant(graph: &mut Graph, name: &str, values: Vec<i64>) {
    let tensor = Tensor::from_vec([values.len()], values).unwrap();
    let weight = Weight { spec: tensor.spec(), role: WeightRole::Constant, source: WeightSource::Value(tensor) };
    graph.weights.insert(name.to_owned(), weight);
}

/// Returns `count` nodes of operator `op`, each of which reads the output of the one before.
fn chain(op: &str, count: usize, second: Option<&str>) -> Vec<Node> {
    let step = |index: usize| {
        let before = if index == 0 { "x".to_owned() } else { format!("v{}", index - 1) };
        let inputs: Vec<&str> = std::iter::once(before.as_str()).chain(second).collect();
        node(op, &inputs, &format!("v{index}"), [])
    };
    (0..count).map(step).collect()
}

/// Writes a graph to a file, then reads, checks, counts and infers it as a worker does.
fn process(graph: &Graph) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    write_onnx(graph, &path).unwrap();
    let mut graph = read_onnx(&path).unwrap();
    let _ = (check(&graph), count(&graph), infer_shapes(&mut graph));
}

#[test]
fn a_path_of_a_hundred_thousand_nodes_is_read_and_counted_but_refused_for_engines() {
    let graph = graph("N,4,f32", "N,4,f32", chain("Relu", 100_000, None));
    check(&graph).unwrap();
    assert_eq!(count(&graph).multiply_adds_per_sample, Some(0));
    process(&graph);
    check_limits(&graph).unwrap();
    let error = check_paths(&graph).unwrap_err();
    let expected = "the path to node `v99999.Relu` has 100000 nodes (at most 10000 are supported)";
    assert_eq!(error.to_string(), expected);
}

/// The expression of each sum is one level deeper than that of the sum before.
#[test]
fn a_size_whose_expression_grows_from_node_to_node_becomes_unknown() {
    let mut nodes = vec![node("Shape", &["x"], "s", [])];
    nodes.extend(chain("Add", 100_000, Some("one")));
    nodes[1].inputs[0] = "s".to_owned();
    nodes.push(node("Expand", &["f", "v99999"], "y", []));
    let mut graph = graph("N,f32", "M,f32", nodes);
    constant(&mut graph, "one", vec![1]);
    let tensor = Tensor::from_vec([1], vec![1.0f32]).unwrap();
    let weight = Weight { spec: tensor.spec(), role: WeightRole::Constant, source: WeightSource::Value(tensor) };
    graph.weights.insert("f".to_owned(), weight);
    check(&graph).unwrap();
    process(&graph);
    assert!(infer_shapes(&mut graph).is_empty());
}

#[test]
fn a_concat_of_twenty_thousand_inputs_is_inferred_but_refused_for_engines() {
    for (x, y) in [("N,4,f32", "M,4,f32"), ("3,4,f32", "60000,4,f32")] {
        let names = vec!["x"; 20_000];
        let joined = graph(x, y, vec![node("Concat", &names, "y", [("axis", Attribute::Int(0))])]);
        check(&joined).unwrap();
        process(&joined);
        let mut inferred = joined.clone();
        assert!(infer_shapes(&mut inferred).is_empty());
        let spec = inferred.values["y"].to_string();
        assert_eq!(spec, if x.starts_with('3') { "60000,4,f32" } else { "?,4,f32" });
        let error = check_limits(&joined).unwrap_err();
        let expected = "node `y.Concat` (Concat) has 20000 inputs (at most 4096 are supported)";
        assert_eq!(error.to_string(), expected);
    }
}

/// A list of sizes that is doubled forty times would have 2^40 elements.
#[test]
fn lists_of_sizes_that_double_are_tracked_up_to_a_limit() {
    let mut nodes = vec![node("Shape", &["x"], "v", [])];
    for index in 0..40 {
        let before = if index == 0 { "v".to_owned() } else { format!("v{}", index - 1) };
        nodes.push(node("Concat", &[&before, &before], &format!("v{index}"), [("axis", Attribute::Int(0))]));
    }
    process(&graph("N,f32", "M,i64", nodes));
}

#[test]
fn a_constant_of_a_huge_shape_is_inferred_without_allocating_it() {
    let value = || Attribute::Tensor(Tensor::from_vec([1], vec![7i64]).unwrap());
    let mut graph = graph("N,f32", "M,i64", vec![node("ConstantOfShape", &["huge"], "y", [("value", value())])]);
    constant(&mut graph, "huge", vec![2_000_000_000]);
    process(&graph);
    assert!(infer_shapes(&mut graph).is_empty());
    assert_eq!(graph.values["y"].to_string(), "2000000000,i64");
}

#[test]
fn a_constant_with_more_elements_than_engines_can_make_is_refused_with_its_node() {
    let limited = |sizes: Vec<i64>| {
        let mut graph = graph("N,f32", "A,B,f32", vec![node("ConstantOfShape", &["sizes"], "y", [])]);
        constant(&mut graph, "sizes", sizes);
        check_limits(&graph).map_err(|error| error.to_string())
    };
    let expected = "node `y.ConstantOfShape` (ConstantOfShape) makes a constant of `65536,32768,f32` (at most \
                    268435456 elements are supported)";
    assert_eq!(limited(vec![1 << 16, 1 << 15]).unwrap_err(), expected);
    limited(vec![1 << 14, 1 << 14]).unwrap();
}

#[test]
fn a_slice_with_a_step_of_zero_is_refused_with_its_node() {
    let slice = node("Slice", &["x", "starts", "ends", "axes", "steps"], "y", []);
    let mut graph = graph("3,4,f32", "3,4,f32", vec![slice]);
    for (name, value) in [("starts", 0), ("ends", 2), ("axes", 1), ("steps", 0)] {
        constant(&mut graph, name, vec![value]);
    }
    process(&graph);
    let error = check(&graph).unwrap_err();
    assert!(matches!(error, CheckError::Node { .. }), "{error}");
    assert_eq!(error.to_string(), "node `y.Slice`: a slice step is 0");
    assert_eq!(check_limits(&graph).unwrap_err(), LimitError::ZeroSliceStep { node: "y.Slice".to_owned() });
}

/// Returns `depth` branches, nested in each other, in the encoding of the file.
fn nested(depth: usize) -> Vec<u8> {
    fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
        let (mut out, mut length) = (vec![tag << 3 | 2], bytes.len());
        while length >= 0x80 {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend(bytes);
        out
    }
    // The innermost branch has no node; each outer branch has an `If` with the inner branch as its attribute.
    let mut branch = Vec::new();
    for _ in 0..depth {
        let attribute = [field(1, b"then_branch"), field(6, &branch), vec![0xa0, 1, 5]].concat();
        let conditional = [field(1, b"c"), field(2, b"y"), field(4, b"If"), field(5, &attribute)].concat();
        branch = field(1, &conditional);
    }
    [field(1, b"then_branch"), field(6, &branch), vec![0xa0, 1, 5]].concat()
}

#[test]
fn branches_nested_two_thousand_deep_are_read_but_refused_for_engines() {
    let with = |depth| {
        let branch = Attribute::Encoded(nested(depth));
        graph("N,f32", "N,f32", vec![node("If", &["x"], "y", [("then_branch", branch)])])
    };
    process(&with(2_000));
    let error = check_limits(&with(2_000)).unwrap_err();
    let expected = "node `y.If` (If) nests subgraphs too deeply (at most 16 levels are supported)";
    assert_eq!(error.to_string(), expected);
    check_limits(&with(10)).unwrap();
}

#[test]
fn a_value_larger_than_any_memory_is_read_but_refused_for_engines() {
    let relu = |spec: &str| {
        let graph = graph(spec, spec, chain("Relu", 1, None));
        check(&graph).unwrap();
        process(&graph);
        check_limits(&graph)
    };
    for huge in ["1000000,1000000,f32", "9223372036854775807,4,f32"] {
        assert!(matches!(relu(huge), Err(LimitError::ValueTooLarge { .. })), "{huge}");
    }
    for empty in ["0,f32", "N,0,0,f32"] {
        relu(empty).unwrap();
    }
}
