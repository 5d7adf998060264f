"""The search for the profile of a device, and where it is kept."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

import pytest

from memdesc import MemdescError
from reorder.bench import device_tune
from reorder.bench.device import DeviceBench, Loaded
from reorder.bench.device_cases import IMAGES, DeviceCase
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
    # equal kernels have the same time, and what no device builds has none
    same = GPU._replace(rows=GPU.rows._replace(steps=1))
    large = GPU._replace(tiles=(TileShape(512, 512, 1 << 18, 128),) * 4)
    other = GPU._replace(tiles=(TileShape(64, 64, 1 << 12, 64),) * 4)
    times = bench.in_turns(loaded, (GPU, same, other, large), 2)
    assert {GPU, same, other} <= times.keys() <= {GPU, same, other, large}
    assert times[same] == times[GPU]
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
    path.mkdir()
    with pytest.raises(MemdescError, match=r"cannot be removed: .*; its profile stays in use"):
        save_profile(device, start)
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
