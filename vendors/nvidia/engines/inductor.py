"""PyTorch's own compiler, torch.compile with the backend inductor, on a CUDA device."""

import torch

__version__ = torch.__version__
KINDS, PRECISIONS = ["onnx"], ["f32", "f16", "bf16"]
OPTIONS = [
    {"name": "dynamo_mode", "kind": "text", "default": "max-autotune", "about": "the mode of torch.compile"},
    {"name": "tf32", "kind": "boolean", "default": False, "about": "whether products of fp32 are computed in TF32; set by the case's `precision`"},
]


class InferModel:
    def __init__(self, config, onnx_path, model):
        torch.backends.cudnn.benchmark = True
        # PyTorch computes fp32 convolutions in TF32 by default, and matrix products in fp32.
        tf32 = bool(getattr(config, "tf32", False))
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
        model = model.to("cuda", memory_format=torch.channels_last)
        self.model = torch.compile(model, dynamic=False, mode=getattr(config, "dynamo_mode", None) or "max-autotune")
        # A first call with a full batch, so that compilation is part of loading.
        self([zeros(spec, config.batch_size) for spec in config.input_specs.values()])

    def __call__(self, model_inputs):
        return self.model(*[tensor.to("cuda", non_blocking=True) for tensor in model_inputs]), 0


def zeros(spec, rows):
    *dims, dtype = spec.split(",")
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64}[dtype]
    return torch.zeros([int(dim) if dim.isdigit() else rows for dim in dims], dtype=dtype)
