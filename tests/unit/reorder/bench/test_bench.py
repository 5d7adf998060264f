"""The command that measures, on cases so small that nothing is measured."""

import re
import sys

import pytest

from reorder import Memory
from reorder.bench.measure import measure
from reorder.bench.peers import known_peers, numpy_peer, torch_peer
from reorder.cli import main
from tests.benchmarks.cases import parse_cases
from tests.notice import without_notice
from tests.reorders import expect, random_bytes

_TAILS = "--sdt=f32,s8 --stag=abx --dtag=aBx16b,axb,ABx4b16a4b 5x17x3x4 1x3x2x7"


@pytest.mark.parametrize("threads", [1, 2])
def test_numpy_and_memcpy_are_measured_beside_us(threads: int) -> None:
    for case in parse_cases(_TAILS.split()):
        result = measure(case, threads, [numpy_peer], 0.001)
        assert (result.differs, list(result.peers), result.threads) == ([], ["numpy"], threads)
        assert min(result.first_seconds, result.seconds, result.memcpy) > 0


def test_the_spelling_of_numpy_writes_all_of_dst() -> None:
    for case in parse_cases(_TAILS.split()):
        src, dst = Memory(case.src), Memory(case.dst)
        src.data[...] = random_bytes(src.nbytes, 1)
        dst.data[...] = random_bytes(dst.nbytes, 2)
        wanted = expect(case.src, case.dst, src.data, dst.data.copy())
        peer = numpy_peer(case, (src.data, dst.data), 1)
        assert peer is not None
        peer.call()
        assert bytes(dst.data) == bytes(wanted)


def test_a_run_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--from abcd --to aBcd16b --dtype f32 1x64x32x32 --threads 1 --seconds 0.001"
    assert main(["bench", *words.split()]) == 0
    head, row, *rest = capsys.readouterr().out.splitlines()
    peers = [name for name, make in known_peers().items() if make]
    names = ["case", "threads", "time", "p90", "first call", "GB/s", "memcpy", *peers, "kernels"]
    assert re.split(" {2,}", head) == names
    assert row.startswith("f32 1x64x32x32 abcd -> aBcd16b")
    assert len(re.split(" {2,}", row)) == len(names)
    said = "their time divided by memdesc's; above 1, memdesc is faster"
    assert rest[0] == f"memcpy, {', '.join(peers)}: {said}"
    assert len(rest) == 2
    assert rest[1].startswith("kernels compiled or loaded: ")


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
