"""A stub of the library that FlagPerf's TensorRT and IxRT classes call: plans are files, and buffers have no shape."""

from onnx_stub import Network


def build_plan(onnx_path, plan_path):
    with open(onnx_path, "rb") as onnx, open(plan_path, "wb") as plan:
        plan.write(onnx.read())


class Runtime:
    def deserialize(self, plan):
        return Engine(Network(plan))


class Engine:
    def __init__(self, network):
        self.network = network

    def execute(self, arrays):
        return [output.reshape(-1) for output in self.network.compute(arrays)]
