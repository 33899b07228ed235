"""Writes gradients.json: the gradients of PyTorch for the cases of gradient/cases.rs, which are read from standard input.

    cargo test -p flagperf-onnx-exec prints_the_cases -- --ignored --nocapture | python3 make_gradients.py > gradients.json
"""

import json
import math
import sys

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def window(x, attributes, fill):
    """Pads an image as `pads` and `auto_pad` state, and returns it with stride, dilation and kernel."""
    rank = x.dim() - 2
    kernel = attributes["kernel_shape"]
    stride = attributes.get("strides", [1] * rank)
    dilation = attributes.get("dilations", [1] * rank)
    pads = attributes.get("pads", [0] * 2 * rank)
    if attributes.get("auto_pad") == "SAME_UPPER":
        sizes = x.shape[2:]
        total = [max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
                 for n, s, d, k in zip(sizes, stride, dilation, kernel)]
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
    flat = [pads[i + side * rank] for i in reversed(range(rank)) for side in (0, 1)]
    return F.pad(x, flat, value=fill), stride, dilation, kernel


def conv(a, x, w, b=None):
    x, stride, dilation, _ = window(x, {**a, "kernel_shape": list(w.shape[2:])}, 0.0)
    f = {3: F.conv1d, 4: F.conv2d}[x.dim()]
    return f(x, w, b, stride=stride, dilation=dilation, groups=a.get("group", 1))


def conv_transpose(a, x, w, b=None):
    rank = x.dim() - 2
    pads = a.get("pads", [0] * 2 * rank)
    assert pads[:rank] == pads[rank:]
    return F.conv_transpose2d(x, w, b, stride=a.get("strides", 1), padding=pads[:rank],
                              output_padding=a.get("output_padding", 0), groups=a.get("group", 1))


def max_pool(a, x):
    x, stride, _, kernel = window(x, a, -math.inf)
    return F.max_pool2d(x, kernel, stride)


def average_pool(a, x):
    if a.get("ceil_mode"):
        return F.avg_pool1d(x, a["kernel_shape"], a["strides"], ceil_mode=True, count_include_pad=False)
    f = {3: F.avg_pool1d, 4: F.avg_pool2d}[x.dim()]
    padded, stride, _, kernel = window(x, a, 0.0)
    if a.get("count_include_pad"):
        return f(padded, kernel, stride)
    ones, *_ = window(torch.ones_like(x), a, 0.0)
    return f(padded, kernel, stride) / f(ones, kernel, stride)


def reduction(f):
    def apply(a, x, axes=None):
        axes = list(range(x.dim())) if axes is None else axes.tolist()
        return f(x, axes, bool(a.get("keepdims", 1)))
    return apply


def gather_nd(a, x, indices):
    return x[tuple(indices.unbind(-1))]


def scatter_nd(a, x, indices, updates):
    return x.index_put(tuple(indices.unbind(-1)), updates)


def top_k(a, x, k):
    return torch.topk(x, int(k[0]), a.get("axis", -1), bool(a.get("largest", 1)))


def slice_of(a, x, starts, ends, axes=None, steps=None):
    axes = list(range(len(starts))) if axes is None else axes.tolist()
    steps = [1] * len(axes) if steps is None else steps.tolist()
    for start, end, axis, step in zip(starts.tolist(), ends.tolist(), axes, steps):
        places = list(range(x.shape[axis]))[slice(start, None if end < -x.shape[axis] else end, step)]
        x = x.index_select(axis, torch.tensor(places))
    return x


def depth_to_space(a, x):
    n, c, h, w = x.shape
    s = a["blocksize"]
    if a.get("mode") == "CRD":
        return F.pixel_shuffle(x, s)
    return x.reshape(n, s, s, c // (s * s), h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // (s * s), h * s, w * s)


def space_to_depth(a, x):
    n, c, h, w = x.shape
    s = a["blocksize"]
    return x.reshape(n, c, h // s, s, w // s, s).permute(0, 3, 5, 1, 2, 4).reshape(n, c * s * s, h // s, w // s)


def gemm(a, x, w, b=None):
    x, w = (x.T if a.get("transA") else x), (w.T if a.get("transB") else w)
    y = a.get("alpha", 1.0) * (x @ w)
    return y if b is None else y + a.get("beta", 1.0) * b


def cross_entropy(f):
    def apply(a, x, labels):
        return f(x, labels, ignore_index=a.get("ignore_index", -100), reduction=a.get("reduction", "mean"))
    return apply


def attention(a, q, k, v, mask=None):
    flat = q.dim() == 3
    if flat:
        heads = [a["q_num_heads"], a["kv_num_heads"], a["kv_num_heads"]]
        q, k, v = (x.reshape(x.shape[0], x.shape[1], n, -1).transpose(1, 2) for x, n in zip((q, k, v), heads))
    if k.shape[1] != q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=bool(a.get("is_causal")))
    return y.transpose(1, 2).flatten(2) if flat else y


def rotary(a, x, cos, sin, positions=None):
    first, second = x.chunk(2, -1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def cumulative_sum(a, x, axis):
    y = x.flip(int(axis)) if a.get("reverse") else x
    y = y.cumsum(int(axis)) - (y if a.get("exclusive") else 0)
    return y.flip(int(axis)) if a.get("reverse") else y


def pad(a, x, pads):
    rank = x.dim()
    return F.pad(x, [int(pads[i + side * rank]) for i in reversed(range(rank)) for side in (0, 1)])


def layer_norm(a, x, scale, bias=None):
    return F.layer_norm(x, x.shape[a.get("axis", -1):], scale, bias, a.get("epsilon", 1e-5))


def resize(a, x, roi=None, scales=None, sizes=None):
    mode = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}[a.get("mode", "nearest")]
    corners = a.get("coordinate_transformation_mode") == "align_corners"
    options = {} if mode == "nearest" else {"align_corners": corners, "antialias": bool(a.get("antialias"))}
    if sizes is not None:
        return F.interpolate(x, size=sizes.tolist()[2:], mode=mode, **options)
    return F.interpolate(x, scale_factor=scales.tolist()[2:], mode=mode, recompute_scale_factor=False, **options)


def grid_sample(a, x, grid):
    mode = {"linear": "bilinear"}.get(a.get("mode", "linear"), a.get("mode", "linear"))
    return F.grid_sample(x, grid, mode=mode, padding_mode=a.get("padding_mode", "zeros"),
                         align_corners=bool(a.get("align_corners", 0)))


def recurrent(module, order):
    """A recurrent layer, whose gates ONNX orders differently."""
    def apply(a, x, w, r, b=None, lengths=None, h=None, c=None):
        directions = w.shape[0]
        layer = module(x.shape[2], r.shape[2], bidirectional=directions == 2, bias=b is not None)
        gates = len(order)
        pick = lambda m: torch.cat([m.chunk(gates)[i] for i in order])
        parameters = {}
        for d in range(directions):
            suffix = "_l0" + ("_reverse" if d else "")
            parameters["weight_ih" + suffix], parameters["weight_hh" + suffix] = pick(w[d]), pick(r[d])
            if b is not None:
                wb, rb = b[d].chunk(2)
                parameters["bias_ih" + suffix], parameters["bias_hh" + suffix] = pick(wb), pick(rb)
        first = [state for state in (h, c) if state is not None]
        arguments = (x,) if not first else (x, first[0] if len(first) == 1 else tuple(first))
        y, last = torch.func.functional_call(layer, parameters, arguments)
        y = y.reshape(*y.shape[:2], directions, -1).transpose(1, 2)
        return (y, *last) if isinstance(last, tuple) else (y, last)
    return apply


def local_response(a, x):
    return F.local_response_norm(x, a["size"], a.get("alpha", 1e-4), a.get("beta", 0.75), a.get("bias", 1.0))


def extreme(f):
    """PyTorch shares the gradient of a maximum among equal elements as `amax` does."""
    def apply(a, *xs):
        return f(torch.stack(torch.broadcast_tensors(*xs)), 0)
    return apply


plain = lambda f: lambda a, *xs: f(*xs)
OPERATORS = {
    **{op: plain(f) for op, f in {
        "Abs": torch.abs, "Cos": torch.cos, "Erf": torch.erf, "Exp": torch.exp, "HardSwish": F.hardswish,
        "Identity": torch.clone, "Mish": F.mish, "Neg": torch.neg, "Relu": F.relu, "Sigmoid": torch.sigmoid,
        "Sin": torch.sin, "Softplus": F.softplus, "Tanh": torch.tanh, "Softsign": F.softsign, "Ceil": torch.ceil,
        "Floor": torch.floor, "Round": torch.round, "Sign": torch.sign, "Log": torch.log,
        "Reciprocal": torch.reciprocal, "Sqrt": torch.sqrt, "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul,
        "Div": torch.div, "Pow": torch.pow, "Where": torch.where, "MatMul": torch.matmul,
        "Dropout": torch.clone,
    }.items()},
    "Elu": lambda a, x: F.elu(x, a.get("alpha", 1.0)),
    "Celu": lambda a, x: F.celu(x, a.get("alpha", 1.0)),
    "HardSigmoid": lambda a, x: (a.get("alpha", 0.2) * x + a.get("beta", 0.5)).clamp(0, 1),
    "LeakyRelu": lambda a, x: F.leaky_relu(x, a.get("alpha", 0.01)),
    "Gelu": lambda a, x: F.gelu(x, approximate=a.get("approximate", "none")),
    "Swish": lambda a, x: F.silu(x),
    "SwiGLU": lambda a, x, gate: F.silu(x) * gate,
    "Clip": lambda a, x, low, high: torch.clamp(x, float(low), float(high)),
    "Cast": lambda a, x: x.clone(),
    "CumSum": cumulative_sum,
    "Softmax": lambda a, x: F.softmax(x, a.get("axis", -1)),
    "LogSoftmax": lambda a, x: F.log_softmax(x, a.get("axis", -1)),
    "PRelu": lambda a, x, slope: torch.where(x > 0, x, slope * x),
    "Max": extreme(torch.amax), "Min": extreme(torch.amin),
    "Mean": lambda a, *xs: torch.stack(torch.broadcast_tensors(*xs)).mean(0),
    "Sum": lambda a, *xs: torch.stack(torch.broadcast_tensors(*xs)).sum(0),
    "Gemm": gemm,
    "Einsum": lambda a, *xs: torch.einsum(a["equation"], *xs),
    "Reshape": lambda a, x, shape: x.reshape(shape.tolist()),
    "Flatten": lambda a, x: x.flatten(a.get("axis", 1)),
    "Squeeze": lambda a, x, axes: x.squeeze(axes.tolist()),
    "Unsqueeze": lambda a, x, axes: x.unsqueeze(int(axes[0])),
    "Transpose": lambda a, x: x.permute(a.get("perm", list(reversed(range(x.dim()))))),
    "Expand": lambda a, x, shape: x.expand(shape.tolist()),
    "Tile": lambda a, x, counts: x.repeat(counts.tolist()),
    "Concat": lambda a, *xs: torch.cat(xs, a["axis"]),
    "Split": lambda a, x, sizes: x.split(sizes.tolist(), a["axis"]),
    "Slice": slice_of, "Pad": pad,
    "Trilu": lambda a, x: torch.triu(x) if a.get("upper", 1) else torch.tril(x),
    "DepthToSpace": depth_to_space, "SpaceToDepth": space_to_depth,
    "Gather": lambda a, x, i: torch.stack(
        [x.select(a.get("axis", 0), int(k)) for k in i.flatten()], a.get("axis", 0)
    ).unflatten(a.get("axis", 0), i.shape),
    "GatherElements": lambda a, x, i: torch.gather(x, a.get("axis", 0), i),
    "GatherND": gather_nd, "ScatterND": scatter_nd, "TopK": top_k,
    "ScatterElements": lambda a, x, i, u: (x.scatter_add if a.get("reduction") == "add" else x.scatter)(
        a.get("axis", 0), i, u),
    "ReduceL1": reduction(lambda x, d, k: x.abs().sum(d, k)),
    "ReduceL2": reduction(lambda x, d, k: x.square().sum(d, k).sqrt()),
    "ReduceLogSum": reduction(lambda x, d, k: x.sum(d, k).log()),
    "ReduceLogSumExp": reduction(lambda x, d, k: torch.logsumexp(x, d, k)),
    "ReduceMax": reduction(lambda x, d, k: torch.amax(x, d, k)),
    "ReduceMean": reduction(lambda x, d, k: x.mean(d, k)),
    "ReduceMin": reduction(lambda x, d, k: torch.amin(x, d, k)),
    "ReduceSum": reduction(lambda x, d, k: x.sum(d, k)),
    "ReduceSumSquare": reduction(lambda x, d, k: x.square().sum(d, k)),
    "Conv": conv, "ConvTranspose": conv_transpose, "MaxPool": max_pool, "AveragePool": average_pool,
    "GlobalAveragePool": lambda a, x: x.mean(list(range(2, x.dim())), True),
    "GlobalMaxPool": lambda a, x: torch.amax(x, list(range(2, x.dim())), True),
    "BatchNormalization": lambda a, x, s, b, m, v: F.batch_norm(x, m, v, s, b, eps=a.get("epsilon", 1e-5)),
    "LayerNormalization": layer_norm,
    "GroupNormalization": lambda a, x, s, b: F.group_norm(
        x, a["num_groups"],
        *(f.repeat_interleave(x.shape[1] // f.shape[0]) for f in (s, b)), eps=a.get("epsilon", 1e-5)),
    "InstanceNormalization": lambda a, x, s, b: F.instance_norm(x, weight=s, bias=b, eps=a.get("epsilon", 1e-5)),
    "RMSNormalization": lambda a, x, s: F.rms_norm(x, s.shape, s, a.get("epsilon", 1e-5)),
    "LpNormalization": lambda a, x: F.normalize(x, a.get("p", 2), a.get("axis", -1)),
    "LRN": local_response,
    "MeanVarianceNormalization": lambda a, x: (x - x.mean((0, 2, 3), True)) / x.std((0, 2, 3), False, True),
    "SoftmaxCrossEntropyLoss": cross_entropy(F.cross_entropy),
    "NegativeLogLikelihoodLoss": cross_entropy(F.nll_loss),
    "Attention": attention, "RotaryEmbedding": rotary, "Resize": resize, "GridSample": grid_sample,
    "LSTM": recurrent(torch.nn.LSTM, [0, 2, 3, 1]), "GRU": recurrent(torch.nn.GRU, [1, 0, 2]),
    "RNN": recurrent(torch.nn.RNN, [0]),
}


def tensor(given):
    if given is None:
        return None
    kind = {"f64": torch.float64, "f32": torch.float32, "i64": torch.int64, "bool": torch.bool}[given["dtype"]]
    values = torch.tensor(given["values"], dtype=torch.float64).reshape(given["shape"])
    return values.to(kind).requires_grad_(given["learned"])


def gradients(case):
    inputs = [tensor(given) for given in case["inputs"]]
    while inputs and inputs[-1] is None:
        inputs.pop()
    y = OPERATORS[case["op"]](case["attributes"], *inputs)
    y = y[case["read"]] if isinstance(y, (tuple, list)) else y
    if not y.requires_grad:
        return [[0.0] * x.numel() for x in inputs if x is not None and x.requires_grad]
    (y.flatten() * torch.tensor(case["factors"])).sum().backward()
    learned = [x for x in inputs if x is not None and x.requires_grad]
    return [[float(f"{g:.10g}") for g in (torch.zeros_like(x) if x.grad is None else x.grad).flatten().tolist()]
            for x in learned]


lines = [json.loads(line) for line in sys.stdin if line.startswith("{")]
print("[")
for i, case in enumerate(lines):
    try:
        found = gradients(case)
    except Exception as error:
        raise SystemExit(f"case {i}, {case['op']} {case['attributes']}: {error!r}")
    print(json.dumps({"op": case["op"], "gradients": found}) + ("," if i + 1 < len(lines) else ""))
print("]")
