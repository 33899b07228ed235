//! A graph that is written and read again is equal to the original, and so are its weights.

use crate::networks;

use flagperf_onnx::layers::{
    BatchNorm, Conv2d, Padding, batch_norm, concat, conv2d, gelu, layer_norm, relu6, transpose,
};
use flagperf_onnx::{
    Graph, GraphBuilder, WriteOptions, check, infer_shapes, read_onnx, to_f16, write_onnx, write_onnx_with,
};

#[test]
fn the_weights_of_resnet50_have_the_names_and_shapes_of_torchvision() {
    let graph = networks::resnet50().unwrap();
    let count = |suffix: &str| graph.weights.keys().filter(|name| name.ends_with(suffix)).count();
    // 53 convolutions, 53 normalisations with two parameters and two buffers each, and the classifier.
    assert_eq!(graph.weights.len(), 53 + 53 * 4 + 2);
    assert_eq!((count("running_mean"), count("running_var"), count(".bias")), (53, 53, 54));
    for name in ["conv1.weight", "bn1.running_var", "layer1.0.downsample.1.bias", "layer4.2.conv3.weight", "fc.bias"] {
        assert!(graph.weights.contains_key(name), "{name}");
    }
    assert_eq!(graph.weights["layer3.0.conv2.weight"].spec.to_string(), "256,256,3,3,f32");
    assert_eq!(graph.outputs[0].spec.to_string(), "N,1000,f32");
    assert_eq!(graph.values["layer2.0.relu3"].to_string(), "N,512,28,28,f32");
}

#[test]
fn a_written_graph_is_read_back_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    for (name, options) in [("inline", WriteOptions::default()), ("external", WriteOptions { external_above: 0 })] {
        let path = folder.path().join(format!("{name}.onnx"));
        let mut graph = networks::squeeze_excite().unwrap();
        graph.seed_weights(11);
        let written = write_onnx_with(&graph, &path, options).unwrap();
        assert_eq!(written.len(), if name == "external" { 2 } else { 1 });
        let mut back = read_onnx(&path).unwrap();
        assert_same(&graph, &back);
        check(&back).unwrap();
        back.values.clear();
        assert_eq!(infer_shapes(&mut back), []);
        assert_eq!(back.values, graph.values);
    }
}

#[test]
fn equal_graphs_produce_equal_files() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |name: &str| {
        let path = folder.path().join(name);
        write_onnx(&networks::squeeze_excite().unwrap(), &path).unwrap();
        std::fs::read(path).unwrap()
    };
    assert_eq!(bytes("a.onnx"), bytes("b.onnx"));
    let again = folder.path().join("again.onnx");
    write_onnx(&read_onnx(&folder.path().join("a.onnx")).unwrap(), &again).unwrap();
    assert_eq!(bytes("a.onnx"), std::fs::read(again).unwrap());
}

fn assert_same(a: &Graph, b: &Graph) {
    assert_eq!((&a.name, a.opset, &a.inputs, &a.outputs), (&b.name, b.opset, &b.inputs, &b.outputs));
    assert_eq!(a.nodes, b.nodes);
    assert!(a.weights.keys().eq(b.weights.keys()));
    for (name, weight) in &a.weights {
        let other = &b.weights[name];
        assert_eq!((&weight.spec, weight.role), (&other.spec, other.role), "{name}");
        assert_eq!(a.tensor(name).unwrap().bytes(), b.tensor(name).unwrap().bytes(), "{name}");
    }
}

/// A stream of random choices that depends only on the seed (Knuth's linear congruential generator).
struct Choices(u64);

impl Choices {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }
}

/// Builds a network of random layers with several inputs and outputs.
fn random_network(seed: u64) -> Graph {
    let mut choose = Choices(seed);
    let mut b = GraphBuilder::new(&format!("random_{seed}"));
    let first = b.input("first", "N,4,12,12,f32".parse().unwrap()).unwrap();
    let second = b.input("second", "N,4,12,12,f32".parse().unwrap()).unwrap();
    let mut values = vec![first, second];
    for layer in 0..12 {
        let name = format!("layer{layer}");
        let x = values[choose.below(values.len())].clone();
        let channels = x.spec().dims[1].fixed().unwrap();
        let same = Conv2d { padding: Padding::Same, ..Conv2d::new(channels, channels, 3) };
        let made = match choose.below(8) {
            0 => conv2d(&mut b, &name, &x, Conv2d { bias: false, ..same }),
            1 => conv2d(&mut b, &name, &x, Conv2d { groups: channels, dilation: [2; 2], ..same }),
            2 => batch_norm(&mut b, &name, &x, BatchNorm::default()),
            3 => relu6(&mut b, &name, &x),
            4 => gelu(&mut b, &name, &x),
            5 => concat(&mut b, &name, &[&x, &values[0]], 1),
            6 => layer_norm(&mut b, &name, &x, 2, 1e-6),
            _ => transpose(&mut b, &name, &x, &[0, 1, 3, 2]),
        };
        values.push(made.unwrap());
    }
    let last = values.pop().unwrap();
    let middle = &values[2 + choose.below(values.len() - 2)];
    b.output("middle", middle).unwrap();
    b.output("last", &last).unwrap();
    b.finish().unwrap()
}

#[test]
fn random_networks_survive_the_round_trip_in_both_precisions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("random.onnx");
    for seed in 0..24 {
        let mut graph = random_network(seed);
        graph.seed_weights(seed);
        let half = to_f16(&graph, &[graph.nodes[seed as usize % graph.nodes.len()].name.clone()]).unwrap();
        for graph in [graph, half] {
            check(&graph).unwrap();
            write_onnx_with(&graph, &path, WriteOptions { external_above: 2000 * (seed % 2) }).unwrap();
            let mut back = read_onnx(&path).unwrap();
            assert_same(&graph, &back);
            back.values.clear();
            assert_eq!(infer_shapes(&mut back), []);
            assert!(graph.values.iter().all(|(name, spec)| back.values[name] == *spec), "seed {seed}");
        }
    }
}
