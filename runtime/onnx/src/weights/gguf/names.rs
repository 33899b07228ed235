//! The names of the architecture `llama` in GGUF and in the transformers library, and the order of the rows of queries
//! and keys.
//!
//! Knows nothing about files.

/// The architecture whose tensors get the names of transformers. Mistral and SmolLM2 have it, too.
pub(super) const LLAMA: &[u8] = b"llama";

const MODEL: [(&str, &str); 3] =
    [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

const BLOCK: [(&str, &str); 9] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Entries of the metadata that say what the shapes of tensors do not show, and the keys of transformers' `config.json`
/// with the same meaning.
pub(super) const CONFIGURATION: [(&str, &str); 5] = [
    ("llama.attention.head_count", "num_attention_heads"),
    ("llama.attention.head_count_kv", "num_key_value_heads"),
    ("llama.attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("llama.rope.freq_base", "rope_theta"),
    ("llama.rope.scaling.type", "rope_scaling"),
];

/// Projections whose rows llama.cpp reorders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Projection {
    Query,
    Key,
}

/// Returns the name of a tensor in transformers; the own one if transformers has no such tensor.
pub(super) fn transformers_name(name: &str) -> String {
    let find = |table: &[(&str, &'static str)], layer: &str| table.iter().find(|row| row.0 == layer).map(|row| row.1);
    let translated = match *name.split('.').collect::<Vec<_>>() {
        ["blk", block, layer, kind] => find(&BLOCK, layer).map(|layer| format!("model.layers.{block}.{layer}.{kind}")),
        [layer, kind] => find(&MODEL, layer).map(|layer| format!("{layer}.{kind}")),
        _ => None,
    };
    translated.unwrap_or_else(|| name.to_owned())
}

/// Returns which reordered projection a tensor belongs to, if any.
pub(super) fn projection(name: &str) -> Option<Projection> {
    match *name.split('.').collect::<Vec<_>>() {
        ["blk", _, "attn_q", _] => Some(Projection::Query),
        ["blk", _, "attn_k", _] => Some(Projection::Key),
        _ => None,
    }
}

/// Returns the row in the file of a row of transformers, for heads of `size` rows. The rotary embedding turns pairs of
/// rows: those of a pair are `size / 2` apart in transformers, and adjacent in the file.
pub(super) fn stored_row(row: usize, size: usize) -> usize {
    let (head, row) = (row / size * size, row % size);
    head + row % (size / 2) * 2 + row / (size / 2)
}
