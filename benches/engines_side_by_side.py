"""Our engines and the same libraries in a bare loop of their own Python API, in turns: samples a second and their ratio.

    python benches/engines_side_by_side.py PROGRAM MODEL.onnx [--rows openvino,onnxruntime,...] [--libtorch PLUG-IN]

PROGRAM is the built bench: `cargo bench --bench engine --no-run` prints its path. MODEL.onnx is ResNet-50 as `flagperf run
--case resnet50` leaves it in the run's folder; with `--device cuda` one in f16. The Python needs the packages of the rows
that are asked for; both sides open the very same library file. A bare loop does what core does: input in (pinned) host memory,
transfer, compute, synchronise, each step. Prints a table: rates by the median step of each turn, and by the quickest step
of all, which neighbours on the machine disturb least; on a device also the bare loop's rate with the input resident there.
"""

import argparse
import importlib
import statistics
import subprocess
import time
from pathlib import Path

import numpy

ENGINES = Path(__file__).resolve().parent.parent / "vendors"


class Ours:
    """The bench beside this file, in a process of its own."""

    def __init__(self, program, engine, model, batch, threads, options):
        command = [program, engine, model, str(batch), str(threads), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self.process.stdout.readline().strip()
        if not self.version:
            raise SystemExit(f"{' '.join(command)}: ended with {self.process.wait()}")

    def turn(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return [float(rate) for rate in self.process.stdout.readline().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Theirs:
    """A function that computes one batch, and perhaps one that computes a batch which is on the device already."""

    def __init__(self, batch, step, resident=None):
        self.batch, self.step, self.resident = batch, step, resident

    def turn(self, seconds, step=None):
        step = step or self.step
        step(), step()
        times, begin = [], time.perf_counter()
        while time.perf_counter() - begin < seconds:
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        return [self.batch / statistics.median(times), self.batch / min(times)]


def images(batch, dtype="float32"):
    """Numbers between 0 and 1, as the bench has them."""
    shape = (batch, 3, 224, 224)
    return (numpy.arange(numpy.prod(shape)) % 255 / 255).astype(dtype).reshape(shape)


def pinned(batch):
    """Images in f16, in memory that the device reads directly."""
    import torch

    return torch.from_numpy(images(batch, "float16")).pin_memory()


def openvino_cpu(run):
    import openvino

    properties = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": run.threads,
    }
    request = openvino.Core().compile_model(run.model, "CPU", properties).create_infer_request()
    batch = images(run.batch)
    return Theirs(run.batch, lambda: request.infer([batch], share_inputs=True, share_outputs=True))


def onnxruntime_cpu(run):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = run.threads
    session = onnxruntime.InferenceSession(run.model, options, providers=["CPUExecutionProvider"])
    inputs = {session.get_inputs()[0].name: images(run.batch)}
    return Theirs(run.batch, lambda: session.run(None, inputs))


def onnxruntime_cuda(graph):
    def loop(run):
        import onnxruntime
        import torch

        options = {"prefer_nhwc": "1", "enable_cuda_graph": "1" if graph else "0"}
        session = onnxruntime.InferenceSession(run.model, providers=[("CUDAExecutionProvider", options)])
        binding, name = session.io_binding(), session.get_inputs()[0].name
        host = pinned(run.batch).numpy()
        there = onnxruntime.OrtValue.ortvalue_from_numpy(host, "cuda", 0)
        binding.bind_output(session.get_outputs()[0].name, "cuda")

        def resident():
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()

        def step():
            if graph:
                there.update_inplace(host)
            else:
                binding.bind_cpu_input(name, host)
            resident()

        def resident_alone():
            binding.bind_ortvalue_input(name, there)
            resident()

        binding.bind_ortvalue_input(name, there)
        resident()
        torch.cuda.synchronize()
        return Theirs(run.batch, step, resident_alone)

    return loop


def network(device, folded):
    """torchvision's ResNet-50, channels last; each batch normalization folded into its convolution, if that is asked."""
    import torch
    import torchvision
    from torch.fx.experimental.optimization import fuse

    model = torchvision.models.resnet50(weights=None).eval()
    model = fuse(model) if folded else model
    model = model.half() if device == "cuda" else model
    return model.to(device, memory_format=torch.channels_last)


def eager_cpu(folded):
    def loop(run):
        import torch

        torch.set_num_threads(run.threads)
        model, batch = network("cpu", folded), torch.from_numpy(images(run.batch))

        @torch.inference_mode()
        def step():
            model(batch)

        return Theirs(run.batch, step)

    return loop


def on_cuda(model, batch):
    """A bare loop over a model of torch's on the device."""
    import torch

    host = pinned(batch)
    there = host.to("cuda")

    @torch.inference_mode()
    def step():
        model(host.to("cuda", non_blocking=True))
        torch.cuda.synchronize()

    @torch.inference_mode()
    def resident():
        model(there)
        torch.cuda.synchronize()

    return Theirs(batch, step, resident)


def eager_cuda(folded):
    def loop(run):
        import torch

        torch.backends.cudnn.benchmark = True
        return on_cuda(network("cuda", folded), run.batch)

    return loop


def graph_cuda(run):
    import torch

    torch.backends.cudnn.benchmark = True
    model, host = network("cuda", folded=True), pinned(run.batch)
    with torch.inference_mode():
        there, graph = host.to("cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                model(there)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            model(there)

    def resident():
        graph.replay()
        torch.cuda.synchronize()

    def step():
        there.copy_(host, non_blocking=True)
        resident()

    return Theirs(run.batch, torch.inference_mode()(step), resident)


def compiled_cuda(run):
    import onnx2torch
    import torch

    # As vendors/nvidia/engines/inductor.py has it.
    torch.backends.cudnn.benchmark = True
    model = onnx2torch.convert(run.model).eval().to("cuda").to(memory_format=torch.channels_last)
    return on_cuda(torch.compile(model, mode="max-autotune", dynamic=False), run.batch)


def library(package, pattern):
    folder = Path(importlib.import_module(package).__file__).parent
    return f"library_path={next(folder.glob(pattern))}"


def ort_cuda_options(graph):
    options = '{"prefer_nhwc": "1"%s}' % (', "enable_cuda_graph": "1"' if graph else "")
    return lambda: ["provider=cuda", f"provider_options={options}", library("onnxruntime", "capi/libonnxruntime.so*")]


# Our engine and its options, the bare loop.
ROWS = {
    "cpu": {
        "openvino": ("openvino", lambda: [library("openvino", "libs/libopenvino_c.so*")], openvino_cpu),
        "onnxruntime": ("onnxruntime", lambda: [library("onnxruntime", "capi/libonnxruntime.so*")], onnxruntime_cpu),
        "libtorch against eager": ("libtorch", list, eager_cpu(folded=False)),
        "libtorch against folded": ("libtorch", list, eager_cpu(folded=True)),
    },
    "cuda": {
        "onnxruntime": ("onnxruntime", ort_cuda_options(graph=False), onnxruntime_cuda(graph=False)),
        "onnxruntime graph": ("onnxruntime", ort_cuda_options(graph=True), onnxruntime_cuda(graph=True)),
        "libtorch against eager": ("libtorch", lambda: ["device=cuda:0"], eager_cuda(folded=False)),
        "libtorch against folded": ("libtorch", lambda: ["device=cuda:0"], eager_cuda(folded=True)),
        "libtorch graph": ("libtorch", lambda: ["device=cuda:0", "cuda_graph=true"], graph_cuda),
        "inductor": (str(ENGINES / "nvidia/engines/inductor.py"), list, compiled_cuda),
    },
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


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--device", choices=list(ROWS), default="cpu")
    parser.add_argument("--rows", help="names of rows with commas between; all that can be had when absent")
    parser.add_argument("--libtorch", help="the plug-in that `flagperf backend install libtorch` names")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main():
    given = arguments()
    rows = ROWS[given.device]
    print("| row | version | batch | ours | Python | ratio | ours, quickest | Python, quickest | ratio | resident |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    names = given.rows.split(",") if given.rows else [name for name in rows if given.libtorch or "libtorch" not in name]
    for name in names:
        engine, options, loop = rows[name]
        for batch in map(int, given.batches.split(",")):
            run = argparse.Namespace(model=given.model, batch=batch, threads=given.threads)
            program = given.libtorch if engine == "libtorch" else engine
            ours = Ours(given.program, program, given.model, batch, given.threads, options())
            theirs = loop(run)
            pairs = in_turns(ours, theirs, given.turns, given.seconds)
            resident = f"{theirs.turn(given.seconds, theirs.resident)[0]:.2f}" if theirs.resident else ""
            ours.close()
            print(f"| {name} | {ours.version} | {batch} | {row(pairs)} | {resident} |", flush=True)


if __name__ == "__main__":
    main()
