"""Logs of PyTorch and OpenVINO as they run here, and what `docs/onednn_logs.md` advises."""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from reorder.logs import read_layers, read_verbose, report
from reorder.logs.layers import OpenVinoLayers
from tests.programs import run_python

# not imported here: the oneDNN 3.2 of other tests refuses all arguments in a process with OpenVINO
pytestmark = pytest.mark.peers
_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

_PAGE = Path(__file__).parents[2] / "docs" / "onednn_logs.md"
_MODEL = """
import torch
from torch import nn

def block(inputs, outputs):
    convolution = nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())

net = nn.Sequential(block(16, 32), block(32, 64), block(64, 64)).eval()
x = torch.ones(4, 16, 32, 32)
"""
_RUNS = """
with torch.no_grad():
    for _ in range(4):
        net(x)
"""
_EVERYTHING = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.Sigmoid(),
    nn.Conv2d(64, 64, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).eval()
with torch.no_grad():
    for _ in range(3):
        net(torch.ones(1, 3, 32, 32))
    net.bfloat16()(torch.ones(1, 3, 32, 32).bfloat16())
    nn.LSTM(32, 48, 2, bidirectional=True)(torch.ones(5, 2, 32))
    x = torch.ones(2, 16, 8, 8).to_mkldnn()
    torch.softmax(x, 1), torch.max_pool2d(x, 2), torch.relu(x), x + x
nn.Conv3d(4, 8, 3)(torch.ones(1, 4, 8, 8, 8)).sum().backward()
"""
_OPENVINO = """
import numpy as np
import openvino
from openvino import opset13

def convolution(x, inputs, outputs, name):
    weights = np.random.default_rng(0).random((outputs, inputs, 3, 3), np.float32)
    y = opset13.convolution(x, opset13.constant(weights), [1, 1], [1, 1], [1, 1], [1, 1])
    y.set_friendly_name(name)
    return opset13.relu(y)

image = opset13.parameter([1, 16, 32, 32], np.float32, name="image")
y = convolution(image, 16, 32, "stem")
for k in range(3):
    y = convolution(y, 32, 32, f"layer{k}")
model = openvino.Model([opset13.softmax(y, 1)], [image], "tiny")
x = np.ones((1, 16, 32, 32), np.float32)
"""


def _block(name: str) -> str:
    """Return a program that the page shows."""
    found = re.search(
        rf"^```text {name}\n(.*?)^```$", _PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found[1]


def _log(folder: Path, program: str, verbose: str = "1", timestamps: str = "1") -> list[str]:
    """Return the lines that a program prints, with its files in a folder."""
    ran = run_python(
        *("-W", "ignore", "-c", f"import os\nos.chdir({str(folder)!r})\n{program}"),
        ONEDNN_VERBOSE=verbose,
        ONEDNN_VERBOSE_TIMESTAMP=timestamps,
        OMP_NUM_THREADS="1",
        TORCHINDUCTOR_CACHE_DIR=str(folder / "cache"),
    )
    return ran.stdout.splitlines()


@pytest.mark.parametrize("timestamps", ["0", "1"])
@_TORCH
def test_every_line_of_torch_is_read(timestamps: str, tmp_path: Path) -> None:
    log = read_verbose(_log(tmp_path, _EVERYTHING, verbose="2", timestamps=timestamps))
    assert "unread" not in log.skipped
    assert log.other_lines == 0
    assert len(log.executions) > 20
    for entry in log.entries:
        assert (entry.timestamp is not None) == (timestamps == "1")
        for tensor in entry.primitive.tensors.values():
            assert tensor.is_absent or tensor.desc is not None, tensor
    found = report(log)
    assert {"convolution", "reorder", "rnn"} <= {each.kind for each in found.kinds}
    assert any(each.is_of_weights and each.times.executions > 1 for each in found.reorders)


@_TORCH
@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("", "eager"),
        ("freeze.py", "`torch.jit.freeze`"),
        ("channels_last.py", "channels-last"),
        ("freezing.py", "Inductor with freezing"),
    ],
)
def test_advice_leaves_as_many_reorders_as_the_page_says(
    name: str, row: str, tmp_path: Path
) -> None:
    if name == "freezing.py" and shutil.which("g++") is None:
        pytest.skip("no g++, which Inductor compiles with")
    advice = _block(name) if name else ""
    found = report(read_verbose(_log(tmp_path, _MODEL + advice + _RUNS)))
    assert found.repetition is not None
    assert found.repetition.runs >= 4
    counted = [
        sum(each.in_each_run for each in found.reorders),
        sum(each.in_each_run for each in found.reorders if each.is_of_weights),
    ]
    cells = re.search(
        rf"^\| {re.escape(row)} \| (\d+) \| (\d+) \| (\d+) \|$",
        _PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert cells is not None
    *said, trips = map(int, cells.groups())
    assert (counted, len(found.round_trips)) == (said, trips)


@_TORCH
def test_modules_of_a_profile_name_the_executions(tmp_path: Path) -> None:
    log = read_verbose(_log(tmp_path, _MODEL + _block("layers_torch.py")))
    found = report(log, read_layers(tmp_path / "layers.json"), steady=True)
    assert len(found.layers) == 3
    for each in found.layers:
        assert each.layer.runs == 4
        assert each.layer.name.startswith("Sequential_")
        assert "/Conv2d_" in each.layer.name
        assert each.milliseconds > 0
    assert all(each.layers for each in found.reorders)


@pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is not installed")
def test_nodes_name_the_executions(tmp_path: Path) -> None:
    program = _OPENVINO + _block("layers_openvino.py")
    log = read_verbose(_log(tmp_path, program, verbose="all"))
    layers = read_layers(tmp_path / "layers.xml")
    found = report(log, layers, steady=True)
    assert found.repetition is not None
    assert found.repetition.runs == 4
    assert isinstance(layers, OpenVinoLayers)
    assert layers.foreign(log.executions, found.repetition) == ()
    start, length, _ = found.repetition
    named = layers.name(log.executions, found.repetition).names[start:][:length]
    run = log.executions[start:][:length]
    convolutions = [
        name for each, name in zip(run, named, strict=True) if each.primitive.kind == "convolution"
    ]
    assert convolutions == ["stem", "layer0", "layer1", "layer2"]
    times = {each.layer.name: each for each in found.layers}
    for name in convolutions:
        assert times[name].milliseconds > 0
        assert times[name].layer.layout
        assert times[name].layer.milliseconds is not None
