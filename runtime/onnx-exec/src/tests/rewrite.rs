//! Rewrites: what is found and replaced, and what shows that a graph still computes the same.

use flagperf_onnx::rewrite::{Fusion, Pattern, Replaced, Replacement, Rewrite, find, insert, replace, simplify};
use flagperf_onnx::{Attribute, DType, Graph, Tensor, Weight};

use super::{Sketch, int_list, ints, noise};
use crate::{
    Compared, FOLDED_BYTES_MAX, ProofError, ProofLimits, RegionsProof, fold_constants, prove_regions as prove_within,
};

/// The nine nodes of a layer normalization, without the output.
fn layer_norm(epsilon: f32) -> Sketch {
    let mean = || [("axes", ints(&[-1]))];
    let sketch = Sketch::new().input("x", "N,4,8,f32");
    let sketch = sketch.weight("two", Tensor::scalar(2.0f32)).weight("epsilon", Tensor::scalar(epsilon));
    let sketch = sketch.weight("scale", noise("8,f32", 1)).weight("bias", noise("8,f32", 2));
    let mut sketch = sketch
        .node_with("ReduceMean", &["x"], &["mean"], mean())
        .node("Sub", &["x", "mean"], &["d"])
        .node("Pow", &["d", "two"], &["square"])
        .node_with("ReduceMean", &["square"], &["variance"], mean())
        .node("Add", &["epsilon", "variance"], &["sum"])
        .node("Sqrt", &["sum"], &["std"])
        .node("Div", &["d", "std"], &["normal"])
        .node("Mul", &["scale", "normal"], &["scaled"])
        .node("Add", &["scaled", "bias"], &["y"]);
    sketch.0.opset = 13;
    sketch
}

fn fuse(graph: &Graph, operator: &str) -> Rewrite {
    Fusion::find(operator).unwrap().apply(graph).unwrap()
}

fn prove_regions(replaced: &[Replaced], seed: u64) -> RegionsProof {
    prove_within(replaced, seed, ProofLimits::default())
}

fn compare(before: &Graph, after: &Graph, seed: u64) -> Result<Compared, ProofError> {
    crate::compare(before, after, seed, ProofLimits::default())
}

fn operators(graph: &Graph) -> Vec<&str> {
    graph.nodes.iter().map(|node| node.op.as_str()).collect()
}

fn misses(rewrite: &Rewrite) -> Vec<String> {
    rewrite.near_misses.iter().map(|miss| miss.reason.clone()).collect()
}

#[test]
fn nine_nodes_become_a_layer_normalization_that_computes_the_same() {
    let before = layer_norm(1e-3).output("y", "N,4,8,f32");
    let fused = fuse(&before, "LayerNormalization");
    let node = &fused.graph.nodes[0];
    assert_eq!(
        (operators(&fused.graph), fused.graph.opset, fused.replaced[0].nodes),
        (vec!["LayerNormalization"], 17, 9)
    );
    assert_eq!(node.attributes["epsilon"], Attribute::Float(1e-3));
    assert_eq!((&node.inputs[..], node.outputs[0].as_str()), (&["x".into(), "scale".into(), "bias".into()][..], "y"));
    assert_eq!(fused.graph.weights.len(), 2, "what nobody reads is removed");
    let proof = prove_regions(&fused.replaced, 0);
    assert_eq!((proof.places, proof.distinct, proof.unproved.len()), (1, 1, 0));
    assert!(proof.differs.is_none() && proof.error < 1e-7, "{proof:?}");
    let whole = compare(&before, &fused.graph, 0).unwrap();
    assert_eq!((whole.elements, whole.error < 1e-7), (2 * 2 * 4 * 8, true));
}

#[test]
fn places_that_differ_only_in_their_weights_are_computed_once() {
    let mut sketch = layer_norm(1e-5);
    let second = layer_norm(1e-5).0;
    let rename = |name: &String| if name == "x" { "y".to_owned() } else { format!("{name}2") };
    for mut node in second.nodes {
        node.inputs = node.inputs.iter().map(rename).collect();
        node.outputs = node.outputs.iter().map(|name| format!("{name}2")).collect();
        node.name += "2";
        sketch.0.nodes.push(node);
    }
    sketch.0.weights.extend(second.weights.into_iter().map(|(name, weight)| (format!("{name}2"), weight)));
    let fused = fuse(&sketch.output("y2", "N,4,8,f32"), "LayerNormalization");
    let proof = prove_regions(&fused.replaced, 0);
    assert_eq!((fused.replaced.len(), proof.distinct), (2, 1));
}

#[test]
fn a_value_that_others_read_keeps_its_place() {
    let also_read = layer_norm(1e-5).node("Relu", &["std"], &["other"]).output("y", "N,4,8,f32");
    let also_read = Graph { outputs: [&also_read.outputs[..], &[output("other", "N,4,1,f32")]].concat(), ..also_read };
    let fused = fuse(&also_read, "LayerNormalization");
    assert_eq!(misses(&fused), ["node `other` (Relu) also reads the value `std` inside"]);
    assert_eq!(fused.graph.nodes, also_read.nodes);
    let mut is_output = layer_norm(1e-5).output("y", "N,4,8,f32");
    is_output.outputs.push(output("mean", "N,4,1,f32"));
    assert_eq!(misses(&fuse(&is_output, "LayerNormalization")), ["the value `mean` inside is an output of the graph"]);
}

fn output(name: &str, spec: &str) -> flagperf_onnx::ValueInfo {
    flagperf_onnx::ValueInfo { name: name.into(), spec: spec.parse().unwrap() }
}

#[test]
fn a_near_miss_has_the_reason() {
    let reason = |change: fn(&mut Graph)| {
        let mut graph = layer_norm(1e-5).output("y", "N,4,8,f32");
        change(&mut graph);
        let fused = fuse(&graph, "LayerNormalization");
        assert_eq!(fused.replaced.len(), 0);
        misses(&fused)
    };
    let computed = reason(|graph| {
        graph.weights.shift_remove("epsilon");
        graph.inputs.push(output("epsilon", "f32"));
    });
    assert_eq!(computed, ["`epsilon` is not a constant number, as `epsilon` has to be"]);
    let other_axis = reason(|graph| {
        let axes = [("axes".to_owned(), ints(&[1]))].into_iter().collect();
        graph.nodes[3].attributes = axes;
    });
    assert_eq!(other_axis, ["attribute `axes` of node `variance` (ReduceMean) differs"]);
    let first_axis = reason(|graph| {
        for node in [0, 3] {
            graph.nodes[node].attributes = [("axes".to_owned(), ints(&[1]))].into_iter().collect();
        }
    });
    assert_eq!(first_axis, ["its axes [1] are not the last of 3 dimensions"]);
}

#[test]
fn a_replacement_that_computes_something_else_is_found() {
    let graph = layer_norm(1e-3).output("y", "N,4,8,f32");
    let pattern = Pattern::parse("s = Sqrt(Add(v, e))\ny = Div(d, s)\ne: number").unwrap();
    let text = "y = Div(d, Sqrt(v))";
    let rewrite = replace(&graph, &pattern, &mut |_| Ok(Replacement::parse(text).unwrap())).unwrap();
    let proof = prove_regions(&rewrite.replaced, 0);
    let (node, error) = proof.differs.unwrap();
    assert_eq!(node, "normal");
    assert!(matches!(error, ProofError::Differs { error, .. } if error > 1e-4), "{error}");
    let error = compare(&graph, &rewrite.graph, 0).unwrap_err();
    let ProofError::Differs { output, node, .. } = error else { panic!("{error}") };
    assert_eq!((output.as_str(), node.as_deref()), ("y", Some("normal (Div)")));
}

#[test]
fn a_comparison_that_would_show_nothing_says_so() {
    let constant = |operands: [&str; 2]| {
        let sketch = Sketch::new().input("x", "N,4,f32").weight("zero", Tensor::scalar(0.0f32));
        sketch.node("Mul", &operands, &["p"]).node("Exp", &["p"], &["y"]).output("y", "N,4,f32")
    };
    let (before, mut after) = (constant(["x", "zero"]), constant(["x", "zero"]));
    after.nodes[0].op = "Div".to_owned();
    after.nodes[0].inputs.reverse();
    let error = compare(&before, &after, 0).unwrap_err().to_string();
    assert_eq!(error, "other inputs hardly change the output `y`");
    let other = Sketch::new().input("z", "N,4,f32").node("Relu", &["z"], &["y"]).output("y", "N,4,f32");
    let error = compare(&before, &other, 0).unwrap_err().to_string();
    assert_eq!(error, "the input `z` is not in the graph before");
}

#[test]
fn a_place_with_two_operands_of_the_same_kind_is_found_once() {
    let graph = Sketch::new().input("x", "4,f32").input("y", "4,f32").node("Add", &["x", "y"], &["z"]);
    let mut places = Vec::new();
    let pattern = Pattern::parse("z = Add(a, b)").unwrap();
    find(&graph.output("z", "4,f32"), &pattern, &mut |found| places.push(found.node().name.clone())).unwrap();
    assert_eq!(places, ["z"]);
}

/// A graph that fills the shape of its input with a number.
fn filled(number: f32) -> Graph {
    let value = [("value", Attribute::Tensor(Tensor::from_vec([1], vec![number]).unwrap()))];
    let sketch = Sketch::new().input("x", "4,f32").node("Shape", &["x"], &["shape"]);
    let sketch = sketch.node_with("ConstantOfShape", &["shape"], &["filled"], value);
    sketch.node("Mul", &["x", "filled"], &["y"]).output("y", "4,f32")
}

#[test]
fn a_tensor_in_an_attribute_counts_with_its_elements() {
    let pattern = Pattern::parse("y = Mul(x, ConstantOfShape<value=$v>(Shape(x)))").unwrap();
    let regions = [1.0, 2.0].map(|number| {
        let replaced = replace(&filled(number), &pattern, &mut |_| Ok(Replacement::parse("y = Identity(x)").unwrap()));
        replaced.unwrap().replaced.remove(0)
    });
    let proof = prove_regions(&regions, 0);
    assert_eq!((proof.distinct, proof.differs.is_some()), (2, true), "{proof:?}");
}

#[test]
fn of_two_places_that_share_a_node_the_later_one_is_replaced() {
    let sketch = Sketch::new().input("x", "4,f32").node("Neg", &["x"], &["a"]).node("Neg", &["a"], &["b"]);
    let graph = sketch.node("Neg", &["b"], &["c"]).output("c", "4,f32");
    let pattern = Pattern::parse("y = Neg(Neg(x))").unwrap();
    let rewrite = replace(&graph, &pattern, &mut |_| Ok(Replacement::parse("y = Identity(x)").unwrap())).unwrap();
    assert_eq!(operators(&rewrite.graph), ["Neg", "Identity"]);
    assert_eq!(misses(&rewrite), ["it shares nodes with the place that ends at node `c`"]);
    let (simple, _) = simplify(&rewrite.graph).unwrap();
    assert_eq!(operators(&simple), ["Neg", "Identity"], "the output of the graph keeps its name");
}

#[test]
fn sizes_and_constants_are_folded_up_to_a_limit() {
    let sketch = Sketch::new().input("x", "N,4,8,f32").weight("one", int_list(&[1])).weight("zero", int_list(&[0]));
    let sketch = sketch.weight("w", noise("8,8,f32", 1)).weight("two", int_list(&[2]));
    let graph = sketch
        .node("Shape", &["x"], &["shape"])
        .node_with("Gather", &["shape", "zero"], &["rows"], [("axis", Attribute::Int(0))])
        .node_with("Gather", &["shape", "one"], &["four"], [("axis", Attribute::Int(0))])
        .node("Mul", &["four", "four"], &["sixteen"])
        .node("Sub", &["sixteen", "four"], &["twelve"])
        .node_with("Concat", &["rows", "sixteen", "two"], &["sizes"], [("axis", Attribute::Int(0))])
        .node_with("Transpose", &["w"], &["turned"], [("perm", ints(&[1, 0]))])
        .node("MatMul", &["x", "turned"], &["product"])
        .node("Reshape", &["product", "sizes"], &["y"])
        .output("y", "N,16,2,f32");
    let (folded, facts) = fold_constants(&graph, FOLDED_BYTES_MAX).unwrap();
    assert_eq!(operators(&folded), ["MatMul", "Reshape"], "only the batch is unknown, so it is -1");
    assert_eq!(facts.nodes, [9, 2]);
    assert_eq!(folded.tensor(&folded.nodes[1].inputs[1]).unwrap().to_f64(), [-1.0, 16.0, 2.0]);
    compare(&graph, &folded, 0).unwrap();
    let (small, facts) = fold_constants(&graph, 255).unwrap();
    assert_eq!(operators(&small), ["Transpose", "MatMul", "Reshape"]);
    assert_eq!(facts.left, [("turned".to_owned(), "`turned` may have more than 255 bytes".to_owned())]);
}

#[test]
fn an_inserted_node_that_depends_on_what_it_changes_is_refused() {
    let graph = Sketch::new().input("x", "4,f32").node("Relu", &["x"], &["a"]).node("Exp", &["a"], &["y"]);
    let mut graph = graph.output("y", "4,f32");
    let mut cyclic = graph.clone();
    let error = insert(&mut cyclic, "a", "Add", &["y".to_owned()], Default::default()).unwrap_err().to_string();
    assert_eq!(error, "node `y` would depend on itself (through `a.add`)");
    assert_eq!(insert(&mut graph, "a", "Neg", &[], Default::default()).unwrap(), "a.neg");
    assert_eq!(operators(&graph), ["Relu", "Neg", "Exp"]);
    let error = insert(&mut graph, "aa", "Neg", &[], Default::default()).unwrap_err().to_string();
    assert!(error.contains("has no value `aa`"), "{error}");
}

/// Attention whose scores and weighted values are these Einsums, with a mask that hides positions by -inf.
fn einsum_attention(scores: &str, sums: &str, hidden: Sketch) -> Graph {
    let text = |equation: &str| [("equation", Attribute::String(equation.to_owned()))];
    let sketch = hidden.weight("low", Tensor::scalar(f32::NEG_INFINITY));
    ["q", "k", "v"]
        .into_iter()
        .fold(sketch, |sketch, name| sketch.input(name, "N,3,3,3,f32"))
        .node_with("Einsum", &["q", "k"], &["product"], text(scores))
        .node("Where", &["hidden", "low", "product"], &["masked"])
        .node_with("Softmax", &["masked"], &["weights"], [("axis", Attribute::Int(-1))])
        .node_with("Einsum", &["weights", "v"], &["y"], text(sums))
        .output("y", "N,3,3,3,f32")
}

fn hidden(values: [bool; 9]) -> Sketch {
    Sketch::new().weight(
        "hidden",
        Tensor::from_vec([3, 3], values.map(|hidden| f32::from(u8::from(hidden))).to_vec()).unwrap().cast(DType::Bool),
    )
}

#[test]
fn attention_is_found_in_every_layout_of_an_einsum_and_not_where_rows_may_be_empty() {
    let causal = || hidden([false, true, true, false, false, true, false, false, false]);
    let layouts = [
        ("bhid,bhjd->bhij", "bhij,bhjd->bhid"),
        ("bihd,bjhd->bhij", "bhij,bjhd->bihd"),
        ("xqyz,xkyz->xyqk", "abcd,adbe->aceb"),
    ];
    for (scores, sums) in layouts {
        let before = einsum_attention(scores, sums, causal());
        let fused = fuse(&before, "Attention");
        assert_eq!(fused.replaced.len(), 1, "{scores} {sums}: {:?}", fused.near_misses);
        let proof = prove_regions(&fused.replaced, 0);
        assert!(
            proof.differs.is_none() && proof.unproved.is_empty() && proof.error < 1e-6,
            "{scores} {sums}: {proof:?}"
        );
    }
    let empty_row = hidden([true, true, true, false, false, true, false, false, false]);
    let unknown = Sketch::new().input("hidden", "3,3,bool");
    let reason = "what hides a position is -inf, which leaves rows without any position undefined";
    for mask in [empty_row, unknown] {
        let fused = fuse(&einsum_attention(layouts[0].0, layouts[0].1, mask), "Attention");
        assert_eq!(misses(&fused), [reason]);
    }
    for scores in ["bhid,bhjd->bhji", "bhid,bhjd->bihj"] {
        let other = fuse(&einsum_attention(scores, layouts[0].1, causal()), "Attention");
        assert_eq!(misses(&other), [format!("the Einsum `{scores}` is not that of queries and keys")]);
    }
}

#[test]
fn an_operator_that_the_standard_lacks_is_named_in_a_pattern() {
    let error = Pattern::parse("y = Relu(x)\nz = Layernormalization(y)").unwrap_err().to_string();
    let expected = "line 2 of the pattern: `Layernormalization` is no operator of the standard (nearest: LayerNormalization); \
                    one of another domain is `domain.Layernormalization`";
    assert_eq!(error, expected);
    assert!(Pattern::parse("y = chip.Layernormalization(x)").is_ok());
}

#[test]
fn a_split_without_sizes_has_equal_parts_of_which_the_last_may_be_smaller() {
    let sketch = Sketch::new().input("x", "N,7,f32").node_with(
        "Split",
        &["x"],
        &["a", "b", "c"],
        [("axis", Attribute::Int(-1))],
    );
    let mut graph = sketch.node("Relu", &["a"], &["y"]).output("y", "N,3,f32");
    assert_eq!(flagperf_onnx::infer_shapes(&mut graph), []);
    let shapes = ["a", "b", "c"].map(|name| graph.values[name].to_string());
    assert_eq!(shapes, ["N,3,f32", "N,3,f32", "N,1,f32"]);
}

/// Attention with a mask that is added.
fn masked_attention(mask: Sketch, scale: f32) -> Graph {
    let sketch = mask.weight("scale", Tensor::scalar(scale));
    ["q", "k", "v"]
        .into_iter()
        .fold(sketch, |sketch, name| sketch.input(name, "N,3,5,4,f32"))
        .node_with("Transpose", &["k"], &["turned"], [("perm", ints(&[0, 1, 3, 2]))])
        .node("MatMul", &["q", "turned"], &["product"])
        .node("Mul", &["product", "scale"], &["scaled"])
        .node("Add", &["scaled", "mask"], &["masked"])
        .node_with("Softmax", &["masked"], &["weights"], [("axis", Attribute::Int(-1))])
        .node("MatMul", &["weights", "v"], &["y"])
        .output("y", "N,3,5,4,f32")
}

#[test]
fn attention_keeps_a_mask_that_the_operator_would_read_in_another_way() {
    let plain = |spec: &str| Sketch::new().input("mask", spec);
    for whole in ["5,5,f32", "N,1,1,5,f32", "3,5,5,f32"] {
        let fused = fuse(&masked_attention(plain(whole), 0.5), "Attention");
        assert_eq!(fused.replaced.len(), 1, "{whole}: {:?}", fused.near_misses);
        assert!(prove_regions(&fused.replaced, 0).differs.is_none(), "{whole}");
    }
    for narrow in ["5,1,f32", "N,1,1,1,f32"] {
        let fused = fuse(&masked_attention(plain(narrow), 0.5), "Attention");
        let reason = format!("its mask `{narrow}` has not a number for each key of its scores, `N,3,5,5,f32`");
        assert_eq!(misses(&fused), [reason]);
    }
    let selected = Sketch::new().input("seen", "5,5,bool").weight("low", Tensor::scalar(f32::NEG_INFINITY));
    let selected = selected.weight("zero", Tensor::scalar(0f32)).node("Where", &["seen", "zero", "low"], &["selected"]);
    let selected = selected.node("Unsqueeze", &["selected", "at"], &["mask"]).weight("at", int_list(&[0]));
    let fused = fuse(&masked_attention(selected, 0.5), "Attention");
    assert_eq!(misses(&fused), ["what hides a position is -inf, which leaves rows without any position undefined"]);
    let triangle = |low: [&str; 2]| {
        let sketch = Sketch::new().weight("one", Tensor::scalar(1f32)).weight("zero", Tensor::scalar(0f32));
        let sketch = sketch.weight("sizes", int_list(&[5, 5])).weight("low", Tensor::scalar(f32::NEG_INFINITY));
        let sketch = sketch.node("Expand", &["one", "sizes"], &["ones"]);
        let sketch = sketch.node_with("Trilu", &["ones"], &["lower"], [("upper", Attribute::Int(0))]);
        let mask =
            sketch.node("Equal", &["lower", "zero"], &["later"]).node("Where", &["later", low[0], low[1]], &["mask"]);
        fuse(&masked_attention(mask, 0.5), "Attention").replaced.len()
    };
    assert_eq!([triangle(["low", "zero"]), triangle(["zero", "low"])], [1, 0]);
    let negative = fuse(&masked_attention(plain("5,5,f32"), -0.5), "Attention");
    assert_eq!(misses(&negative), ["its scale is -0.5"]);
}

#[test]
fn sizes_beyond_32_bits_are_not_computed_in_32() {
    let number = |value: i64| int_list(&[value]);
    let inferred = |op: &str, [a, b]: [i64; 2]| {
        let sketch = Sketch::new().weight("a", number(a)).weight("b", number(b)).node(op, &["a", "b"], &["size"]);
        let sketch = sketch.weight("one", Tensor::scalar(1f32)).node("Expand", &["one", "size"], &["y"]);
        let mut graph = sketch.output("y", "N,f32");
        assert_eq!(flagperf_onnx::infer_shapes(&mut graph), [], "{op} {a} {b}");
        graph.values["y"].to_string()
    };
    assert_eq!(inferred("Mul", [100_000, 100_000]), "?,f32");
    assert_eq!(inferred("Sub", [(1 << 33) + 3, 1 << 33]), "?,f32");
    assert_eq!(inferred("Div", [1 << 34, 1 << 32]), "?,f32");
    assert_eq!(inferred("Add", [3_000_000_000, 1]), "?,f32");
    assert_eq!(inferred("Mul", [300, 400]), "120000,f32");
}

#[test]
fn a_version_that_a_subgraph_cannot_have_is_refused() {
    let branch = |op| super::control::body(&[], &[(op, &["x"], "mean")], &["mean"]);
    let branches = [("then_branch", branch("ReduceMean")), ("else_branch", branch("ReduceMax"))];
    let sketch = Sketch::new().input("x", "N,4,f32").input("c", "bool").node_with("If", &["c"], &["w"], branches);
    let mut graph = sketch.node("Sigmoid", &["x"], &["s"]).node("Mul", &["x", "s"], &["y"]).output("y", "N,4,f32");
    graph.opset = 17;
    let error = Fusion::find("Swish").unwrap().apply(&graph).unwrap_err().to_string();
    let expected = "`Swish` needs version 24 of the operator set, and node `ReduceMean_0` in a subgraph has the form of version 17";
    assert_eq!(error, expected);
    graph.opset = 18;
    assert_eq!(Fusion::find("Swish").unwrap().apply(&graph).unwrap().replaced.len(), 1);
}

#[test]
fn a_replacement_reads_values_inside_of_the_place() {
    let sketch = Sketch::new().input("x", "N,4,f32").weight("w", noise("4,4,f32", 1));
    let sketch = sketch.node("MatMul", &["x", "w"], &["h"]).node("Sigmoid", &["h"], &["s"]);
    let sketch = sketch.value("h", "N,4,f32").value("s", "N,4,f32");
    let graph = sketch.node("Mul", &["h", "s"], &["y"]).output("y", "N,4,f32");
    for (pattern, text, nodes) in [
        ("h = MatMul(x, w)\ny = Mul(h, Sigmoid(h))", "y = Swish(h)", 2),
        ("s = Sigmoid(h)\ny = Mul(h, s)", "y = Mul(s, h)", 3),
    ] {
        let pattern = Pattern::parse(pattern).unwrap();
        let rewrite = replace(&graph, &pattern, &mut |_| Ok(Replacement::parse(text).unwrap())).unwrap();
        assert_eq!((rewrite.replaced.len(), rewrite.graph.nodes.len()), (1, nodes), "{text}");
        let proof = prove_regions(&rewrite.replaced, 0);
        assert!(proof.differs.is_none() && proof.unproved.is_empty(), "{text}: {proof:?}");
        assert!(compare(&graph, &rewrite.graph, 0).is_ok(), "{text}");
    }
}

#[test]
fn a_fusion_that_would_change_a_shape_is_a_near_miss() {
    let scale = Tensor::from_vec([1, 1, 1, 8], vec![1f32; 8]).unwrap();
    let mut graph = layer_norm(1e-5).node("Relu", &["y"], &["z"]).output("z", "1,N,4,8,f32");
    graph.weights.insert("scale".to_owned(), Weight::constant(scale));
    flagperf_onnx::infer_shapes(&mut graph);
    let fused = fuse(&graph, "LayerNormalization");
    // What is before the scale has the shape of the input, and is fused.
    assert_eq!((fused.replaced.len(), fused.replaced[0].nodes), (1, 7));
    assert!(misses(&fused).iter().any(|reason| reason.contains("its output is `")), "{:?}", misses(&fused));
}

#[test]
fn padding_of_some_axes_becomes_that_of_the_convolution() {
    let padded = |axes: &[i64], pads: &[i64]| {
        let sketch = Sketch::new().input("x", "2,3,6,5,f32").weight("w", noise("4,3,3,3,f32", 1));
        let sketch = sketch.weight("pads", int_list(pads)).weight("axes", int_list(axes));
        let padded = sketch.node("Pad", &["x", "pads", "", "axes"], &["p"]).node("Conv", &["p", "w"], &["y"]);
        padded.output("y", "2,4,?,?,f32")
    };
    let before = padded(&[-1, 2], &[1, 0, 2, 3]);
    let fused = fuse(&before, "Conv");
    assert_eq!(operators(&fused.graph), ["Conv"]);
    assert_eq!(fused.graph.nodes[0].attributes["pads"], ints(&[0, 1, 3, 2]));
    assert!(compare(&before, &fused.graph, 1).is_ok());
    for (axes, pads, reason) in [
        (&[1][..], &[1, 1][..], "it pads by [0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]"),
        (&[4], &[1, 1], "the axes of its padding are not those of its input"),
    ] {
        let misses = misses(&fuse(&padded(axes, pads), "Conv"));
        assert!(misses.iter().any(|miss| miss.starts_with(reason)), "{misses:?}");
    }
}
