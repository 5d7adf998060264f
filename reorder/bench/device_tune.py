"""A short search for the profile of a device: each part alone, over the reorders that use it.

One reorder of a part chooses the best of its values, and all of them decide, measured in turns with
the profile that the search starts with: a kernel of an NVIDIA H200 takes a quarter of a second to
build, and devices are not equally fast all the time.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from reorder.bench.device_cases import resized
from reorder.bench.report import geometric_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from reorder.bench.device import DeviceBench, Loaded
    from reorder.bench.device_cases import DeviceCase
    from reorder.bench.device_parts import Part
    from reorder.opencl.schedule.profile import Profile

__all__ = ["GAIN", "LOSS", "Found", "tune"]

# How many times as fast a value has to be, over all reorders of a part and in each: less is noise.
GAIN, LOSS = 1.03, 0.98
# Values that all reorders are measured with; rounds of the first measurement, of those that decide.
_KEPT, _FIRST_ROUNDS, _ROUNDS = 2, 5, 9
# Seconds after which no more is tried.
_MOST_SECONDS = 180


class Found(NamedTuple):
    """What was found for a part: its value if it changed, and how many times as fast it is."""

    part: str
    tried: int
    value: Any | None
    gain: float
    least: float


def tune(
    bench: DeviceBench,
    profile: Profile,
    parts: Sequence[Part],
    nbytes: int,
    report: Callable[[str, int], None],
) -> tuple[Profile, list[Found]]:
    """Return the profile with which a device is fastest, and what was found for each part.

    A part keeps the value of `profile` unless another one is `GAIN` times as fast, and in no
    reorder less than `LOSS` times.

    Parameters
    ----------
    bench : DeviceBench
        The device.
    profile : Profile
        Where the search starts.
    parts : sequence of Part
        What is searched, of `profile_parts`.
    nbytes : int
        Most bytes of a tensor.
    report : function of str and int
        Called for each part with its name, and 1.
    """
    end = monotonic() + _MOST_SECONDS
    best, found = profile, []
    for part in parts:
        report(part.name, 1)
        if monotonic() > end:
            found.append(Found(part.name, 0, None, 1.0, 1.0))
            continue
        cases = [resized(case, nbytes) for case in part.cases]
        one = _search(bench, profile, part, [case for case in cases if bench.fits(case)])
        found.append(one)
        if one.value is not None:
            best = part.replaced(best, one.value)
    return best, found


def _search(bench: DeviceBench, profile: Profile, part: Part, cases: Sequence[DeviceCase]) -> Found:
    """Return what is found for a part."""
    tried = {part.replaced(profile, value): value for value in part.values}
    gains: dict[Profile, list[float]] = {}
    for k, case in enumerate(cases):
        loaded = bench.load(case)
        if k == 0:
            times = bench.in_turns(loaded, (profile, *tried), _FIRST_ROUNDS)
            faster = [other for other in times if times[other] * GAIN < times[profile]]
            gains = {other: [] for other in sorted(faster, key=times.__getitem__)[:_KEPT]}
        for other in list(gains):
            gain = _gain(bench, loaded, profile, other)
            gains[other].append(gain)
            if gain < LOSS or not bench.is_right_with(loaded, other):
                del gains[other]
        loaded.src.release()
        loaded.dst.release()
        if not gains:
            break
    means = {other: geometric_mean(ratios) for other, ratios in gains.items()}
    best = max(means, key=means.__getitem__, default=profile)
    if means.get(best, 0.0) < GAIN:
        return Found(part.name, len(tried), None, 1.0, 1.0)
    return Found(part.name, len(tried), tried[best], means[best], min(gains[best]))


def _gain(bench: DeviceBench, loaded: Loaded, profile: Profile, other: Profile) -> float:
    """Return how many times as fast a reorder is with another profile, the less of two trials.

    0 if the kernels of the other profile do not work.
    """
    gains = []
    for _ in range(2):
        times = bench.in_turns(loaded, (profile, other), _ROUNDS)
        if other not in times:
            return 0.0
        gains.append(times[profile] / times[other])
    return min(gains)
