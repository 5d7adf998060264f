"""Logs of PyTorch, as it runs here: every line is read, and every tensor described."""

import pytest

from reorder.logs import read_verbose, report
from tests.programs import run_python

_MODEL = """
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


@pytest.mark.peers
@pytest.mark.parametrize("timestamps", ["0", "1"])
def test_every_line_of_torch_is_read(timestamps: str) -> None:
    pytest.importorskip("torch")
    verbose = {"ONEDNN_VERBOSE": "2", "ONEDNN_VERBOSE_TIMESTAMP": timestamps}
    ran = run_python("-W", "ignore", "-c", _MODEL, OMP_NUM_THREADS="1", **verbose)
    log = read_verbose(ran.stdout.splitlines())
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
