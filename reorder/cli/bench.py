"""`memdesc bench`: how fast reorders are, compared with memcpy and other libraries."""

from __future__ import annotations

from functools import partial
from statistics import geometric_mean

from memdesc import MemdescError
from reorder.bench.cases import ATTRIBUTES, Problem
from reorder.bench.measure import measure
from reorder.bench.peers import known_peers
from reorder.cli.command import Columns, Command, Facts, Options, facts_of, tabulate, threads_of
from reorder.cli.progress import Progress
from reorder.system import count_cores

_SECONDS = 0.3
_MEGA = 10**6
# The default size of the largest tensor on a device, in bytes.
_CPU_NBYTES, _GPU_NBYTES = 16 * _MEGA, 1100 * _MEGA
# More megabytes than any device has.
_MOST_MB = 1e7


# all that --device takes
_OF_DEVICE = {"command", "device", "json", "seconds", "size"}


def _answer(options: Options) -> tuple[Facts, int]:
    if options.device is not None or options.size is not None:
        return _on_device(options), 0
    case = _problem(options).case()
    given = options.threads
    counts = sorted({1, count_cores()}) if given is None else [threads_of(given)]
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
    attributes = {name: getattr(options, name.replace("-", "_")) for name in ATTRIBUTES}
    return Problem(
        dims,
        options.from_ or "abx",
        options.to or "abx",
        options.dtype,
        options.to_dtype,
        options={name: str(value) for name, value in attributes.items() if value is not None},
    )


def _on_device(options: Options) -> Facts:
    if options.device is None:
        raise MemdescError("--size is for an OpenCL device: add --device NAME")
    if options.size is not None and not 0 < options.size < _MOST_MB:
        raise MemdescError(f"--size {options.size:g}: give megabytes above 0, such as 16")
    unwanted = [
        "DIMS" if name == "dims" else f"--{name.rstrip('_').replace('_', '-')}"
        for name, value in vars(options).items()
        if value is not None and name not in _OF_DEVICE
    ]
    if unwanted:
        raise MemdescError(
            f"--device measures a fixed list of reorders, so leave out {', '.join(unwanted)}"
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
    return {"device": device.name, **facts_of(device, "platform", "version"), "cases": rows}


_CASES: Columns = {
    "case": "{name}",
    "threads": "{threads}",
    "time": lambda case: _duration(case["seconds"]),
    "p90": lambda case: _duration(case["p90"]),
    "first call": lambda case: _duration(case["first_seconds"]),
    "GB/s": lambda case: f"{case['nbytes'] / case['seconds'] / 1e9:.2f}",
    "memcpy": "{memcpy:.2f}",
}
_ON_DEVICE: Columns = {
    "dtype": "{dtype}",
    "from": "{from}",
    "to": "{to}",
    "dims": lambda row: "x".join(map(str, row["dims"])),
    "MB": lambda row: f"{row['nbytes'] / _MEGA:.0f}",
    "us": "{us:.1f}",
    "TB/s": "{tb_per_second:.2f}",
    "of the copy": "{of_copy:.2f}",
    "torch, of the copy": lambda row: f"{row['torch_of_copy']:.2f}" if row["torch_of_copy"] else "",
}


def _lay_out(facts: Facts) -> list[str]:
    return device_lines(facts) if "device" in facts else case_lines(facts)


def case_lines(facts: Facts) -> list[str]:
    """Return the measurements of reorders as a table."""
    cases = facts["cases"]
    peers = list(dict.fromkeys(peer for case in cases for peer in case["peers"]))
    columns = {
        **_CASES,
        **{peer: partial(_ratio, peer) for peer in peers},
        "kernels": lambda case: case["kernels"] or "nothing to move",
    }
    lines = tabulate(columns, cases, {"case", "kernels"})
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
    lines = [f"Device: {facts['device']}, {facts['platform']}, {facts['version']}.", ""]
    lines += tabulate(_ON_DEVICE, facts["cases"], ("dtype", "from", "to", "dims"))
    for key, name in (("of_copy", "of the copy"), ("torch_of_copy", "torch, of the copy")):
        if ratios := [row[key] for row in facts["cases"] if row[key]]:
            mean = geometric_mean(ratios)
            lines += ["", f"{name}: geometric mean {mean:.2f}, least {min(ratios):.2f}."]
    return lines


def _ratio(peer: str, case: Facts) -> str:
    return f"{case['peers'][peer]:.2f}" if peer in case["peers"] else ""


def _duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e6:.2f} us"


COMMAND = Command(_answer, _lay_out)
