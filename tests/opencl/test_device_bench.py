"""What is measured on a device, and the search for its profile."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

import pyopencl as cl
import pytest

from reorder.bench import device_tune
from reorder.bench.device import DeviceBench, Loaded, _duration
from reorder.bench.device_calls import call_seconds
from reorder.bench.device_cases import IMAGES, TRANSPOSES, DeviceCase, resized
from reorder.bench.device_parts import profile_parts
from reorder.bench.device_tune import tune
from reorder.cli.device_bench import device_lines
from reorder.cli.main import main
from reorder.opencl.profiles import default_profile, profile_of, save_profile
from reorder.opencl.schedule.profile import CPU, GPU, TileShape
from reorder.opencl.schedule.profile_json import profile_from_json, profile_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from reorder.bench.device_tune import Found
    from reorder.opencl.schedule.profile import Profile
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


CHUNKS = next(part for part in profile_parts(CPU) if part.name == "bytes of a work item")


class Timed(DeviceBench):
    """A bench whose reorders take as long as a table says, by the bytes of a work item."""

    seconds_of: dict[int, Iterator[float]]

    def in_turns(
        self,
        loaded: Loaded,  # noqa: ARG002 - the signature of the method that it replaces
        profiles: Iterable[Profile],
        rounds: int,  # noqa: ARG002 - likewise
    ) -> dict[Profile, float]:
        """Return the times of the table, for profiles that work."""
        times = self.seconds_of
        return {one: next(times[one.chunk]) for one in profiles if one.chunk in times}


def searched(first: Runtime, times: dict[int, list[float]], cases: int = 2) -> Found:
    """Return what is found if reorders take some times."""
    bench = Timed(first.device)
    bench.seconds_of = {chunk: cycle(seconds) for chunk, seconds in times.items()}
    part = CHUNKS._replace(values=(1 << 12, 1 << 13), cases=CHUNKS.cases[:cases])
    said: list[str] = []
    best, (found,) = tune(bench, CPU, [part], 1 << 16, lambda text, _: said.append(text))
    assert said == [part.name]
    assert best == (CPU if found.value is None else CPU._replace(chunk=found.value))
    assert found.tried == len(part.values)
    return found


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        # the fastest of all reorders
        ({1 << 14: [1.0], 1 << 12: [0.8], 1 << 13: [0.5]}, (1 << 13, 2.0, 2.0)),
        # one that no kernel works with
        ({1 << 14: [1.0], 1 << 12: [0.8]}, (1 << 12, 1.25, 1.25)),
        # what is gained is less than noise
        ({1 << 14: [1.0], 1 << 12: [0.98], 1 << 13: [1.0]}, (None, 1.0, 1.0)),
        # the less of two measurements: 1, then 0.9 in the first reorder, 0.9 and 1 in the second
        ({1 << 14: [1.0], 1 << 12: [0.9, 1.0, 0.9, 0.9, 1.0]}, (None, 1.0, 1.0)),
        # a gain in one reorder, and a loss in another one
        ({1 << 14: [1.0], 1 << 12: [0.5, 0.5, 0.5, 1.1, 1.1]}, (None, 1.0, 1.0)),
    ],
)
def test_a_search_keeps_what_is_faster_in_all_reorders(
    times: dict[int, list[float]], wanted: tuple[int | None, float, float], first: Runtime
) -> None:
    value, gain, least = wanted
    found = searched(first, times)
    assert found.value == value
    assert (found.gain, found.least) == pytest.approx((gain, least))


def test_a_search_keeps_nothing_that_writes_other_bytes(
    first: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {1 << 14: [1.0], 1 << 12: [0.5]}
    assert searched(first, times).value == 1 << 12
    load = DeviceBench.load

    def other(self: DeviceBench, case: DeviceCase) -> Loaded:
        loaded = load(self, case)
        return loaded._replace(wanted=~loaded.wanted)

    monkeypatch.setattr(DeviceBench, "load", other)
    assert searched(first, times).value is None


def test_a_search_passes_over_what_a_device_has_no_room_for(first: Runtime) -> None:
    small = replace(first.device, max_width=1, max_height=1)
    part = next(part for part in profile_parts(GPU) if "pixels" in part.name)
    best, (found,) = tune(DeviceBench(small), GPU, [part], 1 << 18, lambda *_: None)
    assert (best, found.value, found.tried) == (GPU, None, len(part.values))


def test_times_are_measured_in_turns(first: Runtime) -> None:
    bench = DeviceBench(first.device)
    loaded = bench.load(DeviceCase("u8", "ab", "ba", (512, 512)))
    # equal kernels are measured once, and what no device builds is left out
    same = GPU._replace(rows=GPU.rows._replace(steps=1))
    large = GPU._replace(tiles=(TileShape(512, 512, 1 << 18, 128),) * 4)
    other = GPU._replace(tiles=(TileShape(64, 64, 1 << 12, 64),) * 4)
    times = bench.in_turns(loaded, (GPU, same, other, large), 2)
    assert {GPU, other} <= times.keys() <= {GPU, other, large}
    assert min(times.values()) > 0
    assert bench.is_right_with(loaded, other)
    assert not bench.is_right_with(loaded._replace(wanted=loaded.wanted + 1), other)


def test_a_profile_is_kept_for_later_processes(
    first: Runtime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("MEMDESC_CACHE_DIR", str(tmp_path))
    device = first.device.device
    found, start = profile_of.__wrapped__, default_profile(device)
    assert found(device) == start
    best = start._replace(chunk=1 << 15)
    path = save_profile(device, best)
    assert path is not None
    assert found(device) == best
    assert not caplog.records
    # what is no profile is refused, with its place and the way out
    for content, said in (
        (b"{", "it is no JSON"),
        (b"\xff", "no JSON"),
        (b"{}", "it has no tiles"),
    ):
        path.write_bytes(content)
        assert found(device) == start
        record = caplog.records.pop()
        assert record.name == "reorder"
        assert f"the profile {path} is not used: " in record.getMessage()
        assert said in record.getMessage()
        assert record.getMessage().endswith("`memdesc bench --device NAME --tune` replaces it")
    # the default profile needs no file
    assert save_profile(device, start) is None
    assert not path.exists()
    assert save_profile(device, start) is None
    monkeypatch.setenv("MEMDESC_CACHE_DIR", "")
    assert save_profile(device, best) is None
    assert found(device) == start
    assert not caplog.records


def test_a_search_ends_in_time(first: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_tune, "_MOST_SECONDS", -1)
    start, said = default_profile(first.device.device), []
    parts = profile_parts(start)
    bench = DeviceBench(first.device)
    best, found = tune(bench, start, parts, 1 << 15, lambda text, _: said.append(text))
    assert best == start
    assert said == [part.name for part in parts]
    assert all(
        one == (part.name, 0, None, 1.0, 1.0) for one, part in zip(found, parts, strict=True)
    )


def test_every_part_names_cases_that_are_measured() -> None:
    for profile in (GPU, CPU):
        parts = profile_parts(profile)
        assert len({part.name for part in parts}) == len(parts)
        assert all(part.cases and part.values for part in parts)
        # every value makes another profile, and one that a file keeps
        for part in parts:
            changed = [part.replaced(profile, value) for value in part.values]
            assert len({profile, *changed}) == len(part.values) + 1
            assert all(profile_from_json(profile_to_json(one)) == one for one in changed)
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
        small = resized(case, 1 << 20)
        assert small.nbytes <= 1 << 20
        # rows that start anywhere still do
        odd = [k for k, dim in enumerate(case.dims) if dim % 2]
        assert all(small.dims[k] % 2 for k in odd)
        assert resized(case, 1 << 40) == case


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tune", "1x2"], "say --device NAME"),
        (["--device", "x", "--size", "0"], "give megabytes above 0"),
        (["--device", "x", "--seconds", "0"], "--seconds 0: give a time above 0, such as 0.3"),
        (["--device", "x", "--tune", "--seconds", "1"], "in rounds: leave out --seconds"),
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


def test_what_a_search_found_is_a_table() -> None:
    part = {"part": "tiles", "tried": 3, "value": GPU.rows, "gain": 1.25, "least": 1.0}
    facts = {"device": "d", "platform": "p", "version": "v", "profile": "F", "seconds": 2.0}
    facts |= {"needed_gain": 1.03, "least_gain": 0.97}
    lines = device_lines(facts | {"parts": [part, part | {"value": None}, part | {"value": 4096}]})
    assert lines[4] == "| tiles | 3 | 1.25 | 1.00 | work_items 128, steps 2 |"
    assert lines[5] == "| tiles | 3 |  |  | the default |"
    assert lines[6] == "| tiles | 3 | 1.25 | 1.00 | 4096 |"
    assert lines[-1] == "The profile is kept in F."
    assert device_lines(facts | {"parts": [], "profile": None})[-1] == "The default profile stays."


@pytest.mark.campaign
def test_the_command_searches_a_profile(
    first: Runtime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MEMDESC_CACHE_DIR", str(tmp_path))
    assert main(["bench", "--device", first.name, "--tune", "--size", "0.2"]) == 0
    assert "| tiles of 1 bytes |" in capsys.readouterr().out
    profile_of.cache_clear()


@pytest.mark.campaign
def test_the_command_prints_a_table(first: Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--device", first.name, "--size", "0.05", "--seconds", "0.01"]) == 0
    out = capsys.readouterr().out
    assert out.count("| ab | ba |") > len("ab")
