"""`memdesc bench --device`: a table of reorders on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.bench.report import geometric_mean
from reorder.cli.progress import Progress

if TYPE_CHECKING:
    from reorder.cli.facts import Facts

__all__ = ["device_answer", "device_lines"]

_MEGA = 10**6
_CPU_NBYTES, _GPU_NBYTES = 16 * _MEGA, 1100 * _MEGA
_HEAD = ("dtype", "from", "to", "dims", "MB", "us", "TB/s", "of the copy")
_COMPARED = {
    "torch_of_copy": "torch, of the copy",
    "of_cpu": "of the reorder without a device",
}


def device_answer(name: str, most: int | None, seconds: float | None) -> Facts:
    """Measure the device of a name.

    The largest tensor has `most` bytes, by default 1.1 GB on a GPU and 16 MB on a processor. Each
    reorder is measured for `seconds`, by default in 11 runs.
    """
    from reorder.bench.device import DeviceBench  # noqa: PLC0415 - pyopencl is slow to load
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

    device = find_device(name)
    nbytes = most or (_CPU_NBYTES if device.is_processor else _GPU_NBYTES)
    bench = DeviceBench(device, seconds)
    facts = {"device": device.name, "platform": device.platform, "version": device.version}
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
