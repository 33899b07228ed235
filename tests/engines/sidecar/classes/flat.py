"""Like FlagPerf's TensorRT and IxRT classes: writes a plan beside the logs and returns outputs without a shape."""

import os

import tensorrt
import torch


class InferModel:
    def __init__(self, config, onnx_path, model):
        plan_path = config.exist_compiler_path or os.path.join(config.log_dir, config.plan_tmp_path)
        if config.exist_compiler_path is None:
            tensorrt.build_plan(onnx_path, plan_path)
        with open(plan_path, "rb") as plan:
            self.engine = tensorrt.Runtime().deserialize(plan.read())

    def __call__(self, model_inputs: list):
        flat = self.engine.execute([tensor.numpy() for tensor in model_inputs])
        return [torch.from_numpy(output) for output in flat], 0
