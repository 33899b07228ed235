//! Weights from PyTorch's own files: correct ones are read, all others cause an error that names the file.

use std::io::Write;
use std::path::Path;

use flagperf_onnx::layers::{Linear, linear};
use flagperf_onnx::{Graph, GraphBuilder, Init, Weight, WeightError, WeightOptions, WeightRole, WeightSource};

use crate::networks;

/// Writes an archive like those of `torch.save`.
fn archive(path: &Path, entries: &[(&str, &[u8])]) {
    let mut archive = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, content) in entries {
        let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        archive.start_file(*name, stored).unwrap();
        archive.write_all(content).unwrap();
    }
    archive.finish().unwrap();
}

/// Writes an archive of a pickle alone.
fn pth_file(path: &Path, pickle: &[u8]) {
    archive(path, &[("archive/data.pkl", pickle)]);
}

fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

fn sizes(sizes: &[u8]) -> Vec<u8> {
    let items = sizes.iter().flat_map(|size| [b'K', *size]);
    [b'('].into_iter().chain(items).chain([b't']).collect()
}

/// Returns the instructions that build a tensor of the storage `0`.
fn tensor(storage: &str, offset: u8, shape: &[u8], strides: &[u8]) -> Vec<u8> {
    tensor_in("0", storage, offset, shape, strides)
}

/// Returns the instructions that build a tensor of the storage `key`.
fn tensor_in(key: &str, storage: &str, offset: u8, shape: &[u8], strides: &[u8]) -> Vec<u8> {
    let class = format!("ctorch\n{storage}\n");
    let storage = [b"(", &text("storage")[..], class.as_bytes(), &text(key), &text("cpu"), b"K\x0atQ"].concat();
    let rebuild = b"ctorch._utils\n_rebuild_tensor_v2\n(";
    let end = b"\x89ccollections\nOrderedDict\n)RtR";
    [rebuild, &storage[..], &[b'K', offset], &sizes(shape), &sizes(strides), end].concat()
}

/// Writes a state_dict of `fc.weight` and `fc.bias`, whose elements are in one storage of ten f32 numbers.
fn write_linear(path: &Path, weight: &[u8], bias: &[u8]) {
    write_linear_with_storage(path, weight, bias, 10, &[]);
}

/// Writes the same with a storage of another length, and further entries.
fn write_linear_with_storage(path: &Path, weight: &[u8], bias: &[u8], numbers: u8, more: &[(&str, &[u8])]) {
    let head = b"\x80\x02ccollections\nOrderedDict\n)R(";
    let pickle = [&head[..], &text("fc.weight"), weight, &text("fc.bias"), bias, b"u."].concat();
    let numbers: Vec<u8> = (0..numbers).flat_map(|number| f32::from(number).to_le_bytes()).collect();
    let entries: [(&str, &[u8]); 3] = [("m/data.pkl", &pickle), ("m/byteorder", b"little"), ("m/data/0", &numbers)];
    archive(path, &[&entries[..], more].concat());
}

/// Returns the checksum of each entry.
fn checksums(mut archive: zip::ZipArchive<std::fs::File>) -> Vec<u32> {
    (0..archive.len()).map(|index| archive.by_index_raw(index).unwrap().crc32()).collect()
}

/// Replaces bytes everywhere in a file.
fn replace(path: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    let places: Vec<usize> = bytes.windows(from.len()).enumerate().filter(|w| w.1 == from).map(|w| w.0).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to));
    std::fs::write(path, bytes).unwrap();
}

fn linear_graph() -> Graph {
    let mut b = GraphBuilder::new("linear");
    let x = b.input("x", "N,2,f32".parse().unwrap()).unwrap();
    let y = linear(&mut b, "fc", &x, Linear::new(2, 3)).unwrap();
    b.output("y", &y).unwrap();
    b.finish().unwrap()
}

#[test]
fn tensors_are_read_from_their_storage_by_offset_and_strides() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.pth");
    let column_major = tensor("FloatStorage", 1, &[3, 2], &[1, 3]);
    let parameter = [b"ctorch._utils\n_rebuild_parameter\n(", &column_major[..], b"\x88NtR"].concat();
    write_linear(&path, &parameter, &tensor("FloatStorage", 7, &[3], &[1]));
    let mut graph = linear_graph();
    graph.load_weights(&path).unwrap();
    let read = |name: &str| graph.tensor(name).unwrap().to_f64();
    assert_eq!(read("fc.weight"), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(read("fc.bias"), [7.0, 8.0, 9.0]);
}

#[test]
fn an_empty_tensor_may_have_any_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.pth");
    let empty = tensor("FloatStorage", 7, &[0, 3], &[3, 1]);
    // An integer of eight bytes in place of one of one byte.
    let at = empty.windows(2).position(|bytes| bytes == b"K\x07").unwrap();
    let beyond = [&empty[..at], b"\x8a\x08", &i64::MAX.to_le_bytes(), &empty[at + 2..]].concat();
    let pickle = [&b"\x80\x02}("[..], &text("w"), &beyond, b"u."].concat();
    archive(&path, &[("m/data.pkl", &pickle), ("m/byteorder", b"little"), ("m/data/0", &[0; 40])]);
    let (spec, init) = ("0,3,f32".parse().unwrap(), Init::Constant(0.0));
    let weight = Weight { spec, role: WeightRole::Parameter, source: WeightSource::Seed { seed: 0, init } };
    let mut graph = Graph { weights: [("w".to_owned(), weight)].into(), ..Graph::default() };
    graph.load_weights(&path).unwrap();
    assert_eq!(graph.tensor("w").unwrap().shape(), [0, 3]);
}

#[test]
fn garbage_under_the_name_of_a_pytorch_file_is_not_called_safetensors() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["weights.pth", "weights.pt", "pytorch_model.bin"] {
        let path = folder.path().join(name);
        std::fs::write(&path, "this is no weights file at all").unwrap();
        let error = linear_graph().load_weights(&path).unwrap_err().to_string();
        let expected =
            "is not a complete PyTorch file: it begins neither as an archive of PyTorch nor as a safetensors file";
        assert!(error.ends_with(expected), "{error}");
    }
    // A safetensors file may have such a name.
    let path = folder.path().join("named.bin");
    std::fs::write(&path, b"\x09\0\0\0\0\0\0\0{\"x\": 7}").unwrap();
    let error = linear_graph().load_weights(&path).unwrap_err().to_string();
    assert!(error.contains("is not a complete safetensors file: "), "{error}");
}

/// Returns the instructions that build a dict of values under their keys.
fn dict(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let entries = entries.iter().flat_map(|(key, value)| [&text(key)[..], value].concat());
    [b'}', b'('].into_iter().chain(entries).chain([b'u']).collect()
}

/// Writes a checkpoint, whose tensors are in one storage of ten f32 numbers.
fn write_checkpoint(path: &Path, checkpoint: &[u8]) {
    let pickle = [b"\x80\x02", checkpoint, b"."].concat();
    let numbers: Vec<u8> = (0..10u8).flat_map(|number| f32::from(number).to_le_bytes()).collect();
    archive(path, &[("m/data.pkl", &pickle), ("m/byteorder", b"little"), ("m/data/0", &numbers)]);
}

#[test]
fn a_state_dict_inside_a_checkpoint_is_read_if_it_is_the_only_one_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.pth");
    let (weight, bias) = (tensor("FloatStorage", 0, &[3, 2], &[2, 1]), tensor("FloatStorage", 6, &[3], &[1]));
    let other = tensor("FloatStorage", 7, &[3], &[1]);
    let model = dict(&[("fc.weight", &weight), ("fc.bias", &bias)]);
    let averaged = dict(&[("fc.weight", &weight), ("fc.bias", &other)]);
    // The states of an optimizer are under numbers.
    let optimizer = [&b"}K\x00"[..], &dict(&[("exp_avg", &bias)]), b"s"].concat();
    let optimizer = dict(&[("state", &optimizer), ("param_groups", b"]")]);
    let load = |state_dict: Option<&str>| {
        let mut graph = linear_graph();
        let state_dict = state_dict.map(str::to_owned);
        graph.load_weights_with(&path, &WeightOptions { state_dict, ..WeightOptions::default() }).map_err(|error| {
            let error = error.to_string();
            error.split_once("checkpoint.pth` ").map_or(error.clone(), |(_, reason)| reason.to_owned())
        })?;
        Ok::<_, String>(graph.tensor("fc.bias").unwrap().to_f64())
    };
    write_checkpoint(&path, &dict(&[("epoch", b"K\x03"), ("model", &model), ("optimizer", &optimizer)]));
    assert_eq!(load(None), Ok(vec![6.0, 7.0, 8.0]));
    assert_eq!(load(Some("model")), Ok(vec![6.0, 7.0, 8.0]));
    assert_eq!(
        load(Some("models")),
        Err("has no state_dict under the key `models` (keys with tensors: `model`)".to_owned())
    );

    write_checkpoint(&path, &dict(&[("model", &dict(&[("state", &model)])), ("ema", &averaged)]));
    let several = "has several state_dicts, under the keys `ema`, `model.state`: set `state_dict` to one of them";
    assert_eq!(load(None), Err(several.to_owned()));
    assert_eq!(load(Some("model.state")), Ok(vec![6.0, 7.0, 8.0]));
    assert_eq!(load(Some("ema")), Ok(vec![7.0, 8.0, 9.0]));

    write_checkpoint(&path, &dict(&[("model", &dict(&[("module.fc.weight", &weight), ("module.fc.bias", &bias)]))]));
    let error = load(None).unwrap_err();
    assert!(error.ends_with("in the file with `module.` in front: set `prefix: \"module.\"`"), "{error}");

    write_checkpoint(&path, &dict(&[("mean", &bias), ("model", &model)]));
    let error = load(None).unwrap_err();
    let hint = "hint: the file has a state_dict under the key `model`: set `state_dict: \"model\"`";
    assert!(error.ends_with(hint), "{error}");
    assert_eq!(load(Some("model")), Ok(vec![6.0, 7.0, 8.0]));
}

#[test]
fn a_tensor_of_an_unsupported_type_or_beyond_its_storage_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.pth");
    let weight = tensor("FloatStorage", 0, &[3, 2], &[2, 1]);
    let mut graph = linear_graph();
    write_linear(&path, &weight, &tensor("ComplexFloatStorage", 0, &[3], &[1]));
    let error = graph.load_weights(&path).unwrap_err().to_string();
    let expected = "`fc.bias` has the type ComplexFloatStorage and the shape [3]\n  hint: convert the file to one of the supported types: BFloat16Storage, ";
    assert!(error.contains(expected), "{error}");
    for (offset, stride) in [(8, 1), (0, 5), (200, 200)] {
        write_linear(&path, &weight, &tensor("FloatStorage", offset, &[3], &[stride]));
        let error = graph.load_weights(&path).unwrap_err().to_string();
        assert!(error.ends_with("tensor `fc.bias`: its elements exceed its storage"), "{error}");
    }
}

#[test]
fn a_tensor_whose_elements_share_a_place_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.pth");
    // `torch.arange(10.)[4:7].expand(2, 3).T` and `torch.arange(10.)[9].expand(3)`.
    write_linear(&path, &tensor("FloatStorage", 4, &[3, 2], &[1, 0]), &tensor("FloatStorage", 9, &[3], &[0]));
    let mut graph = linear_graph();
    graph.load_weights(&path).unwrap();
    let read = |name: &str| graph.tensor(name).unwrap().to_f64();
    assert_eq!(read("fc.weight"), [4.0, 4.0, 5.0, 5.0, 6.0, 6.0]);
    assert_eq!(read("fc.bias"), [9.0, 9.0, 9.0]);
}

#[test]
fn a_damaged_archive_is_refused_when_its_weights_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.pth");
    let (weight, bias) = (tensor("FloatStorage", 0, &[3, 2], &[2, 1]), tensor("FloatStorage", 7, &[3], &[1]));
    let refusal = || linear_graph().load_weights(&path).unwrap_err().to_string();
    for numbers in [9, 11] {
        write_linear_with_storage(&path, &weight, &bias, numbers, &[]);
        let expected =
            format!("its storage `0` has {} bytes, which are not 10 elements of `f32`", 4 * u32::from(numbers));
        assert!(refusal().ends_with(&expected), "{}", refusal());
    }
    write_linear(&path, &weight, &tensor_in("9", "FloatStorage", 0, &[3], &[1]));
    assert!(refusal().ends_with("tensor `fc.bias`: its storage `9` is missing"), "{}", refusal());

    write_linear(&path, &weight, &bias);
    replace(&path, &8f32.to_le_bytes(), &80f32.to_le_bytes());
    let expected = "its storage `0` does not have the checksum that was stored with it, so it is damaged";
    assert!(refusal().ends_with(expected), "{}", refusal());

    write_linear_with_storage(&path, &weight, &bias, 10, &[("m/data/1", b"more")]);
    replace(&path, b"m/data/1", b"m/data/0");
    assert!(refusal().ends_with("it has several entries `m/data/0`"), "{}", refusal());
    for name in ["data/0", "data.pkl"] {
        write_linear_with_storage(&path, &weight, &bias, 10, &[(&format!("other/{name}"), b"more")]);
        assert!(refusal().ends_with(&format!("it has several entries `{name}`")), "{}", refusal());
    }
}

#[test]
fn a_file_without_checksums_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.pth");
    write_linear(&path, &tensor("FloatStorage", 0, &[3, 2], &[2, 1]), &tensor("FloatStorage", 7, &[3], &[1]));
    // What `torch.save` writes after `torch.serialization.set_crc32_options(False)`.
    for entry in zip::ZipArchive::new(std::fs::File::open(&path).unwrap()).map(checksums).unwrap() {
        replace(&path, &entry.to_le_bytes(), &[0; 4]);
    }
    linear_graph().load_weights(&path).unwrap();
}

#[test]
fn a_pth_file_that_calls_other_functions_is_refused_and_nothing_is_executed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, proof) = (folder.path().join("evil.pth"), folder.path().join("proof"));
    let command = format!("touch {}", proof.display());
    let text = [&b"X"[..], &(command.len() as u32).to_le_bytes(), command.as_bytes()].concat();
    // `os.system(command)`: as the whole file, and as an entry of a dict.
    let call = [&b"cposix\nsystem\n"[..], &text, b"\x85R"].concat();
    let entry = [&b"}X\x01\0\0\0w"[..], &call, b"s"].concat();
    let mut graph = networks::squeeze_excite().unwrap();
    for body in [call, entry] {
        pth_file(&path, &[b"\x80\x02", &body[..], b"."].concat());
        let error = graph.load_weights(&path).unwrap_err();
        assert!(matches!(&error, WeightError::ForbiddenCall { callable, .. } if callable == "posix.system"), "{error}");
        assert!(error.to_string().contains("evil.pth") && !proof.exists());
    }
}

#[test]
fn a_truncated_malformed_or_old_pth_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.pth");
    let mut graph = networks::squeeze_excite().unwrap();
    let mut refused = |what: &str| {
        let error = graph.load_weights(&path).unwrap_err();
        assert!(matches!(error, WeightError::MalformedPth { .. }), "{what}: {error}");
        assert!(error.to_string().contains("broken.pth"), "{what}: {error}");
    };
    // A tensor without the arguments of its constructor.
    pth_file(&path, b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n)Rs.");
    let whole = std::fs::read(&path).unwrap();
    refused("no arguments");
    for length in [whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        refused("cut");
    }
    pth_file(&path, b"\x80\x02}");
    refused("a pickle without an end");
    // Each round creates a pair of the previous round's value.
    let rounds = b"h\0h\0\x86q\0".repeat(30);
    pth_file(&path, &[b"\x80\x02X\x01\0\0\0wq\0", &rounds[..], b"."].concat());
    refused("values that double");
    pth_file(&path, &[b"\x80\x02)", &[0x85; 200_000][..], b"."].concat());
    refused("values that nest");
    pth_file(&path, b"\x80\x02}X\x03\0\0\0neg\x88s.");
    refused("a tensor whose elements differ from the stored ones");
    std::fs::write(&path, b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.").unwrap();
    refused("old");
}

#[test]
fn a_pth_file_of_another_byte_order_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.pth");
    archive(&path, &[("archive/data.pkl", b"\x80\x02}."), ("archive/byteorder", b"big")]);
    let error = networks::squeeze_excite().unwrap().load_weights(&path).unwrap_err().to_string();
    assert!(error.contains("its byte order is `big`, not `little`"), "{error}");
}
