"""The tool that times two checkouts, on cases too small to measure."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.cases import parse_cases
from tests.benchmarks.compare import Comparison, Timing, _to_json, is_worse, main
from tests.benchmarks.timing_worker import _Prepared

_ROOT = Path(__file__).parents[2]


def _run(tmp_path: Path, cases: str, arguments: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    file, out = tmp_path / "cases.txt", tmp_path / "out.json"
    file.write_text(cases, encoding="utf-8")
    common = ["--threads=1", "--seconds=0.001", f"--cases={file}", f"--json={out}"]
    assert main([*arguments, *common]) == 0
    found: dict[str, list[dict[str, Any]]] = json.loads(out.read_text(encoding="utf-8"))
    return found


@pytest.mark.campaign
def test_a_checkout_is_timed_against_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = "--dtag=aBx8b 1x3x4x5\n--ddt=s8 --scale=mask:2 2x8x4x4\n"
    found = _run(tmp_path, cases, [str(_ROOT), str(_ROOT)])
    assert [case["name"] for case in found["cases"]] == [
        "f32 1x3x4x5 abx -> aBx8b",
        "f32->s8 2x8x4x4 abx -> aBx8b scale mask:2",
    ]
    assert all(case["old_seconds"] > 0 and case["new_seconds"] > 0 for case in found["cases"])
    assert not found["failed"]
    assert "1 threads, 2 cases: geometric mean" in capsys.readouterr().out


@pytest.mark.campaign
def test_a_folder_without_the_library_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(RuntimeError, match=r"was imported from|ended with"):
        _run(tmp_path, "--dtag=axb 1x3x4x5\n", [str(empty), str(_ROOT)])


@pytest.mark.parametrize("dims", ["1x3x4x5", "2x64x112x112"])
def test_buffers_of_all_checkouts_start_at_the_same_places(dims: str) -> None:
    (case,) = parse_cases(["--dtag=axb", dims])
    # while others are kept, numpy allocates elsewhere
    prepared = [_Prepared(_to_json(case), 1, 4) for _ in range(3)]
    assert {each.src.ctypes.data % 4096 for each in prepared} == {16}
    assert {each.dst.ctypes.data % 4096 for each in prepared} == {4}


def test_a_case_counts_as_slower_only_if_it_is_slower_again() -> None:
    first, same, slow = (
        Timing("case", 1, 64, 1.0, 1.0, ratio, ratio) for ratio in (0.8, 1.0, 0.85)
    )
    assert Comparison([first], {"case 1": same}, []).slower == []
    assert Comparison([first], {"case 1": slow}, []).slower == [(first, slow)]


def test_the_gate_allows_what_the_same_code_shows_and_one_percent() -> None:
    def measured(ratio: float, again: float = 1.0) -> Comparison:
        timing, more = (Timing("case", 1, 64, 1.0, 1.0, each, each) for each in (ratio, again))
        return Comparison([timing], {"case 1": more}, [])

    assert not is_worse(measured(0.995), [measured(1.0)])
    assert is_worse(measured(0.985), [measured(1.0)])
    assert not is_worse(measured(0.975), [measured(1.02)])  # which way is chance
    # slower twice, which the same code is not
    assert is_worse(measured(0.8, 0.8), [measured(0.75)])
    assert not is_worse(measured(0.8, 0.8), [measured(0.8, 0.8)])
    assert not is_worse(measured(0.955), [measured(1.0), measured(1.05)])
