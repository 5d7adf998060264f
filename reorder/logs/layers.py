"""Names of layers for the executions of a log, from what a framework writes at the same time.

OpenVINO saves the model that it runs, with the order, layout and time of each node; its nodes and
the executions of a run are aligned by kind and size. PyTorch's profiler saves when each module ran;
executions are found there by their timestamps. Sources: OpenVINO 2026.4, `exec_graph_info.hpp`;
PyTorch 2.13, `profiler.py`, and Kineto's traces.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from math import prod
from typing import Any
from xml.etree import ElementTree as ET

from memdesc import MemdescError
from memdesc.immutable import immutable
from memdesc.tuples import NamedTuple
from reorder.disk import as_path, open_file
from reorder.logs.log import VerboseEntry
from reorder.logs.primitive import VerbosePrimitive
from reorder.logs.repetition import Repetition

# what oneDNN calls the types of OpenVINO's nodes; `_key` calls inner products matmul
_KINDS = {
    "Convolution": "convolution",
    "Deconvolution": "deconvolution",
    "Eltwise": "eltwise",
    "FullyConnected": "matmul",
    "Lrn": "lrn",
    "MatMul": "matmul",
    "Pooling": "pooling",
    "RNNCell": "rnn",
    "RNNSeq": "rnn",
    "Reorder": "reorder",
    "Softmax": "softmax",
}
# Kinds that only nodes of that type execute; others, such as matmul, are parts of larger nodes too.
_OWN = {"convolution", "lrn", "pooling"}
_MODULE = "nn.Module: "
# what reading a file of another structure raises
_NOT_AS_EXPECTED = (
    ET.ParseError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    RecursionError,
)
_HOW = (
    "give what openvino.save_model(compiled.get_runtime_model(), 'model.xml') wrote, or what the "
    "profiler of torch exported as a Chrome trace"
)


@immutable
class Layer(NamedTuple):
    """A layer, as its framework describes it.

    Parameters
    ----------
    name : str
        A node of OpenVINO, or the path of a module of PyTorch.
    kind : str
        ``Convolution``, ``Reorder``, ...; empty for PyTorch.
    layout : str
        The layout of its output, as OpenVINO names it; empty for PyTorch.
    milliseconds : float or None
        How long it took in one run, by OpenVINO's own clock; None if it was not measured.
    runs : int
        How often it ran while the log was written.

    Examples
    --------
    >>> reorder.logs.Layer("conv1", "Convolution", "aBcd16b", 0.25, runs=10).layout
    'aBcd16b'
    """

    name: str
    kind: str
    layout: str
    milliseconds: float | None
    runs: int


class NamedExecutions(NamedTuple):
    """The layer of each execution of a log, empty where none is known; and all layers."""

    names: list[str]
    layers: tuple[Layer, ...]


class OpenVinoLayers:
    """The nodes of a model that OpenVINO compiled, in their order, each with its result's size."""

    def __init__(self, nodes: Sequence[tuple[Layer, int]]) -> None:
        self._nodes = nodes

    def name(
        self, executions: Sequence[VerboseEntry], repetition: Repetition | None
    ) -> NamedExecutions:
        """Find the layer of each execution."""
        start, length, runs = repetition or (0, len(executions), 1)
        run = [_key(entry.primitive) for entry in executions[start:][:length]]
        known = [(layer.name, (_KINDS.get(layer.kind), size)) for layer, size in self._nodes]
        known = [node for node in known if node[1][0]]
        # The repetition may begin at any execution, so a run may start in the middle of the model;
        # two runs in a row contain the model from its start to its end.
        matcher = SequenceMatcher(None, [key for _, key in known], run * 2, autojunk=False)
        matched: dict[int, str] = {}
        for node, at, size in matcher.get_matching_blocks():
            for k in range(size):
                matched.setdefault((at + k) % length, known[node + k][0])
        if run and not matched:
            raise MemdescError(
                "no node of the model has the kind and the size of an execution; log and save the "
                "same model"
            )
        names = [""] * len(executions)
        for k, name in matched.items():
            for nth in range(runs):
                names[start + nth * length + k] = name
        layers = [layer for layer, _ in self._nodes if layer.milliseconds is not None]
        return NamedExecutions(names, tuple(layer._replace(runs=runs) for layer in layers))

    def foreign(
        self, executions: Sequence[VerboseEntry], repetition: Repetition | None
    ) -> tuple[VerbosePrimitive, ...]:
        """Return the primitives of a run that no node of this model can have executed.

        If there are any, the log is of another model, or of other shapes.
        """
        start, length, _ = repetition or (0, len(executions), 1)
        nodes = {(_KINDS.get(layer.kind, ""), size) for layer, size in self._nodes}
        # sizes that are known only at execution may be any
        unsure = {kind for kind, size in nodes if not size}
        run = {id(entry.primitive): entry.primitive for entry in executions[start:][:length]}
        return tuple(
            primitive
            for primitive in run.values()
            if (key := _key(primitive))[0] in _OWN - unsure and key[1] and key not in nodes
        )


class TorchLayers:
    """When each module of PyTorch began and ended, in milliseconds, and its name."""

    def __init__(self, spans: Sequence[tuple[float, float, str]]) -> None:
        self._spans = spans

    def name(
        self, executions: Sequence[VerboseEntry], repetition: Repetition | None
    ) -> NamedExecutions:
        """Find the path of modules that each execution ran in."""
        del repetition
        if any(entry.timestamp is None for entry in executions):
            raise MemdescError(
                "the log has no timestamps to compare with the trace of torch; also set "
                "ONEDNN_VERBOSE_TIMESTAMP=1, and log and profile the same run"
            )
        names = [""] * len(executions)
        runs = Counter[str]()
        # the ends and paths of the spans that contain a moment, the outermost first
        around: list[tuple[float, str]] = []
        starts = [(begin, 0, -end, k) for k, (begin, end, _) in enumerate(self._spans)]
        ran = [(entry.timestamp or 0.0, 1, 0.0, at) for at, entry in enumerate(executions)]
        for now, is_execution, minus_end, at in sorted([*starts, *ran]):
            around = [span for span in around if span[0] > now]
            path = around[-1][1] if around else ""
            if is_execution:
                names[at] = path
                continue
            name = self._spans[at][2]
            path = f"{path}/{name}" if path else name
            runs[path] += 1
            around.append((-minus_end, path))
        used = [*dict.fromkeys(filter(None, names))]
        if executions and not used:
            raise MemdescError(
                "no execution of the log lies within a module of the trace; log and profile "
                "the same run, with profile(with_stack=True)"
            )
        layers = tuple(Layer(name, "", "", None, runs[name]) for name in used)
        return NamedExecutions(names, layers)

    def foreign(self, *_: object) -> tuple[VerbosePrimitive, ...]:
        """Return none: times show whether executions belong to the same run."""
        return ()


Layers = OpenVinoLayers | TorchLayers


def read_layers(path: str | os.PathLike[str]) -> Layers:
    """Read the layers of a model that a framework saved while a log was written, for `report`.

    Parameters
    ----------
    path : path
        A runtime model of OpenVINO (XML), or a Chrome trace of PyTorch's profiler (JSON).

    Raises
    ------
    MemdescError
        If it is neither, or cannot be read.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "trace.json"
    >>> event = {"ph": "X", "cat": "python_function", "name": "nn.Module: Conv2d_0"}
    >>> trace = {"baseTimeNanoseconds": 0, "traceEvents": [{**event, "ts": 0, "dur": 10}]}
    >>> _ = path.write_text(json.dumps(trace))
    >>> line = "onednn_verbose,0.005,exec,cpu,reorder,jit:uni,undef,"  # at 0.005 ms
    >>> line += "src:f32::blocked:ab::f0 dst:f32::blocked:ba::f0,,,2x3,0.001"
    >>> log = reorder.logs.read_verbose([line])
    >>> reorder.logs.report(log, reorder.logs.read_layers(path)).reorders[0].layers
    ('Conv2d_0',)
    """
    path = as_path(path)
    with open_file(path) as file:
        content = file.read()
    try:
        if content.lstrip().startswith(b"<"):
            nodes = list(_nodes(ET.fromstring(content)))  # noqa: S314 - expat limits entities
            if nodes:
                return OpenVinoLayers(nodes)
        else:
            spans = list(_spans(json.loads(content)))
            if spans:
                return TorchLayers(spans)
    except _NOT_AS_EXPECTED:
        pass
    raise MemdescError(f"{str(path)!r} has no layers; {_HOW}")


def _nodes(root: ET.Element) -> Iterator[tuple[Layer, int]]:
    """Yield the nodes that OpenVINO executes in their order, with the size of the first output."""
    nodes = []
    for node in root.iter("layer"):
        data = node.find("data")
        if data is None or data.get("execOrder") is None:
            continue
        microseconds = data.get("execTimeMcs", "")
        milliseconds = float(microseconds) / 1e3 if microseconds.isdecimal() else None
        port = node.find("output/port")
        # one of -1 is known only at execution
        dims = [max(int(dim.text or 0), 0) for dim in port.iter("dim")] if port is not None else []
        layer = Layer(
            node.get("name", ""),
            node.get("type", ""),
            data.get("outputLayouts", ""),
            milliseconds,
            1,
        )
        nodes.append((int(data.get("execOrder", "0")), layer, prod(dims)))
    for _, layer, size in sorted(nodes, key=lambda node: node[0]):
        yield layer, size


def _spans(trace: dict[str, Any]) -> Iterator[tuple[float, float, str]]:
    base = trace["baseTimeNanoseconds"] / 1e6
    for event in trace["traceEvents"]:
        name = event.get("name", "")
        is_module = event.get("cat") == "python_function" and name.startswith(_MODULE)
        is_span = is_module or event.get("cat") == "user_annotation"
        if is_span and event.get("ph") == "X" and not name.startswith("ProfilerStep"):
            begin = base + float(event["ts"]) / 1e3
            yield begin, begin + float(event["dur"]) / 1e3, name.removeprefix(_MODULE)


def _key(primitive: VerbosePrimitive) -> tuple[str, int]:
    """Return a kind and the size of the result, which OpenVINO's node has too."""
    kind = "matmul" if primitive.kind == "inner_product" else primitive.kind
    tensors = primitive.tensors
    result = tensors.get("dst") or tensors.get("dst_layer") or tensors.get("data")
    return kind, prod(result.dims) if result and result.dims else 0
