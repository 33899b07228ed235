//! Weights that PyTorch saved: a pickle in an archive, or a whole file.

#![no_main]

mod support;

use std::io::{Cursor, Write as _};

use flagperf_onnx::layers::{Linear, linear};
use flagperf_onnx::{Graph, GraphBuilder, WeightOptions, WeightReader};
use libfuzzer_sys::fuzz_target;

/// The kinds of input.
const PICKLE: usize = 0;
const FILE: usize = 1;

fuzz_target!(init: support::write_seeds(seeds), |input: &[u8]| {
    let Some((kind, bytes)) = support::split_kind(input, 2) else { return };
    let file = if kind == PICKLE { archive(bytes) } else { bytes.to_vec() };
    let path = support::write("weights.pth", file);
    let inner = WeightOptions { state_dict: Some("model".to_owned()), ..WeightOptions::default() };
    for options in [WeightOptions::default(), inner] {
        let mut graph = linear_graph();
        if let Err(error) = graph.load_weights_with(&path, &options) {
            assert!(!error.to_string().is_empty());
            continue;
        }
        let mut reader = WeightReader::new(&graph);
        for (name, weight) in &graph.weights {
            let tensor = reader.tensor(name).expect("the file was checked");
            assert_eq!(tensor.spec(), weight.spec);
            assert_eq!(tensor.to_f64().len(), tensor.len());
        }
    }
});

fn linear_graph() -> Graph {
    let mut graph = GraphBuilder::new("linear");
    let x = graph.input("x", "N,2,f32".parse().expect("a specification")).expect("an input");
    let y = linear(&mut graph, "fc", &x, Linear::new(2, 3)).expect("a layer");
    graph.output("y", &y).expect("an output");
    graph.finish().expect("a graph")
}

/// Returns an archive of a pickle and of the storage `0`, which has ten f32 numbers.
fn archive(pickle: &[u8]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let numbers: Vec<u8> = (0..10u8).flat_map(|number| f32::from(number).to_le_bytes()).collect();
    for (name, content) in [("m/data.pkl", pickle), ("m/byteorder", b"little"), ("m/data/0", &numbers)] {
        archive.start_file(name, stored).expect("an entry");
        archive.write_all(content).expect("an entry");
    }
    archive.finish().expect("an archive").into_inner()
}

fn seeds() -> Vec<Vec<u8>> {
    let (weight, bias) = (tensor(0, &[3, 2], &[2, 1]), tensor(6, &[3], &[1]));
    let turned = [b"ctorch._utils\n_rebuild_parameter\n(", &tensor(1, &[3, 2], &[1, 3])[..], b"\x88NtR"].concat();
    let head = &b"\x80\x02ccollections\nOrderedDict\n)R("[..];
    let flat = |weight: &[u8]| [head, &text("fc.weight"), weight, &text("fc.bias"), &bias, b"u."].concat();
    let inner = [&b"}("[..], &text("fc.weight"), &weight, &text("fc.bias"), &bias, b"u"].concat();
    let nested = [&b"\x80\x02}("[..], &text("epoch"), b"K\x03", &text("model"), &inner, b"u."].concat();
    let pickles = [flat(&weight), flat(&turned), nested];
    let files = pickles.iter().map(|pickle| support::seed_of_kind(FILE, archive(pickle)));
    pickles.iter().map(|pickle| support::seed_of_kind(PICKLE, pickle)).chain(files).collect()
}

fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

/// Returns the instructions that build a tensor of the storage `0`.
fn tensor(offset: u8, shape: &[u8], strides: &[u8]) -> Vec<u8> {
    let sizes =
        |sizes: &[u8]| [b"(", &sizes.iter().flat_map(|size| [b'K', *size]).collect::<Vec<_>>()[..], b"t"].concat();
    let storage =
        [b"(", &text("storage")[..], b"ctorch\nFloatStorage\n", &text("0"), &text("cpu"), b"K\x0atQ"].concat();
    let rebuild = b"ctorch._utils\n_rebuild_tensor_v2\n(";
    let end = b"\x89ccollections\nOrderedDict\n)RtR";
    [rebuild, &storage[..], &[b'K', offset], &sizes(shape), &sizes(strides), end].concat()
}
