"""Runs a FlagPerf engine class as it is, as a sidecar of flagperf: python3 -m flagperf_sidecar ENGINE.py

ENGINE.py has a class `InferModel`: `__init__(config, onnx_path, model)`, and `__call__(inputs)` which gives the outputs
in the model's order and the seconds that it wants taken off (FlagPerf's `foo_time`; recorded, never taken off).
`config` is a named tuple with FlagPerf's keys, the options of vendor.yaml among them, and `threads` (0: as you like) and
`input_specs` (by name: `N,3,224,224,f32`). `model` is the ONNX file as an `nn.Module`; None with `no_validation`.
`inputs` are tensors on the CPU, of torch where it is installed, else of numpy: read them, do not write to them.
README.md lists the forms that outputs may have.

A module may say more of itself: `__version__`; the `ROLES`, `KINDS` and `PRECISIONS` of PROTOCOL.md; `TENSORS = "numpy"`,
which spares the import of torch. Its class may have `takes_model = False`, which spares the conversion; `device` and
`threads`, what it computes on and with; `device_memory()`, bytes in use; `ask(question, argument)` and `tune(setting,
value)`, for forward functions that ask the engine and change its settings. Python 3.9 or later, with numpy or torch.
"""

import ctypes
import importlib.util
import json
import math
import mmap
import operator
import os
import platform
import reprlib
import select
import sys
import time
import traceback

PROTOCOL = 1
DTYPES = dict(f64="float64", f32="float32", f16="float16", bf16="bfloat16", bool="bool")
DTYPES.update(i64="int64", i32="int32", i8="int8", u8="uint8")
NAMES = {name: dtype for dtype, name in DTYPES.items()}
# Lines of a traceback that go into the record.
TRACEBACK_LINES = 8
# More seconds than this are no time of a step.
SECONDS_MAX = 1e9
# Shows a value in at most so many characters, whatever its own `__repr__` does.
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 200
JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
# How long a question is awaited without sleeping: a core that sleeps takes tens of microseconds to wake.
AWAKE_SECONDS = 200e-6


class Failure(Exception):
    """Something that could not be done, said in full."""


class Config(tuple):
    """FlagPerf's `config`: a named tuple whose keys may be any text, `getattr(config, "wide-blocks")`."""

    def __new__(cls, values):
        config = super().__new__(cls, values.values())
        # A key hides what every tuple has (`count`), but not what makes this one a named tuple (`_asdict`).
        hidden = {key: value for key, value in values.items() if not (key.startswith("_") and hasattr(cls, key))}
        config.__dict__.update(hidden, _fields=tuple(values))
        return config

    def __getnewargs__(self):
        return (self._asdict(),)

    def __getattr__(self, key):
        if key.startswith("__"):
            raise AttributeError(key)
        raise AttributeError(f"`config` has no key `{key}` (known: {', '.join(self._fields)})")

    def __setattr__(self, key, _):
        raise AttributeError(f"`config.{key}` cannot be changed: `config._replace({key}=...)` gives a changed copy")

    def __repr__(self):
        return f"Config({', '.join(f'{key}={value!r}' for key, value in self._asdict().items())})"

    def _asdict(self):
        return dict(zip(self._fields, self))

    def _replace(self, **changes):
        unknown = [key for key in changes if key not in self._fields]
        if unknown:
            raise ValueError(f"`config` has no key `{unknown[0]}` (known: {', '.join(self._fields)})")
        return Config({**self._asdict(), **changes})


def absent(reason):
    """Stands for a model that could not be made: says why as soon as somebody wants it."""

    def wanted(*_):
        raise Failure(reason)

    return type("Absent", (), {"__getattr__": wanted, "__call__": wanted})()


def installed(name):
    return importlib.util.find_spec(name) is not None


class NumpyTensors:
    """Tensors of numpy, which is `library`."""

    def __init__(self, library):
        self.library = library

    def view(self, memory, dtype, shape, offset):
        if not hasattr(self.library, dtype):
            raise Failure(f"numpy has no `{dtype}`: torch has it")
        count = self.library.prod(shape, dtype=int)
        return self.library.frombuffer(memory, dtype, count, offset).reshape(shape)

    def again(self, view):
        return view.view()

    def pin(self, memory): ...

    def unpin(self, memory): ...

    def synchronize(self, outputs): ...

    def copy(self, source, target):
        self.library.copyto(target, source)


class TorchTensors(NumpyTensors):
    """Tensors of torch, which is `library`."""

    def __init__(self, library):
        super().__init__(library)
        library.set_grad_enabled(False)

    def view(self, memory, dtype, shape, offset):
        dtype = getattr(self.library, dtype)
        if 0 in shape:
            return self.library.empty(shape, dtype=dtype)
        count = self.library.Size(shape).numel()
        return self.library.frombuffer(memory, dtype=dtype, count=count, offset=offset).reshape(shape)

    def again(self, view):
        return view.detach()

    def pin(self, memory):
        """Lets a device of CUDA read the memory by itself. One that refuses reads it in pieces, as if nothing was asked."""
        if self.library.cuda.is_initialized():
            self.library.cuda.cudart().cudaHostRegister(address(memory), len(memory), 0)

    def unpin(self, memory):
        if self.library.cuda.is_initialized():
            self.library.cuda.cudart().cudaHostUnregister(address(memory))

    def copy(self, source, target):
        source = self.library.as_tensor(source)
        if source.device.type == "cpu" and source.is_contiguous():
            # torch would share the copy out to threads, which wait for a core that is busy.
            ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)
        else:
            target.copy_(source)

    def synchronize(self, tensors):
        """Waits for the device of each tensor, and for the one that CUDA has as the current: work may be there that no
        output shows."""
        devices = {tensor.device: None for tensor in tensors if isinstance(tensor, self.library.Tensor)}
        if self.library.cuda.is_initialized():
            devices[self.library.device("cuda", self.library.cuda.current_device())] = None
        for device in devices:
            if device.type == "mps":
                # It has one device and takes none.
                self.library.mps.synchronize()
            elif device.type != "cpu":
                getattr(self.library, device.type).synchronize(device)


def address(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def tensors(wanted):
    """The library that tensors are made with."""
    if installed("torch") and wanted != "numpy":
        return TorchTensors(importlib.import_module("torch"))
    if installed("numpy"):
        return NumpyTensors(importlib.import_module("numpy"))
    raise Failure(f"`{sys.executable}` has neither torch nor numpy: install one of them, or activate its environment")


def load_module(path):
    """The vendor's file as a module. It may be named like a package that it imports; others are found beside it."""
    if not os.path.isfile(path):
        raise Failure(f"no file `{path}` in `{os.getcwd()}`")
    sys.dont_write_bytecode = True  # The vendor's folder is left as it is.
    sys.path.append(os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("flagperf_engine", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "InferModel"):
        raise Failure(f"`{path}` has no class `InferModel`")
    return module


def torch_model(path):
    """The ONNX file as an `nn.Module` on the accelerator, if there is one, as FlagPerf's `create_model` leaves it."""
    lacking = [name for name in ("torch", "onnx", "onnx2torch") if not installed(name)]
    if lacking:
        install = f"{sys.executable} -m pip install {' '.join(lacking)}"
        return absent(f"the model as an `nn.Module` needs {', '.join(lacking)}: `{install}`")
    import onnx2torch
    import torch

    try:
        return onnx2torch.convert(path).eval().to("cuda" if torch.cuda.is_available() else "cpu")
    except Exception as error:
        return absent(f"`{path}` cannot be made an `nn.Module`: {type(error).__name__}: {error}")


class Sidecar:
    """Answers what the host asks; each `ask_` method is a kind of message."""

    def __init__(self, path):
        self.path = path
        self.buffers = {}
        # The buffers that inputs were in: a device may read those by itself.
        self.pinned = set()
        self.views = {}
        self.specs = {}
        self.kept = {}
        self.third_is_told = False

    def answer(self, ask):
        try:
            method = getattr(self, "ask_" + ask["ask"], None)
            if method is None:
                raise Failure(f"cannot be asked to `{ask['ask']}`")
            return method(ask)
        except (Exception, SystemExit) as error:
            return self.error(error)

    def error(self, error):
        """An error as the host tells it: where, what, and the last lines of the traceback."""
        answer = {"answer": "error"}
        places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        places += [(error.filename, error.lineno)] if isinstance(error, SyntaxError) else []
        own = [f"{self.path}:{line}" for file, line in places if os.path.abspath(file) == os.path.abspath(self.path)]
        place = f"`{own[-1]}`: " if own else ""
        if isinstance(error, Failure):
            return {**answer, "reason": f"{place}{error}"}
        if hasattr(error, "operator"):
            answer["operator"] = {"op": error.operator, "node": getattr(error, "node", "")}
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
        reason = [f"{place}{type(error).__name__}: {error}", *lines[-TRACEBACK_LINES:]]
        return {**answer, "reason": "\n  ".join(reason)}

    def ask_hello(self, ask):
        if ask["protocol"] != PROTOCOL:
            raise Failure(f"flagperf_sidecar speaks protocol {PROTOCOL}, not {ask['protocol']}")
        self.module = load_module(self.path)
        self.tensors = tensors(getattr(self.module, "TENSORS", "torch"))
        return {
            "answer": "hello",
            "protocol": PROTOCOL,
            "name": os.path.splitext(os.path.basename(self.path))[0],
            "version": str(getattr(self.module, "__version__", f"on Python {platform.python_version()}")),
            "roles": getattr(self.module, "ROLES", ["framework", "compiler"]),
            "kinds": getattr(self.module, "KINDS", ["onnx", "compiled"]),
            "precisions": getattr(self.module, "PRECISIONS", ["f32", "f16"]),
        }

    def ask_load(self, ask):
        compiled, takes_model = ask["kind"] == "compiled", getattr(self.module.InferModel, "takes_model", True)
        given = {"no_validation": False, "fp16": ask["precision"] == "f16", "exist_compiler_path": None}
        given.update({"batch_size": ask["batch_size"], **ask["config"], **ask["options"], "threads": ask["threads"]})
        given["input_specs"] = {tensor["name"]: tensor["spec"] for tensor in ask["inputs"]}
        if compiled:
            given["exist_compiler_path"] = ask["path"]
        if ask["threads"] and isinstance(self.tensors, TorchTensors):
            self.tensors.library.set_num_threads(ask["threads"])
        wanted = takes_model and not compiled and not given["no_validation"]
        model = torch_model(ask["path"]) if wanted else None
        self.outputs = len(ask["outputs"])
        arguments = Config(given), None if compiled else ask["path"], model
        self.engine = self.module.InferModel(*arguments)
        threads = getattr(self.engine, "threads", 0)
        threads = threads if isinstance(threads, int) else 0
        return {"answer": "loaded", "device": self.device(), "threads": threads}

    def device(self):
        """What it computes on: as the class says, else the accelerator that torch sees."""
        said = getattr(self.engine, "device", None)
        if said is not None:
            return str(said)
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return "cpu"
        return f"cuda:{torch.cuda.current_device()} {torch.cuda.get_device_name()}"

    def ask_lend(self, ask):
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        with open(ask["file"], "r+b") as file:
            self.buffers[ask["buffer"]] = mmap.mmap(file.fileno(), max(ask["bytes"], 1), flags=flags)
        return {"answer": "done"}

    def ask_take_back(self, ask):
        for buffer in ask["buffers"]:
            memory = self.buffers.pop(buffer, None)
            if buffer in self.pinned:
                self.pinned.remove(buffer)
                self.tensors.unpin(memory)
            self.views = {key: view for key, view in self.views.items() if key[0] != buffer}
        return {"answer": "done"}

    def view(self, buffer, offset, spec):
        """The tensor at a place in a buffer."""
        key = (buffer, offset, spec)
        if key not in self.views:
            *dims, dtype = spec.split(",")
            self.views[key] = self.tensors.view(self.buffers[buffer], DTYPES[dtype], tuple(map(int, dims)), offset)
        return self.tensors.again(self.views[key])

    def input(self, given):
        if "buffer" in given:
            if given["buffer"] not in self.pinned:
                self.pinned.add(given["buffer"])
                self.tensors.pin(self.buffers[given["buffer"]])
            return self.view(given["buffer"], given["offset"], given["spec"])
        tensor = self.kept[given["run"]][given["output"]]
        if given["spec"] != self.spec(given["output"], tensor):
            tensor = tensor.reshape([int(size) for size in given["spec"].split(",")[:-1]])
        return tensor

    def ask_run(self, ask):
        inputs = [self.input(given) for given in ask["inputs"]]
        for run in ask["forget"]:
            self.kept.pop(run, None)
        result = self.engine(inputs)
        if not (isinstance(result, tuple) and len(result) in (2, 3)):
            gave = f"{len(result)} values" if isinstance(result, tuple) else f"`{type(result).__name__}`"
            form = "(outputs, foo_time), or (outputs, foo_time, more)"
            raise Failure(f"`{self.path}`: `InferModel.__call__` must give {form}, it gave {gave}")
        outputs = self.listed(result[0])
        specs = [self.spec(index, output) for index, output in enumerate(outputs)]
        self.tensors.synchronize([*inputs, *outputs])
        self.kept[ask["run"]] = outputs
        answer = {"answer": "ran", "run": ask["run"], "outputs": specs, "seconds": self.seconds(result[1])}
        if len(result) == 3 and not self.third_is_told:
            self.third_is_told = True
            answer["third"] = {"type": type(result[2]).__name__, "repr": SHORT.repr(result[2])}
        return answer

    def listed(self, outputs):
        """Outputs as a list. Several may be stacked in one tensor, along a dimension that comes before the others."""
        if isinstance(outputs, (list, tuple)):
            return list(outputs)
        stacked = self.outputs > 1 and len(getattr(outputs, "shape", ())) > 0 and len(outputs) == self.outputs
        return list(outputs) if stacked else [outputs]

    def seconds(self, value):
        if isinstance(value, (int, float)) or hasattr(value, "__float__"):
            try:
                seconds = float(value)
            except (TypeError, ValueError, OverflowError, RuntimeError):
                seconds = math.nan
            if abs(seconds) <= SECONDS_MAX:
                return seconds
        raise Failure(f"`{self.path}`: `InferModel.__call__` gave no seconds as foo_time: `{SHORT.repr(value)}`")

    def spec(self, index, tensor):
        key = getattr(tensor, "dtype", ""), getattr(tensor, "shape", None)
        if key not in self.specs:
            name = str(key[0]).replace("torch.", "")
            if name not in NAMES or key[1] is None:
                kind = f"`{type(tensor).__name__}` {name}"
                raise Failure(f"`{self.path}`: output {index} is no tensor of a known type but {kind}")
            self.specs[key] = ",".join([*map(str, key[1]), NAMES[name]])
        return self.specs[key]

    def ask_fetch(self, ask):
        output = self.kept[ask["run"]][ask["output"]]
        self.tensors.copy(output, self.view(ask["buffer"], 0, self.spec(ask["output"], output)))
        return {"answer": "done"}

    def ask_question(self, ask):
        if not hasattr(self.engine, "ask"):
            raise Failure(f"question `{ask['question']}`: unknown (this engine answers none)")
        return {"answer": "answered", "value": self.engine.ask(ask["question"], ask["argument"])}

    def ask_tune(self, ask):
        if not hasattr(self.engine, "tune"):
            raise Failure(f"setting `{ask['setting']}`: unknown (this engine takes none)")
        self.engine.tune(ask["setting"], ask["value"])
        return {"answer": "done"}

    def ask_memory(self, ask):
        if hasattr(self.engine, "device_memory"):
            used = self.engine.device_memory()
            return {"answer": "memory", "bytes": None if used is None else operator.index(used)}
        torch = sys.modules.get("torch")
        used = torch.cuda.max_memory_reserved() if torch is not None and torch.cuda.is_initialized() else 0
        return {"answer": "memory", "bytes": used or None}


def take_over():
    """The protocol's two ends. What anybody prints from here on goes to standard error."""
    asks, answers = os.dup(0), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    return lines(asks), answers


def lines(pipe):
    """The lines that come through a pipe. Whoever else wants the core while it is watched gets it."""
    poll, rest = select.poll(), b""
    poll.register(pipe, select.POLLIN)
    while True:
        end = time.perf_counter() + AWAKE_SECONDS
        while not poll.poll(0) and time.perf_counter() < end:
            os.sched_yield()
        read = os.read(pipe, 1 << 16)
        if not read:
            return
        *whole, rest = (rest + read).split(b"\n")
        yield from whole


def message(answer):
    """An answer as a line. Text that is no Unicode, such as the name of a file may be, is shown as far as it is."""
    return JSON.encode(answer).encode("utf-8", "replace") + b"\n"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: python3 -m flagperf_sidecar ENGINE.py")
    sidecar = Sidecar(sys.argv[1])
    asks, answers = take_over()
    for line in asks:
        ask = json.loads(line.decode())
        if ask["ask"] == "bye":
            break
        try:
            answer = message(sidecar.answer(ask))
        except Exception as error:
            # What is no JSON is an error of this answer, not of the conversation.
            answer = message(sidecar.error(error))
        answers.write(answer)


if __name__ == "__main__":
    main()
