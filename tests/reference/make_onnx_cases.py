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
import onnx.parser
from onnx.backend.test.loader import DATA_DIR, load_model_tests
from onnx.backend.test.runner import Runner
from onnx.reference import ReferenceEvaluator
from safetensors.numpy import save_file

# The element types of the host.
FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool")
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


def own(name, text, *inputs, outputs=None, opset=17):
    """Describes a case that the package lacks. ONNX's reference computes the outputs that are not given."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    if outputs is None:
        outputs = ReferenceEvaluator(model).run(None, dict(zip([info.name for info in model.graph.input], inputs)))
    return name, model, [(inputs, outputs)]


def own_cases():
    """Yields what engines were seen to compute wrongly."""
    draw = numpy.random.default_rng(7)
    f32 = lambda *shape: draw.standard_normal(shape).astype(numpy.float32)
    u8 = lambda *shape: draw.integers(0, 255, shape).astype(numpy.uint8)
    array = lambda values, dtype=numpy.float32: numpy.array(values, dtype)
    softmax = lambda x, axis: numpy.exp(x) / numpy.exp(x).sum(axis=axis, keepdims=True)
    cube, image = f32(2, 3, 4), f32(1, 10, 1, 1)
    yield own("softmax_11", "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax(x) }", cube, opset=11, outputs=[softmax(cube, (1, 2))])
    yield own("softmax_11_axis", "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax<axis: int = 0>(x) }", cube, opset=11, outputs=[softmax(cube, (0, 1, 2))])
    yield own("softmax_11_image", "g (float[N,10,1,1] x) => (float[N,10,1,1] y) { y = Softmax(x) }", image, opset=11, outputs=[softmax(image, 1)])
    yield own("logsoftmax_11", "g (float[2,3,4] x) => (float[2,3,4] y) { y = LogSoftmax(x) }", cube, opset=11, outputs=[numpy.log(softmax(cube, (1, 2)))])
    for op in ("ArgMax", "ArgMin"):
        for kind, dtype in (("float", numpy.float32), ("int64", numpy.int64)):
            ties = array([[1, 3, 3, 1], [2, 2, 2, 2]], dtype)
            for keep in (0, 1):
                shape = "2,1" if keep else "2"
                yield own(f"{op.lower()}_{kind}_{keep}", f"g ({kind}[2,4] x) => (int64[{shape}] y) {{ y = {op}<axis: int = 1, keepdims: int = {keep}>(x) }}", ties)
    for a, b, y in (("2,3,4", "4", "2,3"), ("3,4", "4", "3"), ("4", "2,4,5", "2,5"), ("4", "4", "")):
        sizes = lambda text: [int(size) for size in text.split(",")]
        shape = f"[{y}]" if y else ""
        yield own(f"matmul_{a}_{b}".replace(",", "x"), f"g (float[{a}] a, float[{b}] b) => (float{shape} y) {{ y = MatMul(a, b) }}", f32(*sizes(a)), f32(*sizes(b)))
    for op, more in (("Conv", ", float[1,1,2,2] w"), ("MaxPool", ""), ("AveragePool", "")):
        arguments = "x, w" if more else "x"
        x, w = f32(1, 1, 5, 5), f32(1, 1, 2, 2)
        inputs = (x, w) if more else (x,)
        for pad in ("SAME_LOWER", "SAME_UPPER"):
            text = f'g (float[1,1,5,5] x{more}) => (float[1,1,5,5] y) {{ y = {op}<auto_pad: string = "{pad}", kernel_shape: ints = [2, 2], strides: ints = [1, 1]>({arguments}) }}'
            yield own(f"{op.lower()}_{pad.lower()}", text, *inputs)
        if more:
            yield own("conv_without_attributes", "g (float[1,1,5,5] x, float[1,1,2,2] w) => (float[1,1,4,4] y) { y = Conv(x, w) }", *inputs)
    yield own("sign_of_zero", "g (float[3] x) => (float[3] y) { y = Sign(x) }", array([-2, 0, 3]))
    yield own("sign_of_integer", "g (int64[3] x) => (int64[3] y) { y = Sign(x) }", array([-2, 0, 3], numpy.int64))
    large = array([-100, -20, 0, 20, 100, 1000])
    yield own("softplus", "g (float[6] x) => (float[6] y) { y = Softplus(x) }", large, outputs=[numpy.logaddexp(large, 0).astype(numpy.float32)])
    yield own("cast_to_bool", "g (float[5] x) => (bool[5] y) { y = Cast<to: int = 9>(x) }", array([0, 0.5, -2, 2, -0.0]))
    yield own("cast_integer_to_bool", "g (int64[4] x) => (int64[4] y) { a = Cast<to: int = 9>(x) y = Cast<to: int = 7>(a) }", array([0, 1, 256, -3], numpy.int64))
    seven = array([2**40, 7], numpy.int64)
    yield own("large_constant", "g (int64[2] x) => (int64[2] y) { a = Constant<value = int64[2] {1099511627776, 1}>() y = Add(x, a) }", array([1, 2], numpy.int64))
    yield own("large_input", "g (int64[2] x) => (int64[2] y) { y = Identity(x) }", seven)
    yield own("large_cast", "g (float[2] x) => (int64[2] y) { y = Cast<to: int = 7>(x) }", array([3e9, 7]))
    yield own("relu_of_nan", "g (float[4] x) => (float[4] y) { a = Sqrt(x) y = Relu(a) }", array([-1, 0, 4, 9]))
    yield own("clip_of_nan", "g (float[4] x) => (float[4] y) { low = Constant<value_float = 0.5>() high = Constant<value_float = 2.0>() a = Log(x) y = Clip(a, low, high) }", array([-1, 1, 4, 9]))
    yield own("large_end", "g (float[4] x) => (float[3] y) { s = Constant<value = int64[1] {1}>() e = Constant<value = int64[1] {9223372036854775807}>() y = Slice(x, s, e) }", f32(4))
    for zero, shape in (("", "1"), ("s", "0"), ("v", "1")):
        zeros = {"": "", "s": ", uint8 az, uint8 bz", "v": ", uint8[1] az, uint8[1] bz"}[zero]
        inputs = {"": (), "s": (array(12, numpy.uint8), array(100, numpy.uint8)), "v": (array([12], numpy.uint8), array([100], numpy.uint8))}[zero]
        names = ", az, bz" if zero else ""
        yield own(f"matmulinteger_{zero or 'plain'}", f"g (uint8[4,3] a, uint8[3,2] b{zeros}) => (int32[4,2] y) {{ y = MatMulInteger(a, b{names}) }}", u8(4, 3), u8(3, 2), *inputs)
    for zero in (False, True):
        more, name = (", uint8 xz", ", xz") if zero else ("", "")
        inputs = (array(12, numpy.uint8),) if zero else ()
        text = f"g (uint8[1,1,4,4] x, uint8[1,1,3,3] w{more}) => (int32[1,1,4,4] y) {{ y = ConvInteger<kernel_shape: ints = [3, 3], pads: ints = [1, 1, 1, 1], strides: ints = [1, 1], dilations: ints = [1, 1]>(x, w{name}) }}"
        x, w = u8(1, 1, 4, 4), u8(1, 1, 3, 3)
        wide = numpy.pad(x.astype(numpy.int32) - (12 if zero else 0), ((0, 0), (0, 0), (1, 1), (1, 1)))
        y = array([[[[(wide[0, 0, i : i + 3, j : j + 3] * w[0, 0].astype(numpy.int32)).sum() for j in range(4)] for i in range(4)]]], numpy.int32)
        yield own(f"convinteger_padded_{int(zero)}", text, x, w, *inputs, outputs=[y])
    lengths = array([2, 3], numpy.int32)
    x, w, r, b = f32(3, 2, 4), f32(1, 20, 4), f32(1, 20, 5), f32(1, 40)
    text = 'g (float[3,2,4] x, float[1,20,4] w, float[1,20,5] r, float[1,40] b, int32[2] n) => (float[1,2,5] h) { y, h = LSTM<hidden_size: int = 5>(x, w, r, b, n) }'
    one = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[L,1,4] x, float[1,20,4] w, float[1,20,5] r, float[1,40] b) => (float[1,1,5] h) { y, h = LSTM<hidden_size: int = 5>(x, w, r, b) }')
    rows = [ReferenceEvaluator(one).run(None, {"x": x[:n, i : i + 1], "w": w, "r": r, "b": b})[0] for i, n in enumerate(lengths)]
    yield own("lstm_lengths", text, x, w, r, b, lengths, outputs=[numpy.concatenate(rows, axis=1)])
    yield own("scalar_output", "g (float[3] x) => (float y) { y = ReduceSum<keepdims: int = 0>(x) }", f32(3))
    yield own("no_elements", "g (float[3] x) => (int64[1,M] y) { y = NonZero(x) }", array([0, 0, 0]))
    wrong = [array([-7], numpy.int64)]
    yield own("wrong_output_type", "g (float[1] x) => (int64[1] y) { y = Identity(x) }", array([2.9]), outputs=wrong)
    yield own("wrong_output_size", "g (float[2] x) => (float[3] y) { y = Abs(x) }", f32(2), outputs=[array([-7, -7, -7])])
    yield own("defined_twice", "g (float[1] x) => (float[1] y) { y = Abs(x) y = Neg(x) }", array([2]), outputs=[array([-7])])
    yield own("unknown_dimensions", 'g (float["?","?"] x, float["?","?"] z) => (float["?","?"] y) { y = Concat<axis: int = 1>(x, z) }', f32(2, 3), f32(2, 4))
    mask = numpy.where(draw.random((2, 1, 1, 6)) < 0.5, -1e9, 0).astype(numpy.float32)
    mask[..., 0] = 0
    q, k, v = f32(2, 3, 5, 4), f32(2, 3, 6, 4), f32(2, 3, 6, 4)
    scores = q @ k.swapaxes(2, 3) / 2 + mask
    yield own("attention_mask", "g (float[2,3,5,4] q, float[2,3,6,4] k, float[2,3,6,4] v, float[2,1,1,6] m) => (float[2,3,5,4] y) { y = Attention(q, k, v, m) }", q, k, v, mask, opset=23, outputs=[softmax(scores - scores.max(-1, keepdims=True), 3) @ v])


def write(folder: Path, name: str, model: onnx.ModelProto, sets, metadata: dict) -> None:
    try:
        named = tensors(model, sets)
    except Unsupported as reason:
        named, metadata = {}, metadata | {"unsupported": str(reason)}
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    save_file(named, folder / f"{name}.safetensors", metadata)


def main(folder: Path) -> None:
    for kind in ("node", "simple", "pytorch-converted", "pytorch-operator", "real"):
        for case in load_model_tests(kind=kind):
            if case.url is not None and not case.url.startswith(LOCAL_URL):
                continue
            metadata = {"rtol": str(case.rtol), "atol": str(case.atol)}
            write(folder, f"{kind}.{case.name.removeprefix('test_')}", *load(case, kind), metadata)
    for name, model, sets in own_cases():
        write(folder, f"own.{name}", model, sets, {"rtol": "1e-3", "atol": "1e-7"})


# The package divides by zero on purpose.
warnings.simplefilter("ignore", RuntimeWarning)
main(Path(sys.argv[1]))
