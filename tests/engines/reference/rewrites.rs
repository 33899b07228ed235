//! Composite operators in the spellings of exporters: what is found, and that it computes the same.

use std::collections::BTreeMap;

use flagperf_onnx::read_onnx;
use flagperf_onnx::rewrite::{FUSIONS, Fusion};
use flagperf_onnx_exec::{FOLDED_BYTES_MAX, ProofLimits, fold_constants, prove_regions};
use serde_json::Value;

use super::folder;

/// The kinds of sub-graphs in the index, each with the operator that they become.
const KINDS: [(&str, &str); 10] = [
    ("layernorm", "LayerNormalization"),
    ("rmsnorm", "RMSNormalization"),
    ("gelu_erf", "Gelu"),
    ("gelu_tanh", "Gelu"),
    ("gelu_sigmoid", "Swish"),
    ("silu", "Swish"),
    ("attention", "Attention"),
    ("rotary", "RotaryEmbedding"),
    ("pad_conv", "Conv"),
    ("conv_bias", "Conv"),
];

/// What is found in one file.
#[derive(Default)]
struct Found {
    places: BTreeMap<&'static str, usize>,
    /// Why places could not be compared.
    unproved: Vec<String>,
}

/// Fuses the operators one after the other, normalizations first, as a script would.
fn fuse_all(file: &str) -> Found {
    let graph = read_onnx(&folder().join("spellings").join(file)).unwrap();
    let (mut graph, _) = fold_constants(&graph, FOLDED_BYTES_MAX).unwrap();
    let mut found = Found::default();
    for fusion in FUSIONS {
        let rewrite = Fusion::find(fusion.name).unwrap().apply(&graph).unwrap();
        let proof = prove_regions(&rewrite.replaced, 0, ProofLimits::default());
        assert_eq!(proof.differs, None, "{file}: {}", fusion.name);
        found.places.insert(fusion.name, rewrite.replaced.len());
        found.unproved.extend(proof.unproved.into_iter().map(|(node, reason)| format!("{file}: {node}: {reason}")));
        graph = rewrite.graph;
    }
    found
}

#[test]
fn composite_operators_are_found_in_the_spellings_of_exporters_and_nowhere_else() {
    let text = std::fs::read_to_string(folder().join("spellings/index.json")).unwrap();
    let index: Value = serde_json::from_str(&text).unwrap();
    let mut counts: BTreeMap<(&str, String), [usize; 2]> = BTreeMap::new();
    let (mut missed, mut excess, mut unproved) = (Vec::new(), Vec::new(), Vec::new());
    for entry in index["files"].as_array().unwrap() {
        let (file, exporter) = (entry["file"].as_str().unwrap(), entry["exporter"].as_str().unwrap());
        let found = fuse_all(file);
        let mut expected: BTreeMap<&str, usize> = BTreeMap::new();
        for (kind, operator) in KINDS {
            *expected.entry(operator).or_default() += entry["to_find"][kind].as_u64().unwrap_or(0) as usize;
        }
        for (operator, expected) in expected {
            let places = found.places[operator];
            let count = counts.entry((operator, exporter.to_owned())).or_default();
            count[0] += places.min(expected);
            count[1] += expected;
            if places < expected {
                missed.push(format!("{file}: {operator} {places} of {expected}"));
            } else if places > expected {
                excess.push(format!("{file}: {operator} {places}, but there are {expected}"));
            }
        }
        unproved.extend(found.unproved);
    }
    let mut table = "operator,exporter,found,of\n".to_owned();
    for ((operator, exporter), [places, of]) in counts.into_iter().filter(|(_, [_, of])| *of > 0) {
        table += &format!("{operator},{exporter},{places},{of}\n");
    }
    let path = folder().join("spellings/found.csv");
    if std::env::vars().any(|(name, _)| name == "UPDATE_SPELLINGS") {
        std::fs::write(&path, &table).unwrap();
    }
    assert_eq!(excess, Vec::<String>::new());
    unproved.retain(|reason| !reason.ends_with("is not known"));
    assert_eq!(unproved, Vec::<String>::new(), "only places of unknown shapes are not computed");
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        table,
        known,
        "regenerate found.csv with UPDATE_SPELLINGS=1 if this is right; missed:\n{}",
        missed.join("\n")
    );
}

/// What has too few nodes of the operator: a norm, and a deviation that an exporter computes in another way.
const SILENT: [&str; 2] = [
    "dynamo-18/bundle_near_misses.onnx: miss_layernorm_std",
    "torchscript-17/bundle_near_misses_2.onnx: rmsnorm_hand_norm",
];

#[test]
fn every_sub_graph_that_only_resembles_an_operator_is_named_with_the_reason() {
    let text = std::fs::read_to_string(folder().join("spellings/index.json")).unwrap();
    let index: Value = serde_json::from_str(&text).unwrap();
    let mut silent = Vec::new();
    for entry in index["files"].as_array().unwrap() {
        let whole = std::slice::from_ref(entry);
        let parts = entry["parts"].as_array().map_or(whole, Vec::as_slice);
        for part in parts.iter().filter(|part| part["near_miss_of"].is_string()) {
            let kind = part["near_miss_of"].as_str().unwrap();
            let Some((_, operator)) = KINDS.iter().find(|(known, _)| *known == kind) else { continue };
            let graph = read_onnx(&folder().join("spellings").join(entry["file"].as_str().unwrap())).unwrap();
            let (graph, _) = fold_constants(&graph, FOLDED_BYTES_MAX).unwrap();
            let rewrite = Fusion::find(operator).unwrap().apply(&graph).unwrap();
            let prefix = part["prefix"].as_str().unwrap_or_default();
            let reason = rewrite.near_misses.iter().find(|miss| miss.node.starts_with(prefix));
            println!("{}: {:?} ({})", part["name"], reason.map(|miss| &miss.reason), part["why"]);
            if reason.is_none() {
                silent.push(format!("{}: {}", entry["file"].as_str().unwrap(), part["name"].as_str().unwrap()));
            }
        }
    }
    assert_eq!(silent, SILENT);
}
