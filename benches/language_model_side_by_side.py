"""Compares the case smollm2_135m with Hugging Face's transformers: the same weights, prompts and batches, in one run.

    python3 -m pip install torch transformers safetensors
    python3 benches/language_model_side_by_side.py PROGRAM DATA [--compiler rten] [--batch 2] [--turns 2] [--new-tokens 64]

PROGRAM is the built `flagperf`, DATA the case's data directory with the files that fetch.py wrote. Each turn runs the
case once, which measures the framework and the compiler, and then the loop over transformers: greedy, in fp32, with its
own cache, and with as many threads as the machine has processors. The table has the median of the turns, and the ratio
of each engine to transformers. A prompt is padded to 64 tokens, as in the case; padding does not count.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

LENGTH = 64
DATASET = Path(__file__).resolve().parent.parent / "datasets/smollm2_135m"


def transformers_loop(data, batch, new_tokens):
    """Returns a function that answers all prompts and returns (prefill tokens/s, decode tokens/s, tokens)."""
    import torch

    sys.path.insert(0, str(DATASET))
    from make_prompts import load_model

    model = load_model(data)
    lines = [json.loads(line) for line in (data / "prompts.jsonl").read_text(encoding="utf-8").splitlines()]
    prompts = [line["tokens"] for line in lines]

    @torch.inference_mode()
    def answer():
        prefill, decode, real, answers = 0.0, 0.0, 0, []
        for first in range(0, len(prompts), batch):
            rows = prompts[first : first + batch]
            real += sum(len(row) for row in rows)
            ids = torch.tensor([[0] * (LENGTH - len(row)) + row for row in rows])
            mask = torch.tensor([[0] * (LENGTH - len(row)) + [1] * len(row) for row in rows])
            positions = (mask.cumsum(1) - 1).clamp(min=0)
            cache, tokens = None, []
            for step in range(new_tokens):
                start = time.perf_counter()
                output = model(
                    input_ids=ids,
                    attention_mask=mask,
                    position_ids=positions,
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
                cache = output.past_key_values
                ids = output.logits[:, -1].argmax(-1, keepdim=True)
                mask = torch.cat([mask, torch.ones_like(ids)], 1)
                positions = positions[:, -1:] + 1
                seconds = time.perf_counter() - start
                prefill, decode = (prefill + seconds, decode) if step == 0 else (prefill, decode + seconds)
                tokens.append(ids)
            answers += torch.cat(tokens, 1).tolist()
        return real / prefill, len(prompts) * (new_tokens - 1) / decode, answers

    return answer


def run_case(program, data, compiler, batch, new_tokens):
    """Runs the case and returns (prefill tokens/s, decode tokens/s) of each engine."""
    settings = {"weights": "generated/model.safetensors", "compiler": compiler, "batch_size": batch}
    settings |= {"new_tokens": new_tokens} if new_tokens != 64 else {}
    command = [program, "run", "--case", "smollm2_135m", "--data", str(data), "--json"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    output = subprocess.run(command, capture_output=True, text=True, check=False)
    if output.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {output.returncode}\n{output.stderr}")
    rates = {}
    for phase in json.loads(output.stdout.splitlines()[-1] if output.stdout.count("\n") < 2 else output.stdout)["phases"]:
        spans = phase["measured"][0]["spans"]
        rates[phase["engine"]["name"]] = [spans[name]["throughput_items_per_s"] for name in ("prefill", "decode")]
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("data", type=Path)
    parser.add_argument("--compiler", default="rten")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--new-tokens", type=int, default=64)
    run = parser.parse_args()
    answer = transformers_loop(run.data, run.batch, run.new_tokens)
    rates = {}
    for _ in range(run.turns):
        turn = run_case(run.program, run.data.resolve(), run.compiler, run.batch, run.new_tokens)
        turn["transformers"] = answer()[:2]
        for name, pair in turn.items():
            rates.setdefault(name, []).append(pair)
    median = {name: [statistics.median(column) for column in zip(*pairs)] for name, pairs in rates.items()}
    print(f"{'engine':<16}{'prefill tokens/s':>18}{'ratio':>8}{'decode tokens/s':>18}{'ratio':>8}")
    for name, (prefill, decode) in median.items():
        ratios = [own / theirs for own, theirs in zip((prefill, decode), median["transformers"])]
        print(f"{name:<16}{prefill:>18.1f}{ratios[0]:>8.2f}{decode:>18.2f}{ratios[1]:>8.2f}")


main()
