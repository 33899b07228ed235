//! Tests of the header of GGUF files.

use serde_json::Value as Json;

use super::header::{F32, F64, LIST, TEXT};
use super::*;

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// Returns an entry of the metadata.
fn entry(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&text(key)[..], &kind.to_le_bytes(), value].concat()
}

/// Returns the description of a tensor; the dimensions are in the order of the file.
fn tensor(name: &str, dims: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let dims: Vec<u8> =
        (dims.len() as u32).to_le_bytes().into_iter().chain(dims.iter().flat_map(|size| size.to_le_bytes())).collect();
    [&text(name)[..], &dims, &kind.to_le_bytes(), &offset.to_le_bytes()].concat()
}

/// Returns a file with `data` bytes of tensors, which begin at a multiple of 32.
fn file(entries: &[Vec<u8>], tensors: &[Vec<u8>], data: usize) -> Vec<u8> {
    let counts = [tensors.len() as u64, entries.len() as u64].map(u64::to_le_bytes).concat();
    let mut file = [MAGIC, &3u32.to_le_bytes(), &counts, &entries.concat(), &tensors.concat()].concat();
    file.resize(file.len().next_multiple_of(32) + data, 0);
    file
}

fn reason(file: &[u8]) -> String {
    read_tensors(file).map(|tensors| tensors.len()).unwrap_err()
}

fn llama(heads: u32, more: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let heads = entry("llama.attention.head_count", 4, &heads.to_le_bytes());
    [&[entry("general.architecture", TEXT, &text("llama")), heads], more].concat()
}

#[test]
fn a_file_of_another_version_or_byte_order_is_refused() {
    let whole = file(&[], &[tensor("a", &[8], 0, 0)], 32);
    read_tensors(&whole).unwrap();
    let with_version = |version: [u8; 4]| reason(&[MAGIC, &version, &whole[8..]].concat());
    assert_eq!(with_version([0, 0, 0, 3]), "it is big-endian (supported: little-endian)");
    assert_eq!(with_version([1, 0, 0, 0]), "its version is 1 (supported: 2 and 3)");
    assert!(!is_gguf(b"GGUS\x03\0\0\0"));
}

#[test]
fn a_file_that_is_cut_anywhere_is_refused() {
    let whole = file(&llama(2, &[]), &[tensor("a", &[8], 0, 0), tensor("b", &[32, 2], 2, 32)], 68);
    assert_eq!(read_tensors(&whole).unwrap().len(), 2);
    for length in MAGIC.len()..whole.len() {
        assert!(!reason(&whole[..length]).is_empty(), "{length}");
    }
    let end = whole.len() - 1;
    let expected = format!("tensor `b` ([2, 32] Q4_0): its bytes {}..{} exceed the {end} bytes", end - 35, end + 1);
    assert!(reason(&whole[..end]).starts_with(&expected), "{}", reason(&whole[..end]));
}

#[test]
fn counts_and_lengths_that_lie_are_refused_without_filling_memory() {
    let whole = file(&[entry("k", LIST, &[&4u32.to_le_bytes()[..], &u64::MAX.to_le_bytes()].concat())], &[], 0);
    let beyond = "metadata `k`: its header needs 18446744073709551615 bytes at 49, beyond the end of the file at 64";
    assert_eq!(reason(&whole), beyond);
    let texts = [&TEXT.to_le_bytes()[..], &u64::MAX.to_le_bytes()].concat();
    assert!(reason(&file(&[entry("k", LIST, &texts)], &[], 64)).contains("metadata `k`: its header needs 8 bytes"));
    let with_counts = |tensors: u64, entries: u64| {
        reason(&[&whole[..8], &tensors.to_le_bytes(), &entries.to_le_bytes(), &[0; 64]].concat())
    };
    assert_eq!(with_counts(u64::MAX, 0), "it has 18446744073709551615 tensors by its header (at most 1048576)");
    assert!(with_counts(0, 1 << 60).contains("entries of metadata by its header"));
    let lists = [&LIST.to_le_bytes()[..], &1u64.to_le_bytes()].concat();
    assert_eq!(reason(&file(&[entry("k", LIST, &lists)], &[], 0)), "metadata `k`: a list of lists is not supported");
    assert_eq!(reason(&file(&[entry("k", 13, &[])], &[], 0)), "metadata `k`: unknown type 13 of a value");
}

#[test]
fn a_tensor_whose_description_is_wrong_is_named_with_its_shape_and_type() {
    let refused = |tensors: &[Vec<u8>]| reason(&file(&[], tensors, 128));
    for (described, expected) in [
        (tensor("a", &[1; 5], 0, 0), "tensor `a`: it has 5 dimensions (at most 4)"),
        (tensor("a", &[33, 2], 2, 0), "tensor `a` ([2, 33] Q4_0): its rows of 33 elements are not whole blocks of 32"),
        (
            tensor("a", &[8], 0, 4),
            "tensor `a` ([8] F32): its offset 4 is not a multiple of 32, the alignment of the file",
        ),
        (tensor("a", &[8], 0, 1 << 40), "tensor `a` ([8] F32): its bytes 1099511627840..1099511627872 exceed the 192"),
        (tensor("a", &[8], 77, 1 << 40), "tensor `a` ([8] unknown (number 77)): its bytes 10995"),
        (
            tensor("a", &[1 << 62, 1 << 62], 0, 0),
            "tensor `a` ([4611686018427387904, 4611686018427387904] F32): its shape",
        ),
        (tensor("a", &[64], 0, u64::MAX - 31), "tensor `a` ([64] F32): its bytes "),
    ] {
        let reason = refused(&[described]);
        assert!(reason.starts_with(expected), "{reason}");
    }
    let [a, b] = [0, 32].map(|offset| tensor(if offset == 0 { "a" } else { "b" }, &[16], 0, offset));
    assert_eq!(refused(&[b, a.clone()]), "its tensors `a` and `b` overlap");
    assert_eq!(refused(&[a, tensor("a", &[16], 0, 64)]), "it has several tensors `a`");
}

#[test]
fn metadata_that_changes_the_tensors_is_checked() {
    let refused = |entries: &[Vec<u8>], tensors: &[Vec<u8>]| reason(&file(entries, tensors, 256));
    let query = |kind, dims: &[u64]| tensor("blk.0.attn_q.weight", dims, kind, 0);
    assert_eq!(
        refused(&llama(3, &[]), &[query(0, &[2, 8])]),
        "tensor `blk.0.attn_q.weight` ([8, 2] F32): its 8 rows are not pairs in 3 heads"
    );
    for heads in [0, 8, u32::MAX] {
        assert!(refused(&llama(heads, &[]), &[query(0, &[2, 8])]).contains("are not pairs"));
    }
    assert!(refused(&llama(2, &[]), &[query(2, &[32])]).ends_with("its blocks contain several rows"));
    assert!(refused(&llama(2, &[])[..1], &[query(0, &[2, 8])]).contains("no number of heads"));
    for alignment in [0u32, 24] {
        let entries = [entry("general.alignment", 4, &alignment.to_le_bytes())];
        assert_eq!(refused(&entries, &[]), "metadata `general.alignment` has an unsupported value");
    }
    let parts = [entry("split.count", 2, &5u16.to_le_bytes())];
    assert_eq!(refused(&parts, &[]), "it is one of 5 parts of a model (join them with `llama-gguf-split`)");
    // Both have the name of transformers.
    let twice = [tensor("output.weight", &[8], 0, 0), tensor("lm_head.weight", &[8], 0, 32)];
    assert_eq!(refused(&llama(2, &[]), &twice), "it has several tensors `lm_head.weight`");
    read_tensors(&file(&[], &twice, 256)).unwrap();
}

#[test]
fn metadata_that_says_how_the_model_computes_has_the_keys_of_transformers() {
    let read = |entries: &[Vec<u8>]| read_configuration(Path::new("m.gguf"), &file(entries, &[], 0));
    let entries = [
        entry("llama.attention.layer_norm_rms_epsilon", F32, &1e-5f32.to_le_bytes()),
        entry("llama.rope.freq_base", F64, &5e5f64.to_le_bytes()),
        entry("llama.rope.scaling.type", TEXT, &text("none")),
    ];
    let expected = [
        ("num_attention_heads", ("llama.attention.head_count", Json::from(9))),
        ("rms_norm_eps", ("llama.attention.layer_norm_rms_epsilon", Json::from(1e-5))),
        ("rope_theta", ("llama.rope.freq_base", Json::from(5e5))),
        ("rope_scaling", ("llama.rope.scaling.type", Json::Null)),
    ];
    assert_eq!(read(&llama(9, &entries)).unwrap(), Configuration::from(expected));
    let not_a_number = entry("llama.rope.freq_base", F32, &f32::NAN.to_le_bytes());
    let error = read(&[not_a_number]).unwrap_err().to_string();
    assert!(error.ends_with("metadata `llama.rope.freq_base` has an unsupported value"), "{error}");
}
