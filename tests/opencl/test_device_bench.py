"""What is measured on a device, and the search for its profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyopencl as cl
import pytest

from reorder.bench import device_tune
from reorder.bench.device import DeviceBench, _duration
from reorder.bench.device_calls import call_seconds
from reorder.bench.device_cases import IMAGES, TRANSPOSES, DeviceCase, resized
from reorder.bench.device_tune import profile_parts, tune
from reorder.cli.device_bench import device_lines
from reorder.cli.main import main
from reorder.opencl.profiles import default_profile, profile_of, save_profile
from reorder.opencl.schedule.profile import CPU, GPU
from reorder.opencl.schedule.profile_json import profile_from_json, profile_to_json

if TYPE_CHECKING:
    from pathlib import Path

    from tests.opencl.runtimes import Runtime


def test_a_case_is_measured_beside_the_copy(first: Runtime) -> None:
    bench = DeviceBench(first.device)
    case = DeviceCase("f16", "nhwc", "in_out_channel", (2, 8, 5, 6))
    row = bench.measure(case)
    assert row["nbytes"] == 2 * 8 * 5 * 6 * 2
    assert row["of_copy"] > 0
    assert row["torch_of_copy"] is None
    assert row["of_cpu"] > 0
    facts = {"device": "d", "platform": "p", "version": "v", "profile": ""}
    lines = device_lines(
        facts | {"cases": [row], "call_us": 9.0, "bare_call_us": 7.0, "launch_us": 5.0}
    )
    assert lines[4].startswith("| f16 | nhwc | in_out_channel | 2x8x5x6 | 0 |")
    assert lines[2].endswith("| of the copy | of the reorder without a device |")
    assert lines[-3].startswith("of the reorder without a device: geometric mean")
    assert "takes 9.0 us, pyopencl's own 7.0;" in lines[-1]
    beside_torch = device_lines(
        facts
        | {
            "cases": [row | {"torch_of_copy": 0.5, "of_cpu": None}],
            "call_us": 9.0,
            "bare_call_us": 7.0,
            "launch_us": 5.0,
        }
    )
    assert beside_torch[4].endswith("| 0.50 |")


def test_a_reorder_of_two_launches_is_measured_from_the_first_to_the_last(first: Runtime) -> None:
    # rows of 37 values of 4 bits: each launch writes one half of the bytes they share
    bench = DeviceBench(first.device)
    case = DeviceCase("f32", "ab", "ba", (37, 15), to_dtype="s4")
    commands = bench._runner(bench.load(case))()  # noqa: SLF001 - measures times
    bench.queue.finish()
    kernel = cl.command_type.NDRANGE_KERNEL
    assert [one.command_type for one in commands] == [kernel] * 2
    starts, ends = zip(*((one.profile.start, one.profile.end) for one in commands), strict=True)
    seconds = (max(ends) - min(starts)) * 1e-9
    assert _duration(commands) == pytest.approx(seconds)
    assert seconds >= max(end - start for start, end in zip(starts, ends, strict=True)) * 1e-9


def test_a_search_keeps_a_profile_that_later_processes_read(
    first: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMDESC_CACHE_DIR", str(tmp_path))
    device = first.device.device
    start = default_profile(device)
    parts = profile_parts(start)
    (part,) = (one for one in parts if one.name in {"copies of 16 bytes", "bytes of a work item"})
    tried = part._replace(values=part.values[:2], cases=part.cases[-1:])
    said: list[str] = []
    best = tune(
        DeviceBench(first.device), start, [tried], 1 << 15, lambda text, _: said.append(text)
    )
    assert best in {start, *(tried.replaced(start, value) for value in tried.values)}
    assert len(said) == 1
    path = save_profile(device, best)
    assert path is not None
    assert profile_of.__wrapped__(device) == best
    path.write_text("{", encoding="utf-8")
    assert profile_of.__wrapped__(device) == start


def test_a_search_ends_in_time(first: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_tune, "_MOST_SECONDS", -1)
    start, said = default_profile(first.device.device), []
    parts = profile_parts(start)
    bench = DeviceBench(first.device)
    assert tune(bench, start, parts, 1 << 15, lambda text, _: said.append(text)) == start
    assert len(said) == len(parts)
    assert said[0] == f"{parts[0].name}: not searched, since -1 seconds are over"


def test_every_part_names_cases_that_are_measured() -> None:
    for profile in (GPU, CPU):
        parts = profile_parts(profile)
        assert len({part.name for part in parts}) == len(parts)
        assert all(part.cases and part.values for part in parts)
        # every value makes another profile, and one that a file keeps
        for part in parts:
            changed = [part.replaced(profile, value) for value in part.values]
            assert len(set(changed)) == len(part.values)
            assert profile_from_json(profile_to_json(changed[-1])) == changed[-1]
        images = [case for part in parts for case in part.cases if case in IMAGES]
        assert len(images) == (len(IMAGES) // 2 if profile == GPU else 0)


def test_processors_are_searched_for_what_a_work_item_moves() -> None:
    (part,) = (part for part in profile_parts(CPU) if part.name == "bytes of a work item")
    assert [part.replaced(CPU, value).chunk for value in part.values] == [*part.values]


@pytest.mark.parametrize(("seconds", "runs"), [(None, 11), (0.5, 5), (1e-9, 1), (1e9, 1000)])
def test_a_time_decides_how_often_a_reorder_runs(
    seconds: float | None, runs: int, first: Runtime
) -> None:
    assert DeviceBench(first.device, seconds)._runs(0.1) == runs  # noqa: SLF001 - measures times


def test_cases_are_made_smaller() -> None:
    for case in TRANSPOSES:
        assert resized(case, 1 << 20).nbytes <= 1 << 20
        assert resized(case, 1 << 40) == case


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tune", "1x2"], "say --device NAME"),
        (["--device", "x", "--size", "0"], "give megabytes above 0"),
        (["--device", "x", "--seconds", "0"], "--seconds 0: give a time above 0, such as 0.3"),
        (["--device", "x", "--seconds", "nan"], "--seconds nan: give a time above 0"),
        (["--device", "no such device"], "no OpenCL device"),
        (["--device", "x", "1x64x56x56"], "fixed list of reorders, so leave out DIMS"),
        (["--device", "x", "--dtag=ba", "--random=5"], "leave out --dtag, --random"),
        (["--device", "x", "--scale=2", "--peer-library=y"], "--peer-library, --scale"),
    ],
)
def test_wrong_options_are_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *options]) != 0
    assert said in capsys.readouterr().err


def test_a_call_is_measured_beside_that_of_pyopencl(first: Runtime) -> None:
    call, bare = call_seconds(DeviceBench(first.device), DeviceCase("u8", "ab", "ba", (64, 64)))
    assert call > 0
    assert bare > 0


@pytest.mark.campaign
def test_the_command_prints_a_table(first: Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--device", first.name, "--size", "0.05", "--seconds", "0.01"]) == 0
    out = capsys.readouterr().out
    assert out.count("| ab | ba |") > len("ab")
