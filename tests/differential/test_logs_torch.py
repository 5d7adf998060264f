"""What `docs/onednn_logs.md` advises for PyTorch, run and counted."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reorder.logs import read_layers, read_verbose, report

pytestmark = pytest.mark.peers
pytest.importorskip("torch")

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


def _block(name: str) -> str:
    found = re.search(
        rf"^```text {name}\n(.*?)^```$", _PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found[1]


def _log(folder: Path, program: str) -> list[str]:
    environment = os.environ | {
        "ONEDNN_VERBOSE": "1",
        "ONEDNN_VERBOSE_TIMESTAMP": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
    }
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.splitlines()


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


def test_modules_of_a_profile_name_the_executions(tmp_path: Path) -> None:
    log = read_verbose(_log(tmp_path, _MODEL + _block("layers_torch.py")))
    found = report(log, read_layers(tmp_path / "layers.json"), steady=True)
    assert len(found.layers) == 9
    for each in found.layers:
        assert each.layer.runs == 4
        assert each.layer.name.startswith("Sequential_")
        assert each.milliseconds < (each.layer.milliseconds or 0)
        assert (each.milliseconds > 0) == ("/Conv2d_" in each.layer.name)
    assert all(each.layers for each in found.reorders)
