"""Names of layers: the files in `tests/data/layers` are what real programs wrote.

The trace of torch is cut down to its modules and some operators.
"""

import json
from pathlib import Path

import pytest

from memdesc import MemdescError
from reorder.logs import VerboseLog, read_layers, read_verbose, report
from reorder.logs.layers import OpenVinoLayers, TorchLayers

_FILES = Path(__file__).parents[3] / "data" / "layers"
_OPENVINO, _TORCH = _FILES / "openvino-2026.4", _FILES / "torch-2.13"
_LINE = (
    "onednn_verbose,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:ab::f0 dst:f32::blocked:ba::f0"
)


def _named(path: Path, suffix: str) -> list[tuple[str, str]]:
    log = read_verbose(path.with_suffix(path.suffix + ".log"))
    layers = read_layers(path.with_suffix(path.suffix + suffix))
    names = layers.name(log.executions, report(log).repetition).names
    return [(each.primitive.kind, name) for each, name in zip(log.executions, names, strict=True)]


def test_nodes_of_openvino_are_aligned_with_each_run() -> None:
    run = [
        ("reorder", "image_abcd_acdb_stem/conv"),
        ("convolution", "stem/conv"),
        ("convolution", "layer1/conv"),
        ("softmax", "softmax"),
    ]
    assert _named(_OPENVINO, ".xml") == [("reorder", ""), ("reorder", ""), *run * 3]


def test_executions_that_no_node_can_have_made_are_foreign(tmp_path: Path) -> None:
    log = read_verbose(_FILES.parent / "verbose" / "openvino-2026.4.log")
    repetition = report(log).repetition
    text = Path(f"{_OPENVINO}.xml").read_text(encoding="utf-8")
    pooled = text.replace('type="Softmax"', 'type="Pooling"')
    # a size that is known only at execution may be any
    dynamic = pooled.replace("<dim>16</dim>", "<dim>-1</dim>")
    for model, foreign in ((text, ["pooling"]), (pooled, ["pooling"]), (dynamic, [])):
        (tmp_path / "model.xml").write_text(model, encoding="utf-8")
        layers = read_layers(tmp_path / "model.xml")
        assert isinstance(layers, OpenVinoLayers)
        assert [each.kind for each in layers.foreign(log.executions, repetition)] == foreign


def test_modules_of_torch_are_found_by_time() -> None:
    first, second = "Sequential_0/Sequential_1/Conv2d_0", "Sequential_0/Sequential_2/Conv2d_1"
    named = _named(_TORCH, ".json")
    runs = len(named) // 3
    assert {name for _, name in named[:runs]} == {""}  # before the profiler started
    assert named[runs : 2 * runs] == named[2 * runs :]
    assert [name for kind, name in named[2 * runs :] if kind == "convolution"] == [first, second]
    log = read_verbose(f"{_TORCH}.log")
    layers = report(log, read_layers(f"{_TORCH}.json"), steady=True).layers
    assert {each.layer.runs for each in layers} == {2}
    assert {each.layer.name: each.milliseconds > 0 for each in layers} == {
        first: True,
        second: True,
    }


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        "<net>",
        "<net><layers/></net>",
        '{"baseTimeNanoseconds": 0, "traceEvents": []}',
        '{"baseTimeNanoseconds": 0, "traceEvents": [3]}',
        '{"baseTimeNanoseconds": 1' + 400 * "0" + ', "traceEvents": []}',
        '{"traceEvents": ' + 100_000 * "[",
        '<net><layer name="x"><data execOrder="first"/></layer></net>',
        '<?xml version="1.0" encoding="unheard-of"?><net/>',
    ],
)
def test_what_holds_no_layers_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "layers"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(MemdescError, match=r"has no layers; give what openvino\.save_model"):
        read_layers(path)


def test_layers_of_another_run_are_refused() -> None:
    stamped = _LINE.replace("verbose,", "verbose,1.5,")
    for line, path, says in (
        (_LINE, f"{_TORCH}.json", "also set ONEDNN_VERBOSE_TIMESTAMP=1"),
        (stamped, f"{_TORCH}.json", "no execution of the log lies within a module"),
        (_LINE, f"{_OPENVINO}.xml", "no node of the model"),
    ):
        with pytest.raises(MemdescError, match=says):
            report(read_verbose([f"{line},,,2x3,1"]), read_layers(path))


_CATEGORIES = {"nn.Module: ": "python_function", "": "user_annotation"}


def _traced(
    path: Path, spans: list[tuple[str, int, int]], start: str, base: int
) -> OpenVinoLayers | TorchLayers:
    """Read a trace of spans: their names after `start`, when they begin, and for how long."""
    events = [
        {"ph": "X", "cat": _CATEGORIES[start], "name": start + name, "ts": ts, "dur": dur}
        for name, ts, dur in spans
    ]
    path.write_text(json.dumps({"baseTimeNanoseconds": base, "traceEvents": events}), "utf-8")
    return read_layers(path)


def _stamped(*stamps: float) -> VerboseLog:
    return read_verbose(
        [_LINE.replace("verbose,", f"verbose,{stamp},") + ",,,2x3,1" for stamp in stamps]
    )


def test_annotations_name_layers_too(tmp_path: Path) -> None:
    spans = [("ProfilerStep#1", 0, 9000), ("encoder", 1000, 3000), ("attention", 2000, 500)]
    layers = _traced(tmp_path / "trace", spans, "", 1_000_000)
    names = layers.name(_stamped(2.5, 3.2, 4).executions, None).names
    assert names == ["encoder", "encoder/attention", "encoder"]


def test_modules_have_the_time_of_one_of_their_runs(tmp_path: Path) -> None:
    spans = [("Net_0", 0, 9000), ("Conv2d_0", 1000, 2000), ("ReLU_0", 4000, 500)]
    spans += [(name, begin + 10_000, dur) for name, begin, dur in spans]
    trace = _traced(tmp_path / "trace", spans, "nn.Module: ", 0)
    ((layer, milliseconds),) = report(_stamped(2, 2.5, 12, 12.5), trace).layers
    assert (*layer, milliseconds) == ("Net_0/Conv2d_0", "", "", None, 2, 2.0)
