"""Runs an unchanged FlagPerf engine class as a sidecar of flagperf: python3 -m flagperf_sidecar ENGINE.py

ENGINE.py has a class `InferModel` with `__init__(config, onnx_path, model)` and `__call__(inputs)`. The call returns
the outputs in the model's order and the seconds to subtract from the step (FlagPerf's `foo_time`); the host records
the seconds and never subtracts them. `config` is a named tuple with FlagPerf's keys, the options of vendor.yaml,
`threads` (0: the engine's default), and `input_specs` and `output_specs` (maps from name to spec, `N,3,224,224,f32`).
`model` is the ONNX file as an `nn.Module`; None with `no_validation`. `inputs` are tensors on the CPU, of torch if it is
installed, else of numpy; the class must not write to them. README.md lists the accepted forms of outputs.

A module may define more: `__version__`; the `ROLES`, `KINDS`, `PRECISIONS` and `OPTIONS` of PROTOCOL.md; `TENSORS = "numpy"`,
which avoids the import of torch. Its class may define `takes_model = False`, which avoids the conversion of the
model; `generate(prompts, new_tokens)`, which yields a row of the batch with its
next token, or tokens, in place of `__call__`; `device` and `threads`, which are reported to the host (the record says `not told` for a version or a device
that nothing reports); `device_memory()`, the bytes in use; `ask(question, argument)` and `tune(setting, value)`, for
forward functions that query the engine and change its settings. Requires Python 3.9 or later and numpy or torch.
"""

import ast
import ctypes
import importlib.util
import json
import math
import mmap
import operator
import os
import reprlib
import select
import sys
import time
import traceback
import types

PROTOCOL = 1
DTYPES = dict(f64="float64", f32="float32", f16="float16", bf16="bfloat16", bool="bool")
DTYPES.update(i64="int64", i32="int32", i16="int16", i8="int8", u64="uint64", u32="uint32", u16="uint16", u8="uint8")
DTYPE_NAMES = {name: dtype for dtype, name in DTYPES.items()}
# Lines of a traceback that are kept for the record.
TRACEBACK_LINES = 8
# The largest accepted time of a step, in seconds.
SECONDS_MAX = 1e9
# Limits the length of a value's text, whatever the value's own `__repr__` returns.
SHORT_REPR = reprlib.Repr()
SHORT_REPR.maxstring = SHORT_REPR.maxother = SHORT_REPR.maxlong = 200
JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
# How long to poll for a request before sleeping: a sleeping core takes tens of microseconds to wake.
BUSY_WAIT_SECONDS = 200e-6


class Failure(Exception):
    """A failure whose text is a complete message."""


class Config(tuple):
    """FlagPerf's `config`: a named tuple whose keys may be any text, as in `getattr(config, "wide-blocks")`."""

    def __new__(cls, values):
        config = super().__new__(cls, values.values())
        # A key hides what every tuple has (`count`), but not what makes this class a named tuple (`_asdict`).
        attributes = {key: value for key, value in values.items() if not (key.startswith("_") and hasattr(cls, key))}
        config.__dict__.update(attributes, _fields=tuple(values))
        return config

    def __getnewargs__(self):
        return (self._asdict(),)

    def __getattr__(self, key):
        if key.startswith("__"):
            raise AttributeError(key)
        raise AttributeError(f"`config` has no key `{key}` (known: {', '.join(self._fields)})")

    def __setattr__(self, key, _):
        raise AttributeError(f"`config.{key}` cannot be changed: `config._replace({key}=...)` returns a changed copy")

    def __repr__(self):
        return f"Config({', '.join(f'{key}={value!r}' for key, value in self._asdict().items())})"

    def _asdict(self):
        return dict(zip(self._fields, self))

    def _replace(self, **changes):
        unknown = [key for key in changes if key not in self._fields]
        if unknown:
            raise ValueError(f"`config` has no key `{unknown[0]}` (known: {', '.join(self._fields)})")
        return Config({**self._asdict(), **changes})


def unavailable_model(reason):
    """Returns a placeholder for a model that could not be created. Any use of it raises a failure with the reason."""

    def fail(*_):
        raise Failure(reason)

    return type("UnavailableModel", (), {"__getattr__": fail, "__call__": fail})()


def is_installed(name):
    return importlib.util.find_spec(name) is not None


class NumpyTensors:
    """Creates and copies tensors of numpy; `library` is the numpy module."""

    def __init__(self, library):
        self.library = library

    def view(self, memory, dtype, shape, offset):
        if not hasattr(self.library, dtype):
            raise Failure(f"numpy has no element type `{dtype}`: use torch, which has it")
        count = self.library.prod(shape, dtype=int)
        return self.library.frombuffer(memory, dtype, count, offset).reshape(shape)

    def alias(self, view):
        return view.view()

    def pin(self, memory): ...

    def unpin(self, memory): ...

    def synchronize(self, outputs): ...

    def copy(self, source, target):
        self.library.copyto(target, source)

    def plain(self, output):
        """Returns an output without the methods of a subclass, which could compute when it is copied."""
        is_own = isinstance(output, self.library.ndarray) and type(output) is not self.library.ndarray
        return self.library.asarray(output) if is_own else output


class TorchTensors(NumpyTensors):
    """Creates and copies tensors of torch; `library` is the torch module."""

    def __init__(self, library):
        super().__init__(library)
        library.set_grad_enabled(False)

    def plain(self, output):
        is_own = isinstance(output, self.library.Tensor) and type(output) is not self.library.Tensor
        return output.as_subclass(self.library.Tensor) if is_own else output

    def view(self, memory, dtype, shape, offset):
        dtype = getattr(self.library, dtype)
        if 0 in shape:
            return self.library.empty(shape, dtype=dtype)
        count = self.library.Size(shape).numel()
        return self.library.frombuffer(memory, dtype=dtype, count=count, offset=offset).reshape(shape)

    def alias(self, view):
        return view.detach()

    def pin(self, memory):
        """Lets a CUDA device read the memory directly. If CUDA refuses, the device reads it in pieces, as it does
        without pinning."""
        if self.library.cuda.is_initialized():
            self.library.cuda.cudart().cudaHostRegister(address(memory), len(memory), 0)

    def unpin(self, memory):
        if self.library.cuda.is_initialized():
            self.library.cuda.cudart().cudaHostUnregister(address(memory))

    def copy(self, source, target):
        source = self.library.as_tensor(source)
        if source.device.type == "cpu" and source.is_contiguous():
            # torch would distribute the copy over threads, which wait for a busy core.
            ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)
        else:
            target.copy_(source)

    def synchronize(self, tensors):
        """Waits for the device of each tensor, and for CUDA's current device, which may have work that belongs to no
        output."""
        devices = {tensor.device: None for tensor in tensors if isinstance(tensor, self.library.Tensor)}
        if self.library.cuda.is_initialized():
            devices[self.library.device("cuda", self.library.cuda.current_device())] = None
        for device in devices:
            if device.type == "mps":
                # There is one such device, and the function has no argument.
                self.library.mps.synchronize()
            elif device.type != "cpu":
                getattr(self.library, device.type).synchronize(device)


def address(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def tensor_library(wanted):
    """Returns the library with which tensors are created."""
    if is_installed("torch") and wanted != "numpy":
        return TorchTensors(importlib.import_module("torch"))
    if is_installed("numpy"):
        return NumpyTensors(importlib.import_module("numpy"))
    raise Failure(f"`{sys.executable}` has neither torch nor numpy: install one of them, or activate its environment")


def load_module(path):
    """Imports the vendor's file. The file may have the same name as a package it imports; it may also import files beside it,
    as FlagPerf's package does (`from .name import ...`) or by their names alone."""
    if not os.path.isfile(path):
        raise Failure(f"no file `{path}` in `{os.getcwd()}`")
    sys.dont_write_bytecode = True  # The vendor's folder must not change.
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.append(folder)
    package = sys.modules["flagperf_engine"] = types.ModuleType("flagperf_engine")
    package.__path__ = [folder]
    stem = os.path.splitext(os.path.basename(path))[0].replace(".", "_")
    spec = importlib.util.spec_from_file_location(f"flagperf_engine.{stem}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "InferModel"):
        raise Failure(f"`{path}` has no class `InferModel`")
    return module


def parse(path):
    with open(path, "rb") as file:
        return ast.parse(file.read(), path)


def check_requirements(path, tree, takes_model):
    """Reports a missing package before the class is created, which may be minutes later. Considers only what surely
    runs: the statements of `__init__` and `__call__` themselves, not those inside `if`, `try` or a function."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "InferModel"]
    methods = [node for own in classes for node in own.body if isinstance(node, ast.FunctionDef)]
    for method in methods:
        model = method.args.args[3].arg if method.name == "__init__" and len(method.args.args) > 3 else None
        for node in method.body if method.name in ("__init__", "__call__") else []:
            for name in imported_names(node):
                if not is_installed(name):
                    raise Failure(f"`{path}:{node.lineno}` imports `{name}`, which `{sys.executable}` does not have")
            if takes_model and uses_attribute(node, model) and missing_packages():
                raise Failure(f"`{path}:{node.lineno}`: {missing_model()}")


def imported_names(node):
    """Returns the packages that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    return [node.module.partition(".")[0]] if isinstance(node, ast.ImportFrom) and node.level == 0 else []


def uses_attribute(node, name):
    """Returns whether a simple statement uses an attribute of the variable, as `model.to("cuda")` does."""
    if not isinstance(node, (ast.Assign, ast.Expr)):
        return False
    of_name = lambda value: isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == name
    is_deferred = any(isinstance(part, (ast.Lambda, ast.IfExp, ast.BoolOp)) for part in ast.walk(node))
    return not is_deferred and any(of_name(part) for part in ast.walk(node))


def config_reads(tree):
    """Returns the keys that `InferModel` reads from its `config`, each with its first place and whether the class always
    reads it. A key that the file also contains as a text is left out: `hasattr` or `getattr` may ask for it first."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    found = {}
    for own in tree.body:
        if isinstance(own, ast.ClassDef) and own.name == "InferModel":
            reads = ConfigReads(own, functions)
            for key, node, is_certain in reads.found:
                place = {"key": key, "line": node.lineno, "column": node.col_offset + 1, "is_certain": is_certain}
                if key not in texts and (key not in found or is_certain > found[key]["is_certain"]):
                    found[key] = place
    return sorted(found.values(), key=lambda read: (read["line"], read["column"]))


class ConfigReads(ast.NodeVisitor):
    """Follows the argument `config` of a class: through its `__init__`, as an argument of its methods and of the file's
    functions, and as an attribute (`self.config`). A variable of another value is not followed, even if it is called
    `config`."""

    def __init__(self, own, functions):
        self.functions = functions
        self.methods = {node.name: node for node in own.body if isinstance(node, ast.FunctionDef)}
        # The reads: key, node, and whether the read cannot be avoided.
        self.found = []
        # Attributes of `self` to which `config` is assigned, and how often anything is assigned to each attribute.
        self.attributes, stored = [], [node.attr for node in ast.walk(own) if is_of_self(node) and is_stored(node)]
        self.visited = set()
        self.names, self.is_certain = set(), True
        first = self.methods.get("__init__")
        if first is not None and len(first.args.args) > 1:
            self.follow(first, {first.args.args[1].arg}, True)
        self.attributes = {name for name in self.attributes if stored.count(name) == self.attributes.count(name)}
        for name, method in self.methods.items():
            self.follow_attributes(method, name == "__call__")

    def follow(self, function, names, is_certain):
        """Visits a function in which these names are `config`."""
        key = (id(function), frozenset(names), is_certain)
        if key in self.visited:
            return
        self.visited.add(key)
        before = self.names, self.is_certain
        self.names, self.is_certain = set(names), is_certain
        self.visit_block(function.body)
        self.names, self.is_certain = before

    def follow_attributes(self, method, is_entry):
        """Visits the reads of `self.config.key`; those of a method that the adaptor calls are certain in its own statements."""
        for statement in method.body:
            is_simple = isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return))
            parts = list(ast.walk(statement))
            deferred = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)
            is_certain = is_entry and is_simple and not any(isinstance(part, deferred) for part in parts)
            for part in parts:
                if isinstance(part, ast.Attribute) and is_of_self(part.value) and part.value.attr in self.attributes:
                    self.add(part, is_certain)
            is_entry = is_entry and not any(isinstance(part, ast.Return) for part in parts)

    def add(self, node, is_certain):
        # What a tuple itself has is not a key.
        is_own = node.attr.startswith("_") or node.attr in ("count", "index")
        if isinstance(node.ctx, ast.Load) and not is_own:
            self.found.append((node.attr, node, is_certain))

    def visit_block(self, statements, is_certain=True):
        before, self.is_certain = self.is_certain, self.is_certain and is_certain
        for statement in statements:
            self.visit(statement)
            if any(isinstance(part, (ast.Return, ast.Break, ast.Continue)) for part in ast.walk(statement)):
                self.is_certain = False
        self.is_certain = before

    def uncertain(self, *nodes):
        before, self.is_certain = self.is_certain, False
        for node in nodes:
            self.visit(node)
        self.is_certain = before

    def visit_Name(self, node):
        if not isinstance(node.ctx, ast.Load):
            self.names.discard(node.id)

    def visit_Attribute(self, node):
        if isinstance(node.value, ast.Name) and node.value.id in self.names:
            self.add(node, self.is_certain)
        self.generic_visit(node)

    def visit_Assign(self, node):
        self.visit(node.value)
        is_config = isinstance(node.value, ast.Name) and node.value.id in self.names
        for target in node.targets:
            if is_config and is_of_self(target):
                self.attributes.append(target.attr)
            self.visit(target)

    def visit_Call(self, node):
        self.generic_visit(node)
        function, method = node.func, is_of_self(node.func)
        called = self.methods.get(function.attr) if method else self.functions.get(getattr(function, "id", None))
        if called is not None:
            parameters = [argument.arg for argument in called.args.args][1 if method else 0 :]
            given = [*zip(parameters, node.args), *((keyword.arg, keyword.value) for keyword in node.keywords)]
            names = {name for name, value in given if isinstance(value, ast.Name) and value.id in self.names}
            if names:
                self.follow(called, names, self.is_certain)

    def visit_If(self, node):
        self.visit(node.test)
        self.visit_block(node.body, False)
        self.visit_block(node.orelse, False)

    visit_While = visit_If

    def visit_For(self, node):
        self.visit(node.iter)
        self.visit(node.target)
        self.visit_block([*node.body, *node.orelse], False)

    def visit_With(self, node):
        for item in node.items:
            self.visit(item)
        # `suppress` ends its block at the first error.
        self.visit_block(node.body, "suppress" not in ast.dump(node.items[0]))

    def visit_Try(self, node):
        self.visit_block([*node.body, *node.handlers, *node.orelse], False)
        self.visit_block(node.finalbody)

    def visit_IfExp(self, node):
        self.visit(node.test)
        self.uncertain(node.body, node.orelse)

    def visit_BoolOp(self, node):
        self.visit(node.values[0])
        self.uncertain(*node.values[1:])

    def visit_Match(self, node):
        self.visit(node.subject)
        self.uncertain(*node.cases)

    def visit_FunctionDef(self, node):
        """Visits a function within a function, in which a name of its own may hide `config`."""
        own = {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
        own |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
        before = self.names
        self.names = self.names - own
        self.uncertain(*(node.body if isinstance(node.body, list) else [node.body]))
        self.names = before

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_ListComp(self, node):
        before = self.names
        own = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
        self.visit(node.generators[0].iter)
        self.names = self.names - own
        self.uncertain(*ast.iter_child_nodes(node))
        self.names = before

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_ClassDef(self, node): ...


def is_of_self(node):
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def is_stored(node):
    return not isinstance(node.ctx, ast.Load)


def missing_packages():
    return [name for name in ("torch", "onnx", "onnx2torch") if not is_installed(name)]


def missing_model():
    missing = missing_packages()
    install = f"{sys.executable} -m pip install {' '.join(missing)}"
    return f"the model as an `nn.Module` needs {', '.join(missing)}: `{install}`"


def torch_model(path):
    """Returns the ONNX file as an `nn.Module`, on the accelerator if there is one, like FlagPerf's `create_model`."""
    if missing_packages():
        return unavailable_model(missing_model())
    import onnx2torch
    import torch

    try:
        return onnx2torch.convert(path).eval().to("cuda" if torch.cuda.is_available() else "cpu")
    except Exception as error:
        return unavailable_model(f"`{path}` cannot be converted to an `nn.Module`: {type(error).__name__}: {error}")


class Sidecar:
    """Handles the requests of the host; each `handle_` method handles one kind of request and returns the reply."""

    def __init__(self, path, send=None):
        self.path = path
        # Sends a reply before the one that a `handle_` method returns.
        self.send = send
        self.buffers = {}
        # The buffers that have contained inputs; these are pinned, so that a device can read them directly.
        self.pinned = set()
        self.views = {}
        self.specs = {}
        self.kept_outputs = {}
        self.third_value_was_sent = False
        # The names of the modules whose files were reported.
        self.modules = set()

    def handle(self, request):
        try:
            method = getattr(self, "handle_" + request["ask"], None)
            if method is None:
                raise Failure(f"unknown request `{request['ask']}`")
            return method(request)
        except (Exception, SystemExit) as error:
            return self.error_reply(error)

    def error_reply(self, error):
        """Returns the error reply: the line in the vendor's file, the error, and the last lines of the traceback."""
        reply = {"answer": "error"}
        places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        places += [(error.filename, error.lineno)] if isinstance(error, SyntaxError) else []
        own = [f"{self.path}:{line}" for file, line in places if os.path.abspath(file) == os.path.abspath(self.path)]
        place = f"`{own[-1]}`: " if own else ""
        if isinstance(error, Failure):
            return {**reply, "reason": f"{place}{error}"}
        # Without a line in the vendor's file, it was called or defined wrongly.
        place = place or f"`{self.path}`: "
        if hasattr(error, "operator"):
            reply["operator"] = {"op": error.operator, "node": getattr(error, "node", "")}
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
        # The last line of a traceback would only repeat the first of the reason; that of a syntax error shows the place.
        if not isinstance(error, SyntaxError):
            repeated = "".join(traceback.format_exception_only(type(error), error)).splitlines()
            lines = lines[: len(lines) - len(repeated)]
        remedy = ""
        if isinstance(error, ModuleNotFoundError) and error.name:
            remedy = f" (`{sys.executable}` does not have it: install it, or activate an environment that has it)"
        reason = [f"{place}{type(error).__name__}: {error}{remedy}", *lines[-TRACEBACK_LINES:]]
        return {**reply, "reason": "\n  ".join(reason)}

    def handle_hello(self, request):
        if request["protocol"] != PROTOCOL:
            raise Failure(f"flagperf_sidecar uses protocol version {PROTOCOL}, not {request['protocol']}")
        self.module = load_module(self.path)
        self.tensors = tensor_library(getattr(self.module, "TENSORS", "torch"))
        tree = parse(self.path)
        check_requirements(self.path, tree, getattr(self.module.InferModel, "takes_model", True))
        version = getattr(self.module, "__version__", None)
        return {
            "answer": "hello",
            "protocol": PROTOCOL,
            "name": os.path.splitext(os.path.basename(self.path))[0],
            "version": None if version is None else str(version),
            "roles": getattr(self.module, "ROLES", ["framework", "compiler"]),
            "kinds": getattr(self.module, "KINDS", ["onnx", "compiled"]),
            "precisions": getattr(self.module, "PRECISIONS", ["f32", "f16"]),
            "options": getattr(self.module, "OPTIONS", None),
            "config_reads": config_reads(tree),
        }

    def handle_load(self, request):
        is_compiled = request["kind"] == "compiled"
        values = {"no_validation": False, "fp16": request["precision"] == "f16", "exist_compiler_path": None}
        values.update({"batch_size": request["batch_size"], **request["config"], **request["options"]})
        values["threads"] = request["threads"]
        for side in ("input", "output"):
            values[f"{side}_specs"] = {tensor["name"]: tensor["spec"] for tensor in request[f"{side}s"]}
        if is_compiled:
            values["exist_compiler_path"] = request["path"]
        if request["threads"] and isinstance(self.tensors, TorchTensors):
            self.tensors.library.set_num_threads(request["threads"])
        takes_model = getattr(self.module.InferModel, "takes_model", True)
        needs_model = takes_model and not is_compiled and not values["no_validation"]
        model = torch_model(request["path"]) if needs_model else None
        self.output_count = len(request["outputs"])
        self.engine = self.module.InferModel(Config(values), None if is_compiled else request["path"], model)
        threads = getattr(self.engine, "threads", 0)
        threads = threads if isinstance(threads, int) else 0
        reply = {"answer": "loaded", "device": self.device(), "threads": threads}
        if hasattr(self.engine, "generate"):
            self.new_tokens = values.get("new_tokens")
            reply["streams_tokens"] = True
        return reply

    def device(self):
        """Returns the device that the class declares, else the accelerator that torch finds; None if neither is known."""
        declared = getattr(self.engine, "device", None)
        if declared is not None:
            return str(declared)
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return None
        return f"cuda:{torch.cuda.current_device()} {torch.cuda.get_device_name()}"

    def handle_lend(self, request):
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        with open(request["file"], "r+b") as file:
            self.buffers[request["buffer"]] = mmap.mmap(file.fileno(), max(request["bytes"], 1), flags=flags)
        return {"answer": "done"}

    def handle_take_back(self, request):
        for buffer in request["buffers"]:
            memory = self.buffers.pop(buffer, None)
            if buffer in self.pinned:
                self.pinned.remove(buffer)
                self.tensors.unpin(memory)
            self.views = {key: view for key, view in self.views.items() if key[0] != buffer}
        return {"answer": "done"}

    def view(self, buffer, offset, spec):
        """Returns the tensor at an offset in a buffer."""
        key = (buffer, offset, spec)
        if key not in self.views:
            *dims, dtype = spec.split(",")
            self.views[key] = self.tensors.view(self.buffers[buffer], DTYPES[dtype], tuple(map(int, dims)), offset)
        return self.tensors.alias(self.views[key])

    def input_tensor(self, place):
        if "buffer" in place:
            if place["buffer"] not in self.pinned:
                self.pinned.add(place["buffer"])
                self.tensors.pin(self.buffers[place["buffer"]])
            return self.view(place["buffer"], place["offset"], place["spec"])
        tensor = self.kept_outputs[place["run"]][place["output"]]
        if place["spec"] != self.spec(place["output"], tensor):
            tensor = tensor.reshape([int(size) for size in place["spec"].split(",")[:-1]])
        return tensor

    def handle_run(self, request):
        inputs = [self.input_tensor(place) for place in request["inputs"]]
        for run in request["forget"]:
            self.kept_outputs.pop(run, None)
        if hasattr(self.engine, "generate"):
            return self.generate(request["run"], *inputs)
        result = self.engine(inputs)
        if not (isinstance(result, tuple) and len(result) in (2, 3)):
            returned = f"{len(result)} values" if isinstance(result, tuple) else f"`{type(result).__name__}`"
            form = "(outputs, foo_time) or (outputs, foo_time, more)"
            raise Failure(f"`{self.path}`: `InferModel.__call__` must return {form}, but returned {returned}")
        outputs = [self.tensors.plain(output) for output in self.as_list(result[0])]
        specs = [self.spec(index, output) for index, output in enumerate(outputs)]
        self.tensors.synchronize([*inputs, *outputs])
        self.kept_outputs[request["run"]] = outputs
        reply = {"answer": "ran", "run": request["run"], "outputs": specs, "seconds": self.seconds(result[1])}
        if len(result) == 3 and not self.third_value_was_sent:
            self.third_value_was_sent = True
            reply["third"] = {"type": type(result[2]).__name__, "repr": SHORT_REPR.repr(result[2])}
        return reply

    def generate(self, run, tokens, mask):
        """Sends each part of an answer when the class has it."""
        rows = zip(tokens.tolist(), mask.tolist())
        prompts = [[token for token, real in zip(*row) if real] for row in rows]
        # The last rows may be padding altogether.
        while len(prompts) > 1 and not prompts[-1]:
            prompts.pop()
        for row, part in self.engine.generate(prompts, self.new_tokens):
            part = part if isinstance(part, (list, tuple)) else [part]
            self.send({"answer": "tokens", "row": int(row), "tokens": [int(token) for token in part]})
        return {"answer": "ran", "run": run, "outputs": []}

    def as_list(self, outputs):
        """Returns the outputs as a list. One tensor may contain several outputs, stacked along an additional first
        dimension."""
        if isinstance(outputs, (list, tuple)):
            return list(outputs)
        is_stacked = (
            self.output_count > 1 and len(getattr(outputs, "shape", ())) > 0 and len(outputs) == self.output_count
        )
        return list(outputs) if is_stacked else [outputs]

    def seconds(self, value):
        if isinstance(value, (int, float)) or hasattr(value, "__float__"):
            try:
                seconds = float(value)
            except (TypeError, ValueError, OverflowError, RuntimeError):
                seconds = math.nan
            if 0 <= seconds <= SECONDS_MAX:
                return seconds
        shown = SHORT_REPR.repr(value)
        raise Failure(f"`{self.path}`: `InferModel.__call__` returned a foo_time that is not a valid time: `{shown}`")

    def spec(self, index, tensor):
        key = getattr(tensor, "dtype", ""), getattr(tensor, "shape", None)
        if key not in self.specs:
            name = str(key[0]).replace("torch.", "")
            if name not in DTYPE_NAMES or key[1] is None:
                kind = f"`{type(tensor).__name__}` {name}".rstrip()
                raise Failure(f"`{self.path}`: output {index} is not a tensor of a supported type: {kind}")
            self.specs[key] = ",".join([*map(str, key[1]), DTYPE_NAMES[name]])
        return self.specs[key]

    def handle_fetch(self, request):
        output = self.kept_outputs[request["run"]][request["output"]]
        self.tensors.copy(output, self.view(request["buffer"], 0, self.spec(request["output"], output)))
        return {"answer": "done"}

    def handle_question(self, request):
        if not hasattr(self.engine, "ask"):
            raise Failure(f"question `{request['question']}`: unknown (this engine supports no questions)")
        return {"answer": "answered", "value": self.engine.ask(request["question"], request["argument"])}

    def handle_tune(self, request):
        if not hasattr(self.engine, "tune"):
            raise Failure(f"setting `{request['setting']}`: unknown (this engine has no settings)")
        self.engine.tune(request["setting"], request["value"])
        return {"answer": "done"}

    def handle_memory(self, request):
        return {"answer": "memory", "bytes": self.device_memory(), "modules": self.new_modules()}

    def device_memory(self):
        if hasattr(self.engine, "device_memory"):
            used = self.engine.device_memory()
            return None if used is None else operator.index(used)
        torch = sys.modules.get("torch")
        used = torch.cuda.max_memory_reserved() if torch is not None and torch.cuda.is_initialized() else 0
        return used or None

    def new_modules(self):
        """Returns the files from which modules were imported since the last call, with their compiled forms."""
        new = [(name, module) for name, module in list(sys.modules.items()) if name not in self.modules]
        self.modules.update(name for name, _ in new)
        files = set()
        for _, module in new:
            try:
                # Not `getattr`, which could import further modules.
                own = object.__getattribute__(module, "__dict__")
            except AttributeError:
                continue
            spec = own.get("__spec__")
            files.update([own.get("__file__"), getattr(spec, "origin", None), getattr(spec, "cached", None)])
        return sorted(os.path.abspath(file) for file in files if isinstance(file, str) and os.path.isfile(file))


def redirect_standard_streams():
    """Returns the lines of standard input and a file for replies on the original standard output. Whatever is printed
    from now on goes to standard error."""
    requests, replies = os.dup(0), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    return read_lines(requests), replies


def read_lines(pipe):
    """Yields the lines of a pipe. It polls before it sleeps, and yields the core to other threads while it polls."""
    poll, rest = select.poll(), b""
    poll.register(pipe, select.POLLIN)
    while True:
        end = time.perf_counter() + BUSY_WAIT_SECONDS
        while not poll.poll(0) and time.perf_counter() < end:
            os.sched_yield()
        read = os.read(pipe, 1 << 16)
        if not read:
            return
        *whole, rest = (rest + read).split(b"\n")
        yield from whole


def encode(reply):
    """Returns a reply as a line. Characters that are not valid Unicode, as in some file names, are replaced by `?`."""
    return JSON.encode(reply).encode("utf-8", "replace") + b"\n"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: python3 -m flagperf_sidecar ENGINE.py")
    requests, replies = redirect_standard_streams()
    sidecar = Sidecar(sys.argv[1], lambda reply: replies.write(encode(reply)))
    for line in requests:
        request = json.loads(line.decode())
        if request["ask"] == "bye":
            break
        try:
            reply = encode(sidecar.handle(request))
        except Exception as error:
            # A reply that cannot be JSON is an error of this request only; the connection continues.
            reply = encode(sidecar.error_reply(error))
        replies.write(reply)


if __name__ == "__main__":
    main()
