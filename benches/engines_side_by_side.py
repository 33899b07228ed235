"""Our engines and the same libraries driven by their own Python API, in turns: samples a second and their ratio.

    python benches/engines_side_by_side.py PROGRAM MODEL.onnx [TURNS [SECONDS [THREADS [ENGINES]]]]

PROGRAM is the built bench: `cargo bench --bench engine_rate --no-run` prints its path. The Python needs the packages
`onnxruntime` and `openvino`; for OpenVINO, both sides open the very same library file. Prints a table: rates by the
median step of each turn, and by the quickest step of all, which neighbours on the machine disturb least.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy
import onnxruntime
import openvino

BATCHES = [1, 8]


class Ours:
    """The bench beside this file, in a process of its own."""

    def __init__(self, program, engine, model, batch, threads, options):
        command = [program, engine, model, str(batch), str(threads), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self.process.stdout.readline().strip()

    def turn(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return [float(rate) for rate in self.process.stdout.readline().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Theirs:
    """A function that computes one batch."""

    def __init__(self, step, batch):
        self.step, self.batch = step, batch

    def turn(self, seconds):
        self.step(), self.step()
        times, begin = [], time.perf_counter()
        while time.perf_counter() - begin < seconds:
            start = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - start)
        return [self.batch / statistics.median(times), self.batch / min(times)]


def images(shape, batch):
    count = batch * int(numpy.prod(shape))
    return (numpy.arange(count) % 255 / 255).astype("float32").reshape(batch, *shape)


def with_openvino(model, batch, threads):
    core = openvino.Core()
    properties = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
    }
    compiled = core.compile_model(model, "CPU", properties)
    request = compiled.create_infer_request()
    shape = [size.get_length() for size in list(compiled.inputs[0].partial_shape)[1:]]
    batch_of_images = images(shape, batch)
    return Theirs(lambda: request.infer([batch_of_images], share_inputs=True, share_outputs=True), batch)


def with_onnxruntime(model, batch, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    [tensor] = session.get_inputs()
    inputs = {tensor.name: images(tensor.shape[1:], batch)}
    return Theirs(lambda: session.run(None, inputs), batch)


def library(package, pattern):
    return f"library_path={next(Path(package.__file__).parent.glob(pattern))}"


ENGINES = {
    "openvino": (with_openvino, lambda: [library(openvino, "libs/libopenvino_c.so*")]),
    "onnxruntime": (with_onnxruntime, lambda: [library(onnxruntime, "capi/libonnxruntime.so*")]),
}


def in_turns(ours, theirs, turns, seconds):
    """Rates of both sides, a pair a turn; who begins changes."""
    pairs = []
    for turn in range(turns):
        sides = [ours, theirs] if turn % 2 else [theirs, ours]
        rates = {side: side.turn(seconds) for side in sides}
        pairs.append((rates[ours], rates[theirs]))
    return pairs


def row(pairs):
    (mine, best), (other, best_other) = [
        (statistics.median(median for median, _ in side), max(quickest for _, quickest in side)) for side in zip(*pairs)
    ]
    ratio = statistics.median(mine[0] / other[0] for mine, other in pairs)
    return f"{mine:.2f} | {other:.2f} | {ratio:.3f} | {best:.2f} | {best_other:.2f} | {best / best_other:.3f}"


def main(program, model, turns="15", seconds="2", threads="2", engines="openvino,onnxruntime"):
    print("| engine | version | batch | threads | ours | Python | ratio | ours, quickest | Python, quickest | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for engine in engines.split(","):
        python, options = ENGINES[engine]
        for batch in BATCHES:
            ours = Ours(program, engine, model, batch, threads, options())
            pairs = in_turns(ours, python(model, batch, int(threads)), int(turns), float(seconds))
            ours.close()
            print(f"| {engine} | {ours.version} | {batch} | {threads} | {row(pairs)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
