"""Like FlagPerf's inductor class: passes the `nn.Module` to torch.compile and warms up by itself."""

import time

import torch


class InferModel:
    def __init__(self, config, onnx_path, model):
        torch._dynamo.reset()
        self.config, self.warmups = config, config.dynamo_warmups
        self.module = torch.compile(model, backend=config.dynamo_backend, dynamic=config.dynamo_dynamic)

    def __call__(self, model_inputs: list):
        start = time.time()
        while self.warmups > 0:
            self.module(model_inputs[0])
            self.warmups -= 1
        seconds = time.time() - start
        return [self.module(model_inputs[0])], seconds
