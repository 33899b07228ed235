"""Alternates flagperf's loader with torchvision's under the same machine load: images per second and their ratio.

    python benches/loading_side_by_side.py PROGRAM DIR [TURNS [WORKERS [BATCH [TRANSFORMS]]]]

PROGRAM is the built benchmark: `cargo bench --bench loading --no-run` prints its path.
"""

import statistics
import subprocess
import sys
from pathlib import Path

TORCHVISION_COMMAND = [sys.executable, str(Path(__file__).with_name("loading_torchvision.py"))]


def rate(command: list[str]) -> float:
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return statistics.median(map(float, lines))


def main(program: str, directory: str, turns="5", workers="2", batch="32", transforms="validation") -> None:
    options = [directory, workers, batch, "3", transforms]
    ratios = []
    for turn in range(int(turns)):
        flagperf, torchvision = rate([program, *options]), rate([*TORCHVISION_COMMAND, *options])
        ratios.append(flagperf / torchvision)
        rates = f"flagperf {flagperf:.0f} images/s, torchvision {torchvision:.0f} images/s"
        print(f"turn {turn}: {rates}, {flagperf / torchvision:.2f} times")
    print(f"median {statistics.median(ratios):.2f} times, {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
