"""ONNX Runtime through its Python package, on the CPU."""

import re

import onnxruntime

__version__ = onnxruntime.__version__
ROLES, KINDS = ["compiler"], ["onnx"]
PRECISIONS = ["f32"]
TENSORS = "numpy"


class UnsupportedOperator(Exception):
    """ONNX Runtime does not support an operator of the model."""

    def __init__(self, message, operator, node):
        super().__init__(message)
        self.operator, self.node = operator, node


class InferModel:
    takes_model = False
    device = "cpu"

    def __init__(self, config, onnx_path, model):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads = config.threads
        try:
            self.session = onnxruntime.InferenceSession(onnx_path, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            unsupported = re.search(r'In Node, \("([^"]*)", (\w+),.*No Op registered for', str(error))
            if unsupported:
                raise UnsupportedOperator(str(error), unsupported[2], unsupported[1]) from error
            raise
        self.names = [tensor.name for tensor in self.session.get_inputs()]

    def __call__(self, model_inputs):
        return self.session.run(None, dict(zip(self.names, model_inputs))), 0
