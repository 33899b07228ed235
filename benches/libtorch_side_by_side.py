"""The libtorch plug-in and PyTorch eager in turns, so that both meet the same machine: images a second and their ratio.

    python benches/libtorch_side_by_side.py PROGRAM LIBRARY RESNET50.onnx [BATCH [THREADS [TURNS]]]

PROGRAM is the built bench: `cargo bench --bench engine --no-run` prints its path. LIBRARY is the plug-in that `flagperf
backend install libtorch` names, and `flagperf run --case resnet50` leaves the ONNX file in `onnxs/`.
"""

import statistics
import subprocess
import sys
from pathlib import Path

EAGER = [sys.executable, str(Path(__file__).with_name("libtorch_eager.py"))]
SECONDS = "4"


def rate(command: list[str]) -> float:
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return statistics.median(map(float, lines))


def main(program: str, library: str, model: str, batch: str = "8", threads: str = "2", turns: str = "5") -> None:
    ours = {
        "ours": [program, library, model, batch, threads, SECONDS],
        "ours nchw": [program, library, model, batch, threads, SECONDS, '{"channels_last": false}'],
    }
    layouts = ["nchw", "nhwc", "folded"]
    theirs = {f"eager {layout}": [*EAGER, batch, threads, SECONDS, layout] for layout in layouts}
    ratios = {name: [] for name in theirs}
    for turn in range(int(turns)):
        rates = {name: rate(command) for name, command in (ours | theirs).items()}
        print(f"turn {turn}:", ", ".join(f"{name} {value:.1f}" for name, value in rates.items()), flush=True)
        for name in theirs:
            ratios[name].append(rates["ours"] / rates[name])
    for name, values in ratios.items():
        print(f"ours / {name}: median {statistics.median(values):.2f}, {min(values):.2f} to {max(values):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
