//! A graph that is written and read again is the same graph, with the same weights.

use crate::networks;

use flagperf_onnx::{Graph, WriteOptions, check, infer, read_onnx, write_onnx, write_onnx_with};

#[test]
fn resnet50_has_torchvisions_names_and_size() {
    let graph = networks::resnet50().unwrap();
    let count = |suffix: &str| graph.weights.keys().filter(|name| name.ends_with(suffix)).count();
    // 53 convolutions and 53 normalisations of two learned and two kept tensors each, and the classifier.
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
fn what_is_written_is_read_back() {
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
        assert_eq!(infer(&mut back), []);
        assert_eq!(back.values, graph.values);
    }
}

#[test]
fn the_same_graph_gives_the_same_bytes() {
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
