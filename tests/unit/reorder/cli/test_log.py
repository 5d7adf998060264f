from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reorder.cli import main

_LOGS = Path(__file__).parents[3] / "data" / "verbose"
_ONCE = str(_LOGS / "onednn-2.4.log")
_TORCH = str(_LOGS / "torch-2.13.log")


def test_log_reports_times_and_what_could_be_saved(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", _TORCH, "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "oneDNN 3.12.0: 16 executions, 0.4424 ms by medians, of which reorders 14%",
        (
            "the log repeats itself: 4 runs of 4 executions, from execution 1 on; "
            "--steady shows one run"
        ),
        (
            "warning: the mean is above three times the median for 1 primitive (0.06714 ms in all, "
            "0.02197 by medians), most of all reorder 1x32x32x32: the machine was busy, or some "
            "executions waited for threads"
        ),
    ]
    assert "convolution      4   0.3823    86%" in lines
    assert (
        "0.02832      4   0.00708  0.004883  0.03296  20.83  64x32x3x3 f32 abcd -> f32 ABcd16b16a, "
        "to wei of convolution 1x32x32x32 by 64x32x3x3 (jit:avx512_core)"
    ) in lines
    assert "and 1 more (--top 3 shows all)" in lines
    assert lines[-1] == (
        "     0.02832 ms   6%  weights, reordered again in each run: reorder them once "
        "(4 executions, 1 different)"
    )


def test_log_shows_one_run_with_layers_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    files = str(_LOGS.parent / "layers" / "torch-2.13")
    assert main(["log", f"{files}.log", "--layers", f"{files}.json", "--steady"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("oneDNN 3.12.0: one of 3 equal runs, 7 executions, ")
    assert lines[1].startswith("set-up: 21 creations, ")
    (trip,) = (line for line in lines if "-> back" in line)
    assert trip.endswith(
        "1x32x32x32 f32 aBcd16b -> f32 abcd -> back, from dst of convolution 1x3x64x64 by 32x3x7x7 "
        "(jit:avx512_core), to src of convolution 1x32x32x32 by 64x32x3x3 (jit:avx512_core), "
        "in Sequential_0/Sequential_1/Conv2d_0 and 1 more"
    )
    assert (
        "         2                convolution                       unsupported format tag"
    ) in lines
    assert [line.rpartition("  ")[2] for line in lines[-3:]] == [
        *("layer", "Sequential_0/Sequential_1/Conv2d_0", "Sequential_0/Sequential_2/Conv2d_1"),
    ]
    files = str(_LOGS.parent / "layers" / "openvino-2026.4")
    assert main(["log", f"{files}.log", "--layers", f"{files}.xml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "set-up: 2 executions before the first run, " in lines[2]
    assert any(line.endswith("Convolution  acdb    layer1/conv") for line in lines)
    assert sum(line.endswith(", not in each run") for line in lines) == 2


def test_log_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", _TORCH, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["runs"] == {"start": 0, "length": 4, "runs": 4}
    assert [row["executions"] for row in facts["reorders"]] == [4, 4, 4]
    weights = facts["reorders"][0]
    assert (weights["relation"], weights["is_of_weights"], weights["bytes"]) == (
        *("copy", True),
        2 * 4 * 64 * 32 * 9,
    )


def test_log_reads_stdin_and_counts_other_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (_LOGS / "onednn-2.4.log").read_text(encoding="utf-8")
    blocked, plain = "f32::blocked:aBcd16b::f0", "f32::blocked:abcd::f0"
    lines = ["epoch 1", "onednn_verbose,exec,cpu", "onednn_verbose,error,x"]
    lines += [
        f"onednn_verbose,exec,cpu,reorder,ref:any,undef,src:{a} dst:{b},,,2x16x4x4,2"
        for a, b in ((blocked, plain), (plain, blocked), (plain, plain))
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO(text + "\n".join(lines)))
    assert main(["log", "-"]) == 0
    shown = capsys.readouterr().out
    assert "other lines: 1 unread, 1 error, 1 not of oneDNN" in shown
    assert "  not read, line 45: onednn_verbose,exec,cpu" in shown
    assert "2x17x8x8 f32 abcd -> f32 aBcd16b (to eltwise data)" not in shown
    for saving in ("no-ops", "without generated code", "round trips"):
        assert saving in shown
    assert "ABcd4b16a4b:f3:s8m1" in shown


def test_stdin_may_hold_bytes_that_are_no_text() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "reorder", "log", "-"],
        input=b"\xff\xfe\nonednn_verbose,info,oneDNN v3.13.2\n",
        env=os.environ | {"PYTHONUTF8": "1"},
        capture_output=True,
        check=True,
    )
    assert b"other lines: 1 not of oneDNN" in ran.stdout


def test_a_log_without_reorders_has_no_table_of_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text("nothing\nonednn_verbose,info,prim_template:x\n", encoding="utf-8")
    assert main(["log", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "oneDNN of unknown version: 0 executions, 0 ms by medians, of which reorders 0%",
        "other lines: 1 not of oneDNN",
        "",
        "primitive  count  ms  share  by reference",
    ]
    path.write_text("onednn_verbose,create:dispatch,sum,why,a.cpp:1\n", encoding="utf-8")
    assert main(["log", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["1", "sum", "why"]
    line = "src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,,,2x16x4x4,2"
    path.write_text(f"onednn_verbose,exec,cpu,reorder,jit:uni,undef,{line}\n", encoding="utf-8")
    assert main(["log", str(path)]) == 0
    assert capsys.readouterr().out.endswith("\nno unnecessary reorder found\n")


def test_a_log_without_a_line_of_onednn_says_how_to_get_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("epoch 1\nloss 0.5\n"))
    assert main(["log", "-"]) == 2
    captured = capsys.readouterr()
    assert "stdin has no line of oneDNN in 2 lines" in captured.err
    assert "ONEDNN_VERBOSE=1" in captured.err
    assert not captured.out


def test_log_measures_the_reorders_here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    start = "onednn_verbose,exec,cpu,reorder,jit:uni,undef,"
    log.write_text(
        f"onednn_verbose,info,cpu,runtime:OpenMP,nthr:1\n"
        f"{start}src:f32::blocked:ab::f0 dst:f32::blocked:ba::f0,,,8x16,0.5\n"
        f"{start}src:f32::opaque:::f0 dst:f32::blocked:ba::f0,,,8x16,0.25\n",
        encoding="utf-8",
    )
    assert main(["log", str(log), "--bench", "--seconds", "0.001", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bench_threads"] == 1
    first, second = facts["reorders"]
    assert set(first["here"]) == {"memdesc", "memcpy"}
    assert all(milliseconds > 0 for milliseconds in first["here"].values())
    assert "only oneDNN knows its layout" in second["not_measured"]
    assert main(["log", str(log), "--bench", "--seconds", "0.001", "--threads", "1"]) == 0
    shown = capsys.readouterr().out
    assert "here, ms  memcpy, ms  times faster  reorder" in shown
    assert "measured here on 1 threads; times faster is the median of the log" in shown
    assert "  not measured, 8x16: " in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.log"], "the log 'missing.log' cannot be read"),
        ([_TORCH, "--top", "-1"], "--top -1: give how many rows to list"),
        ([_TORCH, "--seconds", "0"], "--seconds 0: give a time above 0"),
        ([_TORCH, "--layers", _TORCH], "has no layers; give what openvino"),
        ([_ONCE, "--steady"], "the 35 executions hold no equal runs"),
        ([_TORCH, "--bench", "--threads", "0"], "--threads 0: give 1 to"),
    ],
)
def test_bad_arguments_of_log_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", *arguments]) == 2
    assert message in capsys.readouterr().err
