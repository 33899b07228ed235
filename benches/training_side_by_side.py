"""Compares a training with PyTorch's: the same network, optimizer, precision and batch, turn by turn in one run.

    python3 -m pip install torch torchvision transformers
    python3 benches/training_side_by_side.py PROGRAM CASE FRAMEWORK.. [--vendor cpu] [--batch 16] [--set image_size=64]
        [--torch eager,compile] [--turns 2] [--steps 8] [--precision fp32] [--data DIR]

PROGRAM is the built `flagperf`, CASE is `resnet50`, `smollm2_135m` or `bert`, and the frameworks are those of the vendor. A
turn of flagperf trains `--steps` steps; its figure is the median of the core times of the steps, with the copy of the batch to
the device. One of PyTorch trains the network of torchvision or transformers on a batch that stays on the device. The table has
the median of all turns, samples per second, and the ratio to the first row of PyTorch.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time


def flagperf_turn(run, framework):
    """Returns the median time of a step of a training, and its fastest one."""
    settings = [f"batch_size={run.batch}", f"max_steps={run.steps}", f"precision={run.precision}", "target={}"]
    settings += ["eval_batch_size=1", f"log_freq={run.steps}", *run.set]
    command = [run.program, "run", "--json", "--vendor", run.vendor, "--case", f"{run.case}:{framework}:any:1:1:1"]
    command += [word for setting in settings for word in ("--set", setting)]
    command += ["--data", run.data] if run.data else []
    done = subprocess.run(command, capture_output=True, text=True)
    phases = json.loads(done.stdout)["phases"] if done.stdout.startswith("{") else []
    if not any(phase["measured"] for phase in phases):
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr}")
    latency = phases[0]["measured"][0]["latency"]
    return latency["p50_s"], latency["min_s"]


def network(run, torch):
    """Returns a network, its optimizer, and a function that returns the loss of a call of the network."""
    device, optim = run.device, torch.optim
    if run.case == "resnet50":
        from torchvision.models import resnet50

        model = resnet50().to(device, memory_format=torch.channels_last)
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True)
        images = torch.randn(run.batch, 3, run.size("image_size", 224), run.size("image_size", 224), device=device)
        images = images.contiguous(memory_format=torch.channels_last)
        labels = torch.randint(0, 1000, (run.batch,), device=device)
        return model, optimizer, lambda call: torch.nn.functional.cross_entropy(call(images), labels)
    import transformers

    length = run.size("seq_length", 1024 if run.case == "smollm2_135m" else 512)
    tokens = torch.randint(5, 30000, (run.batch, length), device=device)
    if run.case == "bert":
        config = transformers.BertConfig(
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        model = transformers.BertForMaskedLM(config).to(device)
        labels = torch.where(torch.rand(tokens.shape, device=device) < 0.15, tokens, -100)
    else:
        config = transformers.LlamaConfig(
            vocab_size=49152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            tie_word_embeddings=True,
        )
        model, labels = transformers.LlamaForCausalLM(config).to(device), tokens
    optimizer = optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    return model, optimizer, lambda call: call(input_ids=tokens, labels=labels).loss


def torch_loop(run, how):
    """Returns a function that trains and returns the median time of a step and the fastest one."""
    import torch

    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    model, optimizer, loss_of = network(run, torch)
    call = torch.compile(model) if how == "compile" else model
    half = run.precision == "bf16"

    def step():
        with torch.autocast(run.device, torch.bfloat16, enabled=half):
            loss = loss_of(call)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if run.device == "cuda":
            torch.cuda.synchronize()

    def turn():
        times = []
        for _ in range(run.steps + 3):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        return statistics.median(times[3:]), min(times[3:])

    return turn


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("case", choices=["resnet50", "smollm2_135m", "bert"])
    parser.add_argument("frameworks", nargs="+")
    parser.add_argument("--vendor", default="cpu")
    parser.add_argument("--device", default="cpu", help="of PyTorch: cpu or cuda")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--torch", default="eager")
    parser.add_argument("--data")
    parser.add_argument("--set", action="append", default=[])
    run = parser.parse_args()
    sizes = dict(setting.split("=", 1) for setting in run.set)
    run.size = lambda key, default: int(sizes.get(key, default))

    rows = {f"torch {how}": torch_loop(run, how) for how in run.torch.split(",")}
    rows |= {name: (lambda name=name: flagperf_turn(run, name)) for name in run.frameworks}
    times = {name: [] for name in rows}
    for _ in range(run.turns):
        for name, turn in rows.items():
            times[name].append(turn())
            print(f"{name}: {1e3 * times[name][-1][0]:.1f} ms", file=sys.stderr)
    first = statistics.median(median for median, _ in times[next(iter(rows))])
    print(f"{'':<16} {'median ms':>10} {'fastest':>9} {'samples/s':>10} {'ratio':>6}")
    for name, found in times.items():
        median, fastest = statistics.median(m for m, _ in found), min(f for _, f in found)
        print(f"{name:<16} {1e3 * median:>10.1f} {1e3 * fastest:>9.1f} {run.batch / median:>10.1f} {first / median:>6.2f}")


main()
