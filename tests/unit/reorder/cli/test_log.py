from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell

_DATA = Path(__file__).parents[3] / "data"
_ONCE = _DATA / "verbose" / "onednn-2.4.log"
_TORCH = _DATA / "verbose" / "torch-2.13.log"
_START = "onednn_verbose,exec,cpu,reorder,"


def test_times_and_what_could_be_saved(shell: Shell) -> None:
    lines = shell.lines(f"log {_TORCH} --top 2")
    assert "\n".join(lines[:4]) == (
        "oneDNN 3.12.0: 16 executions, 0.4424 ms in oneDNN by medians, of which reorders 14%\n"
        "the log repeats itself: 4 runs of 4 executions, from execution 1 on; --steady shows one "
        "(if wrong: --runs N)\n"
        "warning: the times of 1 primitive vary more than threefold, most of all reorder "
        "1x32x32x32:\n"
        "    0.06714 ms in all, 0.02197 by medians, 0.02051 by minima; the machine was busy, or "
        "they waited for threads or memory"
    )
    assert "convolution      4   0.3823              86%" in lines
    row = "0.02832      4   0.00708  0.004883  0.03296  20.83  64x32x3x3 f32 abcd -> f32 ABcd16b16a"
    assert lines[lines.index(row) + 1] == (
        "    to wei of convolution 1x32x32x32 by 64x32x3x3 (jit:avx512_core)"
    )
    assert "and 1 more (--top 3 shows all)" in lines
    assert lines[-3:] == [
        (
            "     0.03174 ms   7%  other reorders: needed for the layouts at both ends "
            "(8 executions, 2 different)"
        ),
        (
            "     0.02832 ms   6%  weights, reordered again in each run: once is enough "
            "(4 executions, 1 different)"
        ),
        (
            'what helps: the page "Logs of oneDNN", under "What could be saved"; --bench measures '
            "these reorders here"
        ),
    ]
    facts = shell.facts(f"log {_TORCH}")
    assert facts["runs"] == {"start": 0, "length": 4, "runs": 4}
    assert [row["executions"] for row in facts["reorders"]] == [4, 4, 4]
    weights = facts["reorders"][0]
    assert (weights["relation"], weights["is_of_weights"]) == ("copy", True)
    assert weights["bytes"] == 2 * 4 * 64 * 32 * 9


def test_layers_of_another_model_are_warned_of(shell: Shell) -> None:
    layers = f"--layers {_DATA / 'layers' / 'openvino-2026.4.xml'}"
    lines = shell.lines(f"log {_DATA / 'verbose' / 'openvino-2026.4.log'} {layers}")
    at = lines.index("warning: the layers are of another model, or of other shapes: none executes")
    assert lines[at + 1].startswith("    pooling mb1ic32_ih32oh16kh2sh2")
    own = shell.facts(f"log {_DATA / 'layers' / 'openvino-2026.4.log'} {layers}")
    assert own["not_of_layers"] == []


def test_each_reorder_of_a_log_is_in_what_could_be_saved(shell: Shell) -> None:
    log = _DATA / "verbose" / "openvino-2026.4.log"
    lines = shell.lines(f"log {log}")
    at = lines.index("what could be saved:")
    assert lines[at + 1 : -1] == [
        (
            "     0.08496 ms  26%  not in each run: set-up, which more runs do not repeat "
            "(2 executions, 2 different)"
        ),
        (
            "     0.06006 ms  18%  other reorders: needed for the layouts at both ends "
            "(3 executions, 1 different)"
        ),
    ]
    for path in (log, _TORCH):
        text = "\n".join(shell.lines(f"log {path}"))
        # it may be a log of any program, so it names none
        assert not [name for name in ("PyTorch", "Inductor", "OpenVINO", "http") if name in text]
        # and a row of the report fits into a window
        assert max(map(len, text.splitlines())) <= 120


def test_one_run_with_layers_and_reasons(shell: Shell) -> None:
    files = _DATA / "layers" / "torch-2.13"
    lines = shell.lines(f"log {files}.log --layers {files}.json --steady")
    assert lines[0].startswith("oneDNN 3.12.0: one of 3 equal runs, 7 executions, ")
    assert lines[1].startswith("set-up: 21 creations in the whole log, ")
    (at,) = (at for at, line in enumerate(lines) if "-> back" in line)
    assert lines[at].endswith("  1x32x32x32 f32 aBcd16b -> f32 abcd -> back")
    assert lines[at + 1 : at + 4] == [
        "    from dst of convolution 1x3x64x64 by 32x3x7x7 (jit:avx512_core)",
        "    to src of convolution 1x32x32x32 by 64x32x3x3 (jit:avx512_core)",
        "    in Sequential_0/Sequential_1/Conv2d_0 and 1 more",
    ]
    reason = "         2  convolution                       unsupported format tag"
    assert reason in lines
    names = ["Sequential_0/Sequential_1/Conv2d_0", "Sequential_0/Sequential_2/Conv2d_1"]
    assert [line.rpartition("  ")[2] for line in lines[-5:-2]] == ["layer", *names]
    assert lines[-5].split() == ["oneDNN,", "ms", "in", "all,", "ms", "layer"]
    files = _DATA / "layers" / "openvino-2026.4"
    lines = shell.lines(f"log {files}.log --layers {files}.xml")
    assert "set-up: 2 executions before the first run, " in lines[2]
    assert any(line.endswith("Convolution  acdb    layer1/conv") for line in lines)
    assert sum(line.endswith(", not in each run") for line in lines) == 2


def test_stdin_is_read_and_other_lines_are_counted(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked, plain = "f32::blocked:aBcd16b::f0", "f32::blocked:abcd::f0"
    lines = ["epoch 1", "onednn_verbose,exec,cpu", "onednn_verbose,error,x"]
    lines += [
        f"{_START}ref:any,undef,src:{a} dst:{b},,,2x16x4x4,2"
        for a, b in ((blocked, plain), (plain, blocked), (plain, plain))
    ]
    text = _ONCE.read_text(encoding="utf-8") + "\n".join(lines)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    shown = "\n".join(shell.lines("log -"))
    assert "2x17x8x8 f32 abcd -> f32 aBcd16b (to eltwise data)" not in shown
    for part in (
        "other lines: 1 unread, 1 error, 1 not from oneDNN",
        "  not read, line 45: it has 1 field after the event instead of 9: onednn_verbose,exec",
        *("no-ops", "without generated code", "round trips", "ABcd4b16a4b:f3:s8m1"),
    ):
        assert part in shown
    savings = shown.partition("what could be saved:\n")[2].splitlines()[:3]
    spent = [float(line.split()[0]) for line in savings]
    assert spent == sorted(spent, reverse=True)


def test_attributes_that_are_not_understood_are_marked(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = "src:f32::blocked:abcd::f0 dst:f32::blocked:abcd::f0"
    lines = [
        f"{_START}jit:uni,undef,{plain},attr-new:1,,2x16x4x4,2",
        f"{_START}x,undef,{plain},,,1,1",
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    shown = shell.lines("log - --bench --seconds 0.01")
    assert "attribute not understood, in 1 execution: new:1" in shown
    assert any(line.endswith("attr-new:1, not understood") for line in shown)
    assert "  not measured, 2x16x4x4: attributes that are not understood: new:1" in shown
    assert not any("no-ops" in line for line in shown)


def test_stdin_may_hold_bytes_that_are_not_text() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "reorder", "log", "-"],
        input=b"\xff\xfe\nonednn_verbose,info,oneDNN v3.13.2\n",
        env=os.environ | {"PYTHONUTF8": "1"},
        capture_output=True,
        check=True,
    )
    assert b"other lines: 1 not from oneDNN" in ran.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_read_from_stdin(shell: Shell) -> None:
    os.mkfifo("pipe")  # what <(...) is for a command
    assert shell.refusal("log pipe") == (
        "'pipe' is a pipe; use - and stdin, as in `cat torch.log | memdesc log -`"
    )


def test_a_log_without_reorders_has_no_table_of_them(shell: Shell) -> None:
    def lines(text: str) -> list[str]:
        Path("x.log").write_text(text, encoding="utf-8")
        return shell.lines("log x.log")

    assert lines("nothing\nonednn_verbose,info,prim_template:x\n") == [
        "oneDNN of unknown version: 0 executions, 0 ms in oneDNN by medians, of which reorders 0%",
        "other lines: 1 not from oneDNN",
        "",
        "primitive  count  ms  share of oneDNN  by reference",
    ]
    reason = lines("onednn_verbose,create:dispatch,sum,why,a.cpp:1\n")[-1]
    assert reason.split() == ["1", "sum", "why"]
    descs = "src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0"
    needed = lines(f"{_START}jit:uni,undef,{descs},,,2x16x4x4,2\n")
    assert needed[-3] == "what could be saved:"
    assert needed[-2].endswith(
        "other reorders: needed for the layouts at both ends (1 execution, 1 different)"
    )


def test_reorders_are_measured_here(shell: Shell) -> None:
    Path("x.log").write_text(
        "onednn_verbose,info,cpu,runtime:OpenMP,nthr:1\n"
        f"{_START}jit:uni,undef,src:f32::blocked:ab::f0 dst:f32::blocked:ba::f0,,,8x16,0.5\n"
        f"{_START}jit:uni,undef,src:f32::opaque:::f0 dst:f32::blocked:ba::f0,,,8x16,0.25\n",
        encoding="utf-8",
    )
    facts = shell.facts("log x.log --bench --seconds 0.001")
    assert facts["bench_threads"] == 1
    first, second = facts["reorders"]
    assert first["here"]["memdesc"] > 0
    assert first["here"]["memcpy"] > 0
    assert first["here"]["new_memory"] is None  # small memory is not mapped anew
    least, most = first["here"]["times_faster"]
    assert 0 < least <= most
    assert "only oneDNN knows its layout" in second["not_measured"]
    shown = "\n".join(shell.lines("log x.log --bench --seconds 0.001 --threads 1"))
    assert "here, ms  new dst, ms  memcpy, ms" in shown
    assert "measured here on 1 thread\nnew dst: large memory that nobody has written" in shown
    assert "warning" not in shown
    text = Path("x.log").read_text(encoding="utf-8")
    Path("x.log").write_text(text + text.replace(",0.5\n", ",5\n") * 2, encoding="utf-8")
    Path("large.log").write_text(text.replace("8x16,", "512x512,"), encoding="utf-8")
    (large,) = (
        row["here"]
        for row in shell.facts("log large.log --bench --seconds 0.001")["reorders"]
        if "here" in row
    )
    assert large["new_memory"] > 0
    shown = "\n".join(shell.lines("log x.log --bench --seconds 0.001 --threads 1"))
    assert "so the machine was busy or the memory new: believe the smaller ratios" in shown
    assert "  not measured, 8x16: " in shown


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("missing.log", "the log 'missing.log' cannot be read"),
        (f"{_TORCH} --top -1", "--top: give how many, 0 or more, not '-1'"),
        (f"{_TORCH} --seconds 0", "--seconds: give a time above 0, such as 0.1, not '0'"),
        (f"{_TORCH} --layers {_TORCH}", "has no layers; give what openvino"),
        (f"{_ONCE} --steady", "the 35 executions hold no equal runs"),
        (f"{_TORCH} --bench --threads 0", "--threads 0: give 1 to"),
        (f"{_TORCH} --threads 2", "--threads 2: only --bench measures"),
        (f"{_TORCH} --seconds 2", "--seconds 2.0: only --bench measures"),
        (f"{_TORCH} --runs 3", "do not hold 3 equal runs; 4 executions in a row repeat 4 times"),
        ("other.log", "other.log: none of its lines is from oneDNN (2 lines read)"),
        ("other.log", "ONEDNN_VERBOSE=1"),
    ],
)
def test_what_cannot_be_reported_is_refused(shell: Shell, command: str, reason: str) -> None:
    Path("other.log").write_text("epoch 1\nloss 0.5\n", encoding="utf-8")
    assert reason in shell.refusal(f"log {command}")
