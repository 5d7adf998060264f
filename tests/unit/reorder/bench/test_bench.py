"""The command that measures, on cases so small that nothing is measured."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from reorder.bench.cases import parse_cases
from reorder.bench.measure import measure
from reorder.bench.onednn import onednn_peers
from reorder.bench.peers import numpy_peer
from reorder.bench.report import geometric_mean, percentile, summarise
from reorder.cli import main
from reorder.memory.memory import Memory
from tests.notice import without_notice
from tests.reorders import expect, random_bytes

if TYPE_CHECKING:
    from pathlib import Path

_TAILS = "--sdt=f32,s8 --stag=abx --dtag=aBx16b,axb,ABx4b16a4b 5x17x3x4 1x3x2x7"


def test_every_peer_comes_to_the_bits_that_we_come_to() -> None:
    seen: set[str] = set()
    for case in parse_cases(_TAILS.split()):
        result = measure(case, 1, seconds=0.001)
        assert result.differs == []
        assert result.seconds > 0
        assert result.first_seconds > result.seconds
        seen |= {name.split()[0] for name in result.peers}
    assert seen >= {"numpy", "onednn"}


def test_the_spelling_of_numpy_writes_all_of_dst() -> None:
    for case in parse_cases(_TAILS.split()):
        src, dst = Memory(case.src), Memory(case.dst)
        src.data[...] = random_bytes(src.nbytes, 1)
        dst.data[...] = random_bytes(dst.nbytes, 2)
        wanted = expect(case.src, case.dst, src.data, dst.data.copy())
        peer = numpy_peer(case, src.data, dst.data)
        assert peer is not None
        peer.call()
        assert bytes(dst.data) == bytes(wanted)


def test_onednn_says_which_of_its_codes_runs() -> None:
    (case,) = parse_cases(["--stag=abcd", "--dtag=aBcd16b", "2x32x4x4"])
    src, dst = Memory(case.src), Memory(case.dst)
    details = {peer.name: peer.detail for peer in onednn_peers(case, src.data, dst.data)}
    # its name depends on the processor: "jit:uni" or "simple:any"
    assert re.fullmatch(r"\w+:\w+", details["onednn 3.2"])


def test_a_run_prints_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "bench",
                "--stag",
                "abcd",
                "--dtag",
                "aBcd16b",
                "--sdt",
                "f32",
                "1x64x32x32",
                "--threads",
                "1",
                "--seconds",
                "0.001",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    for part in (
        "1t",
        "GB/s",
        "memcpy x",
        "numpy x",
        "onednn 3.2 x",
        "first call",
        "nine in ten calls within",
        "kernels compiled or loaded: 2 in",
        "5th percentile",
    ):
        assert part in said


def test_a_run_is_one_json_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "cases"
    file.write_text("--dtag=axb 1x3x4x5 2x8x4x4\n", encoding="utf-8")
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
        "f32 2x8x4x4 abx -> axb",
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
        (["4x6", "--dtag=abc"], "abc"),
        *(
            (["4x6", f"--seconds={text}"], f"--seconds {text}: give a time above 0")
            for text in ("0", "-1", "nan", "inf")
        ),
        (["4x6", "--beta=mask:2"], "--beta 'mask:2' is no number"),
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
    assert "numpy x" in shown.out
    assert "2x3" in shown.out
    assert main(few) == 0  # all that are installed
    assert without_notice(capsys.readouterr().err) == ""


@pytest.mark.peers
def test_torch_comes_to_the_bits_that_we_come_to() -> None:
    results = [measure(case, 1, ("torch",), seconds=0.001) for case in parse_cases(_TAILS.split())]
    assert all(result.differs == [] for result in results)
    assert any("torch" in result.peers for result in results)


def test_the_help_says_what_each_attribute_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "--scale V a number, or mask:M for" in said
    assert "--beta V a number" in said
    assert "--beta V a number, or" not in said


def test_the_summary_leaves_small_cases_out_and_tells_generated_code_from_the_reference() -> None:
    def case(ratio: float, detail: str, nbytes: int = 1 << 20) -> dict[str, Any]:
        return {
            "threads": 1,
            "nbytes": nbytes,
            "memcpy": 0.5,
            "peers": {"onednn 3.2": ratio},
            "details": {"onednn 3.2": detail},
        }

    rows = summarise(
        [
            case(1.0, "jit:uni"),
            case(4.0, "jit:uni"),
            case(100.0, "simple:any"),
            case(0.1, "jit:uni", 1 << 10),
        ]
    )
    assert [(row["beside"], row["cases"], row["geomean"], row["least"]) for row in rows] == [
        ("memcpy", 3, 0.5, 0.5),
        ("onednn 3.2 generated", 2, 2.0, 1.0),
        ("onednn 3.2 reference", 1, 100.0, 100.0),
    ]
    assert rows[1]["slower"] == 0


def test_means_and_percentiles() -> None:
    assert geometric_mean([1, 4]) == pytest.approx(2)
    assert percentile([5, 1, 3], 0.0) == 1
    assert percentile([5, 1, 3], 0.99) == 5
