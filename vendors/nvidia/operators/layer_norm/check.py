"""Compares a LayerNorm library with a float64 reference. Usage: check.py LIBRARY [cpu|cuda] [quick]"""
import itertools
import os
import sys

import torch

from operator_library import Library

WIDTHS = [1, 2, 3, 7, 31, 32, 33, 64, 127, 256, 257, 510, 768, 1000, 1023, 1024, 1025, 1026, 2048, 4096, 5120, 8192,
          12288, 16384, 32768, 100000, 100001, 262144]
HARD_WIDTHS = [2, 3, 33, 64, 256, 1000, 1024, 1025, 2048, 16384, 200000]
TYPES = [torch.float32, torch.float16, torch.bfloat16]
ULP = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
# The smallest differences that the output type can express near zero.
TINY = {torch.float32: 0, torch.float16: 2.0**-24, torch.bfloat16: 0}
GUARD = 64

library = Library(os.path.abspath(sys.argv[1]))
device = sys.argv[2] if len(sys.argv) > 2 else "cuda"
quick = "quick" in sys.argv
on_gpu = device == "cuda"
failures, checks = [], 0
worst = {}


def report(what, text):
    failures.append((what, text))
    kind = (what.split()[2:], text.split()[0])  # without the width and the type
    if sum(kind == (w.split()[2:], t.split()[0]) for w, t in failures) <= 4 and len(failures) < 1000:
        print("FAIL", what, text, flush=True)


def placed(tensor, offset):
    """A copy that starts `offset` elements after an address with 256-byte alignment."""
    buffer = torch.empty(tensor.numel() + offset, dtype=tensor.dtype, device=device)
    view = buffer[offset:].view(tensor.shape)
    view.copy_(tensor)
    return view


class Output:
    """A tensor of NaNs with NaNs around it, which must stay as they are."""

    def __init__(self, shape, dtype, offset):
        n = 1
        for size in shape:
            n *= size
        self.buffer = torch.empty(n + 2 * GUARD + offset, dtype=dtype, device=device)
        self.bytes = self.buffer.view(torch.uint8)
        self.bytes.fill_(255)
        self.first, self.count = GUARD + offset, n
        self.view = self.buffer[self.first:self.first + n].view(shape)

    def guards_intact(self):
        size = self.buffer.element_size()
        before, after = self.bytes[:self.first * size], self.bytes[(self.first + self.count) * size:]
        return bool((before == 255).all()) and bool((after == 255).all())


def reference(x, columns, scale, bias, residual, epsilon):
    value = x if residual is None else x + residual
    wide = value.double().reshape(-1, columns)
    mean = wide.mean(1, keepdim=True)
    centred = wide - mean
    deviation = ((centred * centred).mean(1, keepdim=True) + epsilon).sqrt()
    result = centred / deviation
    # What an f32 error of some units in the last place of the mean does to Y.
    unavoidable = 2.0**-22 * mean.abs() / deviation * torch.ones_like(wide)
    if scale is not None:
        result = result * scale.double().reshape(-1)
        unavoidable = unavoidable * scale.double().reshape(-1).abs()
    if bias is not None:
        result = result + bias.double().reshape(-1)
    return result.reshape(x.shape), value, unavoidable.reshape(x.shape)


def check(what, x, y_type=None, scale=None, bias=None, residual=None, want_sum=False, offset=0, epsilon=None, axis=None,
          plain=False, columns=None):
    global checks
    checks += 1
    y_type = y_type or x.dtype
    columns = columns or x.shape[-1]
    x = placed(x, offset)
    scale, bias, residual = (t if t is None else placed(t, offset) for t in (scale, bias, residual))
    y = Output(x.shape, y_type, offset)
    total = Output(x.shape, x.dtype, offset) if want_sum else None
    reason = library.run(x, y.view, scale=scale, bias=bias, residual=residual, total=total and total.view, axis=axis,
                         epsilon=epsilon, plain=plain)
    if reason:
        return report(what, reason)
    expected, value, unavoidable = reference(x, columns, scale, bias, residual, 1e-5 if epsilon is None else epsilon)
    got = y.view.double()
    finite = torch.isfinite(expected)
    if not torch.equal(torch.isnan(got), torch.isnan(expected)):
        bad = (torch.isnan(got) != torch.isnan(expected)).nonzero()
        report(what, f"NaN differs at {len(bad)} places, first {bad[0].tolist()}")
    error = (got - expected).abs()[finite]
    allowed = 1e-5 + TINY[y_type] + unavoidable[finite] + expected.abs()[finite] * (0.51 * ULP[y_type] + 2e-6)
    if error.numel():
        excess = (error / allowed).max().item()
        worst[x.dtype, y_type] = max(worst.get((x.dtype, y_type), 0), excess)
        if not excess <= 1:
            at = (error / allowed).argmax().item()
            report(what, f"error {error[at].item():.3g}, {excess:.3g} times the allowed, expected "
                   f"{expected[finite][at].item():.6g}")
    if not y.guards_intact():
        report(what, "wrote around Y")
    if total is not None:
        if not torch.equal(total.view.nan_to_num(7.5), value.nan_to_num(7.5)):
            report(what, "the sum differs")
        if not total.guards_intact():
            report(what, "wrote around the sum")


def random(shape, dtype, spread=1.0, mean=0.0):
    return (torch.randn(shape, device=device) * spread + mean).to(dtype)


torch.manual_seed(int.from_bytes(__import__("os").urandom(4), "little"))

# The table of widths. Each combination of optional arguments occurs with each width and type.
for width, dtype in itertools.product(WIDTHS, TYPES):
    if quick and width > 20000:
        continue
    narrow = [t for t in TYPES if t != dtype]
    most = max(1, min(300, (20_000 if quick else 4_000_000) // width))
    for offset, rows, plain in [(0, most, False), (1, min(most, 5), False), (0, 1, False), (0, min(most, 13), True),
                                (1, min(most, 3), True), (2, min(most, 70), False)]:
        name = f"{width} {dtype} rows={rows} offset={offset} plain={plain}"
        x, r = random((rows, width), dtype), random((rows, width), dtype)
        s, b = random(width, dtype, 0.5, 1), random(width, dtype)
        f, g = random(width, torch.float32, 0.5, 1), random(width, torch.float32)
        common = dict(offset=offset, plain=plain)
        check(name, x, **common)
        check(name + " scale bias", x, scale=s, bias=b, **common)
        check(name + " f32 scale", x, scale=f, **common)
        check(name + " f32 bias, residual", x, bias=g, residual=r, **common)
        check(name + " scale f32 bias residual sum", x, scale=s, bias=g, residual=r, want_sum=True, **common)
        for other in narrow:
            check(f"{name} to {other}", x, y_type=other, scale=f, bias=b, **common)
        check(f"{name} to {narrow[0]} residual sum", x, y_type=narrow[0], scale=s, residual=r, want_sum=True, **common)

# Only one of the tensors is unaligned: the packs must fit all of them.
for dtype, which in itertools.product(TYPES, range(6)):
    for width in (64, 768, 4096):
        tensors = [random((9, width), dtype), random(width, dtype), random(width, dtype), random((9, width), dtype)]
        x, s, b, r = (placed(t, int(i == which)) for i, t in enumerate(tensors))
        y, total = (Output(x.shape, dtype, int(i == which)) for i in (4, 5))
        reason = library.run(x, y.view, scale=s, bias=b, residual=r, total=total.view)
        expected, value, _ = reference(x, width, s, b, r, 1e-5)
        checks += 1
        if reason or not torch.allclose(y.view.double(), expected, rtol=ULP[dtype], atol=3e-5) or not torch.equal(
                total.view, value) or not y.guards_intact() or not total.guards_intact():
            report(f"only tensor {which} unaligned, {dtype} {width}", reason or "differs")

# Values that are hard on the statistics.
for width, dtype, offset in itertools.product(HARD_WIDTHS, TYPES, [0, 1]):
    if quick and width > 20000:
        continue
    name = f"{width} {dtype} offset={offset}"
    rows = 6
    s, b = random(width, dtype), random(width, dtype)
    x = random((rows, width), dtype)
    x[1, width // 2] = float("nan")
    x[4, 0] = float("inf")
    x[5, -1] = float("-inf")
    for plain in (False, True):
        check(name + " NaN", x, scale=s, bias=b, offset=offset, plain=plain)
    if dtype != torch.float16:
        for size in (1e15, 1e19, 1e30, 1e37):
            x = random((rows, width), dtype)
            x[::2] *= size
            check(f"{name} {size:g}", x, scale=s, bias=b, offset=offset)
        x = random((rows, width), dtype).sign() * 3e38
        check(f"{name} largest", x, scale=s, bias=b, offset=offset)
    for value in (0, 1 / 3, 1e4, 1e-30) + (() if dtype == torch.float16 else (-1e30, 3e38)):
        for plain in (False, True):
            x = torch.full((3, width), value, dtype=dtype, device=device)
            y = Output(x.shape, dtype, offset)
            library.run(placed(x, offset), y.view, scale=s, bias=b, plain=plain)
            checks += 1
            if not torch.equal(y.view, b.expand(3, width)):
                report(f"{name} constant {value:g} plain={plain}", "Y is not Bias")
    check(name + " large mean", random((rows, width), dtype, 1, 1000), offset=offset)
    check(name + " large epsilon", random((rows, width), dtype), epsilon=3.0, offset=offset)
    check(name + " small", random((rows, width), dtype, 1e-3), epsilon=1e-12, offset=offset)

# Shapes, axes and refusals.
x = random((2, 3, 4, 5), torch.float32)
for axis, columns in [(0, 120), (1, 60), (2, 20), (3, 5), (-1, 5), (-4, 120)]:
    parameter = random(x.shape[axis:] if axis >= 0 else x.shape[4 + axis:], torch.float32)
    check(f"axis {axis}", x, axis=axis, columns=columns, scale=parameter)


def refused(what, expected, x, y, **options):
    global checks
    checks += 1
    reason = library.run(x, y, **options)
    if reason is None or expected not in reason:
        report(what, f"expected a reason with '{expected}', got {reason}")


empty = torch.empty((0, 8), device=device)
checks += 1
if library.run(empty, torch.empty_like(empty)) is not None:
    report("no rows", "was refused")
refused("no columns", "without elements", torch.empty((3, 0), device=device), torch.empty((3, 0), device=device))
refused("axis", "axis", x, torch.empty_like(x), axis=4)
refused("axis", "axis", x, torch.empty_like(x), axis=-5)
refused("epsilon", "epsilon", x, torch.empty_like(x), epsilon=-1.0)
refused("type", "f32, f16 or bf16", x.double(), torch.empty_like(x))
refused("shape of Y", "Y must have the shape", x, torch.empty(7, device=device))
refused("scale", "one element for each", x, torch.empty_like(x), scale=x)
refused("scale type", "element type", x.half(), torch.empty_like(x), scale=x[0, 0, 0].bfloat16())
refused("residual", "Residual", x, torch.empty_like(x), residual=x[0])
refused("sum", "no Residual", x, torch.empty_like(x), total=torch.empty_like(x))

if on_gpu:
    # A captured graph, first met while capturing, replayed with other data.
    for width in (96, 3000):
        x, y = random((50, width), torch.float16), torch.empty((50, width), dtype=torch.float16, device=device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            reason = library.run(x, y)
        x.copy_(random(x.shape, x.dtype, 2, 1))
        graph.replay()
        checks += 1
        expected = reference(x, width, None, None, None, 1e-5)[0]
        if reason or not torch.allclose(y.double(), expected, atol=2e-3, rtol=1e-3):
            report(f"graph of width {width}", reason or "differs")
    if not quick:
        # More than 2^31 elements in all, and in one row. Only the ends are compared.
        for rows, width in ((2**21 + 3, 1024), (2**31 // 4096 + 3, 4096), (2**28 + 3, 8), (1, 2**31 + 24)):
            x = torch.empty((rows, width), dtype=torch.float16, device=device)
            for part in x.view(-1).split(2**28):
                part.normal_()
            for plain in (False, True)[:2 if rows > 1 else 1]:  # The plain version loses precision in such a row.
                y = torch.full_like(x, float("nan"))
                reason = library.run(x, y, plain=plain)
                checks += 1
                if rows > 1:
                    ends = torch.cat([x[:2], x[-2:]])
                    same = torch.allclose(torch.cat([y[:2], y[-2:]]).double(),
                                          reference(ends, width, None, None, None, 1e-5)[0], atol=2e-3, rtol=1e-3)
                else:
                    mean = sum(part.double().sum() for part in x.view(-1).split(2**28)) / width
                    squares = sum((part.double() - mean).square().sum() for part in x.view(-1).split(2**28)) / width
                    ends = torch.cat([x[0, :1000], x[0, -1000:]]).double()
                    same = torch.allclose(torch.cat([y[0, :1000], y[0, -1000:]]).double(),
                                          (ends - mean) / (squares + 1e-5).sqrt(), atol=2e-3, rtol=1e-3)
                if not same and rows == 1:
                    wanted = (ends - mean) / (squares + 1e-5).sqrt()
                    got = torch.cat([y[0, :1000], y[0, -1000:]]).double()
                    print("mean", mean.item(), "squares", squares.item(), "largest difference",
                          (got - wanted).abs().max().item(), got[:3].tolist(), wanted[:3].tolist(), got[-3:].tolist(),
                          wanted[-3:].tolist())
                if reason or not same or any(bool(part.isnan().any()) for part in y.view(-1).split(2**28)):
                    report(f"large [{rows}, {width}] plain={plain}", reason or "differs")
                del y
            del x
            torch.cuda.empty_cache()
    torch.cuda.synchronize()

for (source, target), excess in sorted(worst.items(), key=str):
    print(f"{source} to {target}: largest error {excess:.2f} of the allowed")
print(f"{checks} checks, {len(failures)} failures")
sys.exit(bool(failures))
