"""Alternates flagperf's engines with bare loops over the libraries' own Python APIs: samples per second and ratios.

    python benches/engines_side_by_side.py PROGRAM MODEL.onnx [--rows openvino,onnxruntime,...] [--libtorch PLUG-IN]

PROGRAM is the built benchmark: `cargo bench --bench engine --no-run` prints its path. MODEL.onnx is the ResNet-50 that
`flagperf run --case resnet50` exports into the run's folder, in fp16 for `--device cuda`. The Python interpreter needs
the packages of the selected rows; both sides open the same library file. In each step a bare loop does what `core`
does: input in (pinned) host memory, transfer, compute, synchronise. Prints a table with the rates from the median step
of each turn, and from the fastest step of all turns, which other load on the machine disturbs least. For a device it
also prints the bare loop's rate with the input resident on the device.
"""

import argparse
import importlib
import statistics
import subprocess
import time
from pathlib import Path

import numpy

ENGINES = Path(__file__).resolve().parent.parent / "vendors"


class FlagperfEngine:
    """The benchmark `engine`, in a process of its own."""

    def __init__(self, program, engine, model, batch, threads, options):
        command = [program, engine, model, str(batch), str(threads), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self.process.stdout.readline().strip()
        if not self.version:
            raise SystemExit(f"{' '.join(command)}: exited with {self.process.wait()}")

    def run_turn(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return [float(rate) for rate in self.process.stdout.readline().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class BareLoop:
    """A function that runs one batch and, optionally, one that runs a batch that is already on the device."""

    def __init__(self, batch, step, resident=None):
        self.batch, self.step, self.resident = batch, step, resident

    def run_turn(self, seconds, step=None):
        step = step or self.step
        step(), step()
        times, begin = [], time.perf_counter()
        while time.perf_counter() - begin < seconds:
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        return [self.batch / statistics.median(times), self.batch / min(times)]


def images(batch, dtype="float32"):
    """Returns the same numbers between 0 and 1 as the benchmark `engine`."""
    shape = (batch, 3, 224, 224)
    return (numpy.arange(numpy.prod(shape)) % 255 / 255).astype(dtype).reshape(shape)


def pinned(batch):
    """Returns fp16 images in pinned memory, which the device reads directly."""
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
    return BareLoop(run.batch, lambda: request.infer([batch], share_inputs=True, share_outputs=True))


def onnxruntime_cpu(run):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = run.threads
    session = onnxruntime.InferenceSession(run.model, options, providers=["CPUExecutionProvider"])
    inputs = {session.get_inputs()[0].name: images(run.batch)}
    return BareLoop(run.batch, lambda: session.run(None, inputs))


def onnxruntime_cuda(graph):
    def loop(run):
        import onnxruntime
        import torch

        options = {"prefer_nhwc": "1", "enable_cuda_graph": "1" if graph else "0"}
        session = onnxruntime.InferenceSession(run.model, providers=[("CUDAExecutionProvider", options)])
        binding, name = session.io_binding(), session.get_inputs()[0].name
        host = pinned(run.batch).numpy()
        on_device = onnxruntime.OrtValue.ortvalue_from_numpy(host, "cuda", 0)
        binding.bind_output(session.get_outputs()[0].name, "cuda")

        def resident():
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()

        def step():
            if graph:
                on_device.update_inplace(host)
            else:
                binding.bind_cpu_input(name, host)
            resident()

        def resident_alone():
            binding.bind_ortvalue_input(name, on_device)
            resident()

        binding.bind_ortvalue_input(name, on_device)
        resident()
        torch.cuda.synchronize()
        return BareLoop(run.batch, step, resident_alone)

    return loop


def torchvision_network(device, folded):
    """Returns torchvision's ResNet-50, channels last, optionally with batch normalizations folded into convolutions."""
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
        model, batch = torchvision_network("cpu", folded), torch.from_numpy(images(run.batch))

        @torch.inference_mode()
        def step():
            model(batch)

        return BareLoop(run.batch, step)

    return loop


def cuda_loop(model, batch):
    """Returns a bare loop for a torch model on the device."""
    import torch

    host = pinned(batch)
    on_device = host.to("cuda")

    @torch.inference_mode()
    def step():
        model(host.to("cuda", non_blocking=True))
        torch.cuda.synchronize()

    @torch.inference_mode()
    def resident():
        model(on_device)
        torch.cuda.synchronize()

    return BareLoop(batch, step, resident)


def eager_cuda(folded):
    def loop(run):
        import torch

        torch.backends.cudnn.benchmark = True
        return cuda_loop(torchvision_network("cuda", folded), run.batch)

    return loop


def graph_cuda(run):
    import torch

    torch.backends.cudnn.benchmark = True
    model, host = torchvision_network("cuda", folded=True), pinned(run.batch)
    with torch.inference_mode():
        on_device, graph = host.to("cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                model(on_device)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            model(on_device)

    def resident():
        graph.replay()
        torch.cuda.synchronize()

    def step():
        on_device.copy_(host, non_blocking=True)
        resident()

    return BareLoop(run.batch, torch.inference_mode()(step), resident)


def compiled_cuda(run):
    import onnx2torch
    import torch

    # The same settings as in vendors/nvidia/engines/inductor.py.
    torch.backends.cudnn.benchmark = True
    model = onnx2torch.convert(run.model).eval().to("cuda").to(memory_format=torch.channels_last)
    return cuda_loop(torch.compile(model, mode="max-autotune", dynamic=False), run.batch)


def library(package, pattern):
    folder = Path(importlib.import_module(package).__file__).parent
    return f"library_path={next(folder.glob(pattern))}"


def ort_cuda_options(graph):
    options = '{"prefer_nhwc": "1"%s}' % (', "enable_cuda_graph": "1"' if graph else "")
    return lambda: ["provider=cuda", f"provider_options={options}", library("onnxruntime", "capi/libonnxruntime.so*")]


# For each row: the engine, its options, and the bare loop.
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


def alternate(flagperf, bare_loop, turns, seconds):
    """Returns the rates of both sides, one pair per turn; the sides alternate in going first."""
    pairs = []
    for turn in range(turns):
        sides = [flagperf, bare_loop] if turn % 2 else [bare_loop, flagperf]
        rates = {side: side.run_turn(seconds) for side in sides}
        pairs.append((rates[flagperf], rates[bare_loop]))
    return pairs


def row(pairs):
    (own, best), (other, best_other) = [
        (statistics.median(median for median, _ in side), max(fastest for _, fastest in side)) for side in zip(*pairs)
    ]
    ratio = statistics.median(own[0] / other[0] for own, other in pairs)
    return f"{own:.2f} | {other:.2f} | {ratio:.3f} | {best:.2f} | {best_other:.2f} | {best / best_other:.3f}"


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--device", choices=list(ROWS), default="cpu")
    parser.add_argument("--rows", help="comma-separated names of rows; by default all rows that can run")
    parser.add_argument("--libtorch", help="the plug-in that `flagperf backend install libtorch` names")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    rows = ROWS[arguments.device]
    print("| row | version | batch | flagperf | Python | ratio | flagperf, best | Python, best | ratio | resident |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    available = [name for name in rows if arguments.libtorch or "libtorch" not in name]
    names = arguments.rows.split(",") if arguments.rows else available
    for name in names:
        engine, options, loop = rows[name]
        for batch in map(int, arguments.batches.split(",")):
            run = argparse.Namespace(model=arguments.model, batch=batch, threads=arguments.threads)
            program = arguments.libtorch if engine == "libtorch" else engine
            flagperf = FlagperfEngine(arguments.program, program, run.model, batch, run.threads, options())
            bare_loop = loop(run)
            pairs = alternate(flagperf, bare_loop, arguments.turns, arguments.seconds)
            resident = ""
            if bare_loop.resident:
                resident = f"{bare_loop.run_turn(arguments.seconds, bare_loop.resident)[0]:.2f}"
            flagperf.close()
            print(f"| {name} | {flagperf.version} | {batch} | {row(pairs)} | {resident} |", flush=True)


if __name__ == "__main__":
    main()
