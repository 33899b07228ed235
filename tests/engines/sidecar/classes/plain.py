"""Follows FlagPerf's document: returns a list of the outputs in their shapes and the seconds to subtract."""

import torch
from onnx_stub import Network


class InferModel:
    def __init__(self, config, onnx_path, model):
        self.network = Network(onnx_path)

    def __call__(self, model_inputs: list):
        outputs = self.network.compute([tensor.numpy() for tensor in model_inputs])
        return [torch.from_numpy(output) for output in outputs], 0.0
