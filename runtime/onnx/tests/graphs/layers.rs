//! Tests of layers that consist of several nodes: their shapes, their numbers in the reference library, their errors.

use flagperf_onnx::layers::{self, Attention, RotaryAngles, Size};
use flagperf_onnx::{BuildError, DType, Graph, GraphBuilder, Tensor, Var, read_onnx, write_onnx};
use flagperf_onnx_exec::{Executor, ReferenceOps};

/// Builds a graph of one input and one output.
fn graph(spec: &str, build: impl FnOnce(&mut GraphBuilder, &Var) -> Result<Var, BuildError>) -> Graph {
    let mut b = GraphBuilder::new("g");
    let x = b.input("x", spec.parse().unwrap()).unwrap();
    let y = build(&mut b, &x).unwrap();
    b.output("y", &y).unwrap();
    b.finish().unwrap()
}

/// Runs a graph on one input of the numbers 0, 1, 2, ... and returns the shape and the elements of its output.
fn run_on_numbers(graph: &Graph, shape: &[usize]) -> (Vec<usize>, Vec<f64>) {
    let numbers = (0..shape.iter().product()).map(|number: usize| number as f32).collect();
    let input = Tensor::from_vec(shape, numbers).unwrap();
    let output = Executor::load(graph, ReferenceOps).unwrap().run_host(&[input]).unwrap().remove(0);
    (output.shape().to_vec(), output.to_f64())
}

fn operands<'a>([q, k, v]: [&'a Var; 3]) -> Attention<'a> {
    Attention { q, k, v, mask: None, past: None, heads: None, scale: None, causal: false }
}

#[test]
fn windows_are_cut_out_and_put_back_in_their_places() {
    let windows = graph("N,4,4,1,f32", |b, x| layers::window_partition(b, "w", x, [2, 2]));
    assert_eq!(windows.outputs[0].spec.to_string(), "N,4,4,1,f32");
    let (shape, numbers) = run_on_numbers(&windows, &[1, 4, 4, 1]);
    assert_eq!((shape, &numbers[..8]), (vec![1, 4, 4, 1], &[0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0][..]));
    let back = graph("N,4,4,1,f32", |b, x| {
        let windows = layers::window_partition(b, "w", x, [2, 2])?;
        layers::window_reverse(b, "r", &windows, ([2, 2], [4, 4]))
    });
    assert_eq!(run_on_numbers(&back, &[1, 4, 4, 1]).1, (0..16).map(f64::from).collect::<Vec<_>>());
}

#[test]
fn roll_moves_the_elements_beyond_the_end_to_the_beginning() {
    let rolled = graph("N,5,f32", |b, x| layers::roll(b, "roll", x, &[(1, 2)]));
    assert_eq!(run_on_numbers(&rolled, &[1, 5]).1, [3.0, 4.0, 0.0, 1.0, 2.0]);
    let rolled = graph("N,5,f32", |b, x| layers::roll(b, "roll", x, &[(-1, -1)]));
    assert_eq!(run_on_numbers(&rolled, &[1, 5]).1, [1.0, 2.0, 3.0, 4.0, 0.0]);
}

#[test]
fn a_shape_may_name_a_dimension_of_an_input() {
    let sizes = [Size::Named("N".to_owned()), Size::Number(-1), Size::Number(2)];
    let reshaped = graph("N,4,3,f32", |b, x| layers::reshape_to(b, "r", x, &sizes));
    assert_eq!(reshaped.outputs[0].spec.to_string(), "N,6,2,f32");
    assert_eq!(run_on_numbers(&reshaped, &[2, 4, 3]).0, [2, 6, 2]);
    let mut b = GraphBuilder::new("g");
    let x = b.input("x", "N,4,f32".parse().unwrap()).unwrap();
    let error = layers::reshape_to(&mut b, "r", &x, &[Size::Named("M".to_owned())]).unwrap_err();
    assert_eq!(error.to_string(), "no input of graph `g` has a dimension `M`, so its size is unknown");
}

#[test]
fn a_causal_attention_ignores_later_positions() {
    // Values 0, 1, 2 with equal scores: each row is the mean of the values up to its own.
    let causal = graph("1,1,3,1,f32", |b, x| {
        let zeros = b.constant("zeros", Tensor::from_vec([1, 1, 3, 1], vec![0.0f32; 3]).unwrap())?;
        let attention = Attention { causal: true, ..operands([&zeros, &zeros, x]) };
        Ok(layers::attention(b, "attention", attention)?[0].clone())
    });
    assert_eq!(run_on_numbers(&causal, &[1, 1, 3, 1]).1, [0.0, 0.5, 1.0]);
}

#[test]
fn heads_of_the_queries_share_heads_of_the_keys_in_order() {
    // Four heads of queries over two heads of keys with one position: each result is the value of its head.
    let grouped = graph("N,2,1,1,f32", |b, x| {
        let q = b.constant("q", Tensor::from_vec([1, 4, 1, 1], vec![1.0f32; 4]).unwrap())?;
        Ok(layers::attention(b, "attention", operands([&q, x, x]))?[0].clone())
    });
    let (shape, numbers) = run_on_numbers(&grouped, &[1, 2, 1, 1]);
    assert_eq!((shape, numbers), (vec![1, 4, 1, 1], vec![0.0, 0.0, 1.0, 1.0]));
}

#[test]
fn an_attention_with_unsuitable_heads_is_refused() {
    let mut b = GraphBuilder::new("g");
    let x = b.input("x", "N,7,10,f32".parse().unwrap()).unwrap();
    let error = layers::attention(&mut b, "a", Attention { heads: Some([3, 3]), ..operands([&x, &x, &x]) });
    assert_eq!(error.unwrap_err().to_string(), "layer `a`: a width of 10 cannot be split into 3 heads");
    let q = b.input("q", "N,5,7,2,f32".parse().unwrap()).unwrap();
    let k = b.input("k", "N,3,7,2,f32".parse().unwrap()).unwrap();
    let error = layers::attention(&mut b, "b", operands([&q, &k, &k])).unwrap_err().to_string();
    assert_eq!(error, "layer `b`: 5 heads of the queries cannot share 3 heads of the keys");
}

#[test]
fn both_kinds_of_rotary_embeddings_rotate_their_pairs() {
    for (interleaved, pairs) in [(false, [(0, 2), (1, 3)]), (true, [(0, 1), (2, 3)])] {
        let rotated = graph("1,1,2,4,f32", |b, x| {
            let positions = b.constant("positions", Tensor::from_vec([1, 2], vec![0i64, 5]).unwrap())?;
            let angles = RotaryAngles { positions: 8, width: 4, theta: 100.0, interleaved, scaling: None };
            let rotary = layers::rotary(b, "rotary", &positions, angles)?;
            layers::rotate(b, "rotated", x, &rotary)
        });
        let numbers = run_on_numbers(&rotated, &[1, 1, 2, 4]).1;
        assert_eq!(numbers[..4], [0.0, 1.0, 2.0, 3.0], "position 0 is not rotated");
        for ((a, b), angle) in pairs.into_iter().zip([5.0f64, 0.5]) {
            let (x, y) = ((4 + a) as f64, (4 + b) as f64);
            let expected = [x * angle.cos() - y * angle.sin(), y * angle.cos() + x * angle.sin()];
            for (at, expected) in [a, b].into_iter().zip(expected) {
                assert!((numbers[4 + at] - expected).abs() < 1e-5, "{interleaved} {at}: {numbers:?}");
            }
        }
    }
}

#[test]
fn the_approximations_of_gelu_agree_to_three_digits() {
    for layer in [layers::gelu, layers::gelu_tanh] {
        let values = run_on_numbers(&graph("N,3,f32", |b, x| layer(b, "gelu", x)), &[1, 3]).1;
        let expected = [0.0, 0.841_345, 1.954_500];
        assert!(values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3), "{values:?}");
    }
}

#[test]
fn sizes_axes_and_indices_out_of_range_are_refused() {
    let mut b = GraphBuilder::new("g");
    let x = b.input("x", "N,4,6,f32".parse().unwrap()).unwrap();
    let texts = [
        layers::split(&mut b, "s", &x, &[1, 2], 1).map(drop),
        layers::select(&mut b, "i", &x, 1, 4).map(drop),
        layers::swap_axes(&mut b, "t", &x, 0, 3).map(drop),
        layers::top_k(&mut b, "k", &x, (7, -1), true).map(drop),
        layers::window_partition(&mut b, "w", &x, [2, 2]).map(drop),
        layers::shifted_window_mask(&mut b, "m", [6, 6], ([4, 4], [0, 0])).map(drop),
        layers::group_norm(&mut b, "n", &x, 3, 1e-5).map(drop),
        layers::gather(&mut b, "g", &x, &x, 0).map(drop),
    ]
    .map(|result| result.unwrap_err().to_string());
    assert_eq!(
        texts,
        [
            "layer `s`: the parts [1, 2] do not add up to 4, the size of axis 1",
            "layer `i`: index 4 is out of range: axis 1 has size 4",
            "layer `t`: axis 3 is out of range: there are 3 dimensions, 0 to 2",
            "layer `k`: axis -1 has only 6 elements, not 7",
            "layer `w`: `N,4,6,f32` is not `N,H,W,C`",
            "layer `m`: an image of [6, 6] cannot be divided into windows of [4, 4]",
            "layer `n`: 4 channels cannot be split into 3 groups",
            "layer `g`: the indices must be i64 or i32, not `N,4,6,f32`",
        ]
    );
}

#[test]
fn a_graph_from_a_file_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut original = graph("N,3,f32", |b, x| layers::linear(b, "fc", x, layers::Linear::new(3, 2)));
    original.seed_weights(5);
    write_onnx(&original, &path).unwrap();

    let unchanged = GraphBuilder::from_graph(read_onnx(&path).unwrap()).unwrap().finish().unwrap();
    assert_eq!(unchanged.outputs, original.outputs);

    let mut b = GraphBuilder::from_graph(read_onnx(&path).unwrap()).unwrap();
    let y = b.value("y").unwrap();
    let probabilities = layers::softmax(&mut b, "softmax", &y, -1).unwrap();
    b.output("probabilities", &probabilities).unwrap();
    let continued = b.finish().unwrap();
    assert_eq!(continued.outputs.iter().map(|output| output.name.as_str()).collect::<Vec<_>>(), ["probabilities"]);
    let (logits, probabilities) = (run_on_numbers(&original, &[1, 3]).1, run_on_numbers(&continued, &[1, 3]).1);
    let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
    assert!(logits.iter().zip(&probabilities).all(|(logit, p)| (logit.exp() / sum - p).abs() < 1e-6));

    let b = GraphBuilder::from_graph(read_onnx(&path).unwrap()).unwrap();
    assert_eq!(b.value("z").unwrap_err().to_string(), "graph `g` has no value `z`");
    let old = Graph { opset: 11, ..read_onnx(&path).unwrap() };
    assert_eq!(
        GraphBuilder::from_graph(old).unwrap().opset(),
        13,
        "older nodes get the form in which layers are added"
    );
}

#[test]
fn masks_of_bools_hide_positions() {
    let masked = graph("1,1,3,1,f32", |b, x| {
        let zeros = b.constant("zeros", Tensor::from_vec([1, 1, 3, 1], vec![0.0f32; 3]).unwrap())?;
        let mask = b.constant("mask", Tensor::from_bools([1, 1, 1, 3], &[false, true, true]).unwrap())?;
        assert_eq!(mask.spec().dtype, DType::Bool);
        let attention = Attention { mask: Some(&mask), ..operands([&zeros, &zeros, x]) };
        Ok(layers::attention(b, "attention", attention)?[0].clone())
    });
    assert_eq!(run_on_numbers(&masked, &[1, 1, 3, 1]).1, [1.5, 1.5, 1.5]);
}
