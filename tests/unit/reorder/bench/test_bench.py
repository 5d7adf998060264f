"""The command that measures, on cases so small that nothing is measured."""

import sys

import pytest

from reorder import Memory
from reorder.bench.measure import measure
from reorder.bench.peers import numpy_peer, torch_peer
from reorder.cli import main
from tests.benchmarks.cases import parse_cases
from tests.notice import without_notice

_TAILS = "--sdt=f32,s8 --stag=abx --dtag=aBx16b,axb,ABx4b16a4b 5x17x3x4 1x3x2x7"


@pytest.mark.parametrize("threads", [1, 2])
def test_numpy_and_memcpy_are_measured_beside_us(threads: int) -> None:
    for case in parse_cases(_TAILS.split()):
        result = measure(case, threads, [numpy_peer], 0.001)
        assert (result.differs, list(result.peers), result.threads) == ([], ["numpy"], threads)
        assert min(result.first_seconds, result.seconds, result.memcpy) > 0
        # it writes zeros to the padding too
        src, dst = (Memory(desc) for desc in (case.src, case.dst))
        dst.data[:] = 255
        peer = numpy_peer(case, (src.data, dst.data), 1)
        assert peer is not None
        peer.call()
        assert not dst.data.any()


def test_torch_is_left_out_where_it_is_not_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # Python's way to bar an import
    assert main(["bench", "2,3", "--threads=1", "--seconds=0.001"]) == 0
    shown = capsys.readouterr()
    assert without_notice(shown.err) == ""
    assert "memcpy  numpy  kernels" in shown.out
    assert "2x3" in shown.out


@pytest.mark.peers
def test_torch_writes_the_bits_that_we_write() -> None:
    words = f"{_TAILS} --sdt=s4,boolean,f64,bf16 --dtag=ba --stag=ab 6x8"
    results = [measure(case, 1, [torch_peer], 0.001) for case in parse_cases(words.split())]
    assert all(result.differs == [] for result in results)
    assert [bool(result.peers) for result in results[-4:]] == [False, True, True, True]
