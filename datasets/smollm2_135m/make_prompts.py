"""Writes prompts.jsonl: each prompt of prompts.txt in the model's chat format, with the answer of transformers.

    python3 -m pip install torch transformers
    python3 datasets/smollm2_135m/make_prompts.py

The weights are those that fetch.py wrote. An answer is the most probable next token, 64 times, in fp32 on the processor;
tokens that end the answer are kept like any other. The script also prints the smallest difference between the two best
logits of all steps, which tells whether another implementation may choose differently, and the perplexity of
prompts.txt as one text.
"""

import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

FOLDER = Path(__file__).resolve().parent
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
TOKENS = 64
CONFIG = LlamaConfig(
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    vocab_size=49152,
    max_position_embeddings=8192,
    rms_norm_eps=1e-5,
    rope_theta=100000.0,
    tie_word_embeddings=True,
)


def chat(prompt):
    """Returns a prompt in the model's chat format."""
    return (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"
        f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    )


def answer(model, tokens):
    """Returns the most probable next tokens, and the smallest difference between the two best logits of a step."""
    cache, inputs, chosen, margin = None, torch.tensor([tokens]), [], math.inf
    for _ in range(TOKENS):
        output = model(input_ids=inputs, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        best = output.logits[0, -1].topk(2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        chosen.append(int(best.indices[0]))
        inputs = torch.tensor([[chosen[-1]]])
    return chosen, margin


def load_model(folder):
    """Returns the model with the weights in `generated` of a folder."""
    model = LlamaForCausalLM(CONFIG)
    model.load_state_dict(load_file(folder / "generated/model.safetensors"), strict=False)
    model.tie_weights()
    return model.eval()


@torch.inference_mode()
def main():
    model = load_model(FOLDER)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(FOLDER / "generated/tokenizer.json"))
    prompts = (FOLDER / "prompts.txt").read_text(encoding="utf-8")
    smallest = math.inf
    with (FOLDER / "prompts.jsonl").open("w", encoding="utf-8") as file:
        for prompt in prompts.splitlines():
            text = chat(prompt)
            tokens = tokenizer(text)["input_ids"]
            chosen, margin = answer(model, tokens)
            smallest = min(smallest, margin)
            file.write(json.dumps({"text": text, "tokens": tokens, "answer": chosen}) + "\n")
            print(repr(tokenizer.decode(chosen)), f"{margin:.4f}", flush=True)
    tokens = torch.tensor([tokenizer(prompts)["input_ids"]])
    loss = model(input_ids=tokens, labels=tokens).loss
    print(f"smallest difference of the two best logits: {smallest:.6f}")
    print(f"perplexity of prompts.txt ({tokens.numel()} tokens): {math.exp(float(loss)):.6f}")


if __name__ == "__main__":
    main()
