"""The command that measures, on cases so small that nothing is measured."""

from __future__ import annotations

import json
import re
import sys
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from reorder import Memory
from reorder.bench.cases import parse_cases
from reorder.bench.measure import measure
from reorder.bench.peers import numpy_peer, torch_peer
from reorder.bench.report import full_report, geometric_mean, percentile, summarise
from reorder.cli import main
from reorder.cli.bench import COMMAND
from tests.notice import without_notice
from tests.reorders import expect, random_bytes

if TYPE_CHECKING:
    from pathlib import Path

_TAILS = "--sdt=f32,s8 --stag=abx --dtag=aBx16b,axb,ABx4b16a4b 5x17x3x4 1x3x2x7"


def test_numpy_writes_the_bits_that_we_write() -> None:
    for case in parse_cases(_TAILS.split()):
        result = measure(case, 1, [numpy_peer], 0.001)
        assert result.differs == []
        assert result.seconds > 0
        assert result.first_seconds > result.seconds
        assert list(result.peers) == ["numpy"]


@pytest.mark.parametrize("threads", [1, 2])
def test_memcpy_is_measured_on_as_many_threads(threads: int) -> None:
    (case,) = parse_cases(["--dtag=axb", "8x16x32x32"])
    result = measure(case, threads, [], 0.001)
    assert result.memcpy > 0
    assert result.threads == threads


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
    assert main(["bench", *words.split(), "--peers", "numpy"]) == 0
    head, row, *rest = capsys.readouterr().out.splitlines()
    names = ["case", "threads", "time", "p90", "first call", "GB/s", "memcpy", "numpy", "kernels"]
    assert re.split(" {2,}", head) == names
    assert row.startswith("f32 1x64x32x32 abcd -> aBcd16b")
    assert len(re.split(" {2,}", row)) == len(names)
    assert rest[0] == "memcpy, numpy: their time divided by memdesc's; above 1, memdesc is faster"
    said = "\n".join(rest)
    # one case needs no summary
    assert "times faster than" not in said
    assert len(rest) == 2
    assert rest[1].startswith("kernels compiled or loaded: ")


def test_percentiles_are_shown_of_many_cases_only() -> None:
    def shown(count: int) -> str:
        case = {
            "name": "one",
            "threads": 1,
            "nbytes": 1 << 20,
            "kernels": "run 32-bit",
            "seconds": 1e-3,
            "p90": 1e-3,
            "first_seconds": 1e-2,
            "memcpy": 0.5,
            "peers": {},
            "differs": [],
        }
        return "\n".join(COMMAND.lay_out(full_report([case] * count, [])))

    assert "geometric mean" not in shown(1)
    assert "geometric mean  median  least  slower in" in shown(2)
    assert "percentile" not in shown(19)
    assert "geometric mean  5th percentile  median  95th  least  slower in" in shown(20)


def test_a_run_is_one_json_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "cases"
    file.write_text('--dtag=axb 1x3x4x5 2x8x4x4n"one" 3x4n"one"\n', encoding="utf-8")
    assert (
        main(
            [
                "bench",
                "--json",
                f"--batch={file}",
                "--threads=1",
                "--seconds=0.001",
                "--peers=numpy",
            ]
        )
        == 0
    )
    facts = json.loads(capsys.readouterr().out)
    assert [case["name"] for case in facts["cases"]] == [
        "f32 1x3x4x5 abx -> axb",
        "one",
        "one",
    ]
    assert all(set(case["peers"]) == {"numpy"} for case in facts["cases"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing to measure"),
        (["4x6", "--peers=ipp"], "no peer 'ipp'"),
        (["4x6", "--threads=0"], "--threads '0'"),
        (["4x6", "--threads=two"], "--threads 'two'"),
        (["4xq"], "neither an option nor dims"),
        (["4x6", "--to=abc"], "abc"),
        *(
            (
                ["4x6", f"--seconds={text}"],
                f"--seconds: give a time above 0, such as 0.1, not {text!r}",
            )
            for text in ("0", "-1", "nan", "inf")
        ),
        (["4x6", "--beta=mask:2"], "--beta: invalid float value: 'mask:2'"),
        (["4x6", "--scale=mask:3:1x0"], "groups 1x0 do not fit dims (4, 6)"),
        (["4x6", "--scale=mask:3:1x1x2"], "groups 1x1x2 do not fit dims (4, 6)"),
        (["4x6", "--scale=mask:-1"], "--scale 'mask:-1' is neither a number nor mask:M"),
        (["4x6", "--scale=1,2"], "--scale '1,2' is neither a number nor mask:M"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_peer_that_was_asked_for_and_is_not_installed_is_missed_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # Python's way to bar an import
    few = ["bench", "2,3", "--threads=1", "--seconds=0.001"]
    assert main([*few, "--peers=numpy,torch"]) == 0
    shown = capsys.readouterr()
    assert without_notice(shown.err) == "memdesc: torch: not installed, so not measured\n"
    assert "memcpy  numpy  kernels" in shown.out
    assert "2x3" in shown.out
    assert main(few) == 0  # all that are installed
    assert without_notice(capsys.readouterr().err) == ""


@pytest.mark.peers
def test_torch_writes_the_bits_that_we_write() -> None:
    words = f"{_TAILS} --sdt=s4,boolean,f64,bf16 --dtag=ba --stag=ab 6x8"
    results = [measure(case, 1, [torch_peer], 0.001) for case in parse_cases(words.split())]
    assert all(result.differs == [] for result in results)
    assert [bool(result.peers) for result in results[-4:]] == [False, True, True, True]


def test_the_summary_leaves_small_cases_out() -> None:
    def case(ratio: float, nbytes: int = 1 << 20) -> dict[str, Any]:
        return {"threads": 1, "nbytes": nbytes, "memcpy": 0.5, "peers": {"numpy": ratio}}

    rows = summarise([case(1.0), case(4.0), case(0.1, 1 << 10)])
    assert [(row["beside"], row["cases"], row["geomean"], row["least"]) for row in rows] == [
        ("memcpy", 2, 0.5, 0.5),
        ("numpy", 2, 2.0, 1.0),
    ]
    assert rows[1]["slower"] == 0


def test_means_and_percentiles() -> None:
    assert geometric_mean([1, 4]) == pytest.approx(2)
    assert percentile([5, 1, 3], 0) == 1
    assert percentile([5, 1, 3], 1) == 5
    assert percentile([], 0.5) != percentile([], 0.5)  # NaN


@pytest.mark.parametrize("ratios", [[0.61, 0.76], [5.3852], [8, 1, 3, 2, 7, 5, 4, 6], [3, 1, 2]])
def test_the_percentile_in_the_middle_is_the_median(ratios: list[float]) -> None:
    cases = [{"threads": 1, "nbytes": 1 << 20, "memcpy": each, "peers": {}} for each in ratios]
    (row,) = summarise(cases)
    assert percentile(ratios, 0.5) == row["p50"] == pytest.approx(median(ratios), rel=1e-15)
    assert row["least"] == min(ratios)  # not rounded: the table rounds once
