"""`memdesc bench`: how fast reorders are, compared with memcpy and other libraries."""

from __future__ import annotations

from statistics import geometric_mean

from memdesc import MemdescError
from reorder.bench.cases import ATTRIBUTES, Problem
from reorder.bench.measure import measure
from reorder.bench.peers import known_peers
from reorder.cli.command import Command, Facts, Options, measured_threads, table
from reorder.cli.progress import Progress
from reorder.cores import count_cores

_SECONDS = 0.3
_MEGA = 10**6
# The default size of the largest tensor on a device, in bytes.
_CPU_NBYTES, _GPU_NBYTES = 16 * _MEGA, 1100 * _MEGA
# More megabytes than any device has.
_MOST_MB = 1e7


# what --device does not take, by the names that argparse gives them
_OF_CASE = ("dims", "from_", "to", "dtype", "to_dtype", "strides", "threads")


def _answer(options: Options) -> tuple[Facts, int]:
    if options.device is not None or options.size is not None:
        return _on_device(options), 0
    case = _problem(options).case()
    given = options.threads
    counts = sorted({1, count_cores()}) if given is None else [measured_threads(given)]
    peers = [make for make in known_peers().values() if make]
    measured = []
    with Progress(len(counts)) as shown:
        for count in counts:
            shown.step(case.name)
            result = measure(case, count, peers, options.seconds or _SECONDS)
            measured.append(result._asdict())
            shown.step(case.name, 1)
    from reorder.cpu import compiled_kernels  # loads LLVM, which is slow

    return {"cases": measured, "kernels": compiled_kernels()}, 0


def _problem(options: Options) -> Problem:
    dims = options.dims
    if dims is None:
        raise MemdescError("nothing to measure: give dims, such as 8x256x56x56")
    given = {name: getattr(options, name.replace("-", "_")) for name in ATTRIBUTES}
    return Problem(
        dims,
        options.from_ or "abx",
        options.to or "abx",
        options.dtype,
        options.to_dtype,
        options.strides or "",
        {name: str(value) for name, value in given.items() if value is not None},
    )


def _on_device(options: Options) -> Facts:
    if options.device is None:
        raise MemdescError("--size is for an OpenCL device: add --device NAME")
    if options.size is not None and not 0 < options.size < _MOST_MB:
        raise MemdescError(f"--size {options.size:g}: give megabytes above 0, such as 16")
    flags = {"dims": "DIMS", "src": "--from", "dst": "--to"}
    named = (name.replace("-", "_") for name in (*_OF_CASE, *ATTRIBUTES))
    given = [name for name in named if getattr(options, name) is not None]
    if given:
        given = [flags.get(name, f"--{name.replace('_', '-')}") for name in given]
        raise MemdescError(
            f"--device measures a fixed list of reorders, so leave out {', '.join(given)}"
        )
    from reorder.bench.device import CASES, DeviceBench, resized  # pyopencl is slow to load
    from reorder.opencl import find_device  # pyopencl is slow to load

    device = find_device(options.device)
    default = _CPU_NBYTES if device.is_processor else _GPU_NBYTES
    nbytes = default if options.size is None else int(options.size * _MEGA)
    bench = DeviceBench(device, options.seconds)
    rows = []
    with Progress(len(CASES)) as shown:
        for case in (resized(case, nbytes) for case in CASES):
            shown.step(f"{case.dtype} {case.src} -> {case.dst}", 1)
            if bench.fits(case):
                rows.append(bench.measure(case))
    small = Problem((256, 256), "ab", "ba", "u8")
    call, bare = bench.call_seconds(small)
    launch = bench.seconds(bench.load(small._replace(dims=(8, 8))))
    return {
        "device": device.name,
        "platform": device.platform,
        "version": device.version,
        "cases": rows,
        "call_us": call * 1e6,
        "bare_call_us": bare * 1e6,
        "launch_us": launch * 1e6,
    }


def _lay_out(facts: Facts) -> list[str]:
    return device_lines(facts) if "device" in facts else case_lines(facts)


def case_lines(facts: Facts) -> list[str]:
    """Return the measurements of reorders as a table."""
    cases = facts["cases"]
    peers = list(dict.fromkeys(peer for case in cases for peer in case["peers"]))
    head = ("case", "threads", "time", "p90", "first call", "GB/s", "memcpy", *peers, "kernels")
    rows = [
        (
            case["name"],
            str(case["threads"]),
            *map(_duration, (case["seconds"], case["p90"], case["first_seconds"])),
            f"{case['nbytes'] / case['seconds'] / 1e9:.2f}",
            f"{case['memcpy']:.2f}",
            *(f"{case['peers'][peer]:.2f}" if peer in case["peers"] else "" for peer in peers),
            case["kernels"] or "nothing to move",
        )
        for case in cases
    ]
    lines = table([head, *rows], range(1, len(head) - 1))
    names = ", ".join(("memcpy", *peers))
    lines.append(f"{names}: their time divided by memdesc's; above 1, memdesc is faster")
    lines += [
        f"{case['name']}, {case['threads']} threads: other bits from {', '.join(case['differs'])}"
        for case in cases
        if case["differs"]
    ]
    compiled = sum(kernel["seconds"] for kernel in facts["kernels"])
    count = len(facts["kernels"])
    lines.append(f"kernels compiled or loaded: {count} in {compiled:.2f} s; --json lists them")
    return lines


def device_lines(facts: Facts) -> list[str]:
    """Return the measurements of a device as a table."""
    has_torch = any(row["torch_of_copy"] for row in facts["cases"])
    head = ["dtype", "from", "to", "dims", "MB", "us", "TB/s", "of the copy"]
    head += ["torch, of the copy"] if has_torch else []
    rows = [
        (
            row["dtype"],
            row["from"],
            row["to"],
            "x".join(map(str, row["dims"])),
            f"{row['nbytes'] / _MEGA:.0f}",
            f"{row['us']:.1f}",
            f"{row['tb_per_second']:.2f}",
            f"{row['of_copy']:.2f}",
            *([f"{ratio:.2f}" if (ratio := row["torch_of_copy"]) else ""] if has_torch else []),
        )
        for row in facts["cases"]
    ]
    lines = [f"Device: {facts['device']}, {facts['platform']}, {facts['version']}.", ""]
    lines += table([head, *rows], range(4, len(head)))
    for key, name in (("of_copy", "of the copy"), ("torch_of_copy", "torch, of the copy")):
        if ratios := [row[key] for row in facts["cases"] if row[key]]:
            mean = geometric_mean(ratios)
            lines += ["", f"{name}: geometric mean {mean:.2f}, least {min(ratios):.2f}."]
    call, bare = facts["call_us"], facts["bare_call_us"]
    said = f"Enqueueing a known reorder takes {call:.1f} us (pyopencl alone: {bare:.1f}); "
    lines += ["", f"{said}a kernel for 64 bytes takes {facts['launch_us']:.1f} us on the device."]
    return lines


def _duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e6:.2f} us"


COMMAND = Command(_answer, _lay_out)
