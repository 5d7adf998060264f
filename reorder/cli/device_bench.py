"""`memdesc bench --device`: a table of reorders on a device, and its tuning."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from reorder.bench.report import geometric_mean
from reorder.cli.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.cli.facts import Facts
    from reorder.opencl import Device

__all__ = ["device_answer", "device_lines", "tuning_answer"]

_MEGA = 10**6
_CPU_NBYTES, _GPU_NBYTES = 16 * _MEGA, 1100 * _MEGA
# Of a search on a GPU: several times what its caches hold, and filled at once.
_TUNED_NBYTES = 140 * _MEGA
_HEAD = ("dtype", "from", "to", "dims", "MB", "us", "TB/s", "of the copy")
_COMPARED = {
    "torch_of_copy": "torch, of the copy",
    "of_cpu": "of the reorder without a device",
}


def tuning_answer(name: str, most: int | None) -> Facts:
    """Search the profile of the device of a name, and save it.

    The largest tensor has `most` bytes, by default 140 MB on a GPU and 16 MB on a processor.
    """
    import pyopencl as cl  # noqa: PLC0415 - pyopencl is slow to load

    from reorder.bench.device import DeviceBench  # noqa: PLC0415 - likewise
    from reorder.bench.device_parts import profile_parts  # noqa: PLC0415 - likewise
    from reorder.bench.device_tune import GAIN, LOSS, tune  # noqa: PLC0415 - likewise
    from reorder.opencl import find_device  # noqa: PLC0415 - likewise
    from reorder.opencl.execution import device_traits  # noqa: PLC0415 - likewise
    from reorder.opencl.profiles import default_profile, profile_of, save_profile  # noqa: PLC0415

    device = find_device(name)
    is_cpu = bool(device.device.type & cl.device_type.CPU)
    parts = profile_parts(start := default_profile(device.device))
    start_time = time.perf_counter()
    with Progress(len(parts)) as shown:
        nbytes = most or (_CPU_NBYTES if is_cpu else _TUNED_NBYTES)
        best, found = tune(DeviceBench(device), start, parts, nbytes, shown.step)
    path = save_profile(device.device, best)
    profile_of.cache_clear()
    device_traits.cache_clear()
    return _device_facts(device) | {
        "profile": None if path is None else str(path),
        "seconds": time.perf_counter() - start_time,
        "needed_gain": GAIN,
        "least_gain": LOSS,
        "parts": [one._asdict() for one in found],
    }


def _device_facts(device: Device) -> Facts:
    return {"device": device.name, "platform": device.platform, "version": device.version}


def device_answer(name: str, most: int | None, seconds: float | None) -> Facts:
    """Measure the device of a name.

    The largest tensor has `most` bytes, by default 1.1 GB on a GPU and 16 MB on a processor. Each
    reorder is measured for `seconds`, by default in 11 runs.
    """
    import pyopencl as cl  # noqa: PLC0415 - pyopencl is slow to load

    from reorder.bench.device import DeviceBench  # noqa: PLC0415 - likewise
    from reorder.bench.device_calls import call_seconds  # noqa: PLC0415 - likewise
    from reorder.bench.device_cases import (  # noqa: PLC0415 - likewise
        CONVERSIONS,
        COPIES,
        FOUR_BITS,
        IMAGES,
        SMALL,
        TRANSPOSES,
        resized,
    )
    from reorder.opencl import find_device  # noqa: PLC0415 - likewise
    from reorder.opencl.profiles import default_profile, profile_of, profile_path  # noqa: PLC0415

    device = find_device(name)
    is_cpu = bool(device.device.type & cl.device_type.CPU)
    nbytes = most or (_CPU_NBYTES if is_cpu else _GPU_NBYTES)
    is_tuned = profile_of(device.device) != default_profile(device.device)
    bench = DeviceBench(device, seconds)
    profile = str(profile_path(device.device)) if is_tuned else None
    facts = _device_facts(device) | {"profile": profile}
    listed = (*TRANSPOSES, *COPIES, *CONVERSIONS, *FOUR_BITS, *IMAGES, *SMALL)
    cases = [resized(case, nbytes) for case in listed]
    rows = []
    with Progress(len(cases)) as shown:
        for case in cases:
            shown.step(f"{case.dtype} {case.src} -> {case.dst}", 1)
            if bench.fits(case):
                rows.append(bench.measure(case))
    call, bare = call_seconds(bench, resized(SMALL[0], 1 << 16))
    launch = bench.seconds(bench.load(SMALL[0]._replace(dims=(8, 8))))
    times = {"call_us": call * 1e6, "bare_call_us": bare * 1e6, "launch_us": launch * 1e6}
    return facts | {"cases": rows} | times


def device_lines(facts: Facts) -> list[str]:
    """Return the facts as a table in Markdown."""
    lines = [f"Device: {facts['device']}, {facts['platform']}, {facts['version']}."]
    if "parts" in facts:
        return [*lines, "", *_tuning_lines(facts)]
    if facts["profile"]:
        lines.append(f"Its profile is that of {facts['profile']}.")
    # a processor is compared with the reorder that needs no device, others with PyTorch
    compared = [name for name in _COMPARED if any(row[name] for row in facts["cases"])]
    head = (*_HEAD, *(_COMPARED[name] for name in compared))
    lines += ["", f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in facts["cases"]:
        cells = (
            row["dtype"],
            row["from"],
            row["to"],
            "x".join(map(str, row["dims"])),
            f"{row['nbytes'] / _MEGA:.0f}",
            f"{row['us']:.1f}",
            f"{row['tb_per_second']:.2f}",
            f"{row['of_copy']:.2f}",
            *("" if row[name] is None else f"{row[name]:.2f}" for name in compared),
        )
        lines.append(f"| {' | '.join(cells)} |")
    for name in compared:
        ratios = [row[name] for row in facts["cases"] if row[name]]
        mean = geometric_mean(ratios)
        lines += ["", f"{_COMPARED[name]}: geometric mean {mean:.2f}, least {min(ratios):.2f}."]
    call, bare = facts["call_us"], facts["bare_call_us"]
    said = f"A call that enqueues a known reorder takes {call:.1f} us, pyopencl's own {bare:.1f}; "
    lines += [
        "",
        f"{said}a kernel for 64 bytes runs for {facts['launch_us']:.1f} us on the device.",
    ]
    return lines


def _tuning_lines(facts: Facts) -> Iterator[str]:
    """Return what a search found."""
    head = ("part", "values tried", "times as fast", "least", "kept")
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in facts["parts"]:
        stays = row["value"] is None
        cells = (
            ("", "", "the default")
            if stays
            else (f"{row['gain']:.2f}", f"{row['least']:.2f}", _shown(row["value"]))
        )
        yield f"| {row['part']} | {row['tried']} | {' | '.join(cells)} |"
    yield ""
    limits = (
        f"{facts['needed_gain']:.2f} times as fast, and no reorder below {facts['least_gain']:.2f}"
    )
    yield f"Searched for {facts['seconds']:.0f} s. What is not {limits} is not kept."
    if facts["profile"] is None:
        yield "The default profile stays."
    else:
        yield f"The profile is kept in {facts['profile']}."


def _shown(value: object) -> str:
    """Return a value of a part: its numbers, by their names."""
    fields: tuple[str, ...] = getattr(value, "_fields", ())
    if not fields:
        return str(value)
    return ", ".join(f"{name} {getattr(value, name)}" for name in fields)
