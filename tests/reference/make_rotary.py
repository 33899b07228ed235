"""Writes rotary.json: the frequencies of scaled rotary embeddings in Hugging Face's transformers.

    python tests/reference/make_rotary.py
"""

import json
from pathlib import Path

import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
# Llama 3.1 8B, Llama 3.2 1B, the small size of llama3_8b_mmlu, and a linear scaling of Llama 2 7B.
MODELS = [
    (128, 500000.0, LLAMA3 | {"factor": 8.0, "original_max_position_embeddings": 8192}),
    (64, 500000.0, LLAMA3 | {"factor": 32.0, "original_max_position_embeddings": 8192}),
    (8, 500000.0, LLAMA3 | {"factor": 8.0, "original_max_position_embeddings": 8192}),
    (128, 10000.0, {"rope_type": "linear", "factor": 4.0}),
]


def frequencies(width, theta, scaling):
    sizes = {"hidden_size": 4 * width, "num_attention_heads": 4, "max_position_embeddings": 131072}
    config = LlamaConfig(**sizes, rope_parameters=scaling | {"rope_theta": theta})
    inverse, attention_factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, device="cpu")
    assert attention_factor == 1.0
    return {"width": width, "theta": theta, "scaling": scaling, "frequencies": inverse.tolist()}


def main():
    models = [json.dumps(frequencies(*model)) for model in MODELS]
    text = f'{{"transformers": "{transformers.__version__}", "models": [\n' + ",\n".join(models) + "\n]}\n"
    Path(__file__).with_name("rotary.json").write_text(text)


main()
