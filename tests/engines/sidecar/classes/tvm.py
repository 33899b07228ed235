"""A stub of the library that FlagPerf's XTCL class calls: it builds a graph, sets inputs by name and gets outputs."""

from onnx_stub import Network


class Executor:
    def __init__(self, onnx_path):
        self.network = Network(onnx_path)
        self.arrays = {}

    def set_input(self, name, array):
        self.arrays[name] = array

    def run(self):
        self.computed = self.network.compute([self.arrays[name] for name in self.network.inputs])

    def get_num_outputs(self):
        return len(self.computed)

    def get_output(self, index):
        return self.computed[index]
