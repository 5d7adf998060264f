"""Reorders on an OpenCL device, measured beside the device's own copy and torch."""

from __future__ import annotations

import statistics
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl

from memdesc import ImageDesc, MemdescError, MemoryDesc
from reorder import execute, plan_reorder, prepare
from reorder.bench.device_data import attr_of, linear_desc, random_bytes
from reorder.bench.device_peer import torch_seconds
from reorder.opencl.execution import enqueue_transfers, prepare_transfers
from reorder.opencl.image_formats import image_format
from reorder.opencl.operands import device_operand

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from reorder.bench.device_cases import DeviceCase
    from reorder.opencl import Device

__all__ = ["DeviceBench", "Loaded"]

# Runs that are measured without a budget, runs before them, and the most runs with a budget.
_RUNS, _WARM, _MOST_RUNS = 11, 3, 1000
# Bytes that are compared at once, in a cache.
_COMPARED = 1 << 18


class Loaded(NamedTuple):
    """A case on a device: its memory, and the bytes that dst must have."""

    case: DeviceCase
    src: Any
    dst: Any
    wanted: NDArray[np.uint8]


class DeviceBench:
    """A device with a queue that records times.

    Each reorder, and each copy, is measured for `budget` seconds, in 1 to 1,000 runs; without a
    budget in 11 runs.
    """

    def __init__(self, device: Device, budget: float | None = None) -> None:
        self.device = device
        self.budget = budget
        self.context = cl.Context([device.device])
        flags = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(self.context, properties=flags)
        self._copies: dict[int, float] = {}
        self._found = np.empty(0, np.uint8)

    def fits(self, case: DeviceCase) -> bool:
        """Whether the device has images of these sizes, and memory for both tensors."""
        most = self.device.device.max_mem_alloc_size
        for desc in case.descs:
            if isinstance(desc, ImageDesc):
                if not desc.fits(self.device.max_width, self.device.max_height):
                    return False
            elif desc.nbytes > most:
                return False
        return True

    def load(self, case: DeviceCase) -> Loaded:
        """Allocate the tensors of a case, fill src, and compute what dst must be."""
        src, dst = case.descs
        descs = linear_desc(src), linear_desc(dst)
        x = random_bytes(descs[0])
        wanted = np.zeros(descs[1].nbytes, np.uint8)
        execute(plan_reorder(*descs, attr_of(case)), x, wanted)
        memory = self._allocated(src), self._allocated(dst)
        self._fill(memory[0], src, x)
        return Loaded(case, *memory, wanted)

    def _fill(self, memory: Any, desc: MemoryDesc | ImageDesc, content: NDArray[np.uint8]) -> None:
        """Copy what is on the host into a buffer or an image."""
        if isinstance(desc, ImageDesc):
            region = (desc.width, desc.height, 1)
            cl.enqueue_copy(self.queue, memory, content, origin=(0, 0, 0), region=region)
        else:
            cl.enqueue_copy(self.queue, memory, content)

    def seconds(self, loaded: Loaded) -> float:
        """Return the median time of a reorder on the device."""
        return self._median(self._runner(loaded))

    def _runner(self, loaded: Loaded) -> Callable[[], list[cl.Event]]:
        """Return what enqueues a reorder, and returns the events of its commands."""
        src, dst = loaded.case.descs
        prepared = prepare_transfers(
            self.queue,
            device_operand(self.queue, loaded.src, src, "src"),
            device_operand(self.queue, loaded.dst, dst, "dst"),
            attr_of(loaded.case),
        )
        memory = loaded.src, loaded.dst

        def run() -> list[cl.Event]:
            commands: list[cl.Event] = []
            event = enqueue_transfers(self.queue, prepared, memory, None, commands)
            return commands or [event]

        return run

    def is_right(self, loaded: Loaded) -> bool:
        """Whether dst has the bytes that the reorder on the CPU writes."""
        _, dst = loaded.case.descs
        # new memory of the host takes longer than the copy
        if self._found.size < loaded.wanted.size:
            self._found = np.empty(loaded.wanted.size, np.uint8)
        found = self._found[: loaded.wanted.size]
        if isinstance(dst, ImageDesc):
            region = (dst.width, dst.height, 1)
            cl.enqueue_copy(self.queue, found, loaded.dst, origin=(0, 0, 0), region=region)
        else:
            cl.enqueue_copy(self.queue, found, loaded.dst)
        parts = range(0, found.size, _COMPARED)
        return all(
            np.array_equal(found[k : k + _COMPARED], loaded.wanted[k : k + _COMPARED])
            for k in parts
        )

    def copy_seconds(self, nbytes: int) -> float:
        """Return the median time of the device's own copy between two buffers."""
        if nbytes not in self._copies:
            flags = cl.mem_flags.READ_WRITE
            src, dst = (cl.Buffer(self.context, flags, nbytes) for _ in range(2))
            random = np.resize(np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8), nbytes)
            cl.enqueue_copy(self.queue, src, random)

            def run() -> list[cl.Event]:
                return [cl.enqueue_copy(self.queue, dst, src, byte_count=nbytes)]

            self._copies[nbytes] = self._median(run)
            src.release()
            dst.release()
        return self._copies[nbytes]

    def measure(self, case: DeviceCase) -> dict[str, Any]:
        """Return the facts of a case.

        Raises
        ------
        MemdescError
            If dst differs from what the CPU writes.
        """
        loaded = self.load(case)
        seconds, host = (
            self._beside_host(loaded) if self.device.is_processor else (self.seconds(loaded), None)
        )
        if not self.is_right(loaded):
            msg = f"{case} on {self.device.name} differs from the reorder on the CPU"
            raise MemdescError(msg)
        copy = self.copy_seconds(case.nbytes)
        loaded.src.release()
        loaded.dst.release()
        torch = None
        if "nvidia" in self.device.platform.lower():
            with suppress(ImportError):
                torch = torch_seconds(*map(linear_desc, case.descs))
        return {
            "dtype": f"{case.dtype} -> {case.to_dtype}" if case.to_dtype else case.dtype,
            "from": case.src,
            "to": case.dst,
            "dims": case.dims,
            "nbytes": case.nbytes,
            "us": seconds * 1e6,
            "tb_per_second": 2 * case.nbytes / seconds / 1e12,
            "of_copy": copy / seconds,
            "torch_of_copy": copy / torch if torch else None,
            "of_cpu": host / seconds if host else None,
        }

    def _beside_host(self, loaded: Loaded) -> tuple[float, float]:
        """Return the median times of a reorder, and of the one without a device, in turns."""
        src, dst = map(linear_desc, loaded.case.descs)
        x, out = random_bytes(src), np.zeros(dst.nbytes, np.uint8)
        on_host = prepare(plan_reorder(src, dst, attr_of(loaded.case)))
        on_device = self._runner(loaded)
        times: list[tuple[float, float]] = []
        while len(times) < _WARM or len(times) < _WARM + self._runs(sum(times[_WARM - 1])):
            events = on_device()
            self.queue.finish()
            start = time.perf_counter()
            on_host(x, out)
            times.append((_duration(events), time.perf_counter() - start))
        device, host = zip(*times[_WARM:], strict=True)
        return statistics.median(device), statistics.median(host)

    def _median(self, run: Callable[[], list[cl.Event]]) -> float:
        for _ in range(_WARM):
            events = run()
        self.queue.finish()
        measured = [run() for _ in range(self._runs(_duration(events)))]
        self.queue.finish()
        return statistics.median(map(_duration, measured))

    def _runs(self, seconds: float) -> int:
        """Return how many runs are measured, if one takes `seconds`."""
        if self.budget is None:
            return _RUNS
        return max(int(min(self.budget / max(seconds, 1e-9), _MOST_RUNS)), 1)

    def _allocated(self, desc: MemoryDesc | ImageDesc) -> Any:
        flags = cl.mem_flags.READ_WRITE
        if isinstance(desc, ImageDesc):
            size = desc.width, desc.height
            return cl.create_image(self.context, flags, image_format(desc), shape=size)
        return cl.Buffer(self.context, flags, desc.nbytes)


def _duration(events: list[cl.Event]) -> float:
    """Return the seconds from the start of the first command to the end of the last one."""
    times = [event.profile for event in events]
    begin, end = min(time.start for time in times), max(time.end for time in times)
    return float(end - begin) * 1e-9
