"""`memdesc bench --device`: a table of reorders on a device, and its tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.cli.progress import Progress

if TYPE_CHECKING:
    from reorder.cli.facts import Facts

__all__ = ["device_answer", "device_lines"]

_MEGA = 10**6
_CPU_NBYTES, _GPU_NBYTES = 16 * _MEGA, 1100 * _MEGA
_HEAD = ("dtype", "from", "to", "dims", "MB", "us", "TB/s", "of the copy", "torch, of the copy")


def device_answer(name: str, *, tunes: bool, most: int | None) -> Facts:
    """Measure the device of a name; with `tunes` search its profile first, and save it.

    `most` bytes is the largest tensor, by default 1.1 GB on a GPU, 16 MB on a processor.
    """
    import pyopencl as cl  # noqa: PLC0415 - pyopencl is slow to load

    from reorder.bench.device import DeviceBench  # noqa: PLC0415 - likewise
    from reorder.bench.device_cases import (  # noqa: PLC0415 - likewise
        CONVERSIONS,
        COPIES,
        IMAGES,
        SMALL,
        TRANSPOSES,
        resized,
    )
    from reorder.bench.device_tune import profile_parts, tune  # noqa: PLC0415 - likewise
    from reorder.opencl import find_device  # noqa: PLC0415 - likewise
    from reorder.opencl.execution import device_traits  # noqa: PLC0415 - likewise
    from reorder.opencl.profiles import default_profile, profile_of, save_profile  # noqa: PLC0415

    device = find_device(name)
    is_cpu = bool(device.device.type & cl.device_type.CPU)
    nbytes = most or (_CPU_NBYTES if is_cpu else _GPU_NBYTES)
    bench = DeviceBench(device)
    facts: Facts = {
        "device": device.name,
        "platform": device.platform,
        "version": device.version,
        "profile": "",
    }
    if tunes:
        parts = profile_parts()
        with Progress(len(parts)) as shown:
            best = tune(bench, default_profile(device.device), parts, nbytes, shown.step)
        facts["profile"] = str(save_profile(device.device, best) or "")
        profile_of.cache_clear()
        device_traits.cache_clear()
    cases = [
        resized(case, nbytes) for case in (*TRANSPOSES, *COPIES, *CONVERSIONS, *IMAGES, *SMALL)
    ]
    rows = []
    with Progress(len(cases)) as shown:
        for case in cases:
            shown.step(f"{case.dtype} {case.src} -> {case.dst}", 1)
            if bench.fits(case):
                rows.append(bench.measure(case))
    call = bench.call_seconds(resized(SMALL[0], 1 << 16))
    return facts | {"cases": rows, "call_us": call * 1e6}


def device_lines(facts: Facts) -> list[str]:
    """Return the facts as a table in Markdown."""
    lines = [f"Device: {facts['device']}, {facts['platform']}, {facts['version']}."]
    if facts["profile"]:
        lines.append(f"Its profile is kept in {facts['profile']}.")
    lines += ["", f"| {' | '.join(_HEAD)} |", f"|{' --- |' * len(_HEAD)}"]
    for row in facts["cases"]:
        torch = row["torch_of_copy"]
        cells = (
            row["dtype"],
            row["from"],
            row["to"],
            "x".join(map(str, row["dims"])),
            f"{row['nbytes'] / _MEGA:.0f}",
            f"{row['us']:.1f}",
            f"{row['tb_per_second']:.2f}",
            f"{row['of_copy']:.2f}",
            "" if torch is None else f"{torch:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"A call that enqueues a known reorder takes {facts['call_us']:.1f} us."]
    return lines
