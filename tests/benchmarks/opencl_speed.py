"""Measure reorders on an OpenCL device beside its own buffer copy, and print a table in Markdown.

    python -m tests.benchmarks.opencl_speed --device NVIDIA > table.md

Each row is the median of event times of one reorder; bytes count what the tensor has, read
once and written once. Every result is compared with the reorder on the CPU, bit for bit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl

from memdesc import ImageDesc, MemoryDesc, image_desc, memory_desc
from reorder import Memory, opencl, reorder
from reorder.opencl.image_formats import image_format

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

RUNS = 21
# one pixel for each work item, the group left to the runtime: how a straightforward kernel does it
PIXEL = """
__kernel void pixel(
    __global const {kind} *src, __write_only image2d_t dst, int width, int channels
) {{
    int x = get_global_id(0), y = get_global_id(1);
    int at = (y * width + x % width) * channels + x / width * 4;
    float4 v = (float4)({load});
    write_imagef(dst, (int2)(x, y), v);
}}
"""
LOADS = {"f32": ("float", "src[at{}]"), "f16": ("half", "vload_half(at{}, src)")}


class Case(NamedTuple):
    """A row: where from, where to, by names."""

    src: str
    dst: str
    dims: tuple[int, ...]


def cases(scale: int) -> list[Case]:
    """Return the rows for one data type; `scale` makes narrow types as many bytes."""
    large, deep, small = (
        (32, 256 * scale, 112, 112),
        (64, 2048 * scale, 28, 28),
        (128, 128 * scale, 56, 56),
    )
    weights = (4096 * scale, 2048, 3, 3)
    activations = [
        ("nhwc", "in_out_channel", large),
        ("nhwc", "in_out_channel", deep),
        ("nchw", "in_out_channel", large),
        ("nChw16c", "in_out_channel", large),
        ("nhwc", "in_out_height", small),
        ("nhwc", "in_out_width", small),
    ]
    rows = [Case(*names) for names in activations]
    rows += [Case(dst, src, dims) for src, dst, dims in activations]
    for image in ("conv2d_filter", "weight_height", "weight_width"):
        rows += [Case("oihw", image, weights), Case(image, "oihw", weights)]
    rows += [
        Case(src, dst, large)
        for src, dst in (
            ("nchw", "nhwc"),
            ("nhwc", "nchw"),
            ("nchw", "nChw16c"),
            ("nChw16c", "nhwc"),
        )
    ]
    return rows


class Bench:
    """A device, and reorders on it."""

    def __init__(self, device: cl.Device) -> None:
        self.device = device
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(
            self.context, properties=cl.command_queue_properties.PROFILING_ENABLE
        )

    def median(self, enqueue: Callable[[], list[cl.Event]]) -> float:
        """Return the median time of an enqueued command in seconds."""
        for _ in range(3):
            enqueue()
        self.queue.finish()
        events = [enqueue() for _ in range(RUNS)]
        self.queue.finish()
        return statistics.median(
            (run[-1].profile.end - run[0].profile.start) * 1e-9 for run in events
        )

    def memory(self, desc: MemoryDesc | ImageDesc) -> Any:
        """Allocate what holds a descriptor."""
        flags = cl.mem_flags.READ_WRITE
        if isinstance(desc, ImageDesc):
            return cl.create_image(
                self.context, flags, image_format(desc), shape=(desc.width, desc.height)
            )
        return cl.Buffer(self.context, flags, desc.nbytes)

    def copy_speed(self, nbytes: int) -> float:
        """Return bytes read and written in a second by the device's own copy."""
        src, dst = (cl.Buffer(self.context, cl.mem_flags.READ_WRITE, nbytes) for _ in range(2))
        cl.enqueue_copy(
            self.queue, src, np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
        )
        return (
            2
            * nbytes
            / self.median(lambda: [cl.enqueue_copy(self.queue, dst, src, byte_count=nbytes)])
        )

    def speed(self, case: Case, dtype: str) -> tuple[float, int, float | None]:
        """Return bytes per second, the bytes of the tensor, and the speed of the simple kernel."""
        src, dst = (described(case.dims, dtype, name) for name in (case.src, case.dst))
        rng = np.random.default_rng(1)
        x = rng.integers(0, 1 << 10, case.dims, np.uint16).astype(
            np.float32 if dtype == "f32" else np.float16
        )
        given = on_host(x, src)
        source, target = self.memory(src), self.memory(dst)
        upload(self.queue, source, given, src)
        marks = self.marked(source, src, target, dst)
        seconds = self.median(marks)
        got = opencl.DeviceMemory(self.queue, target, dst).get()
        assert raw(got) == raw(on_host(x, dst)), f"{case} of {dtype} is wrong"
        nbytes = 2 * x.nbytes
        naive = None
        if (case.src, case.dst) == ("nhwc", "in_out_channel") and isinstance(dst, ImageDesc):
            naive = nbytes / self.one_pixel(source, target, dst, dtype)
            assert raw(opencl.DeviceMemory(self.queue, target, dst).get()) == raw(on_host(x, dst))
        return nbytes / seconds, x.nbytes, naive

    def marked(
        self, source: Any, src: MemoryDesc | ImageDesc, target: Any, dst: MemoryDesc | ImageDesc
    ) -> Callable[[], list[cl.Event]]:
        """Return what enqueues a reorder; all its launches count, from the start of the first."""
        return lambda: [opencl.enqueue_reorder(self.queue, source, src, target, dst)]

    def one_pixel(self, source: Any, target: Any, dst: ImageDesc, dtype: str) -> float:
        """Return the time of a kernel of one pixel for each item."""
        kind, load = LOADS[dtype]
        text = PIXEL.format(kind=kind, load=", ".join(load.format(f" + {k}") for k in range(4)))
        kernel = cl.Kernel(cl.Program(self.context, text).build(), "pixel")
        kernel.set_args(source, target, np.int32(dst.dims[3]), np.int32(dst.dims[1]))
        return self.median(
            lambda: [cl.enqueue_nd_range_kernel(self.queue, kernel, (dst.width, dst.height), None)]
        )


def described(dims: tuple[int, ...], dtype: str, name: str) -> MemoryDesc | ImageDesc:
    """Return the descriptor of a name: a buffer or an image."""
    return image_desc(dims, dtype, name) if "_" in name else memory_desc(dims, dtype, name)


def fits(desc: MemoryDesc | ImageDesc, device: opencl.Device) -> bool:
    """Whether a device has images of this size."""
    return not isinstance(desc, ImageDesc) or desc.fits(device.max_width, device.max_height)


def on_host(x: NDArray[Any], desc: MemoryDesc | ImageDesc) -> Memory | NDArray[Any]:
    """Return a tensor in host memory as a descriptor says."""
    return reorder(x, desc)


def raw(memory: Memory | NDArray[Any]) -> bytes:
    """Return all bytes."""
    return memory.data.tobytes() if isinstance(memory, Memory) else memory.tobytes()


def upload(
    queue: cl.CommandQueue, target: Any, given: Memory | NDArray[Any], desc: MemoryDesc | ImageDesc
) -> None:
    """Copy host memory to the device as it is."""
    if isinstance(desc, ImageDesc):
        assert isinstance(given, np.ndarray)
        cl.enqueue_copy(queue, target, given, origin=(0, 0, 0), region=(desc.width, desc.height, 1))
    else:
        cl.enqueue_copy(queue, target, given.data)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--device", default="", help="part of the name of the device or its platform"
    )
    parser.add_argument(
        "--shrink", type=int, default=1, help="divide the batch and the filters by this"
    )
    options = parser.parse_args()
    found = [
        d
        for d in opencl.devices()
        if d.works and d.has_images and options.device.lower() in f"{d.platform} {d.name}".lower()
    ]
    if not found:
        sys.stderr.write(f"no device whose name has {options.device!r} works\n")
        return 1
    bench = Bench(found[0].device)
    write = sys.stdout.write
    write(f"Device: {found[0].name}, {found[0].platform}, {found[0].version}.\n\n")
    head = ("dtype", "from", "to", "dims", "MB", "TB/s", "of the copy", "times one pixel per item")
    write(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}\n")
    for dtype, scale in (("f32", 1), ("f16", 2)):
        for case in cases(scale):
            dims = (max(case.dims[0] // options.shrink, 1), *case.dims[1:])
            own = case._replace(dims=dims)
            if not all(fits(described(dims, dtype, name), found[0]) for name in own[:2]):
                continue
            speed, nbytes, naive = bench.speed(own, dtype)
            copy = bench.copy_speed(nbytes)
            beside = f"{speed / naive:.2f}" if naive else ""
            sizes = "x".join(map(str, dims))
            numbers = f"{nbytes / 1e6:.0f} | {speed / 1e12:.2f} | {speed / copy:.2f} | {beside}"
            write(f"| {dtype} | {case.src} | {case.dst} | {sizes} | {numbers} |\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
