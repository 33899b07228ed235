"""PyTorch's own compiler, torch.compile with the backend inductor, on the CPU."""

import torch

__version__ = torch.__version__
KINDS, PRECISIONS = ["onnx"], ["f32"]


class InferModel:
    device = "cpu"

    def __init__(self, config, onnx_path, model):
        self.threads = torch.get_num_threads()
        self.model = torch.compile(model.to("cpu"), dynamic=False)
        # A first call with a full batch, so that compilation is part of loading.
        self([zeros(spec, config.batch_size) for spec in config.input_specs.values()])

    def __call__(self, model_inputs):
        return self.model(*model_inputs), 0


def zeros(spec, rows):
    *dims, _ = spec.split(",")
    return torch.zeros([int(dim) if dim.isdigit() else rows for dim in dims])
