"""Checks an exported model with ONNX's own checker and compares flagperf's outputs with those of ONNX Runtime.

    python tests/reference/check_onnx.py MODEL.onnx VALUES.safetensors TOLERANCE

VALUES contains `input.<name>` and flagperf's `output.<name>`. The error of an output is its largest absolute difference
relative to its largest absolute value. The check fails if the error exceeds TOLERANCE or any value is not finite.
"""

import sys

import numpy
import onnx
import onnxruntime
from safetensors.numpy import load_file

path, values, tolerance = sys.argv[1], load_file(sys.argv[2]), float(sys.argv[3])

# The check is by path, so that it includes external data.
onnx.checker.check_model(path, full_check=True)

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
names = [output.name for output in session.get_outputs()]
expected = session.run(names, {i.name: values[f"input.{i.name}"] for i in session.get_inputs()})

failed = False
for name, reference in zip(names, expected):
    actual = values[f"output.{name}"]
    if (actual.shape, actual.dtype) != (reference.shape, reference.dtype):
        sys.exit(f"{name}: {actual.shape} {actual.dtype}, ONNX Runtime returns {reference.shape} {reference.dtype}")
    actual, reference = actual.astype(numpy.float64), reference.astype(numpy.float64)
    error = numpy.abs(actual - reference).max() / numpy.abs(reference).max()
    print(f"{name}: error {error:.2e} (at most {tolerance:.0e}), largest value {numpy.abs(reference).max():.3g}")
    failed |= not error <= tolerance
if failed:
    sys.exit("the outputs differ from ONNX Runtime's")
