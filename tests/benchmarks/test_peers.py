"""Other libraries as peers."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memdesc import MemdescError
from reorder.bench.measure import measure
from tests.benchmarks.cases import parse_cases
from tests.benchmarks.libraries import dense_permutation, onednn_peer, open_library
from tests.benchmarks.peers import main
from tests.differential.libdnnl import find_libraries

pytestmark = pytest.mark.peers


def test_blocks_gaps_and_conversions_are_not_permutations() -> None:
    for words, moved in (
        ("--stag=abc --dtag=cab 3x4x5", ((3, 4, 5), (2, 0, 1))),
        ("--stag=acb --dtag=bac 3x4x5", ((3, 5, 4), (2, 0, 1))),
        ("--stag=abcd --dtag=acdb 2x1x3x4", ((1, 2, 3, 4), (0, 1, 2, 3))),
        ("--stag=abcd --dtag=aBcd8b 2x8x3x4", None),
        ("--sdt=f32 --ddt=s8 3x4", None),
        ("--strides=9x1 --dtag=ab 3x4", None),
        ("--sdt=s4 --stag=ab --dtag=ba 4x4", None),
        ("--scale=2 3x4", None),
    ):
        (case,) = parse_cases(words.split())
        assert dense_permutation(case) == moved, words


def _facts(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--threads=1", "--seconds=0.001", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_command_measures_what_bench_measures(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--stag=abc", "--dtag=cab", "30x40x50", "--peers=numpy"]
    facts = _facts(capsys, *words, "--random=1", "--classes=permutation")
    assert [set(case["peers"]) for case in facts["cases"]] == [{"numpy"}, {"numpy"}]
    peers = [row["beside"] for row in facts["summary"]]
    assert [peer for peer in peers if "MiB" not in peer] == ["memcpy", "numpy"]
    assert {kernel["threads"] for kernel in facts["kernels"]} == {1}
    assert main([*words, "--threads=1", "--seconds=0.001", "--in-process"]) == 0
    assert "memcpy  numpy  kernels" in capsys.readouterr().out


def test_peers_that_are_not_installed_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.benchmarks.peers.all_peers", lambda _: {"torch": None})
    words = ["--stag=ab", "--dtag=ba", "3x4", "--threads=1", "--seconds=0.001"]
    assert main([*words, "--peers=torch"]) == 0
    assert capsys.readouterr().err == "left out, as they are not installed: torch\n"


def test_each_onednn_has_a_process_and_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    if not (versions := find_libraries()):
        pytest.skip("no libdnnl: pip install onednn-cpu-gomp")
    names = [f"onednn {version}" for version in versions]
    words = ["--stag=abcd", "--dtag=aBcd16b", "2x32x4x4", f"--peers={','.join(names)}"]
    (case,) = _facts(capsys, *words)["cases"]
    # whether it generates code depends on the processor
    assert {peer.rpartition(" ")[0] for peer in case["peers"]} == set(names)
    assert case["differs"] == []


@pytest.mark.parametrize(
    "words",
    [
        "--sdt=f32,s8 --stag=abx,axb --dtag=aBx16b,axb,ABx4b16a4b 5x17x3x4 1x3x2x7",
        "--sdt=f32 --ddt=s8 --scale=mask:2 --zero-point=3 --beta=0.5 4x8",
        "--sdt=f32 --strides=16x1: 4x8",
    ],
)
def test_onednn_writes_the_bits_that_we_write(words: str) -> None:
    seen = set()
    for version in find_libraries():
        for case in parse_cases(words.split()):
            result = measure(case, 1, [partial(onednn_peer, version=version)], 0.001)
            assert result.differs == []
            seen |= set(result.peers)
    assert seen or not find_libraries()


def test_what_is_no_library_or_option_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "empty.so"
    file.touch()
    with pytest.raises(MemdescError, match="is not a library with HPTT's hptt::create_plan"):
        open_library(str(file))
    for words, says in (
        ([f"--peer-library={file}"], "is not a library"),
        (["--threads=two"], "'two' is not a number"),
        (["--peers=ipp"], "no peer 'ipp'"),
    ):
        assert main(["4x6", *words, "--seconds=0.001"]) == 2
        assert says in capsys.readouterr().err
