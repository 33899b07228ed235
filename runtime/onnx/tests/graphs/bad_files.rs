//! A file that is truncated, incomplete or belongs to another graph causes an error that names the file.

use crate::networks;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use flagperf_onnx::{
    DType, Graph, OnnxError, WeightError, WeightRole, WeightSource, WriteOptions, read_onnx, write_onnx,
    write_onnx_with,
};
use safetensors::tensor::{Dtype, TensorView};

/// Writes a safetensors file of zeros, with tensors of the given names and shapes.
fn safetensors_file(path: &Path, tensors: &[(&str, Vec<usize>)]) {
    let views: HashMap<String, TensorView<'_>> = tensors
        .iter()
        .map(|(name, shape)| {
            let bytes = vec![0u8; 4 * shape.iter().product::<usize>()].leak();
            ((*name).to_owned(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
        })
        .collect();
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

fn state_dict(graph: &Graph) -> Vec<(&str, Vec<usize>)> {
    let of_state = graph.weights.iter().filter(|(_, weight)| weight.role != WeightRole::Constant);
    of_state.map(|(name, weight)| (name.as_str(), weight.spec.fixed_shape().unwrap())).collect()
}

#[test]
fn weights_are_loaded_by_name_and_counters_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let mut graph = networks::squeeze_excite().unwrap();
    assert!(graph.weights_are_random());
    let reference = graph.clone();
    let mut tensors = state_dict(&reference);
    tensors.push(("stem.bn.num_batches_tracked", vec![1]));
    safetensors_file(&path, &tensors);
    graph.load_weights(&path).unwrap();
    assert!(!graph.weights_are_random());
    assert!(graph.tensor("fc.weight").unwrap().to_f64().iter().all(|x| *x == 0.0));
}

#[test]
fn one_report_lists_all_mismatches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let mut graph = networks::squeeze_excite().unwrap();
    let reference = graph.clone();
    let mut tensors = state_dict(&reference);
    tensors.retain(|(name, _)| *name != "stem.bn.bias" && *name != "block.bn.running_var");
    tensors.iter_mut().find(|(name, _)| *name == "fc.weight").unwrap().1 = vec![10, 17];
    tensors.push(("head.weight", vec![2]));
    safetensors_file(&path, &tensors);

    let error = graph.load_weights(&path).unwrap_err();
    let text = error.to_string().replace(&path.display().to_string(), "FILE");
    assert_eq!(
        text,
        "the weights in `FILE` do not match graph `squeeze_excite`:
  missing (2): `stem.bn.bias`, `block.bn.running_var`
  unexpected (1): `head.weight`
  mismatched (1):
    `fc.weight` is `10,16,f32` in the graph and `10,17,f32` in the file"
    );
    assert!(graph.weights_are_random(), "a refused file must leave the graph unchanged");
}

#[test]
fn a_truncated_safetensors_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.safetensors");
    let mut graph = networks::squeeze_excite().unwrap();
    safetensors_file(&path, &state_dict(&graph.clone()));
    let whole = std::fs::read(&path).unwrap();
    for length in [0, 4, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = graph.load_weights(&path).unwrap_err();
        assert!(matches!(error, WeightError::Malformed { .. }), "{length}: {error}");
        assert!(error.to_string().contains("cut.safetensors"));
    }
    let error = graph.load_weights(&folder.path().join("none")).unwrap_err();
    assert!(matches!(error, WeightError::Open { .. }));
}

#[test]
fn a_truncated_onnx_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.onnx");
    write_onnx(&networks::squeeze_excite().unwrap(), &path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for length in (0..whole.len()).step_by(41).chain([whole.len() - 1]) {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = read_onnx(&path).unwrap_err();
        assert!(matches!(error, OnnxError::Malformed { .. }), "{length}: {error}");
        assert!(error.to_string().contains("cut.onnx"));
    }
}

#[test]
fn reading_a_file_with_changed_bytes_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.onnx");
    write_onnx(&networks::squeeze_excite().unwrap(), &path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for (index, xor) in (0..whole.len()).step_by(37).zip([1u8, 0x80, 0xff, 7].into_iter().cycle()) {
        let mut bytes = whole.clone();
        bytes[index] ^= xor;
        std::fs::write(&path, bytes).unwrap();
        if let Ok(mut graph) = read_onnx(&path) {
            flagperf_onnx::infer_shapes(&mut graph);
            let _ = flagperf_onnx::check(&graph);
            flagperf_onnx::count(&graph);
        }
    }
}

#[test]
fn a_file_that_is_not_an_onnx_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.onnx");
    std::fs::write(&path, "not a model").unwrap();
    assert!(matches!(read_onnx(&path).unwrap_err(), OnnxError::Malformed { .. }));
    assert!(matches!(read_onnx(folder.path()).unwrap_err(), OnnxError::Open { .. }));
    assert!(matches!(read_onnx(&folder.path().join("none.onnx")).unwrap_err(), OnnxError::Open { .. }));
}

/// Writes a model whose weights are in a data file, and returns the paths of both.
fn external(folder: &Path) -> (PathBuf, PathBuf) {
    let path = folder.join("model.onnx");
    let written =
        write_onnx_with(&networks::squeeze_excite().unwrap(), &path, WriteOptions { external_above: 0 }).unwrap();
    (path, written[1].clone())
}

#[test]
fn a_missing_or_truncated_data_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (path, data) = external(folder.path());
    let bytes = std::fs::read(&data).unwrap();
    std::fs::write(&data, &bytes[..bytes.len() - 1]).unwrap();
    let error = read_onnx(&path).unwrap_err().to_string();
    assert!(error.contains("model.onnx.data"), "{error}");

    std::fs::write(&data, &bytes).unwrap();
    let graph = read_onnx(&path).unwrap();
    std::fs::write(&data, &bytes[..100]).unwrap();
    let late =
        graph.weights.iter().find(|(_, w)| matches!(w.source, WeightSource::External { offset: 1.., .. })).unwrap().0;
    assert!(matches!(graph.tensor(late).unwrap_err(), WeightError::DataTooShort { .. }));

    std::fs::remove_file(&data).unwrap();
    let error = read_onnx(&path).unwrap_err();
    assert!(matches!(error, OnnxError::ExternalData { .. }), "{error}");
}

#[test]
fn a_failed_write_leaves_the_existing_file_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, "before").unwrap();
    let mut graph = networks::squeeze_excite().unwrap();
    let gone = WeightSource::File { path: folder.path().join("gone.safetensors"), key: "fc.weight".to_owned() };
    graph.weights["fc.weight"].source = gone;
    for options in [WriteOptions::default(), WriteOptions { external_above: 0 }] {
        let error = write_onnx_with(&graph, &path, options).unwrap_err();
        assert!(matches!(error, OnnxError::Weight { .. }), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"before");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let error = write_onnx(&graph, &folder.path().join("no/such/folder.onnx")).unwrap_err();
    assert!(matches!(error, OnnxError::Write { .. }), "{error}");
}

#[test]
fn a_file_from_which_the_graph_reads_weights_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (path, data) = external(folder.path());
    let graph = read_onnx(&path).unwrap();
    let before = std::fs::read(&data).unwrap();
    let error = write_onnx(&graph, &path).unwrap_err();
    assert!(matches!(&error, OnnxError::Overwrite { path } if *path == data), "{error}");
    assert_eq!(std::fs::read(&data).unwrap(), before);
}

#[test]
fn weights_are_converted_between_floating_point_types_when_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let mut graph = networks::squeeze_excite().unwrap();
    safetensors_file(&path, &state_dict(&graph.clone()));
    for weight in graph.weights.values_mut() {
        weight.spec.dtype = DType::F16;
    }
    graph.load_weights(&path).unwrap();
    assert_eq!(graph.tensor("fc.weight").unwrap().dtype(), DType::F16);
}

#[test]
fn a_header_that_is_too_long_is_refused_without_reading_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.safetensors");
    let header = vec![b' '; 33 << 20];
    std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], &header].concat()).unwrap();
    let error = networks::squeeze_excite().unwrap().load_weights(&path).unwrap_err().to_string();
    assert!(error.ends_with("its header has a length of 34603008 bytes (at most 33554432)"), "{error}");
}

#[test]
fn overlapping_tensors_are_refused_without_blaming_one_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overlapping.safetensors");
    let entry = |begin, end| format!(r#"{{"dtype":"F32","shape":[2],"data_offsets":[{begin},{end}]}}"#);
    let header = format!(r#"{{"a":{},"b":{}}}"#, entry(0, 8), entry(4, 12));
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 12]].concat();
    std::fs::write(&path, bytes).unwrap();
    let error = networks::squeeze_excite().unwrap().load_weights(&path).unwrap_err().to_string();
    let expected = "tensor `b` does not begin where the one before it ends: one of the two has wrong offsets";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn a_tensor_that_the_header_describes_wrongly_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.safetensors");
    let reason = |shape: &str, kind: &str, end: usize, data: usize| {
        let entry = format!(r#"{{"dtype":"{kind}","shape":{shape},"data_offsets":[8,{end}]}}"#);
        let header = format!(r#"{{"a":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}},"b":{entry}}}"#);
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat();
        std::fs::write(&path, bytes).unwrap();
        let error = networks::squeeze_excite().unwrap().load_weights(&path).unwrap_err().to_string();
        error.split_once("wrong.safetensors` is not a complete safetensors file: ").unwrap().1.to_owned()
    };
    assert_eq!(
        reason("[3]", "F32", 16, 16),
        "tensor `b`: its shape [3] of F32 takes 12 bytes, but its offsets are 8..16"
    );
    assert_eq!(
        reason("[2]", "F32", 16, 12),
        "tensor `b`: its bytes 8..16 exceed the 12 bytes after the header: the file is cut short"
    );
    assert!(reason("[2]", "F33", 16, 16).starts_with("tensor `b`: unknown variant `F33`, expected one of"));
    assert!(reason("[4611686018427387904, 8]", "F32", 16, 16).starts_with("tensor `b`: its shape"));
}

#[test]
fn a_long_report_of_names_is_shortened_and_contains_the_number_of_omitted_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.safetensors");
    let names: Vec<String> = (0..1000).map(|number| format!("t{number:04}")).collect();
    safetensors_file(&path, &names.iter().map(|name| (name.as_str(), vec![1])).collect::<Vec<_>>());
    let error = networks::squeeze_excite().unwrap().load_weights(&path).unwrap_err().to_string();
    assert!(error.contains("unexpected (1000): `t0000`, ") && error.ends_with("`t0019` and 980 more"), "{error}");
}
