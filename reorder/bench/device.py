"""Reorders on an OpenCL device, timed against the device's own copy and torch."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from memdesc import ImageDesc, MemdescError, MemoryDesc
from memdesc.tuples import NamedTuple
from reorder.api import execute
from reorder.bench.cases import Problem
from reorder.opencl import Device
from reorder.opencl.execution import enqueue_transfers, prepare_transfers
from reorder.opencl.memory_objects import allocate, allocate_buffer, image_format
from reorder.opencl.operands import device_operand
from reorder.plan.plan import plan_reorder

# Runs measured without a budget, runs before these, and the most runs measured with a budget.
_RUNS, _WARM, _MOST_RUNS = 11, 3, 1000
# The period of the random data in words; not a power of two, so that rows of a tensor differ.
_RANDOM_WORDS = 4_194_301
_TORCH_TYPES = {8: "uint8", 16: "int16", 32: "int32", 64: "int64"}


def _read(line: str) -> Problem:
    """Return what a line of the table asks for: its first line says how it is spelled."""
    types, src, dst, dims, *words = line.split()
    dtype, _, to_dtype = types.partition("->")
    options = dict(word.removeprefix("--").split("=") for word in words)
    sizes = tuple(map(int, dims.split("x")))
    return Problem(sizes, src, dst, dtype, to_dtype or None, options=options)


_TABLE = Path(__file__).with_name("device_cases.txt").read_text(encoding="utf-8")
# what is measured
CASES = tuple(_read(line) for line in _TABLE.splitlines()[1:])


def resized(case: Problem, nbytes: int) -> Problem:
    """Return a case of at most `nbytes`: the first two dims are halved, odd ones stay odd."""
    dims, k = list(case.dims), 0
    while case._replace(dims=tuple(dims)).mean_nbytes > nbytes and max(dims[:2]) > 1:
        dims[k % 2] = max(dims[k % 2] // 2, 1) | dims[k % 2] & 1
        k += 1
    return case._replace(dims=tuple(dims))


class LoadedCase(NamedTuple):
    """A case on a device: its memory, and the bytes that dst must have."""

    case: Problem
    src: Any
    dst: Any
    wanted: NDArray[np.uint8]


class DeviceBench:
    """A device with a queue that records times.

    Each reorder and each copy is measured for `budget` seconds, in 1 to 1,000 runs, or without a
    budget in 11 runs.
    """

    def __init__(self, device: Device, budget: float | None = None) -> None:
        self.device = device
        self.budget = budget
        self.context = cl.Context([device.device])
        flags = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(self.context, properties=flags)
        self._copies: dict[int, float] = {}

    def fits(self, case: Problem) -> bool:
        """Whether the device has images of these sizes, and memory for both tensors."""
        most = self.device.device.max_mem_alloc_size
        return all(
            desc.fits(self.device.max_width, self.device.max_height)
            if isinstance(desc, ImageDesc)
            else desc.nbytes <= most
            for desc in case.descs
        )

    def load(self, case: Problem) -> LoadedCase:
        """Allocate the tensors of a case, fill src, and compute the expected dst."""
        src, dst = case.descs
        descs = _linear_desc(src), _linear_desc(dst)
        x = _random_bytes(descs[0])
        wanted = np.zeros(descs[1].nbytes, np.uint8)
        execute(plan_reorder(*descs, case.attr), x, wanted)
        memory = self._allocated(src), self._allocated(dst)
        cl.enqueue_copy(self.queue, memory[0], x, **_region(src))
        return LoadedCase(case, *memory, wanted)

    def measure(self, case: Problem) -> dict[str, Any]:
        """Return the facts of a case. Fails if dst differs from what the CPU writes."""
        loaded = self.load(case)
        seconds = self._median(self.runner(loaded))
        written = np.empty(loaded.wanted.size, np.uint8)
        cl.enqueue_copy(self.queue, written, loaded.dst, **_region(case.descs[1]))
        loaded.src.release()
        loaded.dst.release()
        if not np.array_equal(written, loaded.wanted):
            raise MemdescError(f"{case} on {self.device.name} differs from the reorder on the CPU")
        nbytes, types = case.mean_nbytes, [str(desc.dtype) for desc in case.descs]
        copy = self._copy_seconds(nbytes)
        torch = None
        if "nvidia" in self.device.platform.lower():
            with suppress(ImportError):
                torch = _torch_seconds(*map(_linear_desc, case.descs))
        return {
            "dtype": " -> ".join(dict.fromkeys(types)),
            "from": case.src,
            "to": case.dst,
            "dims": case.dims,
            "nbytes": nbytes,
            "us": seconds * 1e6,
            "tb_per_second": 2 * nbytes / seconds / 1e12,
            "of_copy": copy / seconds,
            "torch_of_copy": copy / torch if torch else None,
        }

    def runner(self, loaded: LoadedCase) -> Callable[[], list[cl.Event]]:
        """Return a callable that enqueues a reorder and returns the events of its commands."""
        src, dst = loaded.case.descs
        prepared = prepare_transfers(
            self.queue,
            device_operand(self.queue, loaded.src, src, "src"),
            device_operand(self.queue, loaded.dst, dst, "dst"),
            loaded.case.attr,
        )
        memory = loaded.src, loaded.dst

        def run() -> list[cl.Event]:
            commands: list[cl.Event] = []
            event = enqueue_transfers(self.queue, prepared, memory, None, commands)
            return commands or [event]

        return run

    def _copy_seconds(self, nbytes: int) -> float:
        """Return the median time of the device's own copy between two buffers."""
        if nbytes not in self._copies:
            src, dst = (allocate_buffer(self.context, nbytes) for _ in range(2))
            random = np.resize(np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8), nbytes)
            cl.enqueue_copy(self.queue, src, random)
            self._copies[nbytes] = self._median(
                lambda: [cl.enqueue_copy(self.queue, dst, src, byte_count=nbytes)]
            )
            src.release()
            dst.release()
        return self._copies[nbytes]

    def _median(self, run: Callable[[], list[cl.Event]]) -> float:
        for _ in range(_WARM):
            events = run()
        self.queue.finish()
        measured = [run() for _ in range(self.runs(duration(events)))]
        self.queue.finish()
        return statistics.median(map(duration, measured))

    def runs(self, seconds: float) -> int:
        """Return how many runs to measure if one takes `seconds`."""
        if self.budget is None:
            return _RUNS
        return max(int(min(self.budget / max(seconds, 1e-9), _MOST_RUNS)), 1)

    def _allocated(self, desc: MemoryDesc | ImageDesc) -> Any:
        form = image_format(desc) if isinstance(desc, ImageDesc) else None
        return allocate(self.context, desc, form)


def duration(events: list[cl.Event]) -> float:
    """Return the seconds from the start of the first command to the end of the last one."""
    times = [event.profile for event in events]
    begin, end = min(time.start for time in times), max(time.end for time in times)
    return float(end - begin) * 1e-9


def _linear_desc(desc: MemoryDesc | ImageDesc) -> MemoryDesc:
    return desc.desc if isinstance(desc, ImageDesc) else desc


def _region(desc: MemoryDesc | ImageDesc) -> dict[str, Any]:
    """Return the extra arguments of a copy between the host and a whole buffer or image."""
    if isinstance(desc, ImageDesc):
        return {"origin": (0, 0, 0), "region": (desc.width, desc.height, 1)}
    return {}


def _random_bytes(desc: MemoryDesc) -> NDArray[np.uint8]:
    words = _random_words(desc.dtype.name)
    return np.resize(words, -(-desc.nbytes // 4)).view(np.uint8)[: desc.nbytes]


@cache
def _random_words(dtype: str) -> NDArray[np.uint32]:
    words = np.random.default_rng(1).integers(0, 1 << 32, _RANDOM_WORDS, np.uint32)
    if dtype == "f32":
        words = words & np.uint32(0x80FFFFFF) | np.uint32(0x42000000)
    elif dtype == "f16":
        words = words & np.uint32(0x87FF87FF) | np.uint32(0x50005000)
    return words


def _torch_seconds(src: MemoryDesc, dst: MemoryDesc) -> float | None:
    """Return the median time of torch's permute on the same GPU; None where it has no such copy."""
    torch: Any = import_module("torch")
    boxes = plan_reorder(src, dst).boxes if src.dtype == dst.dtype else ()
    if not torch.cuda.is_available() or len(boxes) != 1 or src.dtype.bits not in _TORCH_TYPES:
        return None
    (box,) = boxes
    nodes = sorted(box.nodes, key=lambda node: -node.strides[1])
    if box.indirect or any(node.valid != node.extent for node in nodes):
        return None
    dtype = getattr(torch, _TORCH_TYPES[src.dtype.bits])
    flat = torch.empty(src.nelems, dtype=dtype, device="cuda").random_()
    view = flat.as_strided([n.extent for n in nodes], [n.strides[0] for n in nodes])
    times: list[float] = []
    for _ in range(_WARM + _RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        view.contiguous()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(times[_WARM:])
