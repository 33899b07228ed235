"""Calls a LayerNorm library through flagperf_operator.h with torch tensors."""
import ctypes

import torch

ELEMENT_TYPES = {torch.float32: 1, torch.float16: 10, torch.float64: 11, torch.bfloat16: 16}


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("shape", ctypes.POINTER(ctypes.c_int64)), ("rank", ctypes.c_int32),
                ("element_type", ctypes.c_int32)]


class Attribute(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("integer", ctypes.c_int64), ("number", ctypes.c_double)]


def describe(tensor):
    if tensor is None:
        return Tensor(None, (ctypes.c_int64 * 1)(), -1, 0)
    shape = (ctypes.c_int64 * max(1, tensor.dim()))(*tensor.shape)
    return Tensor(tensor.data_ptr() or None, shape, tensor.dim(), ELEMENT_TYPES[tensor.dtype])


class Library:
    def __init__(self, path):
        if torch.cuda.is_available():
            ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}", ctypes.RTLD_GLOBAL)
        self.function = ctypes.CDLL(path).flagperf_operator_run
        self.function.restype = ctypes.c_char_p
        self.function.argtypes = [ctypes.POINTER(Tensor), ctypes.c_int32, ctypes.POINTER(Tensor), ctypes.c_int32,
                                  ctypes.POINTER(Attribute), ctypes.c_int32, ctypes.c_void_p]

    def prepare(self, x, y, scale=None, bias=None, residual=None, total=None, axis=None, epsilon=None, plain=False):
        """A function of a stream that runs the operator and returns the reason why it could not, or None."""
        inputs = [describe(t) for t in (x, scale, bias, residual)]
        while inputs[-1].rank < 0:
            inputs.pop()
        outputs = [describe(y)] + ([describe(total)] if total is not None else [])
        attributes = []
        if axis is not None:
            attributes.append(Attribute(b"axis", axis, 0))
        if epsilon is not None:
            attributes.append(Attribute(b"epsilon", 0, epsilon))
        if plain:
            attributes.append(Attribute(b"plain", 1, 0))
        n, m, k = len(inputs), len(outputs), len(attributes)
        inputs, outputs = (Tensor * n)(*inputs), (Tensor * m)(*outputs)
        attributes = (Attribute * max(1, k))(*attributes)

        def call(stream):
            reason = self.function(inputs, n, outputs, m, attributes, k, stream)
            return reason and reason.decode()

        call.kept = (x, y, scale, bias, residual, total)
        return call

    def run(self, x, y, **options):
        stream = torch.cuda.current_stream().cuda_stream if x.is_cuda else None
        return self.prepare(x, y, **options)(stream)
