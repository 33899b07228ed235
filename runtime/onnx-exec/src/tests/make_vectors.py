"""Writes vectors.json: small uses of operators with the outputs that ONNX Runtime computes, or ONNX's own reference
evaluator where ONNX Runtime lacks the operator or the element type.

    python make_vectors.py    # packages: tests/reference/requirements.txt
"""

import json
import pathlib

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

RANDOM = np.random.default_rng(7)
NAMES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "int64": "i64", "int32": "i32", "int8": "i8", "uint8": "u8", "bool": "bool",
}
cases = []


def noise(*shape, dtype="float32", low=-2.0, high=2.0):
    values = RANDOM.uniform(low, high, shape)
    if dtype == "bool":
        return values > 0
    if dtype == "uint8":
        values = abs(values) * 20
    elif dtype.startswith("int"):
        values = values * 10
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def ints(*values, dtype="int64"):
    return np.array(values, dtype=dtype)


def floats(*values, dtype="float32"):
    return np.array(values, dtype=dtype)


def scalar(value, dtype="int64"):
    return np.array(value, dtype=dtype)


def to_json(array):
    def number(value):
        if isinstance(value, (bool, np.bool_)):
            return int(value)
        if array.dtype.kind in "iu":
            return int(value)
        value = float(value)
        if np.isnan(value) or np.isinf(value):
            return str(value)
        return float(np.format_float_positional(np.float32(value))) if array.dtype == np.float32 else value

    return {
        "dtype": NAMES[array.dtype.name],
        "shape": list(array.shape),
        "values": [number(value) for value in array.ravel()],
    }


def run(model, feeds):
    """Runs a model in ONNX Runtime, or else in the reference evaluator."""
    try:
        if any(array.dtype.name == "bfloat16" for array in feeds.values()):
            raise NotImplementedError
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return session.run(None, feeds), "onnxruntime"
    except Exception:  # ONNX Runtime has an exception type for each kind of failure.
        return ReferenceEvaluator(model).run(None, feeds), "reference"


def case(op, inputs, outputs=1, opset=23, reference=False, names=None, **attributes):
    """Adds one use of an operator; `None` is an omitted input."""
    input_names = ["" if array is None else f"x{i}" for i, array in enumerate(inputs)]
    output_names = names or [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, input_names, output_names, **attributes)
    present = [(name, array) for name, array in zip(input_names, inputs) if array is not None]
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in present
    ]
    results = [onnx.ValueInfoProto(name=name) for name in output_names if name]
    graph = helper.make_graph([node], "case", declared, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    feeds = dict(present)
    expected, by = (ReferenceEvaluator(model).run(None, feeds), "reference") if reference else run(model, feeds)
    cases.append({
        "op": op,
        "opset": opset,
        "by": by,
        "attributes": attributes,
        "inputs": [None if array is None else to_json(array) for array in inputs],
        "names": output_names,
        "outputs": [to_json(np.asarray(array)) for array in expected],
    })


SPECIAL = floats(-np.inf, -3.5, -2.5, -1.0, -0.5, 0.0, 0.5, 1.5, 2.5, np.inf, np.nan)


def elementwise():
    x = noise(2, 3, 4)
    for op in ["Tan", "Softplus", "Elu", "Selu", "Mish", "Round", "Sign", "IsNaN", "IsInf"]:
        case(op, [x])
        if op not in ("Tan",):
            case(op, [SPECIAL])
    case("Elu", [x], alpha=0.3)
    case("Selu", [x], alpha=1.2, gamma=0.7)
    case("IsInf", [SPECIAL], detect_negative=0)
    case("IsInf", [SPECIAL], detect_positive=0)
    case("Softplus", [floats(-100, -20, 20, 100)])
    for op in ["GreaterOrEqual", "LessOrEqual", "Greater", "Less", "Equal"]:
        case(op, [noise(3, 1), noise(1, 4)])
        case(op, [SPECIAL, SPECIAL[::-1].copy()])
        case(op, [noise(7, dtype="int32"), noise(7, dtype="int32")])
    case("Xor", [noise(3, 4, dtype="bool"), noise(4, dtype="bool")])
    case("PRelu", [noise(2, 3, 4), noise(3, 1)])
    case("PRelu", [noise(2, 3), noise(1)])
    case("Mean", [noise(2, 3), noise(3), noise(2, 1)])
    case("Mean", [noise(2, 3)])
    case("Max", [SPECIAL, SPECIAL[::-1].copy()])
    case("Min", [SPECIAL, SPECIAL[::-1].copy()])
    for dtype in ["int64", "int32", "int8", "uint8"]:
        a = ints(-7, 7, -7, 7, 0, 10).astype(dtype)
        b = ints(3, 3, -3, -3, 5, 7).astype(dtype)
        if dtype == "uint8":
            a, b = ints(7, 7, 7, 7, 9, 10, dtype=dtype), ints(3, 4, 5, 6, 9, 7, dtype=dtype)
        case("Mod", [a, b])
        case("Mod", [a, b], fmod=1)
        for op in ["Add", "Sub", "Mul", "Div", "Max", "Min", "Greater"]:
            case(op, [a, b], reference=dtype in ("int8", "uint8"))
        case("Sign", [a])
        case("Abs", [a])
        if dtype != "uint8":
            case("Neg", [a])
    case("Mod", [floats(-7.5, 7.5, 3.25), floats(2, -2, 1.5)], fmod=1)
    case("Pow", [ints(2, -3, 5, 0), ints(10, 3, 0, 2)])
    case("Pow", [ints(2, 3, 5, dtype="int32"), floats(2, 0.5, 1)])
    case("Pow", [floats(2, 3, 5), ints(2, 3, -1)])
    case("Clip", [noise(6, dtype="int64"), scalar(-5), scalar(5)])
    case("Relu", [noise(6, dtype="int32")])


def element_types():
    for dtype in ["float16", "float64", "bfloat16"]:
        x, y = noise(3, 5, dtype=dtype), noise(5, dtype=dtype)
        is_half = dtype == "bfloat16"
        for op in ["Add", "Sub", "Mul", "Div", "Max", "Greater"]:
            case(op, [x, y], reference=is_half)
        if not is_half:
            for op in ["Exp", "Tanh", "Sigmoid", "Abs", "Neg", "Relu", "Softmax", "Sqrt"]:
                case(op, [abs(x)])
            case("MatMul", [x, noise(5, 4, dtype=dtype)])
            case("Gemm", [x, noise(4, 5, dtype=dtype), noise(4, dtype=dtype)], transB=1)
            case("LayerNormalization", [x, y, noise(5, dtype=dtype)])
            case("Conv", [noise(1, 2, 5, 5, dtype=dtype), noise(3, 2, 3, 3, dtype=dtype)])
            case("MaxPool", [noise(1, 2, 4, 4, dtype=dtype)], kernel_shape=[2, 2])
            case("AveragePool", [noise(1, 2, 4, 4, dtype=dtype)], kernel_shape=[2, 2])
            case("ReduceMean", [x, ints(1)])
            case("ReduceMax", [x, ints(0)])
        case("Transpose", [x], perm=[1, 0], reference=is_half)
        case("Concat", [x, x], axis=0, reference=is_half)
        case("Slice", [x, ints(0), ints(5), ints(1), ints(2)], reference=is_half)
        case("Gather", [x, ints(2, -1)], reference=is_half)
        case("Where", [noise(3, 5, dtype="bool"), x, y], reference=is_half)
    for source in NAMES:
        x = noise(7, dtype=source)
        for target in ["float64", "float32", "float16", "int64", "int32", "bool"]:
            if source != target:
                case("Cast", [x], to=int(helper.np_dtype_to_tensor_dtype(np.dtype(target))), reference=True)
    case("Cast", [floats(1.0009, 65519, 65520, 1e-8)], to=onnx.TensorProto.FLOAT16)
    case("Cast", [floats(1.0009, 1.00390625, 1.01171875)], to=onnx.TensorProto.BFLOAT16)
    case("CastLike", [noise(3), noise(1, dtype="int32")])
    case("MatMul", [noise(2, 3, dtype="int64"), noise(3, 2, dtype="int64")])
    case("MatMul", [noise(2, 3, dtype="int32"), noise(3, dtype="int32")])


def reductions():
    x = noise(2, 3, 4)
    kinds = ["ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"]
    for op in kinds + ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean"]:
        case(op, [x, ints(-1)])
        case(op, [x, ints(0)])
        case(op, [x, ints(1)], keepdims=0)
        case(op, [x, ints(0, -1)], keepdims=0)
        case(op, [x])
        if op != "ReduceMean":
            case(op, [noise(3, 4, dtype="int64"), ints(0)]) if op not in ("ReduceL2", "ReduceLogSumExp") else None
    case("ReduceLogSum", [abs(x), ints(1)])
    case("ReduceLogSumExp", [floats(1000, 999, -np.inf)])
    case("ReduceSum", [noise(2, 0, 3), ints(1)])
    case("ReduceProd", [noise(2, 0, 3), ints(1)])
    case("ReduceMax", [noise(2, 0, 3), ints(1)], reference=True)
    case("ReduceProd", [noise(2, 3)], noop_with_empty_axes=1)
    case("ArgMin", [x], axis=-1)
    case("ArgMin", [floats(3, 1, 2, 1)], axis=0, keepdims=0)
    case("ArgMin", [floats(3, 1, 2, 1)], axis=0, select_last_index=1)
    case("ArgMax", [noise(3, 4, dtype="int32")], axis=0)
    for axis in (0, -1, 1):
        case("CumSum", [x, scalar(axis)])
    case("CumSum", [x, scalar(1)], exclusive=1)
    case("CumSum", [x, scalar(1)], reverse=1)
    case("CumSum", [x, scalar(-2)], reverse=1, exclusive=1)
    case("CumSum", [noise(6, dtype="int64"), scalar(0)])
    case("TopK", [x, ints(3)], outputs=2)
    case("TopK", [x, ints(2)], outputs=2, axis=0)
    case("TopK", [x, ints(2)], outputs=2, axis=1, largest=0)
    case("TopK", [floats(2, 5, 5, 1, 5), ints(4)], outputs=2)
    case("TopK", [noise(9, dtype="int64"), ints(9)], outputs=2)
    case("TopK", [x, ints(0)], outputs=2)


def indexing():
    x = noise(3, 4)
    case("GatherElements", [x, ints(0, -1, 2, 1).reshape(1, 4)], axis=0)
    case("GatherElements", [x, ints(3, -4, 0, 1, 1, 2).reshape(3, 2)], axis=-1)
    case("GatherElements", [noise(5, dtype="int64"), np.zeros(0, np.int64)])
    case("GatherND", [x, ints(0, 1, -1, -1).reshape(2, 2)])
    case("GatherND", [x, ints(2, -3).reshape(2, 1)])
    case("GatherND", [noise(2, 3, 4), ints(1, 0).reshape(2, 1)], batch_dims=1)
    case("GatherND", [noise(2, 3, 4), ints(1, 0, 2, 3, 0, -1, 2, 2).reshape(2, 2, 2)], batch_dims=1)
    case("ScatterElements", [x, ints(0, -1, 2, 1).reshape(1, 4), noise(1, 4)], axis=0)
    case("ScatterElements", [x, ints(3, 0, 1, 1, 2, -4).reshape(3, 2), noise(3, 2)], axis=1, reduction="add")
    for reduction in ["add", "mul", "min", "max"]:
        case("ScatterElements", [noise(4), ints(1, 1, 3, 1, 1, 3), noise(6)], reduction=reduction)
        case("ScatterND", [noise(4, 2), ints(1, 1, 3, 1).reshape(4, 1), noise(4, 2)], reduction=reduction)
    case("ScatterND", [x, ints(0, 1, -1, -1).reshape(2, 2), noise(2)])
    case("ScatterND", [noise(4, 3, 2), ints(2, 0).reshape(2, 1), noise(2, 3, 2)])
    case("ScatterND", [noise(3, dtype="bool"), ints(2).reshape(1, 1), np.array([True])])
    case("ScatterND", [noise(3, dtype="int64"), np.zeros((0, 1), np.int64), np.zeros(0, np.int64)])
    case("OneHot", [ints(0, 2, -1, 5), scalar(4), floats(0, 1)])
    case("OneHot", [ints(0, 2, 1, 1).reshape(2, 2), scalar(3), ints(5, 7)], axis=0)
    case("OneHot", [ints(0, 2), ints(3), ints(0, 1)], axis=1)
    case("Tile", [x, ints(2, 3)])
    case("Tile", [x, ints(1, 0)])
    case("Tile", [noise(3, dtype="bool"), ints(2)])
    case("Range", [scalar(2), scalar(11), scalar(3)])
    case("Range", [scalar(5), scalar(-2), scalar(-2)])
    case("Range", [scalar(5), scalar(5), scalar(1)])
    case("Range", [scalar(0.5, "float32"), scalar(2.2, "float32"), scalar(0.5, "float32")])
    case("Trilu", [noise(2, 3, 4)])
    case("Trilu", [noise(4, 3), scalar(-1)])
    case("Trilu", [noise(3, 4), scalar(1)], upper=0)
    case("Trilu", [noise(3, 3, dtype="int64"), scalar(-9)], upper=0)
    case("Trilu", [noise(3, 3, dtype="bool")], upper=0)
    case("NonZero", [noise(3, 4, dtype="bool")])
    case("NonZero", [floats(0, 1, 0, -2, np.nan)])
    case("NonZero", [np.zeros((2, 2), np.int64)])
    case("Size", [noise(3, 0, 2)])
    case("Size", [x])
    case("DepthToSpace", [noise(1, 8, 2, 3)], blocksize=2)
    case("DepthToSpace", [noise(2, 8, 2, 3)], blocksize=2, mode="CRD")
    case("SpaceToDepth", [noise(2, 2, 4, 6)], blocksize=2)


def composed():
    for equation, shapes in [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("bhqd,bkhd->bhqk", [(2, 3, 4, 5), (2, 6, 3, 5)]),
        ("ij->ji", [(3, 4)]),
        ("ij->", [(3, 4)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("i,j", [(3,), (4,)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (1, 5, 4, 2)]),
        ("b...->b", [(2, 3, 4)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("bij,ij->b", [(2, 3, 4), (3, 4)]),
        ("b i , b j -> i j", [(2, 3), (2, 4)]),
    ]:
        case("Einsum", [noise(*shape) for shape in shapes], equation=equation)
    case("Gelu", [noise(2, 5)])
    case("Gelu", [noise(2, 5)], approximate="tanh")
    case("LayerNormalization", [noise(2, 3, 4), noise(4), noise(4)])
    case("LayerNormalization", [noise(2, 3, 4), noise(3, 4)], axis=1, epsilon=0.1)
    x, w = noise(1, 4, 3, 4), noise(4, 3, 3, 2)
    case("ConvTranspose", [x, w])
    case("ConvTranspose", [x, w, noise(3)], strides=[2, 3], pads=[1, 0, 2, 1])
    case("ConvTranspose", [x, w], strides=[3, 2], output_padding=[2, 1])
    case("ConvTranspose", [x, w], dilations=[2, 3])
    case("ConvTranspose", [noise(1, 4, 3, 4), noise(4, 3, 3, 2)], group=2, strides=[2, 2])
    case("ConvTranspose", [x, w], strides=[2, 2], output_shape=[8, 8])
    case("ConvTranspose", [x, w], strides=[2, 2], auto_pad="SAME_UPPER")
    case("ConvTranspose", [x, w], strides=[2, 2], auto_pad="SAME_LOWER")
    case("ConvTranspose", [x, w], pads=[2, 1, 2, 1])
    case("ConvTranspose", [noise(2, 3, 5), noise(3, 2, 4)], strides=[2], pads=[1, 1])
    case("InstanceNormalization", [noise(2, 3, 4, 2), noise(3), noise(3)])
    case("GroupNormalization", [noise(2, 4, 3, 2), noise(4), noise(4)], opset=21, num_groups=2)
    case("GroupNormalization", [noise(2, 4, 3), noise(4), noise(4)], opset=21, num_groups=4, epsilon=0.1)
    case("GroupNormalization", [noise(2, 4, 3), noise(2), noise(2)], opset=18, num_groups=2)
    case("RMSNormalization", [noise(2, 3, 4), noise(4)])
    case("RMSNormalization", [noise(2, 3, 4), noise(3, 4)], axis=1, epsilon=0.1)
    case("RMSNormalization", [noise(2, 8, dtype="float16"), noise(8, dtype="float16")])


def rotary():
    positions = ints(0, 1, 2, 5, 4, 3).reshape(2, 3)
    for interleaved in (0, 1):
        more = {"interleaved": interleaved}
        case("RotaryEmbedding", [noise(2, 2, 3, 4), noise(6, 2), noise(6, 2), positions], **more)
        case("RotaryEmbedding", [noise(2, 2, 3, 4), noise(2, 3, 2), noise(2, 3, 2)], **more)
        case("RotaryEmbedding", [noise(2, 3, 8), noise(6, 2), noise(6, 2), positions], num_heads=2, **more)
        case("RotaryEmbedding", [noise(2, 2, 3, 8), noise(6, 2), noise(6, 2), positions], rotary_embedding_dim=4,
             num_heads=2, **more)


def attention():
    def qkv(heads=2, kv_heads=2, rows=3, columns=5):
        return [noise(2, heads, rows, 4), noise(2, kv_heads, columns, 4), noise(2, kv_heads, columns, 6)]

    case("Attention", qkv())
    case("Attention", qkv(), scale=0.3)
    case("Attention", qkv(), softcap=0.5)
    case("Attention", qkv(rows=5), is_causal=1)
    case("Attention", qkv(heads=6))
    case("Attention", [*qkv(), noise(3, 5)])
    case("Attention", [*qkv(), noise(3, 5, dtype="bool")], reference=True)
    case("Attention", [*qkv(), noise(2, 1, 3, 5)])
    hidden = np.ones((3, 5), bool)
    hidden[1] = False
    case("Attention", [*qkv(), hidden], reference=True)
    case("Attention", [*qkv(rows=5), noise(5, 5)], is_causal=1)
    case("Attention", [*qkv(rows=5), noise(5, 5, dtype="bool") | np.eye(5, dtype=bool)], is_causal=1, softcap=2.0,
         reference=True)
    case("Attention", [noise(2, 3, 24), noise(2, 5, 8), noise(2, 5, 12)], q_num_heads=6, kv_num_heads=2)
    past = [noise(2, 2, 4, 4), noise(2, 2, 4, 6)]
    case("Attention", [*qkv(columns=1, rows=1), None, *past], outputs=3)
    case("Attention", [*qkv(columns=3, rows=3), None, *past], outputs=3, is_causal=1, reference=True)
    case("Attention", [*qkv(heads=4, columns=3, rows=3), noise(3, 7), *past], outputs=3, is_causal=1, reference=True)
    case("Attention", [noise(2, 1, 16), noise(2, 1, 8), noise(2, 1, 8), None, noise(2, 2, 4, 4), noise(2, 2, 4, 4)],
         outputs=3, q_num_heads=4, kv_num_heads=2)
    for mode in range(4):
        case("Attention", [*qkv(), noise(3, 5)], qk_matmul_output_mode=mode, reference=True,
             names=["y0", "", "", "y3"], **({"softcap": 0.7} if mode else {}))


def resizing():
    x = noise(1, 1, 4, 5)
    coordinates = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
    for mode in ["nearest", "linear", "cubic"]:
        for way in coordinates:
            more = {"mode": mode, "coordinate_transformation_mode": way}
            case("Resize", [x, None, floats(1, 1, 2, 1.5)], opset=19, **more)
            case("Resize", [x, None, None, ints(1, 1, 3, 8)], opset=19, **more)
            if way != "half_pixel_symmetric":
                case("Resize", [x, None, None, ints(1, 1, 1, 2)], opset=19, **more)
    for rounding in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]:
        case("Resize", [x, None, floats(1, 1, 0.6, 2)], opset=19, nearest_mode=rounding)
    case("Resize", [x, None, floats(0.6, 2)], opset=19, axes=[2, 3], mode="linear")
    case("Resize", [x, None, floats(1, 1, 2, 2)], opset=19, mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)
    case("Resize", [noise(1, 1, 9, 8), None, floats(1, 1, 0.4, 0.6)], opset=19, mode="linear", antialias=1)
    case("Resize", [noise(1, 1, 9, 8), None, floats(1, 1, 0.4, 0.6)], opset=19, mode="cubic", antialias=1)
    for policy in ["not_larger", "not_smaller"]:
        case("Resize", [x, None, None, ints(7, 9)], opset=19, axes=[2, 3], keep_aspect_ratio_policy=policy)
    region = floats(0, 0, 0.2, 0.1, 1, 1, 0.9, 1.3)
    case("Resize", [x, region, None, ints(1, 1, 3, 6)], opset=19, mode="linear",
         coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.5)
    case("Resize", [noise(1, 1, 2, 3, dtype="uint8"), None, floats(1, 1, 2, 2)], opset=19)
    case("Resize", [x, floats(1, 1, 2, 2)], opset=10)
    case("Resize", [noise(1, 1, 40, 3), None, floats(1, 1, 0.1, 1)], opset=19, mode="linear", antialias=1)


def functions():
    x = noise(2, 3, 4)
    for op in ["Acos", "Asin", "Atanh"]:
        case(op, [noise(2, 5, low=-1.0, high=1.0)])
    case("Acosh", [noise(2, 5, low=1.0, high=9.0)])
    for op in ["Asinh", "Atan", "Cosh", "Sinh", "Softsign", "Celu", "ThresholdedRelu"]:
        case(op, [x])
    case("Celu", [x], alpha=0.4)
    case("Celu", [noise(7, dtype="float16")], reference=True)
    case("ThresholdedRelu", [x], alpha=0.3)
    case("Shrink", [x], lambd=0.8)
    case("Shrink", [x], lambd=0.5, bias=0.25)
    case("Swish", [x], opset=24, reference=True)
    case("Swish", [x], opset=24, alpha=0.5, reference=True)
    for axis in (0, 1, -1):
        case("Hardmax", [x], axis=axis)
        case("LpNormalization", [x], axis=axis)
        case("LpNormalization", [x], axis=axis, p=1)
    case("Hardmax", [floats(1, 3, 3, 2)])
    case("LRN", [noise(2, 5, 3, 2)], size=3)
    case("LRN", [noise(5, 5, 1, 2)], size=4, alpha=0.5, beta=0.6, bias=2.0, reference=True)
    case("MeanVarianceNormalization", [noise(2, 3, 4, 5)])
    case("MeanVarianceNormalization", [x], axes=[1, 2], reference=True)
    case("LayerNormalization", [x, noise(4), noise(4)], outputs=3)
    case("LayerNormalization", [x, noise(3, 4)], outputs=3, axis=1, epsilon=0.01)
    case("LpPool", [noise(1, 2, 5, 4)], kernel_shape=[3, 2], strides=[2, 1])
    case("LpPool", [noise(1, 2, 5, 4)], kernel_shape=[2, 2], pads=[1, 0, 1, 1], p=3)
    case("GlobalLpPool", [noise(1, 2, 5, 4)], opset=21)
    case("Mod", [floats(-4, 4, -7.5), floats(2, -2, 2)], fmod=1)
    for dtype in ["int32", "uint8", "int64"]:
        a, b = ints(1, 4, 200, 7, 96).astype(dtype), ints(3, 0, 1, 2, 5).astype(dtype)
        for op in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]:
            case(op, [a, b], reference=True)
        case("BitwiseNot", [a], reference=True)
        case("BitShift", [a, b], direction="LEFT", reference=True)
        case("BitShift", [a, b], direction="RIGHT", reference=True)
    for options in [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}]:
        case("CumProd", [x, scalar(1)], opset=26, reference=True, **options)
    case("CumProd", [ints(2, 3, 4, 5).reshape(2, 2), scalar(0)], opset=26, reference=True)
    case("Det", [noise(2, 3, 3)])


def losses():
    x, labels = noise(3, 5), ints(0, 4, 2)
    weights = abs(noise(5))
    for op in ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"]:
        for reduction in ["none", "sum", "mean"]:
            case(op, [x, labels], reduction=reduction, reference=True)
            case(op, [x, labels, weights], reduction=reduction, reference=True)
        case(op, [x, labels, weights], ignore_index=4, reference=True)
        case(op, [noise(2, 3, 2), ints(0, 2, 1, 0).reshape(2, 2)], ignore_index=2, reference=True)
    case("SoftmaxCrossEntropyLoss", [x, labels], outputs=2, reference=True)


def recurrent():
    steps, batch, size, hidden = 4, 3, 2, 5
    for op, gates in [("RNN", 1), ("GRU", 3), ("LSTM", 4)]:
        def weights(directions):
            return [noise(directions, gates * hidden, size), noise(directions, gates * hidden, hidden),
                    noise(directions, 2 * gates * hidden)]

        outputs = 3 if op == "LSTM" else 2
        for direction in ["forward", "reverse", "bidirectional"]:
            x = noise(steps, batch, size)
            directions = 2 if direction == "bidirectional" else 1
            case(op, [x, *weights(directions)], outputs, hidden_size=hidden, direction=direction)
            state = [noise(directions, batch, hidden) for _ in range(outputs - 1)]
            lengths = ints(4, 1, 3, dtype="int32")
            case(op, [x, *weights(directions), lengths, *state], outputs, hidden_size=hidden, direction=direction)
        case(op, [noise(steps, batch, size), *weights(1)[:2]], outputs, hidden_size=hidden, clip=0.5)
    case("GRU", [noise(steps, batch, size), *[noise(1, 15, 2), noise(1, 15, 5), noise(1, 30)]], 2, hidden_size=5,
         linear_before_reset=1)
    case("RNN", [noise(steps, batch, size), noise(1, 5, 2), noise(1, 5, 5)], 2, hidden_size=5, activations=["Relu"])
    case("RNN", [noise(steps, batch, size), noise(1, 5, 2), noise(1, 5, 5)], 2, hidden_size=5,
         activations=["HardSigmoid"], activation_alpha=[0.3], activation_beta=[0.4])
    peepholes = [noise(steps, batch, size), noise(1, 20, 2), noise(1, 20, 5), noise(1, 40), None, None, None,
                 noise(1, 15)]
    case("LSTM", peepholes, 3, hidden_size=5)
    case("LSTM", [noise(batch, steps, size), noise(1, 20, 2), noise(1, 20, 5)], 3, hidden_size=5, layout=1,
         reference=True)


def quantized():
    x = noise(2, 3, 4)
    case("QuantizeLinear", [x, scalar(0.1, "float32"), scalar(7, "uint8")])
    case("QuantizeLinear", [x, scalar(0.01, "float32"), scalar(-3, "int8")])
    case("QuantizeLinear", [floats(0.5, 1.5, 2.5, -0.5), scalar(1, "float32")])
    case("QuantizeLinear", [x, floats(0.1, 0.2, 0.4), ints(1, 2, 3, dtype="uint8")], axis=1)
    case("DequantizeLinear", [ints(0, 7, 255, dtype="uint8"), scalar(0.25, "float32"), scalar(7, "uint8")])
    case("DequantizeLinear", [noise(2, 3, dtype="int8"), floats(0.5, 2), ints(1, -2, dtype="int8")], axis=0)
    case("DequantizeLinear", [noise(5, dtype="int32"), scalar(0.1, "float32")])
    case("DynamicQuantizeLinear", [x], outputs=3)
    case("DynamicQuantizeLinear", [abs(x)], outputs=3)
    a, b = noise(2, 3, dtype="uint8"), noise(3, 4, dtype="int8")
    case("MatMulInteger", [a, b])
    case("MatMulInteger", [a, b, scalar(7, "uint8"), scalar(-2, "int8")])
    case("MatMulInteger", [a, b, scalar(7, "uint8"), ints(-2, 0, 1, 5, dtype="int8")])
    scales = [scalar(0.05, "float32"), scalar(9, "uint8")]
    case("QLinearMatMul", [a, *scales, b, scalar(0.1, "float32"), scalar(1, "int8"), *scales])
    image, kernel = noise(1, 2, 4, 5, dtype="uint8"), noise(3, 2, 3, 2, dtype="uint8")
    case("ConvInteger", [image, kernel, scalar(5, "uint8")], pads=[1, 0, 1, 1])
    case("ConvInteger", [image, kernel, scalar(5, "uint8"), scalar(3, "uint8")], strides=[2, 1])
    case("QLinearConv", [image, *scales, kernel, floats(0.01, 0.02, 0.04), ints(1, 1, 1, dtype="uint8"), *scales,
                         ints(10, -400, 0, dtype="int32")], pads=[1, 1, 1, 1])


def selection():
    x = noise(3, 4)
    case("Compress", [x, np.array([True, False, True])], axis=0)
    case("Compress", [x, np.array([False, True, True, True, False])])
    case("ReverseSequence", [noise(4, 3, 2), ints(4, 1, 2)], batch_axis=1, time_axis=0)
    case("ReverseSequence", [noise(3, 4, dtype="int64"), ints(0, 3, 4)], batch_axis=0, time_axis=1)
    case("Unique", [floats(2, 1, 1, 3, 2)], outputs=4)
    case("Unique", [ints(2, 1, 1, 3, 2)], outputs=4, sorted=0)
    case("Unique", [ints(1, 2, 1, 2, 0, 0).reshape(3, 2)], outputs=4, axis=0)
    case("EyeLike", [noise(3, 4)], k=1)
    case("EyeLike", [noise(3, 3)], k=-1, dtype=onnx.TensorProto.INT64)
    case("CenterCropPad", [noise(3, 6), ints(5, 3)], reference=True)
    case("CenterCropPad", [noise(3, 6), ints(8)], axes=[-1], reference=True)
    case("MaxPool", [noise(2, 2, 5, 4)], outputs=2, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    case("MaxPool", [noise(1, 2, 6)], outputs=2, kernel_shape=[2], strides=[2])
    case("SpaceToDepth", [noise(2, 2, 4, 6)], blocksize=2)
    boxes = floats(0, 0, 1, 1, 0, 0.1, 1, 1.1, 1, 0.9, 0, -0.1, 0, 10, 1, 11, 0, 10.1, 1, 11.1, 0, 100, 1, 101)
    scores = floats(0.9, 0.75, 0.6, 0.95, 0.5, 0.3, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    for limit in (scalar(3), scalar(1)):
        case("NonMaxSuppression", [boxes.reshape(1, 6, 4), scores.reshape(1, 2, 6), limit, scalar(0.5, "float32"),
                                   scalar(0.15, "float32")])
    case("NonMaxSuppression", [abs(noise(2, 5, 4)), abs(noise(2, 1, 5)), scalar(4), scalar(0.3, "float32")],
         center_point_box=1)


def images():
    volume, kernel = noise(1, 2, 4, 5, 3), noise(3, 2, 2, 3, 2)
    case("Conv", [volume, kernel, noise(3)])
    case("Conv", [volume, kernel], pads=[1, 1, 0, 0, 1, 1], strides=[2, 1, 2])
    case("Conv", [volume, noise(2, 1, 2, 2, 2)], group=2, dilations=[2, 1, 1])
    case("MaxPool", [volume], kernel_shape=[2, 3, 2], strides=[2, 2, 1], pads=[1, 1, 0, 0, 1, 1])
    case("AveragePool", [volume], kernel_shape=[2, 3, 2], strides=[2, 2, 1], pads=[1, 1, 0, 0, 1, 1])
    case("AveragePool", [volume], kernel_shape=[3, 2, 2], pads=[1, 1, 0, 0, 1, 1], count_include_pad=1)
    x, grid = noise(1, 2, 4, 5), noise(1, 3, 3, 2, low=-1.3, high=1.3)
    for mode in ["nearest", "linear", "cubic"]:
        for padding in ["zeros", "border", "reflection"]:
            for align in (0, 1):
                case("GridSample", [x, grid], mode=mode, padding_mode=padding, align_corners=align)
    case("GridSample", [noise(1, 1, 3, 4, 2), noise(1, 2, 2, 2, 3)], mode="linear")
    for align in (0, 1):
        case("AffineGrid", [noise(2, 2, 3), ints(2, 1, 3, 4)], align_corners=align)
    regions = [floats(0, 0, 3, 2, 1, 1, 4, 3.5).reshape(2, 4), ints(0, 0)]
    for mode in ["avg", "max"]:
        case("RoiAlign", [x, *regions], output_height=2, output_width=3, sampling_ratio=2, mode=mode)
    case("RoiAlign", [x, *regions], output_height=2, output_width=2, spatial_scale=0.8,
         coordinate_transformation_mode="output_half_pixel")
    case("Col2Im", [noise(1, 8, 6), ints(3, 4), ints(2, 2)])
    case("Col2Im", [noise(1, 4, 6), ints(4, 5), ints(2, 2)], strides=[2, 2], pads=[0, 0, 0, 1])


def signals():
    for op in ["HannWindow", "HammingWindow", "BlackmanWindow"]:
        case(op, [scalar(7)], opset=17, reference=True)
        case(op, [scalar(6)], opset=17, periodic=0, reference=True)
    case("DFT", [noise(2, 6, 1), None, scalar(1)], opset=20, reference=True)
    case("DFT", [noise(2, 6, 2), scalar(8), scalar(1)], opset=20, reference=True)
    case("DFT", [noise(2, 6, 2), None, scalar(1)], opset=20, inverse=1, reference=True)
    case("DFT", [noise(1, 7, 1), None, scalar(1)], opset=20, onesided=1, reference=True)
    case("STFT", [noise(1, 12, 1), scalar(3), abs(noise(6)), scalar(6)], opset=17)


def old_operator_sets():
    x = noise(2, 3, 4)
    case("Clip", [x], opset=6, min=-0.5, max=1.0)
    case("Clip", [x], opset=9, max=1.0)
    case("Slice", [x], opset=9, starts=[1, 0], ends=[3, 2], axes=[1, 2])
    case("Slice", [x], opset=9, starts=[1], ends=[2])
    for op in ["Softmax", "LogSoftmax", "Hardmax"]:
        for axis in (0, 1, 2):
            case(op, [x], opset=11, axis=axis)
        case(op, [x], opset=9)
    case("Squeeze", [noise(2, 1, 3, 1)], opset=11, axes=[1])
    case("Unsqueeze", [x], opset=11, axes=[0, 4])
    case("Split", [x], outputs=2, opset=11, axis=2, split=[1, 3])
    case("TopK", [x], outputs=2, opset=9, k=2)
    case("Pad", [x], opset=10, pads=[0, 1, 0, 0, 0, 2], value=0.5)
    case("Pad", [x], opset=10, pads=[0, 0, 1, 0, 0, 1], mode="reflect")
    case("Upsample", [noise(1, 1, 2, 3)], opset=7, scales=[1.0, 1.0, 2.0, 3.0])
    case("Upsample", [noise(1, 1, 2, 3), floats(1, 1, 2, 2)], opset=9, mode="linear")
    case("Resize", [noise(1, 1, 4, 4), floats(1, 1, 0.5, 2)], opset=10, mode="linear")
    case("ReduceSum", [x], opset=11, axes=[1], keepdims=0)
    case("Dropout", [x], opset=10, ratio=0.3)
    case("BatchNormalization", [x, noise(3), noise(3), noise(3), abs(noise(3))], opset=8)
    case("Scatter", [noise(3, 4), ints(0, 1, 2, 1).reshape(1, 4), noise(1, 4)], opset=9)
    case("Gemm", [noise(2, 3), noise(3, 4), noise(4)], opset=7)


for add in [elementwise, element_types, reductions, indexing, composed, rotary, attention, resizing, functions, losses,
            recurrent, quantized, selection, images, signals, old_operator_sets]:
    add()
path = pathlib.Path(__file__).parent / "vectors.json"
path.write_text("[\n" + ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in cases) + "\n]\n")
print(len(cases), "cases,", sum(entry["by"] == "onnxruntime" for entry in cases), "by ONNX Runtime,",
      path.stat().st_size, "bytes")
