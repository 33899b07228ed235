"""Exports several attentions with PyTorch's exporter, each with inputs and PyTorch's own output.

    python tests/reference/export_attention.py FOLDER

Writes NAME.onnx and NAME.safetensors, which contains `x`, `mask` if the model has one, and `y`. The batch size of the
inputs differs from that of the export.
"""

import math
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

HEADS, WIDTH, TOKENS = 4, 32, 5


def split_heads(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


class Operator(nn.Module):
    """PyTorch's own operator, which the exporter decomposes, on projections by one layer."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)

    def attend(self, q, k, v, mask):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def forward(self, x, mask):
        q, k, v = (split_heads(part) for part in self.project(x).chunk(3, -1))
        return self.attend(q, k, v, mask).transpose(1, 2).flatten(2)


class WrittenOut(Operator):
    """The same attention written as products and a softmax."""

    def attend(self, q, k, v, mask):
        return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask).softmax(-1) @ v


class Module(nn.Module):
    """PyTorch's layer; if it also returns the weights, it merges batch and heads into one dimension."""

    def __init__(self, weights):
        super().__init__()
        self.attention, self.weights = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), weights

    def forward(self, x):
        return self.attention(x, x, x, need_weights=self.weights)[0]


def inputs(rows):
    x, mask = torch.randn(rows, TOKENS, WIDTH), torch.randn(rows, 1, 1, TOKENS)
    return {"x": x, "mask": mask}


torch.manual_seed(0)
models = {"operator": Operator(), "written_out": WrittenOut(), "module": Module(False), "module_weights": Module(True)}
for name, model in models.items():
    model.eval()
    names = ["x"] if isinstance(model, Module) else ["x", "mask"]
    example, values = ({key: tensors[key] for key in names} for tensors in (inputs(2), inputs(3)))
    path = Path(sys.argv[1]) / name
    torch.onnx.export(
        model,
        tuple(example.values()),
        path.with_suffix(".onnx"),
        input_names=names,
        output_names=["y"],
        dynamic_axes={key: {0: "N"} for key in [*names, "y"]},
        opset_version=17,
        dynamo=False,
    )
    with torch.no_grad():
        y = model(*values.values())
    save_file({**values, "y": y.contiguous()}, path.with_suffix(".safetensors"))
