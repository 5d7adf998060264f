"""Names of layers from OpenVINO, as `docs/onednn_logs.md` gets them."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from reorder.logs import OpenVinoLayers, read_layers, read_verbose, report

# not imported here: the oneDNN 3.2 of other tests refuses all arguments in a process with OpenVINO
pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is not installed"),
]

_PAGE = Path(__file__).parents[2] / "docs" / "onednn_logs.md"
_MODEL = """
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


def test_nodes_name_the_executions(tmp_path: Path) -> None:
    block = re.search(
        r"^```text layers_openvino.py\n(.*?)^```$",
        _PAGE.read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert block is not None
    ran = subprocess.run(
        [sys.executable, "-c", _MODEL + block[1]],
        cwd=tmp_path,
        env=os.environ | {"ONEDNN_VERBOSE": "all"},
        capture_output=True,
        text=True,
        check=True,
    )
    log = read_verbose(ran.stdout.splitlines())
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
    assert found.reasons
