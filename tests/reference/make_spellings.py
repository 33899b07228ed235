#!/usr/bin/env python3
"""Write small ONNX files that show how real exporters spell common sub-graphs.

The files are test material for a pattern matcher: LayerNorm, RMSNorm, GELU,
SiLU, attention, rotary embedding, padding before a convolution, arithmetic
after a convolution, and "near misses" that look like one of these and are not.

    python make_spellings.py torch    # needs torch, onnxscript, transformers
    python make_spellings.py optimum  # needs optimum-onnx and its transformers
    python make_spellings.py tf       # needs tensorflow, tf_keras, tf2onnx
    python make_spellings.py finish   # needs onnx and onnxruntime

The parts need Python environments that do not fit together, so each part is
run by its own interpreter. Each writes one file per module and exporter into
singles/ and replaces its own entries in singles/index.json. `finish` makes
spellings/ from them: the main exporters' files as they are, the others of one
exporter and kind side by side in one file ("bundle"), to keep the number of
files small. It also writes spellings/index.json and chains.txt.

What an entry of index.json says:

  contains    how many of which sub-graph the *source module* has (the truth)
  single_op   how many of them the exporter wrote as one standard operator
              (LayerNormalization, Attention, ...)
  folded      how many the exporter folded away (a bias into its convolution)
  to_find     contains - single_op - folded: what a matcher should find
  near_miss_of, why   only for near misses: what must not be found, and why
  same_graph_from     other exporters whose graph is the same but for the
              opset, the names, and mostly whether the axes of a
              reduction are an attribute or an input; no file is stored
              for these
  other_single_op     standard operators of a kind that the module does not
              have (a LayerNorm of which the exporter made a subtraction
              and an RMSNormalization)
  opset, exporter, exporter_version, source, nodes, bytes, checked_by, notes
  parts       only in bundles: the entries of its parts. The names of a part's
              nodes and values begin with its "prefix" (p0/, p1/, ...).

Every weight is random from a fixed seed, and never 1 or 0, so that no exporter
can drop it. Names and metadata that do not change the graph are removed where
they would make a file large.
"""

import argparse
import hashlib
import io
import json
import os
import re
import sys
import tempfile
import warnings

import numpy as np
import onnx
from onnx import numpy_helper

warnings.filterwarnings("ignore")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

SEED = 20240607
LARGEST = 20_000  # bytes of one file, above this names are shortened
KINDS = {
    "layernorm": "LayerNorm over the last 1 to 3 axes, affine or not",
    "rmsnorm": "RMSNorm over the last axis, with or without weight",
    "gelu_erf": "x * 0.5 * (1 + erf(x / sqrt 2))",
    "gelu_tanh": "the tanh approximation of GELU",
    "gelu_sigmoid": "x * sigmoid(1.702 x)",
    "silu": "x * sigmoid(x)",
    "attention": "softmax(q k^T * scale + mask) v, any mask, equal or grouped heads",
    "rotary": "rotary embedding, counted per rotated tensor",
    "pad_conv": "zero padding of the spatial axes followed by a convolution",
    "conv_bias": "convolution followed by the addition of a per-channel constant",
    "conv_bn": "convolution followed by inference batch norm, as an operator or as "
               "per-channel constant arithmetic",
}
SINGLE_OPS = {
    "LayerNormalization": "layernorm",
    "RMSNormalization": "rmsnorm",
    "SimplifiedLayerNormalization": "rmsnorm",
    "Attention": "attention",
    "RotaryEmbedding": "rotary",
    "Swish": "silu",
}


# ---------------------------------------------------------------------------
# Looking at graphs: constants, signatures, chains
# ---------------------------------------------------------------------------

def constants(graph):
    """Name -> array of every initializer and every Constant node."""
    found = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            for a in node.attribute:
                value = onnx.helper.get_attribute_value(a)
                if a.name == "value":
                    value = numpy_helper.to_array(value)
                found[node.output[0]] = np.asarray(value)
    return found


def signature(model, axes_matter=True):
    """A text that is equal for two graphs that differ only in names and weights.

    Scalars and small integer tensors count, the contents of larger ones do not.
    Unless axes_matter, the axes of a reduction may be an attribute or an input.
    """
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    known = constants(model.graph)
    names = {}

    def name(value):
        if value == "":
            return "-"
        if value in known:
            array = known[value]
            if array.size <= 1 or (array.dtype.kind in "iub" and array.size <= 8):
                return f"={array.dtype}{array.tolist()}"
            return f"={array.dtype}{array.shape}"
        return names.setdefault(value, f"v{len(names)}")

    lines = [",".join(name(i.name) for i in model.graph.input)]
    for node in model.graph.node:
        if node.op_type == "Constant":
            continue
        attrs = []
        for a in sorted(node.attribute, key=lambda a: a.name):
            value = onnx.helper.get_attribute_value(a)
            if a.type == onnx.AttributeProto.TENSOR:
                value = numpy_helper.to_array(value).tolist()
            elif a.type == onnx.AttributeProto.GRAPH:
                value = [n.op_type for n in value.node]
            attrs.append(f"{a.name}={value}")
        inputs = list(map(name, node.input))
        if node.op_type.startswith("Reduce") and not axes_matter:
            if len(inputs) == 2:
                attrs.insert(0, "axes=" + inputs.pop()[6:])
            attrs = sorted(a for a in attrs if a != "keepdims=1" and a != "noop_with_empty_axes=0")
        # Softmax has another meaning before opset 13 even with equal attributes.
        old = "@12" if node.op_type == "Softmax" and opset < 13 else ""
        lines.append(f"{node.domain}:{node.op_type}{old} {','.join(inputs)} "
                     f"{attrs} -> {','.join(map(name, node.output))}")
    lines.append(",".join(name(o.name) for o in model.graph.output))
    return "\n".join(lines)


def chain(model, only=None):
    """The operators in file order with scalar constants: 'Pow(2), ReduceMean[-1], ...'.

    `only` keeps the nodes whose name contains that text.
    """
    known = constants(model.graph)
    words = []
    for node in model.graph.node:
        if node.op_type == "Constant" or (only and only not in node.name):
            continue
        word = node.op_type
        if node.domain not in ("", "ai.onnx"):
            word = f"{node.domain}.{word}"
        marks = []
        for a in node.attribute:
            value = onnx.helper.get_attribute_value(a)
            if a.name in ("axis", "axes", "perm"):
                marks.append(str(value).replace(" ", "").strip("[]"))
            elif a.name == "to":
                marks.append(onnx.TensorProto.DataType.Name(value).lower())
            elif a.name in ("equation", "approximate"):
                marks.append(value.decode())
            elif a.name in ("is_causal", "interleaved", "q_num_heads", "stash_type") and value:
                marks.append(f"{a.name}={value}")
            elif a.name in ("pads", "auto_pad", "mode") and node.op_type in ("Conv", "Pad"):
                value = value.decode() if isinstance(value, bytes) else value
                marks.append(f"{a.name}={str(value).replace(' ', '')}")
        if marks:
            word += "[" + ";".join(marks) + "]"
        args = []
        for position, value in enumerate(node.input):
            if value in known:
                array = known[value]
                if node.op_type.startswith("Reduce") and position == 1:
                    args.append("axes=" + ",".join(map(str, array.ravel().tolist())))
                elif array.size == 1:
                    args.append(("" if position else "const ") + f"{float(array.ravel()[0]):.6g}")
                elif position == 0:
                    args.append("const")
                elif node.op_type == "Reshape":
                    args.append("x".join(map(str, array.tolist())))
                elif node.op_type not in ("Pad", "Expand", "Unsqueeze", "Squeeze", "Slice", "Tile"):
                    args.append("w")
        args = [a for a in args if a]
        if args and node.op_type not in ("Slice", "Gather"):
            word += "(" + " ".join(args) + ")"
        words.append(word)
    # Repeated views are told once: 'Slice x3'.
    short = []
    for word in words:
        if short and short[-1][0] == word:
            short[-1][1] += 1
        else:
            short.append([word, 1])
    return ", ".join(w if n == 1 else f"{w} x{n}" for w, n in short)


def count_single_ops(model, contains):
    counts, others = {}, {}
    for node in model.graph.node:
        kind = SINGLE_OPS.get(node.op_type)
        if node.op_type == "Gelu":
            approximate = [a.s.decode() for a in node.attribute if a.name == "approximate"]
            kind = "gelu_tanh" if approximate == ["tanh"] else "gelu_erf"
        if kind in contains:
            counts[kind] = counts.get(kind, 0) + 1
        elif kind:
            others[kind] = others.get(kind, 0) + 1
    return counts, others


def count_folded(model, contains, near_miss):
    """Convolution kinds that the exporter has folded: nothing but Conv is left."""
    kinds = [k for k in contains if k in ("pad_conv", "conv_bias", "conv_bn")]
    if not kinds or near_miss:
        return {}
    left = [n.op_type for n in model.graph.node
            if n.op_type not in ("Constant", "Transpose", "Identity", "Reshape")]
    convs = [op for op in left if op == "Conv"]
    counts = {}
    for kind in kinds:
        if kind == "pad_conv":
            gone = "Pad" not in left
        elif kind == "conv_bn":
            gone = "BatchNormalization" not in left and left.count("Mul") + left.count("Div") == 0
        else:
            gone = left.count("Add") == 0
        if convs and gone:
            counts[kind] = contains[kind]
    return counts


# ---------------------------------------------------------------------------
# Storing files
# ---------------------------------------------------------------------------

def strip(model):
    """Remove what does not change the graph: documentation and traces of the source."""
    def clear(message):
        for field in ("doc_string", "metadata_props"):
            try:
                message.ClearField(field)
            except ValueError:
                pass

    def walk(graph):
        clear(graph)
        for group in (graph.node, graph.initializer, graph.input, graph.output, graph.value_info):
            for item in group:
                clear(item)
        for node in graph.node:
            for a in node.attribute:
                a.ClearField("doc_string")
                if a.type == onnx.AttributeProto.GRAPH:
                    walk(a.g)
                if a.type == onnx.AttributeProto.TENSOR:
                    clear(a.t)

    clear(model)
    walk(model.graph)
    for function in model.functions:
        clear(function)
        for node in function.node:
            clear(node)
    return model


def shorten(model):
    """Give values short names and drop node names and shapes of inner values."""
    graph = model.graph
    keep = {v.name for v in list(graph.input) + list(graph.output)} | {""}
    new = {}

    def rename(name):
        if name in keep:
            return name
        if name not in new:
            digits, number = "abcdefghijklmnopqrstuvwxyz", len(new)
            new[name] = digits[number // 676 % 26] + digits[number // 26 % 26] + digits[number % 26]
        return new[name]

    def walk(g):
        for t in g.initializer:
            t.name = rename(t.name)
        for node in g.node:
            node.ClearField("name")
            node.input[:] = [rename(n) for n in node.input]
            node.output[:] = [rename(n) for n in node.output]
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    for v in list(a.g.input) + list(a.g.output):
                        v.name = rename(v.name)
                    walk(a.g)
        g.ClearField("value_info")

    walk(graph)
    return model


def share_constants(model):
    """Turn Constant nodes into initializers, one for all equal ones (large files only)."""
    graph = model.graph
    first, new = {}, {}
    nodes = []
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensor = node.attribute[0].t
            tensor.ClearField("name")
            key = tensor.SerializeToString()
            if key not in first:
                first[key] = node.output[0]
                graph.initializer.append(tensor)
                graph.initializer[-1].name = node.output[0]
            new[node.output[0]] = first[key]
        else:
            nodes.append(node)

    def rename(nodes):
        for node in nodes:
            node.input[:] = [new.get(n, n) for n in node.input]
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    rename(a.g.node)

    rename(nodes)
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    graph.ClearField("node")
    graph.node.extend(nodes)
    assert not any(o.name in new for o in graph.output)
    return model


class Store:
    def __init__(self, root, part):
        self.root = root
        self.part = part
        self.entries = []
        self.failures = []
        self.seen = {}
        self.versions = {}

    def failed(self, exporter, name, error):
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
        lines = [l for l in text.splitlines() if l.strip()] or [repr(error)]
        text = f"{type(error).__name__}: {lines[0]}"[:300]
        text = re.sub(r"/\S*/", "", text)
        self.failures.append({"part": self.part, "exporter": exporter, "name": name, "error": text})
        print(f"FAILED {exporter} {name}: {text}", flush=True)

    def add(self, exporter, name, model, case, feeds, expected, chain_only=None, note=None):
        """Check, compare with the framework, and write one file unless its graph is known."""
        text = chain(model, chain_only)
        key = (case.get("group", name), signature(model, case.get("axes_matter", False)))
        if key in self.seen:
            self.seen[key]["same_graph_from"].append(exporter)
            print(f"same   {exporter} {name}", flush=True)
            return
        strip(model)
        notes = [n for n in (case.get("notes"), note) if n]
        data = model.SerializeToString()
        if len(data) > LARGEST:
            shorten(model)
            data = model.SerializeToString()
            notes.append("value names shortened, node names and inner shapes removed")
        if len(data) > LARGEST:
            data = shorten(share_constants(model)).SerializeToString()
            notes.append("Constant nodes made initializers, equal ones shared")
        onnx.checker.check_model(model, full_check=not any(
            n.domain not in ("", "ai.onnx") for n in model.graph.node))
        checked_by, worst = run(model, feeds, expected)
        contains = case["contains"]
        near = case.get("near_miss_of")
        single, others = count_single_ops(model, contains)
        folded = count_folded(model, contains, near)
        to_find = {k: n - single.get(k, 0) - folded.get(k, 0) for k, n in contains.items()}
        path = f"{exporter}/{name}.onnx"
        entry = {
            "file": path,
            "name": name,
            "part": self.part,
            "exporter": exporter,
            "exporter_version": self.versions[exporter],
            "opset": next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx")),
            "source": case["source"],
            "contains": contains,
            "single_op": single,
            "folded": folded,
            "to_find": to_find,
        }
        if near:
            entry["near_miss_of"] = near
            entry["why"] = case["why"]
        if others:
            entry["other_single_op"] = others
        entry["same_graph_from"] = []
        entry["nodes"] = len([n for n in model.graph.node if n.op_type != "Constant"])
        entry["bytes"] = len(data)
        entry["checked_by"] = checked_by
        entry["largest_difference"] = worst
        if notes:
            entry["notes"] = notes
        entry["chain"] = text
        self.seen[key] = entry
        self.entries.append(entry)
        os.makedirs(os.path.join(self.root, exporter), exist_ok=True)
        with open(os.path.join(self.root, path), "wb") as f:
            f.write(data)
        np.savez(os.path.join(self.root, path[:-5] + ".npz"), **{f"f{i}": v for i, v in enumerate(feeds)})
        print(f"wrote  {path} {len(data)} {checked_by} {worst:.1e}", flush=True)

    def save(self, only=None):
        """Replace this part's entries (those that `only` names) in the index."""
        path = os.path.join(self.root, "index.json")
        index = {"files": [], "failed": []}
        if os.path.exists(path):
            with open(path) as f:
                index = json.load(f)

        def stale(entry):
            return entry["part"] == self.part and (not only or re.search(only, entry["name"]))

        new = {e["file"] for e in self.entries}
        for e in index["files"]:
            old = os.path.join(self.root, e["file"])
            if stale(e) and e["file"] not in new and os.path.exists(old):
                os.remove(old)
        index["files"] = sorted([e for e in index["files"] if not stale(e)] + self.entries, key=lambda e: e["file"])
        index["failed"] = [e for e in index["failed"] if not stale(e)] + self.failures
        with open(path, "w") as f:
            json.dump(index, f, indent=1)
            f.write("\n")


def run(model, feeds, expected):
    """Run once with onnxruntime, else with onnx.reference; compare with the framework."""
    names = [i.name for i in model.graph.input if i.name not in {t.name for t in model.graph.initializer}]
    assert len(names) == len(feeds), f"inputs {names} but {len(feeds)} values"
    feeds = dict(zip(names, feeds))
    try:
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        # The graph as it is: onnxruntime 1.31's own fusion takes miss_layernorm_pow4 for a LayerNorm.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        got = session.run(None, feeds)
        who = f"onnxruntime {ort.__version__}"
    except Exception as error:
        from onnx.reference import ReferenceEvaluator
        got = ReferenceEvaluator(model).run(None, feeds)
        who = f"onnx.reference {onnx.__version__}"
        print("   onnxruntime refused:", str(error).splitlines()[0][:160])
    worst = 0.0
    if expected is None:
        return who, worst
    assert len(got) == len(expected), f"{len(got)} outputs, expected {len(expected)}"
    for a, b in zip(got, expected):
        assert a.shape == b.shape, f"shape {a.shape}, expected {b.shape}"
        worst = max(worst, float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)))))
    limit = 2e-2 if any(b.dtype == np.float16 for b in expected) else 2e-4
    assert worst < limit, f"differs by {worst}"
    return who, worst


# ---------------------------------------------------------------------------
# Part "torch": PyTorch modules through both exporters
# ---------------------------------------------------------------------------

TORCHSCRIPT = ["torchscript-17", "torchscript-14", "torchscript-12"]
DYNAMO = ["dynamo-18", "dynamo-18-unoptimized", "dynamo-23"]
ALL = TORCHSCRIPT + DYNAMO
BOTH = TORCHSCRIPT + ["dynamo-18"]  # the usual choice; ALL where the three dynamo exports differ
FEW = ["torchscript-17", "dynamo-18"]  # for near misses


def torch_cases():
    """All small PyTorch modules: a list of dictionaries."""
    import math
    import torch
    import torch.nn.functional as F
    from torch import nn

    cases = []
    B, T, D, H = 2, 4, 8, 2  # batch, positions, width, heads

    def x3(*, dtype=torch.float32):
        return torch.randn(B, T, D, dtype=dtype)

    def case(name, module, inputs, contains, source=None, where=BOTH, **more):
        if source is None:
            source = "hand-written" if type(module).__module__ == "__main__" else \
                f"torch.nn.{type(module).__name__}"
        cases.append(dict(name=name, module=module, inputs=inputs, contains=contains,
                          source=source, where=where, **more))

    class Fn(nn.Module):
        """A module from a function of (parameters, inputs)."""
        def __init__(self, function, **parameters):
            super().__init__()
            self.function = function
            for key, value in parameters.items():
                if isinstance(value, nn.Module):
                    setattr(self, key, value)
                else:
                    self.register_buffer(key, value)

        def forward(self, *inputs):
            return self.function(self, *inputs)

    def weight(*shape):
        return 1 + 0.3 * torch.randn(*shape)

    def affine():
        return dict(w=weight(D), b=0.3 * torch.randn(D))

    # --- LayerNorm ---------------------------------------------------------
    one = {"layernorm": 1}
    case("layernorm_affine", nn.LayerNorm(D), [x3()], one)
    case("layernorm_plain", nn.LayerNorm(D, elementwise_affine=False), [x3()], one)
    case("layernorm_nobias", nn.LayerNorm(D, bias=False), [x3()], one, where=["torchscript-14", "dynamo-18"])
    case("layernorm_2axes", nn.LayerNorm((T, D)), [x3()], one, where=["torchscript-14", "dynamo-18"])
    case("layernorm_3axes", nn.LayerNorm((3, T, 5)), [torch.randn(B, 3, T, 5)], one, where=["torchscript-14", "dynamo-18"])
    case("layernorm_fp16", nn.LayerNorm(D).half(), [x3(dtype=torch.float16)], one, source="torch.nn.LayerNorm, half", where=["torchscript-14", "dynamo-18"])

    def ln(s, x, variance, normalize):
        mean = x.mean(-1, keepdim=True)
        d = x - mean
        return normalize(d, variance(d)) * s.w + s.b

    def ln_pow(s, x):
        u = x.mean(-1, keepdim=True)
        v = (x - u).pow(2).mean(-1, keepdim=True)  # the subtraction is written twice
        return s.w * ((x - u) / torch.sqrt(v + 1e-12)) + s.b

    def ln_mul(s, x):
        return ln(s, x, lambda d: (d * d).mean(-1, keepdim=True), lambda d, v: d / torch.sqrt(v + 1e-5))

    def ln_sum(s, x):
        n = x.shape[-1]
        d = x - x.sum(-1, keepdim=True) / n
        v = (d * d).sum(-1, keepdim=True) / n
        return d / torch.sqrt(v + 1e-5) * s.w + s.b

    def ln_rsqrt(s, x):
        return ln(s, x, lambda d: d.pow(2).mean(-1, keepdim=True), lambda d, v: d * torch.rsqrt(v + 1e-5))

    def ln_reciprocal(s, x):
        return ln(s, x, lambda d: d.square().mean(-1, keepdim=True),
                  lambda d, v: torch.reciprocal(torch.sqrt(1e-5 + v)) * d)

    def ln_pow_half(s, x):
        return ln(s, x, lambda d: d.pow(2).mean(-1, keepdim=True), lambda d, v: d * (v + 1e-5).pow(-0.5))

    def ln_swapped(s, x):
        eps = torch.tensor(1e-6)
        d = x - x.mean(-1, keepdim=True)
        v = (d ** 2).mean(-1, keepdim=True)
        return s.b + s.w * (d / torch.sqrt(eps + v))

    def ln_var(s, x):
        return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5) * s.w + s.b

    def ln_cast(s, x):
        h = x.float()
        d = h - h.mean(-1, keepdim=True)
        v = d.pow(2).mean(-1, keepdim=True)
        return s.w * (d * torch.rsqrt(v + 1e-5)).to(x.dtype) + s.b

    def ln_channels_first(s, x):
        # ConvNeXt: over the channel axis of NCHW; the same as LayerNorm after a transpose.
        h = x.permute(0, 2, 3, 1)
        h = F.layer_norm(h, (h.shape[-1],), s.w, s.b, 1e-6)
        return h.permute(0, 3, 1, 2)

    def ln_two_variances(s, x):
        mean = x.mean(-1, keepdim=True)
        v = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) * torch.rsqrt(v + 1e-5) * s.w + s.b

    case("layernorm_hand_pow", Fn(ln_pow, **affine()), [x3()], one, axes_matter=True, source="hand-written, as in old BERT", where=ALL,
         notes="epsilon is 1e-12; the dynamo optimizer takes it for 0 and drops the addition")
    case("layernorm_hand_mul", Fn(ln_mul, **affine()), [x3()], one)
    case("layernorm_hand_sum", Fn(ln_sum, **affine()), [x3()], one)
    case("layernorm_hand_rsqrt", Fn(ln_rsqrt, **affine()), [x3()], one, axes_matter=True, where=ALL)
    case("layernorm_hand_reciprocal", Fn(ln_reciprocal, **affine()), [x3()], one)
    case("layernorm_hand_pow_half", Fn(ln_pow_half, **affine()), [x3()], one)
    case("layernorm_hand_swapped", Fn(ln_swapped, **affine()), [x3()], one)
    case("layernorm_hand_var", Fn(ln_var, **affine()), [x3()], one, where=ALL)
    case("layernorm_hand_moments", Fn(ln_two_variances, **affine()), [x3()], one,
         notes="variance as E[x^2] - E[x]^2: equal in exact arithmetic only; a matcher may leave it")
    half = {k: v.half() for k, v in affine().items()}
    case("layernorm_cast_island", Fn(ln_cast, **half), [x3(dtype=torch.float16)], one, source="hand-written, half with float32 inside",
         where=TORCHSCRIPT + DYNAMO)
    case("layernorm_channels_first", Fn(ln_channels_first, w=weight(3), b=torch.randn(3)), [torch.randn(B, 3, T, 5)], one,
         source="hand-written, as in ConvNeXt", where=["torchscript-14", "dynamo-18"])

    # --- RMSNorm -----------------------------------------------------------
    from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb, repeat_kv
    from transformers.models.t5.modeling_t5 import T5LayerNorm
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
    one = {"rmsnorm": 1}
    case("rmsnorm_nn", nn.RMSNorm(D, eps=1e-6), [x3()], one, where=ALL)
    case("rmsnorm_nn_no_eps", nn.RMSNorm(D), [x3()], one, source="torch.nn.RMSNorm, eps=None", where=["torchscript-17", "dynamo-18"])
    case("rmsnorm_plain", nn.RMSNorm(D, eps=1e-6, elementwise_affine=False), [x3()], one)
    case("rmsnorm_llama", LlamaRMSNorm(D), [x3()], one, axes_matter=True, source="transformers LlamaRMSNorm", where=ALL)
    case("rmsnorm_llama_fp16", LlamaRMSNorm(D).half(), [x3(dtype=torch.float16)], one, source="transformers LlamaRMSNorm, half", where=ALL)
    case("rmsnorm_t5", T5LayerNorm(D), [x3()], one, source="transformers T5LayerNorm")
    case("rmsnorm_t5_fp16", T5LayerNorm(D).half(), [x3(dtype=torch.float16)], one, axes_matter=True, source="transformers T5LayerNorm, half")
    case("rmsnorm_gemma", GemmaRMSNorm(D), [x3()], one, source="transformers GemmaRMSNorm (1 + weight)")
    case("rmsnorm_hand_div", Fn(lambda s, x: x / torch.sqrt(1e-6 + (x * x).mean(-1, keepdim=True)) * s.w, w=weight(D)), [x3()], one)
    case("rmsnorm_hand_norm", Fn(lambda s, x: x / (x.norm(dim=-1, keepdim=True) * D ** -0.5 + 1e-5) * s.w, w=weight(D)), [x3()], {},
         source="hand-written, x / (norm / sqrt n + eps)", where=FEW, near_miss_of="rmsnorm",
         why="epsilon is added outside the root; equal to RMSNorm only as epsilon goes to 0")

    # --- GELU and SiLU -----------------------------------------------------
    from transformers.activations import NewGELUActivation, QuickGELUActivation
    case("gelu_erf_nn", nn.GELU(), [x3()], {"gelu_erf": 1}, where=ALL)
    case("gelu_erf_hand", Fn(lambda s, x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))), [x3()], {"gelu_erf": 1},
         source="hand-written, as in old BERT")
    case("gelu_erf_hand_mul", Fn(lambda s, x: 0.5 * (x * (torch.erf(x * 0.7071067811865476) + 1))), [x3()], {"gelu_erf": 1})
    case("gelu_erf_fp16", nn.GELU().half(), [x3(dtype=torch.float16)], {"gelu_erf": 1}, source="torch.nn.GELU, half", where=FEW)
    case("gelu_tanh_nn", nn.GELU(approximate="tanh"), [x3()], {"gelu_tanh": 1}, where=ALL)
    case("gelu_tanh_gpt2", NewGELUActivation(), [x3()], {"gelu_tanh": 1}, source="transformers NewGELUActivation (pow)")
    case("gelu_tanh_fast", Fn(lambda s, x: 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))), [x3()],
         {"gelu_tanh": 1}, source="hand-written, as transformers FastGELUActivation")
    case("gelu_sigmoid_quick", QuickGELUActivation(), [x3()], {"gelu_sigmoid": 1}, source="transformers QuickGELUActivation")
    case("silu_nn", nn.SiLU(), [x3()], {"silu": 1}, where=ALL)
    case("silu_hand", Fn(lambda s, x: torch.sigmoid(x) * x), [x3()], {"silu": 1})
    case("silu_hand_div", Fn(lambda s, x: x / (1 + torch.exp(-x))), [x3()], {"silu": 1},
         notes="x / (1 + exp(-x))")
    case("silu_glu", Fn(lambda s, x: s.down(F.silu(s.gate(x)) * s.up(x)), gate=nn.Linear(D, D, bias=False),
                        up=nn.Linear(D, D, bias=False), down=nn.Linear(D, D, bias=False)), [x3()], {"silu": 1},
         source="hand-written, Llama MLP")

    # --- attention ---------------------------------------------------------
    one = {"attention": 1}

    def heads(t=T, h=H, dtype=torch.float32):
        return torch.randn(B, h, t, D // H, dtype=dtype)

    qkv = [heads(), heads(6), heads(6)]
    same = [heads(), heads(), heads()]
    additive = 2 * torch.randn(B, 1, T, 6)
    boolean = torch.rand(B, 1, T, 6) > 0.3
    boolean[..., 0] = True
    dynamic = {0: "batch", 2: "time"}
    sdpa = F.scaled_dot_product_attention
    case("attention_sdpa", Fn(lambda s, q, k, v: sdpa(q, k, v)), qkv, one, source="F.scaled_dot_product_attention", where=ALL)
    case("attention_sdpa_dynamic", Fn(lambda s, q, k, v: sdpa(q, k, v)), same, one,
         source="F.scaled_dot_product_attention, dynamic shapes", dynamic=[dynamic] * 3, where=["torchscript-17", "dynamo-18"])
    case("attention_sdpa_scale", Fn(lambda s, q, k, v: sdpa(q, k, v, scale=0.3)), qkv, one,
         source="F.scaled_dot_product_attention, scale=0.3")
    case("attention_sdpa_additive", Fn(lambda s, q, k, v, m: sdpa(q, k, v, attn_mask=m)), qkv + [additive], one,
         source="F.scaled_dot_product_attention, additive mask", where=ALL)
    case("attention_sdpa_boolean", Fn(lambda s, q, k, v, m: sdpa(q, k, v, attn_mask=m)), qkv + [boolean], one,
         source="F.scaled_dot_product_attention, boolean mask", where=ALL)
    case("attention_sdpa_causal", Fn(lambda s, q, k, v: sdpa(q, k, v, is_causal=True)), same, one,
         source="F.scaled_dot_product_attention, is_causal", where=ALL)
    case("attention_sdpa_causal_dynamic", Fn(lambda s, q, k, v: sdpa(q, k, v, is_causal=True)), same, one,
         source="F.scaled_dot_product_attention, is_causal, dynamic shapes", dynamic=[dynamic] * 3,
         where=["torchscript-17", "dynamo-18"])
    case("attention_sdpa_fp16", Fn(lambda s, q, k, v: sdpa(q, k, v)), [t.half() for t in qkv], one,
         source="F.scaled_dot_product_attention, half", where=FEW)
    grouped = [heads(h=4), heads(h=2), heads(h=2)]
    case("attention_sdpa_gqa", Fn(lambda s, q, k, v: sdpa(q, k, v, enable_gqa=True)), grouped, one,
         source="F.scaled_dot_product_attention, enable_gqa", where=ALL)

    class SelfAttention(nn.Module):
        """nn.MultiheadAttention used as self-attention, returning only its output."""
        def __init__(self, **options):
            super().__init__()
            self.inner = nn.MultiheadAttention(D, H, batch_first=True)
            self.options = options

        def forward(self, x, *mask):
            more = dict(self.options)
            if mask:
                more["key_padding_mask"] = mask[0]
            return self.inner(x, x, x, need_weights=False, **more)[0]

    case("attention_nn_mha", SelfAttention(), [x3()], one, source="torch.nn.MultiheadAttention", where=ALL)
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[1, 3] = True
    case("attention_nn_mha_padding", SelfAttention(), [x3(), padding], one,
         source="torch.nn.MultiheadAttention, key_padding_mask", where=["torchscript-17", "dynamo-18"])

    def split(x):
        return x.view(x.shape[0], x.shape[1], H, D // H).transpose(1, 2)

    class Written(nn.Module):
        """Attention written out, with its projections; `scores` makes the scaled scores."""
        def __init__(self, scores, mask=None):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
            self.scores = scores
            self.mask = mask

        def forward(self, x):
            q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
            s = self.scores(q, k)
            if self.mask is not None:
                s = self.mask(s)
            y = torch.softmax(s, dim=-1) @ v
            return self.o(y.transpose(1, 2).reshape(x.shape))

    root = math.sqrt(D // H)
    case("attention_hand_q_first", Written(lambda q, k: (q * root ** -1) @ k.transpose(-1, -2)), [x3()], one)
    case("attention_hand_div", Written(lambda q, k: q @ k.transpose(-1, -2) / root), [x3()], one, where=ALL)
    case("attention_hand_mul", Written(lambda q, k: torch.matmul(q, k.transpose(2, 3)) * root ** -1), [x3()], one)
    case("attention_hand_both", Written(lambda q, k: (q * (D // H) ** -0.25) @ (k * (D // H) ** -0.25).transpose(-1, -2)), [x3()], one)
    case("attention_hand_einsum", Written(lambda q, k: torch.einsum("bhid,bhjd->bhij", q, k) / root), [x3()], one)
    case("attention_hand_dynamic", Written(lambda q, k: q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])), [x3()], one,
         dynamic=[{0: "batch", 1: "time"}], where=["torchscript-17", "torchscript-12", "dynamo-18"])

    triangle = torch.tril(torch.ones(T, T, dtype=torch.bool))[None, None]
    case("attention_hand_where", Written(lambda q, k: q @ k.transpose(-1, -2) / root,
         lambda s: torch.where(triangle, s, torch.finfo(torch.float32).min)), [x3()], one,
         source="hand-written, causal by torch.where, as in old GPT-2")
    case("attention_hand_masked_fill", Written(lambda q, k: q @ k.transpose(-1, -2) / root,
         lambda s: s.masked_fill(~triangle, float("-inf"))), [x3()], one, source="hand-written, causal by masked_fill, as in nanoGPT",
         where=["torchscript-17", "dynamo-18"])

    class Packed(nn.Module):
        """q, k and v from one projection (timm's and GPT-2's way)."""
        def __init__(self, way):
            super().__init__()
            self.qkv = nn.Linear(D, 3 * D)
            self.way = way

        def forward(self, x):
            b, t, d = x.shape
            if self.way == "split":
                q, k, v = (split(p) for p in self.qkv(x).split(d, dim=2))
            else:
                q, k, v = self.qkv(x).reshape(b, t, 3, H, d // H).permute(2, 0, 3, 1, 4).unbind(0)
            a = ((q * (d // H) ** -0.5) @ k.transpose(-2, -1)).softmax(-1)
            return (a @ v).transpose(1, 2).reshape(b, t, d)

    case("attention_packed_split", Packed("split"), [x3()], one, source="hand-written, as in GPT-2", where=["torchscript-17", "dynamo-18"])
    case("attention_packed_unbind", Packed("unbind"), [x3()], one, source="hand-written, as in timm ViT", where=["torchscript-17", "dynamo-18"])

    def flat(s, q, k, v):
        # Heads folded into the batch, as in OPT and in nn.MultiheadAttention with weights.
        b, h, t, d = q.shape
        q, k, v = (x.reshape(b * h, x.shape[2], d) for x in (q, k, v))
        a = torch.softmax(torch.bmm(q * d ** -0.5, k.transpose(1, 2)), dim=-1)
        return torch.bmm(a, v).view(b, h, t, d)

    case("attention_hand_flat", Fn(flat), qkv, one, source="hand-written, heads folded into the batch, as in OPT",
         where=["torchscript-17", "dynamo-18"])

    def llama_eager(s, q, k, v, m):
        # As eager_attention_forward of transformers' Llama.
        k, v = repeat_kv(k, 2), repeat_kv(v, 2)
        w = torch.matmul(q, k.transpose(2, 3)) * 0.5 + m
        w = F.softmax(w, dim=-1, dtype=torch.float32).to(q.dtype)
        return torch.matmul(w, v).transpose(1, 2).contiguous()

    case("attention_repeat_kv", Fn(llama_eager), grouped + [torch.randn(B, 1, T, T)], one,
         source="transformers repeat_kv and Llama's eager attention")
    case("attention_repeat_kv_fp16", Fn(llama_eager), [t.half() for t in grouped] + [torch.randn(B, 1, T, T).half()], one,
         source="transformers repeat_kv and Llama's eager attention, half (softmax in float32)", where=FEW)
    case("attention_repeat_kv_dynamic", Fn(llama_eager), grouped + [torch.randn(B, 1, T, T)], one,
         source="transformers repeat_kv and Llama's eager attention, dynamic shapes",
         dynamic=[dynamic] * 3 + [{0: "batch", 2: "time", 3: "time"}], where=["torchscript-17", "dynamo-18"])

    # --- rotary embedding --------------------------------------------------
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_rotary
    hd = 8
    angles = torch.outer(torch.arange(T).float(), 10000 ** (-torch.arange(0, hd, 2).float() / hd))
    cos, sin = (f(torch.cat([angles, angles], -1))[None] for f in (torch.cos, torch.sin))
    q, k = torch.randn(B, H, T, hd), torch.randn(B, H, T, hd)
    positions = torch.arange(T)[None] + 3
    frequencies = 10000 ** (-torch.arange(0, hd, 2).float() / hd)
    case("rotary_llama_const", Fn(lambda s, q, k: apply_rotary_pos_emb(q, k, s.c, s.s), c=cos, s=sin), [q, k], {"rotary": 2},
         source="transformers Llama apply_rotary_pos_emb, cos and sin constant", where=ALL)
    case("rotary_llama_input", Fn(lambda s, q, k, c, n: apply_rotary_pos_emb(q, k, c, n)), [q, k, cos, sin], {"rotary": 2},
         source="transformers Llama apply_rotary_pos_emb, cos and sin are inputs", where=["torchscript-17", "dynamo-18"])

    def llama_computed(s, q, k, p):
        # As LlamaRotaryEmbedding.forward.
        inv = s.f[None, :, None].float().expand(p.shape[0], -1, 1)
        freqs = (inv @ p[:, None, :].float()).transpose(1, 2)
        emb = torch.cat((freqs, freqs), dim=-1)
        return apply_rotary_pos_emb(q, k, emb.cos(), emb.sin())

    case("rotary_llama_computed", Fn(llama_computed, f=frequencies), [q, k, positions], {"rotary": 2},
         source="transformers Llama apply_rotary_pos_emb, cos and sin from positions", where=ALL)
    case("rotary_llama_dynamic", Fn(llama_computed, f=frequencies), [q, k, positions], {"rotary": 2},
         source="transformers Llama apply_rotary_pos_emb, cos and sin from positions, dynamic shapes",
         dynamic=[dynamic, dynamic, {1: "time"}], where=["torchscript-17", "dynamo-18"])

    def neox_partial(s, x):
        # Only the first half of each head is rotated (GPT-NeoX, rotary_pct = 0.5).
        r, rest = x[..., :4], x[..., 4:]
        a, b = r.chunk(2, -1)
        return torch.cat((r * s.c + torch.cat((-b, a), -1) * s.s, rest), -1)

    part = torch.outer(torch.arange(T).float(), 10000 ** (-torch.arange(0, 4, 2).float() / 4))
    part = torch.cat([part, part], -1)[None, None]
    case("rotary_neox_partial", Fn(neox_partial, c=part.cos(), s=part.sin()), [q], {"rotary": 1},
         source="hand-written, as in GPT-NeoX with half of the head rotated", where=["torchscript-17", "dynamo-18"])

    by_position = [t.transpose(1, 2).contiguous() for t in (q, k)]  # GPT-J rotates [batch, time, head, d]
    case("rotary_gptj_const", Fn(lambda s, q, k: (gptj_rotary(q, s.s, s.c), gptj_rotary(k, s.s, s.c)),
                                 s=angles.sin()[None], c=angles.cos()[None]), by_position, {"rotary": 2},
         source="transformers GPT-J apply_rotary_pos_emb, sin and cos constant")

    def gptj_computed(s, q, k, p):
        freqs = torch.einsum("i,j->ij", p[0].float(), s.f)[None]
        return gptj_rotary(q, freqs.sin(), freqs.cos()), gptj_rotary(k, freqs.sin(), freqs.cos())

    case("rotary_gptj_computed", Fn(gptj_computed, f=frequencies), by_position + [positions], {"rotary": 2},
         source="transformers GPT-J apply_rotary_pos_emb, sin and cos from positions", where=["torchscript-17", "dynamo-18"])

    def interleaved_stack(s, x):
        # The same rotation by reshape and stack (Llama's original, in real numbers).
        a, b = x.reshape(B, H, T, hd // 2, 2).unbind(-1)
        return torch.stack((a * s.c - b * s.s, a * s.s + b * s.c), -1).flatten(-2)

    case("rotary_interleaved_stack", Fn(interleaved_stack, c=angles.cos()[None, None], s=angles.sin()[None, None]), [q],
         {"rotary": 1}, source="hand-written, as in Meta's Llama, real arithmetic", where=["torchscript-17", "dynamo-18"])

    # --- convolution -------------------------------------------------------
    image = torch.randn(1, 3, 6, 6)
    case("pad_conv_zeropad", nn.Sequential(nn.ZeroPad2d((1, 2, 0, 1)), nn.Conv2d(3, 4, 3)), [image], {"pad_conv": 1},
         source="nn.ZeroPad2d, nn.Conv2d")
    case("pad_conv_fpad", Fn(lambda s, x: s.conv(F.pad(x, (0, 1, 0, 1), value=0.0)), conv=nn.Conv2d(3, 4, 3, stride=2, padding=1)),
         [image], {"pad_conv": 1}, source="F.pad, nn.Conv2d with own padding", where=ALL)
    case("pad_conv_same", nn.Conv2d(3, 4, 4, padding="same"), [image], {"pad_conv": 1},
         source="nn.Conv2d, padding='same', even kernel", where=["torchscript-17", "dynamo-18"])
    case("pad_conv_dynamic_same", Fn(lambda s, x: s.conv(F.pad(x, (
            max((math.ceil(x.shape[-1] / 2) - 1) * 2 + 3 - x.shape[-1], 0) // 2, 1, 0, 1))), conv=nn.Conv2d(3, 4, 3, stride=2)),
         [image], {"pad_conv": 1}, source="F.pad computed from the shape, as in timm's Conv2dSame", where=["torchscript-17"])

    def no_bias():
        return nn.Conv2d(3, 4, 3, padding=1, bias=False)

    case("conv_bias_add", Fn(lambda s, x: s.conv(x) + s.bias, conv=no_bias(), bias=torch.randn(1, 4, 1, 1)), [image],
         {"conv_bias": 1}, source="nn.Conv2d without bias, then + constant [1, C, 1, 1]", where=ALL)
    case("conv_bias_add_twice", Fn(lambda s, x: s.bias + s.conv(x), conv=nn.Conv2d(3, 4, 3), bias=torch.randn(4, 1, 1)), [image],
         {"conv_bias": 1}, source="constant [C, 1, 1] + nn.Conv2d with bias", where=["torchscript-17", "dynamo-18"])
    case("conv_residual", Fn(lambda s, x: s.conv(x) + x, conv=nn.Conv2d(3, 3, 3, padding=1)), [image], {}, where=FEW,
         source="nn.Conv2d + its input", near_miss_of="conv_bias", why="the addend is not constant")
    case("conv_position_add", Fn(lambda s, x: s.conv(x) + s.p, conv=no_bias(), p=torch.randn(1, 1, 6, 6)), [image], {}, where=FEW,
         source="nn.Conv2d + constant [1, 1, H, W]", near_miss_of="conv_bias", why="the constant varies over positions, not channels")
    case("conv_bn_nn", nn.Sequential(no_bias(), nn.BatchNorm2d(4)), [image], {"conv_bn": 1}, source="nn.Conv2d, nn.BatchNorm2d, eval", where=ALL)
    case("conv_bn_relu_bn", nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4)), [image], {}, where=FEW,
         source="nn.Conv2d, nn.ReLU, nn.BatchNorm2d, eval", near_miss_of="conv_bn", why="a ReLU lies between")
    case("conv_bn_hand", Fn(lambda s, x: (s.conv(x) - s.m) * torch.rsqrt(s.v + 1e-5) * s.w + s.b, conv=no_bias(),
                            m=torch.randn(1, 4, 1, 1), v=torch.rand(1, 4, 1, 1) + 0.5, w=weight(1, 4, 1, 1), b=torch.randn(1, 4, 1, 1)),
         [image], {"conv_bn": 1}, where=ALL)
    case("conv_bn_frozen", Fn(lambda s, x: s.conv(x) * s.w + s.b, conv=no_bias(), w=weight(1, 4, 1, 1), b=torch.randn(1, 4, 1, 1)),
         [image], {"conv_bn": 1}, source="hand-written, scale and shift as in torchvision FrozenBatchNorm2d",
         where=["torchscript-17", "dynamo-18"])

    # --- near misses -------------------------------------------------------
    def miss(name, of, why, function, inputs, **parameters):
        case("miss_" + name, Fn(function, **parameters), inputs, {}, where=FEW, near_miss_of=of, why=why)

    def ln_with_mean(s, x):
        m = x.mean(-1, keepdim=True)
        d = x - m
        return d / torch.sqrt(d.pow(2).mean(-1, keepdim=True) + 1e-5) * s.w + s.b, m

    def ln_axis(s, x):
        d = x - x.mean(1, keepdim=True)
        return d / torch.sqrt(d.pow(2).mean(1, keepdim=True) + 1e-5) * s.w + s.b

    def ln_eps_input(s, x, e):
        d = x - x.mean(-1, keepdim=True)
        return d / torch.sqrt(d.pow(2).mean(-1, keepdim=True) + e) * s.w + s.b

    def ln_other(s, x, y):
        m = x.mean(-1, keepdim=True)
        return (y - m) / torch.sqrt((x - m).pow(2).mean(-1, keepdim=True) + 1e-5) * s.w + s.b

    def ln_mixed_axes(s, x):
        d = x - x.mean(-1, keepdim=True)
        return d / torch.sqrt(d.pow(2).mean((-2, -1), keepdim=True) + 1e-5) * s.w + s.b

    def ln_unbiased(s, x):
        return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5) * s.w + s.b

    def ln_std(s, x):
        return s.w * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + s.b

    def ln_cube(s, x):
        d = x - x.mean(-1, keepdim=True)
        return d / torch.sqrt(d.pow(4).mean(-1, keepdim=True) + 1e-5) * s.w + s.b

    miss("layernorm_mean_output", "layernorm", "the inner mean is also a graph output", ln_with_mean, [x3()], **affine())
    miss("layernorm_unbiased", "layernorm", "the variance is divided by n - 1", ln_unbiased, [x3()], **affine())
    miss("layernorm_std", "layernorm", "unbiased, and epsilon is added to the root (the Annotated Transformer)", ln_std, [x3()], **affine())
    miss("layernorm_eps_input", "layernorm", "epsilon is a runtime input", ln_eps_input, [x3(), torch.tensor(1e-5)], **affine())
    miss("layernorm_axis", "layernorm", "the mean is over axis 1 of 3", ln_axis, [x3()], **affine())
    miss("layernorm_mixed_axes", "layernorm", "mean over one axis, variance over two", ln_mixed_axes, [x3()], **affine())
    miss("layernorm_other", "layernorm", "another tensor is normalized than the one measured", ln_other, [x3(), x3()], **affine())
    miss("layernorm_pow4", "layernorm", "the fourth power instead of the square (onnxruntime 1.31 falls for it)", ln_cube, [x3()], **affine())
    miss("rmsnorm_max", "rmsnorm", "the maximum instead of the mean",
         lambda s, x: x * torch.rsqrt(x.pow(2).amax(-1, keepdim=True) + 1e-6) * s.w, [x3()], w=weight(D))
    miss("rmsnorm_sum", "rmsnorm", "the sum instead of the mean",
         lambda s, x: x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6) * s.w, [x3()], w=weight(D))
    miss("rmsnorm_other", "rmsnorm", "another tensor is scaled than the one measured",
         lambda s, x, y: y * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * s.w, [x3(), x3()], w=weight(D))
    miss("gelu_04", "gelu_erf", "0.4 instead of 0.5", lambda s, x: x * 0.4 * (1.0 + torch.erf(x / math.sqrt(2.0))), [x3()])
    miss("gelu_gate", "gelu_erf", "x is multiplied with the gate of y",
         lambda s, x, y: x * 0.5 * (1.0 + torch.erf(y / math.sqrt(2.0))), [x3(), x3()])
    miss("gelu_tanh_cubic", "gelu_tanh", "0.05 instead of 0.044715",
         lambda s, x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.05 * torch.pow(x, 3.0)))), [x3()])
    miss("silu_swapped", "silu", "the sigmoid is of the other factor: a gated linear unit",
         lambda s, x, y: x * torch.sigmoid(y), [x3(), x3()])

    def attend(q, k, v, axis=-1):
        return torch.softmax(q @ k.transpose(-1, -2) / root, dim=axis)

    miss("attention_axis", "attention", "the softmax is over the queries", lambda s, q, k, v: attend(q, k, v, 2) @ v, same)

    def with_weights(s, q, k, v):
        a = attend(q, k, v)
        return a @ v, a

    miss("attention_weights_output", "attention", "the weights are also a graph output", with_weights, same)
    miss("attention_scale_after", "attention", "the weights are divided after the softmax",
         lambda s, q, k, v: torch.softmax(q @ k.transpose(-1, -2), -1) / root @ v, same)
    miss("attention_values", "attention", "the weights are transposed before the values",
         lambda s, q, k, v: attend(q, k, v).transpose(-1, -2) @ v, same)

    def wrong_sign(s, x):
        a, b = x.chunk(2, -1)
        return x * s.c + torch.cat((b, -a), -1) * s.s

    miss("rotary_sign", "rotary", "the other half is negated: the rotation is backwards", wrong_sign, [q], c=cos[:, None], s=sin[:, None])

    def one_side(s, x):
        a, b = x.chunk(2, -1)
        return x * s.c + torch.cat((b, a), -1) * s.s

    miss("rotary_no_minus", "rotary", "no half is negated: not a rotation", one_side, [q], c=cos[:, None], s=sin[:, None])
    conv = nn.Conv2d(3, 4, 3)
    miss("pad_conv_reflect", "pad_conv", "the padding reflects", lambda s, x: s.conv(F.pad(x, (1, 1, 1, 1), mode="reflect")), [image], conv=conv)
    miss("pad_conv_one", "pad_conv", "the padding is 1, not 0", lambda s, x: s.conv(F.pad(x, (1, 1, 1, 1), value=1.0)), [image],
         conv=nn.Conv2d(3, 4, 3))
    miss("pad_conv_channels", "pad_conv", "the channels are padded too",
         lambda s, x: s.conv(F.pad(x, (1, 1, 1, 1, 0, 1))), [image], conv=nn.Conv2d(4, 4, 3))
    return cases


def randomize(module):
    """Random parameters and buffers; scales near 1, variances positive."""
    import torch
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.normal_(0, 0.3)
            if p.dim() == 1 and name.endswith("weight"):
                p.add_(1)
        for name, b in module.named_buffers():
            if name.endswith("running_mean"):
                b.normal_(0, 0.3)
            if name.endswith("running_var"):
                b.uniform_(0.5, 1.5)
    return module.eval()


def torch_export(module, inputs, exporter, dynamic=None):
    """Export with the exporter that the name tells; returns an onnx model."""
    import torch
    opset = int(exporter.split("-")[1])
    inputs = tuple(inputs)
    if exporter.startswith("torchscript"):
        names = [f"x{i}" for i in range(len(inputs))]
        axes = {n: a for n, a in zip(names, dynamic)} if dynamic else None
        out = io.BytesIO()
        torch.onnx.export(module, inputs, out, opset_version=opset, dynamo=False,
                          input_names=names, dynamic_axes=axes)
        return onnx.load_from_string(out.getvalue())
    shapes = None
    if dynamic:
        shapes = tuple({axis: torch.export.Dim.DYNAMIC for axis in a} for a in dynamic)
        # A forward with *args takes its shapes as one tuple.
        import inspect
        if any(p.kind == p.VAR_POSITIONAL for p in inspect.signature(module.forward).parameters.values()):
            shapes = (shapes,)
    program = torch.onnx.export(module, inputs, opset_version=opset, dynamo=True, verbose=False,
                                optimize=not exporter.endswith("unoptimized"), dynamic_shapes=shapes)
    return program.model_proto


def to_numpy(outputs):
    import torch
    if isinstance(outputs, torch.Tensor):
        outputs = [outputs]
    return [o.detach().numpy() for o in outputs]


def part_torch(store, only):
    import contextlib
    import torch
    import onnxscript
    import transformers
    torch.set_num_threads(1)
    # Else nn.MultiheadAttention is one native operator in eval mode, which TorchScript cannot export.
    torch.backends.mha.set_fastpath_enabled(False)
    version = f"torch {torch.__version__.split('+')[0]}"
    for exporter in TORCHSCRIPT:
        store.versions[exporter] = f"{version}, torch.onnx.export(dynamo=False)"
    for exporter in DYNAMO:
        store.versions[exporter] = f"{version}, onnxscript {onnxscript.__version__}, torch.onnx.export(dynamo=True" + \
            (", optimize=False)" if exporter.endswith("unoptimized") else ")")
    torch.manual_seed(SEED)
    for case in torch_cases():
        if only and not re.search(only, case["name"]):
            continue
        torch.manual_seed(SEED)
        module = randomize(case["module"])
        with torch.no_grad():
            expected = to_numpy(module(*[i.clone() for i in case["inputs"]]))
        feeds = [i.numpy() for i in case["inputs"]]
        for exporter in case["where"]:
            try:
                with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
                    model = torch_export(module, case["inputs"], exporter, case.get("dynamic"))
                store.add(exporter, case["name"], model, case, feeds, expected)
            except Exception as error:
                store.failed(exporter, case["name"], error)

    # Whole models of transformers, exported directly.
    version = f"transformers {transformers.__version__}, {version}"
    for way in ("transformers-torchscript-17", "transformers-dynamo-18"):
        store.versions[way] = f"{version}, torch.onnx.export(dynamo={'dynamo' in way})"
    for case in transformers_cases():
        if only and not re.search(only, case["name"]):
            continue
        for way in ("torchscript-17", "dynamo-18"):
            exporter = "transformers-" + way
            if way not in case["where"]:
                continue
            try:
                torch.manual_seed(SEED)
                module = randomize(case["make"]())
                with torch.no_grad():
                    expected = to_numpy(module(*case["inputs"]))
                with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
                    model = torch_export(module, case["inputs"], way)
                store.add(exporter, case["name"], model, case, [i.numpy() for i in case["inputs"]], expected)
            except Exception as error:
                store.failed(exporter, case["name"], error)


# ---------------------------------------------------------------------------
# Whole small models of transformers
# ---------------------------------------------------------------------------

def configs():
    """Tiny configurations: 2 layers, width 8, 2 heads."""
    import transformers as t
    small = dict(vocab_size=16, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                 intermediate_size=16, max_position_embeddings=16)
    return {
        "bert": t.BertConfig(**small),
        "gpt2": t.GPT2Config(vocab_size=16, n_embd=8, n_inner=8, n_layer=2, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0),
        "llama": t.LlamaConfig(**(small | dict(num_attention_heads=4, intermediate_size=8)), num_key_value_heads=2, head_dim=4,
                               bos_token_id=0, eos_token_id=1, pad_token_id=None),
        "gptj": t.GPTJConfig(vocab_size=16, n_embd=8, n_inner=8, n_layer=2, n_head=1, n_positions=8, rotary_dim=4, bos_token_id=0, eos_token_id=0),
        "vit": t.ViTConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
                           image_size=8, patch_size=4, num_channels=3),
        "t5": t.T5Config(vocab_size=16, d_model=8, d_kv=4, d_ff=8, num_layers=2, num_decoder_layers=2, num_heads=2,
                         feed_forward_proj="gated-gelu", relative_attention_num_buckets=8,
                         decoder_start_token_id=0, pad_token_id=0, eos_token_id=1),
        "whisper": t.WhisperConfig(vocab_size=16, num_mel_bins=4, d_model=8, encoder_layers=2, decoder_layers=2,
                                   encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16,
                                   decoder_ffn_dim=16, max_source_positions=8, max_target_positions=16,
                                   pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
                                   suppress_tokens=None, begin_suppress_tokens=None),
        "clip": t.CLIPTextConfig(**small, bos_token_id=0, eos_token_id=1, pad_token_id=2),
    }


# What each model has, counted in its source: per layer times 2, and the rest.
TRUTH = {
    "bert": {"layernorm": 5, "gelu_erf": 2, "attention": 2},
    "gpt2": {"layernorm": 5, "gelu_tanh": 2, "attention": 2},
    "llama": {"rmsnorm": 5, "silu": 2, "attention": 2, "rotary": 4},
    "gptj": {"layernorm": 3, "gelu_tanh": 2, "attention": 2, "rotary": 4},
    "vit": {"layernorm": 5, "gelu_erf": 2, "attention": 2},
    "t5_encoder": {"rmsnorm": 5, "gelu_tanh": 2, "attention": 2},
    "t5_decoder": {"rmsnorm": 7, "gelu_tanh": 2, "attention": 4},
    "whisper_encoder": {"layernorm": 5, "gelu_erf": 4, "attention": 2},
    "clip_text": {"layernorm": 5, "gelu_sigmoid": 2, "attention": 2},
}


def transformers_cases():
    import torch
    import transformers as t
    from torch import nn

    class First(nn.Module):
        """Only the first output of a model, called by the names of its inputs."""
        def __init__(self, model, names, **fixed):
            super().__init__()
            self.model, self.names, self.fixed = model, names, fixed

        def forward(self, x, mask=None):
            inputs = dict(zip(self.names, (x, mask)))
            return self.model(**inputs, **self.fixed, return_dict=False)[0]

    cases = []
    c = configs()
    ids = torch.arange(10).reshape(2, 5) % 16
    mask = torch.ones(2, 5, dtype=torch.long)
    mask[1, 4] = 0

    def add(name, truth, cls, config, names, inputs, where=("torchscript-17", "dynamo-18"), attention="sdpa", **fixed):
        def make():
            config_copy = type(config).from_dict(config.to_dict())
            config_copy._attn_implementation = attention
            torch.manual_seed(SEED)
            return First(cls(config_copy), names, **fixed)
        cases.append(dict(name=name, make=make, inputs=inputs, contains=TRUTH[truth], where=where,
                          source=f"transformers {cls.__name__}, attn_implementation={attention}"))

    tokens = ["input_ids", "attention_mask"]
    both = [ids, mask]
    add("bert_sdpa", "bert", t.BertModel, c["bert"], tokens, both)
    add("gpt2_sdpa", "gpt2", t.GPT2Model, c["gpt2"], tokens, both, use_cache=False)
    add("llama_sdpa", "llama", t.LlamaModel, c["llama"], tokens, both, use_cache=False)
    add("bert_eager", "bert", t.BertModel, c["bert"], tokens, both, attention="eager", where=["torchscript-17"])
    add("llama_eager", "llama", t.LlamaModel, c["llama"], tokens, both, attention="eager", use_cache=False, where=["torchscript-17"])
    add("gptj_eager", "gptj", t.GPTJModel, c["gptj"], tokens[:1], both[:1], attention="eager", use_cache=False)
    add("vit_eager", "vit", t.ViTModel, c["vit"], ["pixel_values"], [torch.randn(1, 3, 8, 8)], attention="eager", where=["dynamo-18"])
    add("t5_encoder_eager", "t5_encoder", t.T5EncoderModel, c["t5"], tokens, both, attention="eager", where=["dynamo-18"])
    from transformers.models.whisper.modeling_whisper import WhisperEncoder
    add("whisper_encoder_sdpa", "whisper_encoder", WhisperEncoder, c["whisper"], ["input_features"], [torch.randn(1, 4, 16)], where=["dynamo-18"])
    add("clip_text_sdpa", "clip_text", t.CLIPTextModel, c["clip"], tokens[:1], both[:1])
    return cases


# ---------------------------------------------------------------------------
# Part "optimum": the command most people use for transformers models
# ---------------------------------------------------------------------------

def part_optimum(store, only):
    import contextlib
    import torch
    import transformers as t
    import optimum.version
    from importlib.metadata import version
    from optimum.exporters.onnx import onnx_export_from_model
    torch.set_num_threads(1)
    c = configs()
    plan = [  # model, task, class, file that is written -> name and truth, opset
        ("bert", "feature-extraction", t.BertModel, {"model.onnx": ("bert", "bert")}, 14),
        ("bert", "feature-extraction", t.BertModel, {"model.onnx": ("bert", "bert")}, 17),
        ("gpt2", "feature-extraction", t.GPT2Model, {"model.onnx": ("gpt2", "gpt2")}, 14),
        ("gpt2", "text-generation-with-past", t.GPT2LMHeadModel, {"model.onnx": ("gpt2_past", "gpt2")}, 17),
        ("llama", "feature-extraction", t.LlamaModel, {"model.onnx": ("llama", "llama")}, 14),
        ("llama", "text-generation-with-past", t.LlamaForCausalLM, {"model.onnx": ("llama_past", "llama")}, 17),
        ("vit", "feature-extraction", t.ViTModel, {"model.onnx": ("vit", "vit")}, 14),
        ("vit", "feature-extraction", t.ViTModel, {"model.onnx": ("vit", "vit")}, 17),
        ("t5", "text2text-generation", t.T5ForConditionalGeneration,
         {"encoder_model.onnx": ("t5_encoder", "t5_encoder"), "decoder_model.onnx": ("t5_decoder", "t5_decoder")}, 14),
        ("whisper", "automatic-speech-recognition", t.WhisperForConditionalGeneration,
         {"encoder_model.onnx": ("whisper_encoder", "whisper_encoder")}, 14),
    ]
    for key, task, cls, files, opset in plan:
        if only and not re.search(only, key):
            continue
        exporter = f"optimum-{opset}"
        store.versions[exporter] = (f"optimum-onnx {version('optimum-onnx')}, transformers {t.__version__}, "
                                    f"torch {torch.__version__.split('+')[0]} (dynamo=False)")
        try:
            torch.manual_seed(SEED)
            model = randomize(cls(c[key]))
            with tempfile.TemporaryDirectory() as folder:
                with contextlib.redirect_stdout(io.StringIO()):
                    onnx_export_from_model(model, folder, task=task, opset=opset, do_validation=False,
                                           **({"nb_max_frames": 16} if key == "whisper" else {}))
                written = {f: onnx.load(os.path.join(folder, f)) for f in files}
        except Exception as error:
            store.failed(exporter, key, error)
            continue
        for file, (name, truth) in files.items():
            try:
                loaded = written[file]
                case = dict(contains=TRUTH[truth], group=name, source=f"transformers {cls.__name__}, task {task}, {file}")
                feeds = optimum_feeds(loaded, c[key])
                expected = optimum_expected(loaded, model, key, truth, feeds)
                store.add(exporter, name, loaded, case, feeds, expected)
            except Exception as error:
                store.failed(exporter, name, error)


def optimum_feeds(model, config):
    """Inputs for an exported file by their names: 2 sequences of 5, a past of 3."""
    rng = np.random.default_rng(SEED)
    past = any("past" in i.name for i in model.graph.input)
    feeds = []
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = []
        for i, d in enumerate(dims):
            if d.dim_value:
                shape.append(d.dim_value)
            elif i == 0:
                shape.append(2)
            elif "past" in value.name and "mask" not in value.name:
                shape.append(3)
            elif value.name == "attention_mask" and past:
                shape.append(8)
            else:
                fixed = {"pixel_values": (2, 3, 8, 8), "input_features": (2, 4, 16)}.get(value.name)
                shape.append(fixed[i] if fixed else (8 if i == 2 else 5))
        if "mask" in value.name:
            feeds.append(np.ones(shape, dtype))
        elif value.name == "position_ids":
            feeds.append(np.tile(np.arange(shape[1], dtype=dtype) + (3 if past else 0), (shape[0], 1)))
        elif value.name == "token_type_ids":
            feeds.append(np.zeros(shape, dtype))
        elif dtype == np.int64:
            feeds.append(rng.integers(0, 16, shape).astype(dtype))
        else:
            feeds.append(rng.standard_normal(shape).astype(dtype))
    return feeds


def optimum_expected(loaded, model, key, truth, feeds):
    """The outputs of the PyTorch model; the caches follow the first output."""
    import torch
    names = [i.name for i in loaded.graph.input]
    inputs = {n: torch.from_numpy(f) for n, f in zip(names, feeds)}
    with torch.no_grad():
        if truth.endswith("_encoder"):
            encoder = model.get_encoder()
            return to_numpy([encoder(**inputs)[0]])
        if truth == "t5_decoder":
            inputs["decoder_input_ids"] = inputs.pop("input_ids")
            inputs["encoder_outputs"] = (inputs.pop("encoder_hidden_states"),)
            inputs["attention_mask"] = inputs.pop("encoder_attention_mask")
            return to_numpy([model(**inputs, use_cache=False)[0]])
        past = [n for n in names if n.startswith("past_key_values")]
        if past:
            from transformers import DynamicCache
            cache = DynamicCache()
            for layer in range(2):
                cache.update(inputs.pop(f"past_key_values.{layer}.key"), inputs.pop(f"past_key_values.{layer}.value"), layer)
            inputs["past_key_values"] = cache
        out = model(**inputs, return_dict=True)
        results = []
        for o in loaded.graph.output:
            if o.name.startswith("present"):
                layer = int(o.name.split(".")[1])
                results.append(out.past_key_values[layer][0 if o.name.endswith("key") else 1])
            else:
                results.append(out[o.name])
        return to_numpy(results)


# ---------------------------------------------------------------------------
# Part "tf": TensorFlow and Keras through tf2onnx
# ---------------------------------------------------------------------------

def tf_cases():
    import tensorflow as tf
    import keras
    import tf_keras
    L, O = keras.layers, tf_keras.layers
    rng = np.random.default_rng(SEED)
    B, T, D, H = 2, 4, 8, 2
    cases = []

    def f32(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    def case(name, make, inputs, contains, source, opsets=(17, 13), **more):
        """`make` builds the layers and returns a function of the inputs and the layers."""
        cases.append(dict(name=name, make=make, inputs=inputs, contains=contains, source=source,
                          opsets=opsets, **more))

    x = f32(B, T, D)
    image = f32(1, 6, 6, 3)

    def layer(cls, *args, **kwargs):
        def make():
            made = cls(*args, **kwargs)
            return made, [made]
        return make

    def stack(*makers):
        def make():
            made = [m() for m in makers]

            def call(v):
                for l in made:
                    v = l(v)
                return v
            return call, made
        return make

    def function(f, **arrays):
        def make():
            # Made inside the traced function: tensors from outside become inputs.
            return (lambda *inputs: f(*inputs, **{k: tf.constant(v) for k, v in arrays.items()})), []
        return make

    w, b = 1 + 0.3 * f32(D), 0.3 * f32(D)

    # --- norms ---
    one = {"layernorm": 1}
    case("layernorm_keras3", layer(L.LayerNormalization), [x], one, "keras 3 LayerNormalization")
    case("layernorm_keras3_dynamic", layer(L.LayerNormalization), [x], one, "keras 3 LayerNormalization, batch and time unknown",
         dynamic=[(None, None, D)])
    case("layernorm_keras3_plain", layer(L.LayerNormalization, center=False, scale=False), [x], one,
         "keras 3 LayerNormalization, center=False, scale=False", opsets=(17,))
    case("layernorm_keras3_2axes", layer(L.LayerNormalization, axis=[-2, -1]), [x], one, "keras 3 LayerNormalization, axis=[-2, -1]", opsets=(17,))
    case("layernorm_keras2", layer(O.LayerNormalization), [x], one, "tf_keras (Keras 2) LayerNormalization")
    case("layernorm_keras2_dynamic", layer(O.LayerNormalization), [x], one, "tf_keras (Keras 2) LayerNormalization, batch unknown",
         dynamic=[(None, T, D)], opsets=(17,))
    case("layernorm_keras2_eps", layer(O.LayerNormalization, epsilon=1e-12), [x], one,
         "tf_keras (Keras 2) LayerNormalization, epsilon=1e-12, as in TF BERT (not fused)")

    def moments(x, w, b):
        mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, b, w, 1e-12)

    def squared_difference(x, w, b):
        mean = tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(tf.math.squared_difference(x, mean), -1, keepdims=True)
        return (x - mean) / tf.sqrt(variance + 1e-5) * w + b

    case("layernorm_tf_moments", function(moments, w=w, b=b), [x], one, "tf.nn.moments, tf.nn.batch_normalization (Google's BERT)")
    case("layernorm_tf_squared_difference", function(squared_difference, w=w, b=b), [x], one, "tf.math.squared_difference", opsets=(17,))
    case("rmsnorm_keras3", layer(L.RMSNormalization), [x], {"rmsnorm": 1}, "keras 3 RMSNormalization")
    case("rmsnorm_tf_t5", function(lambda x, w: w * (x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6)), w=w),
         [x], {"rmsnorm": 1}, "TF T5's TFT5LayerNorm written out", opsets=(17,))

    # --- activations ---
    case("gelu_erf_keras3", layer(L.Activation, "gelu"), [x], {"gelu_erf": 1}, "keras 3 Activation('gelu')", opsets=(17,))
    case("gelu_erf_keras2", layer(O.Activation, "gelu"), [x], {"gelu_erf": 1}, "tf_keras (Keras 2) Activation('gelu')")
    case("gelu_erf_tf_hand", function(lambda x: x * (0.5 * (1.0 + tf.math.erf(x / tf.sqrt(2.0))))), [x], {"gelu_erf": 1},
         "tf.math.erf, as in Google's BERT", opsets=(17,))
    case("gelu_tanh_keras3", function(lambda x: keras.activations.gelu(x, approximate=True)), [x], {"gelu_tanh": 1},
         "keras 3 activations.gelu(approximate=True)", opsets=(17,))
    case("gelu_tanh_keras2", function(lambda x: tf_keras.activations.gelu(x, approximate=True)), [x], {"gelu_tanh": 1},
         "tf_keras (Keras 2) activations.gelu(approximate=True)", opsets=(17,))
    case("gelu_tanh_tf_pow", function(lambda x: x * 0.5 * (1.0 + tf.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + 0.044715 * tf.pow(x, 3))))),
         [x], {"gelu_tanh": 1}, "Google's BERT gelu", opsets=(17,))
    case("silu_keras3", layer(L.Activation, "silu"), [x], {"silu": 1}, "keras 3 Activation('silu')", opsets=(17,))
    case("silu_tf_sigmoid", function(lambda x: x * tf.sigmoid(x)), [x], {"silu": 1}, "x * tf.sigmoid(x)", opsets=(17,))
    case("silu_tf_swish", function(lambda x: tf.nn.swish(x)), [x], {"silu": 1}, "tf.nn.swish", opsets=(17,))

    # --- attention ---
    one = {"attention": 1}

    def mha(cls, dynamic=False, **call):
        def make():
            made = cls(num_heads=H, key_dim=D // H)
            return (lambda v, *m: made(v, v, attention_mask=m[0] if m else None, **call)), [made]
        return make

    mask = np.tril(np.ones((T, T), bool))[None].repeat(B, 0)
    case("attention_keras3", mha(L.MultiHeadAttention), [x], one, "keras 3 MultiHeadAttention")
    case("attention_keras3_dynamic", mha(L.MultiHeadAttention), [x], one, "keras 3 MultiHeadAttention, batch and time unknown",
         dynamic=[(None, None, D)], opsets=(17,))
    case("attention_keras3_mask", mha(L.MultiHeadAttention), [x, mask], one, "keras 3 MultiHeadAttention, attention_mask")
    case("attention_keras3_causal", mha(L.MultiHeadAttention, use_causal_mask=True), [x], one,
         "keras 3 MultiHeadAttention, use_causal_mask", opsets=(17,))
    case("attention_keras2", mha(O.MultiHeadAttention), [x], one, "tf_keras (Keras 2) MultiHeadAttention", opsets=(17,))
    case("attention_keras2_mask", mha(O.MultiHeadAttention), [x, mask], one, "tf_keras (Keras 2) MultiHeadAttention, attention_mask", opsets=(17,))

    def gqa():
        made = L.GroupQueryAttention(head_dim=4, num_query_heads=4, num_key_value_heads=2)
        return (lambda v: made(v, v)), [made]

    case("attention_keras3_gqa", gqa, [x], one, "keras 3 GroupQueryAttention", opsets=(17,))

    def written(q, k, v):
        s = tf.matmul(q, k, transpose_b=True) / tf.sqrt(tf.constant(4.0))
        return tf.matmul(tf.nn.softmax(s, -1), v)

    def written_mask(q, k, v, m):
        s = tf.multiply(tf.matmul(q, k, transpose_b=True), 0.5)
        s += (1.0 - tf.cast(m[:, None], tf.float32)) * -10000.0
        return tf.matmul(tf.nn.softmax(s, -1), v)

    qkv = [f32(B, H, T, 4) for _ in range(3)]
    case("attention_tf_hand", function(written), qkv, one, "tf.matmul(transpose_b), tf.nn.softmax", opsets=(17,))
    case("attention_tf_hand_mask", function(written_mask), qkv + [mask.astype(np.int32)], one,
         "Google's BERT attention with its -10000 mask", opsets=(17,))

    def rotary(x, c, s):
        a, b = tf.split(x, 2, axis=-1)
        return x * c + tf.concat([-b, a], -1) * s

    angles = np.outer(np.arange(T), 10000.0 ** (-np.arange(0, 4, 2) / 4)).astype(np.float32)
    angles = np.concatenate([angles, angles], -1)[None, None]
    case("rotary_tf_half", function(rotary, c=np.cos(angles), s=np.sin(angles)), qkv[:1], {"rotary": 1},
         "tf.split, tf.concat, cos and sin constant", opsets=(17,))

    # --- convolutions ---
    case("pad_conv_same_stride", layer(L.Conv2D, 4, 3, strides=2, padding="same"), [image], {"pad_conv": 1},
         "keras 3 Conv2D, padding='same', strides=2, with bias")
    case("pad_conv_same_stride_dynamic", layer(L.Conv2D, 4, 3, strides=2, padding="same"), [image], {"pad_conv": 1},
         "keras 3 Conv2D, padding='same', strides=2, size unknown", dynamic=[(None, None, None, 3)], opsets=(17,))
    case("pad_conv_zeropadding", stack(lambda: L.ZeroPadding2D(((0, 1), (0, 1))), lambda: L.Conv2D(4, 3, strides=2, padding="valid")),
         [image], {"pad_conv": 1}, "keras 3 ZeroPadding2D, Conv2D valid (MobileNet)")
    case("pad_conv_tf_pad", function(lambda x, k: tf.nn.conv2d(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), k, 2, "VALID"), k=f32(3, 3, 3, 4)),
         [image], {"pad_conv": 1}, "tf.pad, tf.nn.conv2d", opsets=(17,))
    case("conv_bias_keras3", layer(L.Conv2D, 4, 3), [image], {"conv_bias": 1}, "keras 3 Conv2D with bias", opsets=(17,))
    case("conv_bias_tf_add", function(lambda x, k, b: tf.nn.conv2d(x, k, 1, "VALID") + b, k=f32(3, 3, 3, 4), b=f32(4)), [image],
         {"conv_bias": 1}, "tf.nn.conv2d + constant", opsets=(17,))
    case("conv_bn_keras3", stack(lambda: L.Conv2D(4, 3, use_bias=False), L.BatchNormalization), [image], {"conv_bn": 1},
         "keras 3 Conv2D, BatchNormalization")
    case("conv_bn_keras2", stack(lambda: O.Conv2D(4, 3), O.BatchNormalization), [image], {"conv_bn": 1},
         "tf_keras (Keras 2) Conv2D, BatchNormalization", opsets=(17,))
    case("conv_bn_depthwise", stack(lambda: O.DepthwiseConv2D(3, padding="same", use_bias=False), O.BatchNormalization, O.ReLU), [image],
         {"conv_bn": 1}, "tf_keras (Keras 2) DepthwiseConv2D, BatchNormalization, ReLU (MobileNet)", opsets=(17,))
    case("conv_residual", function(lambda x, k: tf.nn.conv2d(x, k, 1, "SAME") + x, k=f32(3, 3, 3, 3)), [image], {},
         "tf.nn.conv2d + its input", opsets=(17,), near_miss_of="conv_bias", why="the addend is not constant")
    return cases


def part_tf(store, only):
    import tensorflow as tf
    import keras
    import tf2onnx
    import logging
    tf2onnx_version = tf2onnx.__version__
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    for opset in (13, 17):
        store.versions[f"tf2onnx-{opset}"] = f"tf2onnx {tf2onnx_version}, tensorflow {tf.__version__}, keras {keras.__version__}"
    for case in tf_cases():
        if only and not re.search(only, case["name"]):
            continue
        for opset in case["opsets"]:
            exporter = f"tf2onnx-{opset}"
            try:
                call, layers = case["make"]()
                inputs = [tf.constant(i) for i in case["inputs"]]
                call(*inputs)  # builds the layers
                rng = np.random.default_rng(SEED)
                for l in layers:
                    for v in l.weights:
                        if v.dtype in (tf.float32, "float32"):
                            value = 0.3 * rng.standard_normal(tuple(v.shape)).astype(np.float32)
                            if any(word in v.name for word in ("gamma", "scale")):
                                value += 1
                            if "variance" in v.name:
                                value = np.abs(value) + 0.5
                            v.assign(value)
                expected = call(*inputs)
                shapes = case.get("dynamic") or [i.shape for i in case["inputs"]]
                specs = [tf.TensorSpec(s, i.dtype, name=f"x{n}") for n, (s, i) in enumerate(zip(shapes, inputs))]
                model, _ = tf2onnx.convert.from_function(tf.function(call), specs, opset=opset)
                canonical(model)
                store.add(exporter, case["name"], model, case, case["inputs"], [expected.numpy()])
            except Exception as error:
                store.failed(exporter, case["name"], error)


def canonical(model):
    """Order nodes and name values by the graph alone.

    tf2onnx orders some nodes by chance and keeps running numbers in names.
    """
    g = model.graph
    producer = {o: n for n in g.node for o in n.output}
    weights = {t.name: t for t in g.initializer}
    keep = {v.name for v in list(g.input) + list(g.output)} | {""}
    order, used, new, done = [], [], {}, set()

    def visit(name):
        if name in weights and name not in used:
            used.append(name)
        node = producer.get(name)
        if node is None or id(node) in done:
            return
        done.add(id(node))
        for i in node.input:
            visit(i)
        order.append(node)

    for o in g.output:
        visit(o.name)
    for node in order:
        for o in node.output:
            if o not in keep:
                new[o] = f"{node.op_type}_{len(new)}"
    for i, w in enumerate(used):
        new[w] = f"const_{i}"
    for i, node in enumerate(order):
        node.name = f"{node.op_type}_{i}"
        node.input[:] = [new.get(n, n) for n in node.input]
        node.output[:] = [new.get(n, n) for n in node.output]
        attributes = sorted(node.attribute, key=lambda a: a.name)
        node.ClearField("attribute")
        node.attribute.extend(attributes)
    nodes, tensors = [], []
    for node in order:
        nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
    for w in used:
        tensor = onnx.TensorProto.FromString(weights[w].SerializeToString())
        tensor.name = new[w]
        tensors.append(tensor)
    for field, values in (("node", nodes), ("initializer", tensors)):
        g.ClearField(field)
        getattr(g, field).extend(values)
    g.ClearField("value_info")
    g.name = "tf2onnx"
    unknown = {}
    for v in list(g.input) + list(g.output):
        for d in v.type.tensor_type.shape.dim:
            if d.dim_param:
                d.dim_param = unknown.setdefault(d.dim_param, f"unknown_{len(unknown)}")


# ---------------------------------------------------------------------------
# Part "finish": bundles, totals and chains
# ---------------------------------------------------------------------------

MAIN = ("torchscript-17", "torchscript-14", "tf2onnx-17")


def stays_single(entry):
    """Main exporters' files and whole models stay; what has nothing to find is bundled."""
    if entry["exporter"].startswith(("transformers", "optimum")):
        return True
    return entry["exporter"] in MAIN and sum(entry["to_find"].values()) > 0


def prefixed(model, prefix):
    """Put a prefix before all names of nodes and values."""
    def walk(g):
        for item in list(g.input) + list(g.output) + list(g.initializer) + list(g.value_info):
            item.name = prefix + item.name
        for number, node in enumerate(g.node):
            node.name = prefix + (node.name or f"n{number}")
            node.input[:] = [prefix + n if n else n for n in node.input]
            node.output[:] = [prefix + n if n else n for n in node.output]
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    walk(a.g)

    walk(model.graph)
    # Names of unknown sizes are shared by a whole graph.
    g = model.graph
    for v in list(g.input) + list(g.output) + list(g.value_info):
        for d in v.type.tensor_type.shape.dim:
            if d.dim_param:
                d.dim_param = prefix + d.dim_param
    return model


def bundle(parts):
    """One model with the graphs of all parts side by side."""
    whole = None
    for number, model in enumerate(parts):
        prefixed(model, f"p{number}/")
        if whole is None:
            whole = model
            continue
        assert not model.functions
        for field in ("node", "initializer", "input", "output", "value_info"):
            getattr(whole.graph, field).extend(getattr(model.graph, field))
    whole.graph.name = "bundle"
    return whole


def add_counts(entries, key):
    total = {}
    for e in entries:
        for kind, n in e[key].items():
            total[kind] = total.get(kind, 0) + n
    return total


def part_finish(singles, root, chains_path):
    import shutil
    with open(os.path.join(singles, "index.json")) as f:
        index = json.load(f)
    shutil.rmtree(root, ignore_errors=True)
    files, groups = [], {}
    for e in index["files"]:
        if stays_single(e):
            os.makedirs(os.path.join(root, e["exporter"]), exist_ok=True)
            shutil.copy(os.path.join(singles, e["file"]), os.path.join(root, e["file"]))
            files.append(e)
            continue
        word = "near_misses" if "near_miss_of" in e else e["name"].split("_")[0]
        groups.setdefault((e["exporter"], {"pad": "conv", "gelu": "activation", "silu": "activation"}.get(word, word)), []).append(e)
    for (exporter, word), entries in sorted(groups.items()):
        chunks, size = [[]], 0
        for e in sorted(entries, key=lambda e: e["name"]):
            cost = prefixed(onnx.load(os.path.join(singles, e["file"])), "p00/").ByteSize()
            if chunks[-1] and size + cost > LARGEST:
                chunks.append([])
                size = 0
            chunks[-1].append(e)
            size += cost
        for number, chunk in enumerate(chunks):
            model = bundle([onnx.load(os.path.join(singles, e["file"])) for e in chunk])
            onnx.checker.check_model(model, full_check=True)
            feeds = []
            for e in chunk:
                with np.load(os.path.join(singles, e["file"][:-5] + ".npz")) as stored:
                    feeds += [stored[f"f{i}"] for i in range(len(stored.files))]
            checked_by = run(model, feeds, None)[0]
            name = f"bundle_{word}" + (f"_{number + 1}" if len(chunks) > 1 else "")
            path = f"{exporter}/{name}.onnx"
            data = model.SerializeToString()
            os.makedirs(os.path.join(root, exporter), exist_ok=True)
            with open(os.path.join(root, path), "wb") as f:
                f.write(data)
            files.append({
                "file": path, "name": name, "exporter": exporter, "exporter_version": chunk[0]["exporter_version"],
                "opset": chunk[0]["opset"], "source": "bundle of " + ", ".join(e["name"] for e in chunk),
                **{key: add_counts(chunk, key) for key in ("contains", "single_op", "folded", "to_find")},
                "same_graph_from": [], "nodes": sum(e["nodes"] for e in chunk), "bytes": len(data),
                "checked_by": checked_by,
                "parts": [{"prefix": f"p{n}/"} | {k: e[k] for k in ("name", "source", "contains", "single_op", "folded", "to_find", "near_miss_of", "why",
                                             "other_single_op", "same_graph_from", "notes") if k in e and e[k] not in ([], {})
                           or k in ("contains", "to_find")}
                          for n, e in enumerate(chunk)],
            })
    chains = {}
    for e in index["files"]:
        whole = e["exporter"].startswith(("transformers", "optimum"))
        chains.setdefault("whole models" if whole else "near misses" if "near_miss_of" in e else e["name"].split("_")[0], []).append(e)
    files = [{k: v for k, v in e.items() if k not in ("chain", "part")} for e in sorted(files, key=lambda e: e["file"])]
    failed = [{k: v for k, v in e.items() if k != "part"} for e in index["failed"]]
    with open(os.path.join(root, "index.json"), "w") as f:
        json.dump({"kinds": KINDS, "files": files, "failed": failed}, f, indent=1)
        f.write("\n")
    with open(chains_path, "w") as out:
        out.write("Operators in file order (Constant nodes left out; scalars in parentheses, w is a\n"
                  "weight, axes and perm in brackets). '=' names exporters that write the same graph.\n")
        for group in sorted(chains, key=lambda g: (g in ("near misses", "whole models"), g)):
            out.write(f"\n== {group}\n")
            for e in sorted(chains[group], key=lambda e: (e["name"], e["file"])):
                same = f" = {', '.join(e['same_graph_from'])}" if e["same_graph_from"] else ""
                out.write(f"{e['name']} {e['exporter']}{same}: {e['chain']}\n")
        out.write("\n== not produced\n")
        for e in failed:
            out.write(f"{e['name']} {e['exporter']}: {e['error']}\n")
    per = {}
    for e in files:
        per.setdefault(e["exporter"], [0, 0])
        per[e["exporter"]][0] += 1
        per[e["exporter"]][1] += len(e.get("parts", [e]))
    print(f"{len(files)} files, {sum(e['bytes'] for e in files)} bytes, largest {max(e['bytes'] for e in files)}, "
          f"{len(index['files'])} graphs, {len(failed)} failed")
    for exporter in sorted(per):
        print(f"  {exporter}: {per[exporter][0]} files, {per[exporter][1]} graphs")


def main():
    # tf2onnx orders nodes by the hashes of names: fix them, so that a second run gives the same files.
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable] + sys.argv)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["torch", "optimum", "tf", "finish"])
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--singles", default=os.path.join(here, "singles"), help="folder between the parts")
    parser.add_argument("--out", default=os.path.join(here, "spellings"))
    parser.add_argument("--chains", default=os.path.join(here, "chains.txt"))
    parser.add_argument("--only", help="regular expression: make only the modules with such a name again")
    args = parser.parse_args()
    os.makedirs(args.singles, exist_ok=True)
    if args.part == "finish":
        return part_finish(args.singles, args.out, args.chains)
    store = Store(args.singles, args.part)
    {"torch": part_torch, "optimum": part_optimum, "tf": part_tf}[args.part](store, args.only)
    store.save(args.only)


if __name__ == "__main__":
    main()
