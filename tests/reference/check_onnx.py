"""Checks an exported model with ONNX's own checker and compares our outputs with those of ONNX Runtime.

    python tests/reference/check_onnx.py MODEL.onnx VALUES.safetensors TOLERANCE

VALUES holds `input.<name>` and, as we computed them, `output.<name>`. The error of an output is its largest absolute
difference as a part of its largest absolute value; beyond TOLERANCE, or where anything is not finite, the check fails.
"""

import sys

import numpy
import onnx
import onnxruntime
from safetensors.numpy import load_file

path, values, tolerance = sys.argv[1], load_file(sys.argv[2]), float(sys.argv[3])

# By path, so that external data is looked at too.
onnx.checker.check_model(path, full_check=True)

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
names = [output.name for output in session.get_outputs()]
expected = session.run(names, {i.name: values[f"input.{i.name}"] for i in session.get_inputs()})

failed = False
for name, theirs in zip(names, expected):
    ours = values[f"output.{name}"]
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        sys.exit(f"{name}: {ours.shape} {ours.dtype}, ONNX Runtime has {theirs.shape} {theirs.dtype}")
    ours, theirs = ours.astype(numpy.float64), theirs.astype(numpy.float64)
    error = numpy.abs(ours - theirs).max() / numpy.abs(theirs).max()
    print(f"{name}: error {error:.2e} (at most {tolerance:.0e}), largest value {numpy.abs(theirs).max():.3g}")
    failed |= not error <= tolerance
if failed:
    sys.exit("the outputs differ from ONNX Runtime's")
