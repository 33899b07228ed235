"""Writes the backend tests of the ONNX package, one model and one file of tensors each.

    python tests/reference/make_onnx_cases.py FOLDER

KIND.NAME.onnx is the model. KIND.NAME.safetensors has the tensors `SET.in.VALUE` and `SET.out.VALUE`, and as metadata
the tolerances. The metadata `unsupported` names a kind of value that no tensor of the host can have; such a test has
no tensors.
"""

import sys
import warnings
from pathlib import Path

import numpy
import onnx
from onnx.backend.test.loader import DATA_DIR, load_model_tests
from onnx.backend.test.runner import Runner
from safetensors.numpy import save_file

# The element types of the host.
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")
LOCAL_URL = "onnx/backend/test/data/"
PROTOS = {"tensor_type": onnx.TensorProto, "sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}


class Unsupported(Exception):
    """A value that no tensor of the host can have."""


def tensor(value) -> numpy.ndarray:
    """Converts a value to an array of an element type that the host has."""
    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    if not isinstance(value, (numpy.ndarray, numpy.generic)):
        raise Unsupported("a sequence or an optional value")
    array = numpy.array(value, order="C")
    if array.dtype.name not in DTYPES:
        raise Unsupported(f"the element type {array.dtype.name}")
    return array


def read(path: Path, info: onnx.ValueInfoProto):
    """Reads a value in the form that the model declares."""
    kind = info.type.WhichOneof("value")
    proto = PROTOS[kind]() if kind in PROTOS else onnx.TensorProto()
    proto.ParseFromString(path.read_bytes())
    return proto


def read_sets(folder: Path, model: onnx.ModelProto):
    """Yields the inputs and outputs in a folder of the package."""
    for path in sorted(folder.glob("test_data_set*")):
        count = {kind: len(list(path.glob(f"{kind}_*.pb"))) for kind in ("input", "output")}
        infos = {"input": model.graph.input, "output": model.graph.output}
        yield [
            [read(path / f"{kind}_{i}.pb", infos[kind][i]) for i in range(count[kind])] for kind in ("input", "output")
        ]


def light_set(path: Path, model: onnx.ModelProto):
    """Returns the input that the package generates for a whole network, and the output beside its file."""
    weights = {weight.name for weight in model.graph.initializer}
    inputs = [Runner.generate_dummy_data(info) for info in model.graph.input if info.name not in weights]
    outputs = []
    for i, info in enumerate(model.graph.output):
        outputs.append(read(path.with_name(f"{path.stem}_output_{i}.pb"), info))
    return inputs, outputs


def load(case, kind: str):
    """Returns the model of a case, and its sets of inputs and outputs."""
    if kind == "node":
        return case.model, case.data_sets
    if case.model_dir is None:
        path = Path(DATA_DIR) / case.url.removeprefix(LOCAL_URL)
        model = onnx.load(path)
        return model, [light_set(path, model)]
    model = onnx.load(Path(case.model_dir) / "model.onnx")
    return model, list(read_sets(Path(case.model_dir), model))


def tensors(model: onnx.ModelProto, sets) -> dict:
    """Names the tensors of all sets."""
    named = {}
    for number, (inputs, outputs) in enumerate(sets):
        for side, infos, values in (("in", model.graph.input, inputs), ("out", model.graph.output, outputs)):
            for info, value in zip(infos, values):
                named[f"{number}.{side}.{info.name}"] = tensor(value)
    return named


def main(folder: Path) -> None:
    for kind in ("node", "simple", "pytorch-converted", "pytorch-operator", "real"):
        for case in load_model_tests(kind=kind):
            if case.url is not None and not case.url.startswith(LOCAL_URL):
                continue
            model, sets = load(case, kind)
            metadata = {"rtol": str(case.rtol), "atol": str(case.atol)}
            try:
                named = tensors(model, sets)
            except Unsupported as reason:
                named, metadata["unsupported"] = {}, str(reason)
            name = f"{kind}.{case.name.removeprefix('test_')}"
            (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
            save_file(named, folder / f"{name}.safetensors", metadata)


# The package divides by zero on purpose.
warnings.simplefilter("ignore", RuntimeWarning)
main(Path(sys.argv[1]))
