"""Like FlagPerf's MacaRT class: returns one tensor with the outputs stacked along an additional dimension."""

import numpy
import torch
from onnx_stub import Network


class InferModel:
    def __init__(self, config, onnx_path, model):
        self.network = Network(onnx_path)

    def __call__(self, model_inputs: list):
        outputs = self.network.compute([tensor.numpy() for tensor in model_inputs])
        return torch.from_numpy(numpy.array(outputs)), 0.0
