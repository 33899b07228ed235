"""Writes gguf/*.gguf: drawn blocks of every supported type with the numbers that the package gguf reads from them, and a
small model of the architecture `llama`.

    python tests/reference/make_gguf.py
"""

from pathlib import Path

import numpy
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type, GGUFWriter, dequantize
from safetensors.numpy import save_file

FOLDER = Path(__file__).with_name("gguf")
TYPES = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q4_K, Type.Q6_K]
# Where a block has f16 numbers, in units of f16; other bytes may have any value.
SCALES = {Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 1], Type.Q4_K: [0, 1], Type.Q6_K: [104]}
SHAPE = (2, 256)
WIDTH, HEADS, KEY_HEADS, HEAD = 32, 4, 2, 4


def draw(kind: Type, random: numpy.random.Generator) -> numpy.ndarray:
    """Returns the bytes of a tensor, a row for each of its rows."""
    if kind in (Type.F32, Type.F16):
        return random.normal(size=SHAPE).astype(numpy.float32 if kind == Type.F32 else numpy.float16)
    elements, size = GGML_QUANT_SIZES[kind]
    if kind == Type.BF16:
        upper = random.normal(size=SHAPE).astype(numpy.float32).view(numpy.uint32) >> 16
        return upper.astype(numpy.uint16).view(numpy.uint8)
    blocks = random.integers(0, 256, size=(SHAPE[0] * SHAPE[1] // elements, size), dtype=numpy.uint8)
    blocks.view(numpy.float16)[:, SCALES[kind]] = random.normal(size=(len(blocks), len(SCALES[kind])))
    return blocks.reshape(SHAPE[0], -1)


def write(name: str, architecture: str, tensors: dict, numbers: dict = {}) -> None:
    writer = GGUFWriter(FOLDER / name, architecture)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    writer.add_array("tokenizer.ggml.scores", [0.5, 1.0])
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    for key, value in numbers.items():
        writer.add_uint32(key, value)
    for tensor, (data, kind) in tensors.items():
        writer.add_tensor(tensor, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def rotary_order(rows: numpy.ndarray, heads: int) -> numpy.ndarray:
    """Returns the rows of a projection as llama.cpp stores them: the two halves of each head in turns."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def count_up(*shape: int, dtype=numpy.float32) -> numpy.ndarray:
    return numpy.arange(numpy.prod(shape), dtype=dtype).reshape(shape)


FOLDER.mkdir(exist_ok=True)
random = numpy.random.default_rng(1)
blocks = {kind.name: (draw(kind, random), kind) for kind in TYPES}
write("blocks.gguf", "none", blocks)
values = {name: numpy.ascontiguousarray(dequantize(data, kind), numpy.float32) for name, (data, kind) in blocks.items()}
save_file(values, FOLDER / "blocks.safetensors")

query, key = count_up(HEADS * HEAD, WIDTH), count_up(KEY_HEADS * HEAD, WIDTH, dtype=numpy.float16)
model = {
    "token_embd.weight": (count_up(3, WIDTH), Type.F32),
    "blk.0.attn_q.weight": (rotary_order(query, HEADS), Type.F32),
    "blk.0.attn_q.bias": (rotary_order(count_up(HEADS * HEAD), HEADS), Type.F32),
    "blk.0.attn_k.weight": (rotary_order(key, KEY_HEADS), Type.F16),
    "blk.0.attn_v.weight": (key, Type.F16),
    "output_norm.weight": (count_up(WIDTH), Type.F32),
    "rope_freqs.weight": (count_up(2), Type.F32),
}
write("llama.gguf", "llama", model, {"llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KEY_HEADS})
