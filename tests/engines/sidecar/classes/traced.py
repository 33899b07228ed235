"""Like FlagPerf's torch-tensorrt class: traces and compiles the `nn.Module` at the first batch."""

import time

import torch
import torch_tensorrt


class InferModel:
    def __init__(self, config, onnx_path, model):
        self.config, self.module, self.compiled = config, model, None

    def __call__(self, model_inputs: list):
        start = time.time()
        if self.compiled is None:
            traced = torch.jit.trace(self.module, model_inputs)
            self.compiled = torch_tensorrt.compile(traced, model_inputs, self.config.torchtrt_full_compile)
        seconds = time.time() - start
        return [self.compiled(*model_inputs)], seconds
