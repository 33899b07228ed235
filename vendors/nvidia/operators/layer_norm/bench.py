"""Measures LayerNorm libraries. Usage: bench.py [--quick] [--types f16,f32,bf16] LIBRARY...

All contenders run in CUDA graphs over rotating buffers beyond the second-level cache. `share` is the bandwidth with X and
Y counted once, over the best of a 256 MiB copy so far in the same run. With --quick only the libraries run.
"""
import argparse
import itertools
import os
import statistics
import time

import torch
import torch.nn.functional as F

from operator_library import Library

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true")
parser.add_argument("--types", default="f16,bf16,f32")
parser.add_argument("--widths", default="64,256,768,1024,2048,4096,8192,16384")
parser.add_argument("--no-plain", action="store_true")
parser.add_argument("libraries", nargs="+")
arguments = parser.parse_args()

ELEMENTS = 2**25
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
libraries = [(os.path.basename(path)[:-3].replace("liblayer_norm", "ours"), Library(os.path.abspath(path)))
             for path in arguments.libraries]
SETS = 4


def timed(calls, repeats=9, launches=None):
    """The median time of a call in seconds, from graphs of all calls in turn."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        kept = [call() for call in calls]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    kept = []
    launches = launches or 2 * len(calls)
    with torch.cuda.graph(graph):
        for i in range(launches):
            result = calls[i % len(calls)]()
            if i < len(calls):
                kept.append(result)
    for _ in range(2):
        graph.replay()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / launches)
    del graph, kept
    return statistics.median(times)


def operator(library, plain=False, **tensors):
    call = library.prepare(plain=plain, **tensors)

    def run():
        reason = call(torch.cuda.current_stream().cuda_stream)
        assert reason is None, reason

    return run


def copy_bandwidth():
    pairs = [(torch.randn(2**26, device="cuda"), torch.empty(2**26, device="cuda")) for _ in range(2)]
    return 2 * 2**28 / timed([lambda a=a, b=b: b.copy_(a) for a, b in pairs])


print(torch.cuda.get_device_name(), torch.__version__)
for _ in range(20):  # The first ones are slower.
    copy = copy_bandwidth()
print(f"copy {copy / 1e12:.3f} TB/s", flush=True)

for type_name in arguments.types.split(","):
    dtype = TYPES[type_name]
    names = [name for name, _ in libraries]
    if not arguments.no_plain:
        names.append("plain")
    if not arguments.quick:
        names += ["eager", "compiled", "max-autotune"]
    print(f"\n{type_name:5}" + "".join(f"{name:>14}" for name in names), "(microseconds, share)", flush=True)
    for width in map(int, arguments.widths.split(",")):
        rows = ELEMENTS // width
        copy = max(copy, copy_bandwidth())
        sets = [(torch.randn(rows, width, device="cuda").to(dtype),
                 torch.empty(rows, width, dtype=dtype, device="cuda")) for _ in range(SETS)]
        scale, bias = torch.randn(width, device="cuda").to(dtype), torch.randn(width, device="cuda").to(dtype)
        results = []
        for _, library in libraries:
            results.append(timed([operator(library, x=x, y=y, scale=scale, bias=bias) for x, y in sets]))
        if not arguments.no_plain:
            results.append(timed([operator(libraries[0][1], True, x=x, y=y, scale=scale, bias=bias) for x, y in sets]))
        if not arguments.quick:
            def layer_norm(x):
                return F.layer_norm(x, (width,), scale, bias, 1e-5)
            results.append(timed([lambda x=x: layer_norm(x) for x, _ in sets]))
            for mode in (None, "max-autotune-no-cudagraphs"):
                torch._dynamo.reset()
                with torch.inference_mode():
                    compiled = torch.compile(layer_norm, dynamic=False, mode=mode)
                    results.append(timed([lambda x=x: compiled(x) for x, _ in sets]))
        size = 2 * rows * width * sets[0][0].element_size()
        print(f"{width:5}" + "".join(f"{t * 1e6:8.1f}{size / t / copy:6.2f}" for t in results), flush=True)
        del sets
print(f"copy again {copy_bandwidth() / 1e12:.3f} TB/s, best {copy / 1e12:.3f} TB/s")

print("\nsmall shapes, microseconds per launch in a graph of 100 launches")
names = [name for name, _ in libraries]
if not arguments.quick:
    names += ["eager", "compiled"]
print(f"{'':26}" + "".join(f"{name:>14}" for name in names))
for rows, dtype, with_residual in itertools.product((850, 300), (torch.float32, torch.float16), (False, True)):
    x, residual = (torch.randn(rows, 256, device="cuda").to(dtype) for _ in range(2))
    y = torch.empty_like(x)
    scale, bias = (torch.randn(256, device="cuda").to(dtype) for _ in range(2))
    results = []
    options = dict(x=x, y=y, scale=scale, bias=bias, residual=residual if with_residual else None)
    for _, library in libraries:
        results.append(timed([operator(library, **options)], launches=100))
    if not arguments.quick:
        def layer_norm(x, residual):
            return F.layer_norm(x + residual if with_residual else x, (256,), scale, bias, 1e-5)
        results.append(timed([lambda: layer_norm(x, residual)], launches=100))
        torch._dynamo.reset()
        with torch.inference_mode():
            compiled = torch.compile(layer_norm, dynamic=False)
            results.append(timed([lambda: compiled(x, residual)], launches=100))
    print(f"[{rows}, 256] {str(dtype)[6:]:8}{'residual' if with_residual else '':8}" +
          "".join(f"{t * 1e6:14.2f}" for t in results), flush=True)

print("\nhost time of one call, microseconds, ctypes included")
for name, library in libraries:
    for width in (256, 4096):
        x = torch.randn(4, width, device="cuda").half()
        y = torch.empty_like(x)
        call, stream = library.prepare(x, y), torch.cuda.current_stream().cuda_stream
        call(stream)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(500):
            call(stream)
        taken = time.perf_counter() - start
        torch.cuda.synchronize()
        print(f"{name} {width}: {taken / 500 * 1e6:.2f}")
