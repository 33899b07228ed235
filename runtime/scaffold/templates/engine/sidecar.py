"""The compiler @NAME@ as a sidecar. It returns zeros, as the engine `null` does: replace the two marked places with calls
of the vendor's library. runtime/sidecar/flagperf_sidecar.py runs this file, and its docstring lists what else a module
may define."""

import numpy

__version__ = "0.1"
ROLES, KINDS, PRECISIONS = ["compiler"], ["onnx"], ["f32", "f16"]
# The options of the engine besides `threads`; `hello` in runtime/sidecar/PROTOCOL.md describes an entry.
OPTIONS = []
# With "torch", inputs are tensors of torch.
TENSORS = "numpy"
DTYPES = dict(f64="float64", f32="float32", f16="float16", i64="int64", i32="int32", i8="int8", u8="uint8", bool="bool")


def zeros(spec, rows):
    """Returns zeros for a spec such as `N,1000,f32`, in which `N` stands for the number of rows."""
    *sizes, dtype = spec.split(",")
    return numpy.zeros([int(size) if size.isdigit() else rows for size in sizes], DTYPES[dtype])


class InferModel:
    # True: `model` is the ONNX file as an nn.Module, which needs torch, onnx and onnx2torch.
    takes_model = False
    device = "cpu"

    def __init__(self, config, onnx_path, model):
        # First place: compile `onnx_path`.
        self.specs = list(config.output_specs.values())

    def __call__(self, model_inputs):
        # Second place: run the compiled model. The second value is FlagPerf's `foo_time`, in seconds.
        rows = len(model_inputs[0])
        return [zeros(spec, rows) for spec in self.specs], 0
