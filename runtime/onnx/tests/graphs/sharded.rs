//! Weights whose names or files differ from those of the graph: sharded files, prefixes, ignored tensors, hints.

use std::path::Path;

use flagperf_onnx::layers::{Linear, linear};
use flagperf_onnx::{DType, Graph, GraphBuilder, WeightOptions};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};

fn linear_graph() -> Graph {
    let mut b = GraphBuilder::new("linear");
    let x = b.input("x", "N,2,f32".parse().unwrap()).unwrap();
    let y = linear(&mut b, "fc", &x, Linear::new(2, 3)).unwrap();
    b.output("y", &y).unwrap();
    b.finish().unwrap()
}

/// Writes zeros under the given names and shapes.
fn write(path: &Path, tensors: &[(&str, Vec<usize>)]) {
    let zeros = [0u8; 64];
    let view = |shape: &Vec<usize>| {
        let bytes = shape.iter().product::<usize>() * 4;
        TensorView::new(Dtype::F32, shape.clone(), &zeros[..bytes]).unwrap()
    };
    serialize_to_file(tensors.iter().map(|(name, shape)| (name.to_owned(), view(shape))), None, path).unwrap();
}

fn index(folder: &Path, entries: &str) -> std::path::PathBuf {
    let path = folder.join("model.safetensors.index.json");
    std::fs::write(&path, format!("{{\"metadata\": {{}}, \"weight_map\": {{{entries}}}}}")).unwrap();
    path
}

#[test]
fn an_index_names_the_files_of_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.safetensors"), &[("fc.weight", vec![3, 2]), ("other", vec![1])]);
    write(&folder.path().join("b.safetensors"), &[("fc.bias", vec![3])]);
    let path = index(folder.path(), r#""fc.weight": "a.safetensors", "fc.bias": "b.safetensors""#);
    let mut graph = linear_graph();
    graph.load_weights(&path).unwrap();
    assert!(!graph.weights_are_random());
    assert_eq!(graph.tensor("fc.bias").unwrap().to_f64(), [0.0; 3]);
}

#[test]
fn an_index_of_other_folders_or_of_missing_tensors_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.safetensors"), &[("fc.weight", vec![3, 2])]);
    let reason = |entries: &str| {
        let path = index(folder.path(), entries);
        let error = linear_graph().load_weights(&path).unwrap_err().to_string();
        error.replace(&path.display().to_string(), "INDEX")
    };
    let in_index = |shard: &str, rest: &str| format!("the index `INDEX` lists the file `{shard}`, which {rest}");
    let elsewhere = in_index("../a.safetensors", "is not in the folder of the index: put both into one folder");
    assert_eq!(reason(r#""fc.weight": "../a.safetensors""#), elsewhere);
    let absent = in_index("a.safetensors", "does not have tensor `fc.bias`, although the index says so");
    assert_eq!(reason(r#""fc.bias": "a.safetensors""#), absent);
    assert!(reason(r#""fc.bias": 7"#).contains("invalid type"));
    let twice = r#""fc.weight": "a.safetensors", "fc.weight": "b.safetensors""#;
    assert!(reason(twice).contains("it names tensor `fc.weight` twice"));
    let gone = reason(r#""fc.weight": "a.safetensors", "fc.bias": "gone.safetensors""#);
    assert!(gone.starts_with(&in_index("gone.safetensors", "cannot be opened: No such file")), "{gone}");
    let tensors = "(it must be in the folder of the index, with tensor `fc.bias` and 0 others)";
    assert!(gone.ends_with(tensors), "{gone}");
    write(&folder.path().join("b.safetensors"), &[("fc.weight", vec![3, 2]), ("fc.bias", vec![3])]);
    assert_eq!(
        reason(r#""fc.weight": "a.safetensors", "fc.bias": "b.safetensors""#),
        in_index("b.safetensors", "has tensor `fc.weight`, which is in `a.safetensors` by the index")
    );
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("zero")).unwrap();
    let device = in_index("zero", "cannot be opened: is a device, not a regular file");
    assert!(reason(r#""fc.bias": "zero""#).starts_with(&device));
}

#[test]
fn a_folder_has_one_file_or_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let load = || {
        let loaded = linear_graph().load_weights_with(folder.path(), &WeightOptions::default());
        loaded.map_err(|error| error.to_string().replace(&folder.path().display().to_string(), "F"))
    };
    let neither = "the folder `F` has neither `model.safetensors` nor `model.safetensors.index.json`";
    assert_eq!(load(), Err(neither.to_owned()));
    std::fs::create_dir(path("model.safetensors")).unwrap();
    let special = "cannot open the weights file `F/model.safetensors`: is a folder, not a regular file";
    assert_eq!(load(), Err(special.to_owned()));
    std::fs::remove_dir(path("model.safetensors")).unwrap();
    write(&path("a.safetensors"), &[("fc.weight", vec![3, 2])]);
    write(&path("b.safetensors"), &[("fc.bias", vec![3])]);
    let index = index(folder.path(), r#""fc.weight": "a.safetensors", "fc.bias": "b.safetensors""#);
    assert_eq!(load(), Ok(vec![index.clone(), path("a.safetensors"), path("b.safetensors")]));
    write(&path("model.safetensors"), &[("fc.weight", vec![3, 2]), ("fc.bias", vec![3])]);
    let both = "the folder `F` has both `model.safetensors` and `model.safetensors.index.json`: name one of the two";
    assert_eq!(load(), Err(both.to_owned()));
    std::fs::remove_file(index).unwrap();
    assert_eq!(load(), Ok(vec![path("model.safetensors")]));
}

#[test]
fn a_prefix_is_suggested_and_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    write(&path, &[("module.fc.weight", vec![3, 2]), ("module.fc.bias", vec![3]), ("module.head.bias", vec![1])]);
    let mut graph = linear_graph();
    let error = graph.load_weights(&path).unwrap_err().to_string();
    let hint = "hint: 2 of these 2 names are in the file with `module.` in front: set `prefix: \"module.\"`";
    assert!(error.ends_with(hint), "{error}");
    let options = WeightOptions { prefix: "module.".to_owned(), ..WeightOptions::default() };
    let error = graph.load_weights_with(&path, &options).unwrap_err().to_string();
    let hint = "unexpected (1): `module.head.bias`\n  hint: `ignore` lists the names that the graph does not need, as they \
                are in the file, also those without the `prefix` `module.`";
    assert!(error.ends_with(hint), "{error}");
    let options = WeightOptions { ignore: vec!["module.head.*".to_owned()], ..options };
    graph.load_weights_with(&path, &options).unwrap();
}

#[test]
fn ignored_names_are_those_of_the_file_with_and_without_the_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let tensors = ["text.fc.weight", "text.fc.bias", "text.ids", "unet.fc.weight", "vae.num_batches_tracked"];
    write(&path, &tensors.map(|name| (name, if name.ends_with("weight") { vec![3, 2] } else { vec![3] })));
    let load = |ignore: &[&str]| {
        let ignore = ignore.iter().map(|name| (*name).to_owned()).collect();
        let options = WeightOptions { prefix: "text.".to_owned(), ignore, ..WeightOptions::default() };
        linear_graph().load_weights_with(&path, &options).map_err(|error| error.to_string())
    };
    load(&["text.ids", "unet.*"]).unwrap();
    load(&["*"]).unwrap();
    let error = load(&["ids", "unet.*"]).unwrap_err();
    assert!(error.contains("unexpected (1): `text.ids`\n  hint: `ignore` lists"), "{error}");
    let error = load(&["text.ids"]).unwrap_err();
    assert!(error.contains("unexpected (1): `unet.fc.weight`\n  hint: `ignore` lists"), "{error}");
}

/// Writes a file for the graph: its bias, its weight of zeros, and further tensors of one dimension.
fn write_bias(path: &Path, bias: [f32; 3], further: &[(&str, &[f32])]) {
    let tensors = [&[("fc.bias", &bias[..]), ("fc.weight", &[0.0; 6])], further].concat();
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|(_, values)| values.iter().flat_map(|value| value.to_le_bytes()).collect()).collect();
    let view = |(name, values): &(&str, &[f32]), bytes| {
        let shape = if *name == "fc.weight" { vec![3, 2] } else { vec![values.len()] };
        ((*name).to_owned(), TensorView::new(Dtype::F32, shape, bytes).unwrap())
    };
    serialize_to_file(tensors.iter().zip(&bytes).map(|(tensor, bytes)| view(tensor, bytes)), None, path).unwrap();
}

#[test]
fn a_tensor_that_must_equal_another_is_compared_if_the_file_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let equal = vec![("copy".to_owned(), "fc.bias".to_owned())];
    let options = WeightOptions { equal, ..WeightOptions::default() };
    let load = |further: &[(&str, &[f32])]| {
        write_bias(&path, [1.0, 2.0, 3.0], further);
        let loaded = linear_graph().load_weights_with(&path, &options).map(drop);
        loaded.map_err(|error| error.to_string().replace(&path.display().to_string(), "F"))
    };
    assert_eq!(load(&[]), Ok(()));
    assert_eq!(load(&[("copy", &[1.0, 2.0, 3.0])]), Ok(()));
    for (copy, difference) in
        [(&[1.0, 2.0, 4.0][..], "1 of 3 elements are not equal"), (&[1.0, 2.0], "they are `2,f32` and `3,f32`")]
    {
        let expected = format!(
            "the tensors `copy` and `fc.bias` in `F` differ: {difference}; graph `linear` uses `fc.bias` in place of both: \
             choose weights in which they are equal, or give the graph a weight `copy`"
        );
        assert_eq!(load(&[("copy", copy)]), Err(expected));
    }
}

#[test]
fn values_that_are_not_finite_are_counted_where_a_parameter_is_converted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    write_bias(&path, [1.0, f32::NAN, f32::INFINITY], &[]);
    let mut graph = linear_graph();
    graph.weights["fc.bias"].spec.dtype = DType::F16;
    graph.load_weights(&path).unwrap();
    let error = graph.tensor("fc.bias").unwrap_err().to_string();
    let expected = "has 2 values of 3 that are NaN or infinite: the file is damaged or was converted wrongly";
    assert!(error.starts_with("tensor `fc.bias` in `") && error.ends_with(expected), "{error}");
}
