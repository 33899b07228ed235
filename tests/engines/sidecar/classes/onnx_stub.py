"""The common part of the stubs of vendors' libraries: ONNX Runtime computes."""

import onnxruntime


class Network:
    """A network from ONNX bytes or a file, with the outputs in the model's order."""

    def __init__(self, onnx):
        self.session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
        self.inputs = [value.name for value in self.session.get_inputs()]
        self.outputs = [value.name for value in self.session.get_outputs()]

    def compute(self, arrays):
        return self.session.run(self.outputs, dict(zip(self.inputs, arrays)))
