"""A call with memory of any kind, made before or not, gives what the CPU gives.

Content is put into memory, and read from it, by pyopencl alone. Each call is made with new content,
with other memory of the same kind, and with attributes; results of earlier calls stay as they are.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, cycle
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from numpy.typing import NDArray

from memdesc import ImageDesc, MemoryDesc, array_desc, image_desc, memory_desc
from memdesc.errors import OverlapError
from reorder import Attr, Memory, opencl, reorder
from reorder.opencl import DeviceMemory
from tests.opencl.runtimes import Runtime

SHAPE = (2, 5, 4, 6)
X = np.random.default_rng(3).integers(-99, 99, SHAPE).astype(np.float32)
PLAIN, NHWC, HALVES = (
    memory_desc(SHAPE, *pair) for pair in (("f32", "nchw"), ("f32", "nhwc"), ("f16", "nChw4c"))
)
IMAGE = image_desc(SHAPE, "f32", "in_out_channel")
SCALED = Attr(src_scale=2.0)
FLAGS = cl.mem_flags
_WITH_QUEUE = DeviceMemory, cl.array.Array
# parts need them
WHOLE: list[Any] = []


class Place(NamedTuple):
    """Memory of a kind: what a call is given, its descriptor, and how to fill and read it.

    `says` is the descriptor that a call is given too; None if the object has one. `data` is the
    memory of which a DeviceMemory is made.
    """

    given: Any
    desc: Any
    says: MemoryDesc | ImageDesc | None
    fill: Callable[[NDArray[Any]], None]
    read: Callable[[], bytes]

    @property
    def data(self) -> Any:
        return self.given.data if isinstance(self.given, DeviceMemory) else self.given


def stored(x: NDArray[Any], desc: MemoryDesc | ImageDesc, attr: Attr | None = None) -> Any:
    """Return what a layout holds, as the CPU makes it."""
    made: Any = reorder(x, desc, attr=attr)
    return made.data if isinstance(made, Memory) else np.asarray(made)


def of_bytes(runtime: Runtime, memory: Any, desc: MemoryDesc) -> Place:
    """Return memory that a descriptor describes."""

    def fill(x: NDArray[Any]) -> None:
        cl.enqueue_copy(runtime.queue, memory, stored(x, desc))

    def read() -> bytes:
        found = np.empty(desc.nbytes, np.uint8)
        cl.enqueue_copy(runtime.queue, found, memory)
        return found.tobytes()

    return Place(memory, desc, desc, fill, read)


def buffer(runtime: Runtime, desc: MemoryDesc) -> Place:
    return of_bytes(runtime, runtime.buffer(np.zeros(desc.nbytes, np.uint8)), desc)


def part(runtime: Runtime, desc: MemoryDesc) -> Place:
    align = runtime.device.device.mem_base_addr_align // 8
    WHOLE.append(cl.Buffer(runtime.context, FLAGS.READ_WRITE, align + desc.nbytes))
    return of_bytes(runtime, WHOLE[-1].get_sub_region(align, desc.nbytes), desc)


def on_host(runtime: Runtime, desc: MemoryDesc, starts: Iterator[int]) -> Place:
    """Return a buffer over memory of the host, which starts somewhere else each time."""
    raw = np.zeros(desc.nbytes + 128, np.uint8)
    first = -raw.ctypes.data % 64 + next(starts)
    flags, host = FLAGS.READ_WRITE | FLAGS.USE_HOST_PTR, raw[first : first + desc.nbytes]
    return of_bytes(runtime, cl.Buffer(runtime.context, flags, hostbuf=host), desc)


def shared(runtime: Runtime, desc: MemoryDesc) -> Place:
    """Return shared virtual memory; a buffer where the kernels of a runtime do not take it."""
    if "NVIDIA" in runtime.name or not runtime.device.device.svm_capabilities:
        return buffer(runtime, desc)
    return of_bytes(runtime, cl.SVM(cl.csvm_empty(runtime.context, (desc.nbytes,), np.uint8)), desc)


def raw(runtime: Runtime, desc: MemoryDesc) -> Place:
    """Return a part of an array of bytes."""
    array = cl.array.zeros(runtime.queue, (desc.nbytes + 12,), np.uint8)[8:-4]

    def fill(x: NDArray[Any]) -> None:
        array.set(stored(x, desc))

    return Place(array, desc, desc, fill, lambda: array.get().tobytes())


def view(runtime: Runtime, _desc: object, dtype: Any = np.float32) -> Place:
    """Return an array with gaps that runs backwards, which says what it holds."""
    base = cl.array.zeros(runtime.queue, (2, 7, 4, 12), dtype)
    of = np.s_[:, 5:0:-1, ::-1, 1::2]

    def fill(x: NDArray[Any]) -> None:
        content = np.full(base.shape, 7, dtype)
        content[of] = x
        base.set(content)

    def read() -> bytes:
        content = base.get()
        inside = content[of].tobytes()
        content[of] = 0
        assert len({*content.ravel().tolist()}) == 2 - (not content.any())
        return inside

    desc = memory_desc(SHAPE, base.dtype)
    return Place(base[of], desc, None, fill, read)


def moving(runtime: Runtime, _desc: object) -> Place:
    """Return an array that runs in both directions from an element, then from another one."""
    base = cl.array.zeros(runtime.queue, 3 * X.size, np.float32)
    array, turns = base[: X.size].reshape(SHAPE), count()

    def fill(x: NDArray[Any]) -> None:
        turn = next(turns)
        at, sign = X.size + turn // 2 % 7, 1 - 2 * (turn % 2)
        first = at if sign > 0 else at - X.size + 1
        content = np.zeros(base.size, np.float32)
        content[first : first + X.size] = x.ravel()[::sign]
        base.set(content)
        array.strides = tuple(sign * 4 * step for step in (120, 24, 6, 1))
        array.offset = 4 * at

    desc = memory_desc(SHAPE, "f32")
    return Place(array, desc, None, fill, lambda: b"")


def changing(runtime: Runtime, _desc: object) -> Place:
    """Return a DeviceMemory that has other memory, or another descriptor, each time."""
    places = cycle([buffer(runtime, desc) for desc in (NHWC, PLAIN, NHWC, HALVES)])
    first = next(places)
    given = DeviceMemory(runtime.queue, first.given, first.desc)

    def fill(x: NDArray[Any]) -> None:
        place = next(places)
        place.fill(x)
        given.data, given.desc = place.given, place.desc

    return first._replace(given=given, says=None, fill=fill)


def image(runtime: Runtime, desc: ImageDesc) -> Place:
    """Return an image that is larger than its descriptor."""
    shape = desc.height + 1, desc.width + 2, 4
    made = runtime.image(desc, np.full(shape, 7, np.float32))
    inside = np.s_[: desc.height, : desc.width]

    def fill(x: NDArray[Any]) -> None:
        region = (desc.width, desc.height, 1)
        pixels = stored(x, desc)
        cl.enqueue_copy(runtime.queue, made, pixels, origin=(0, 0, 0), region=region)

    def read() -> bytes:
        pixels = runtime.pixels(made, np.float32)
        assert (pixels[-1] == 7).all()
        assert (pixels[:, -2:] == 7).all()
        return pixels[inside].tobytes()

    return Place(made, desc, desc, fill, read)


def described(runtime: Runtime, desc: Any, make: Callable[..., Place]) -> Place:
    """Return memory as a DeviceMemory."""
    place = make(runtime, desc)
    given = DeviceMemory(runtime.queue, place.given, desc)
    return place._replace(given=given, says=None)


def host(_runtime: Runtime, _desc: object, of: Any = np.s_[...], order: Any = "C") -> Place:
    """Return a part of an array of the host."""
    base = np.zeros((2, 10, 4, 6), np.float32, order)
    array = base[of] if of is not np.s_[...] else np.zeros(SHAPE, np.float32, order)

    def fill(x: NDArray[Any]) -> None:
        array[...] = x

    return Place(array, array_desc(array), None, fill, array.tobytes)


def memory(_runtime: Runtime, desc: MemoryDesc) -> Place:
    held = Memory(desc)

    def fill(x: NDArray[Any]) -> None:
        held.data[:] = stored(x, desc)

    return Place(held, desc, None, fill, held.data.tobytes)


Kind = tuple[Callable[..., Place], Any]
DEVICE: dict[str, Kind] = {
    "a buffer": (buffer, NHWC),
    "a part of a buffer": (part, NHWC),
    "a buffer of halves": (buffer, HALVES),
    "memory of the host": (partial(on_host, starts=cycle([0, 4, 12])), NHWC),
    "shared memory": (shared, NHWC),
    "an array of bytes": (raw, NHWC),
    "halves in an array of bytes": (raw, HALVES),
    "an array with gaps": (view, PLAIN),
    "an image": (image, IMAGE),
    "a DeviceMemory": (partial(described, make=buffer), PLAIN),
    "a DeviceMemory of an array": (partial(described, make=raw), NHWC),
    "a DeviceMemory of an image": (partial(described, make=image), IMAGE),
}
SOURCES = DEVICE | {
    "an array that moves": (moving, PLAIN),
    "a DeviceMemory that changes": (changing, NHWC),
    "an array of the host": (host, PLAIN),
    "every other channel": (partial(host, of=np.s_[:, ::2]), PLAIN),
    "reversed rows": (partial(host, of=np.s_[:, 4::-1, ::-1]), PLAIN),
    "Fortran's order": (partial(host, order="F"), PLAIN),
    "Memory": (memory, HALVES),
}
# None allocates
TARGETS: dict[str, tuple[Callable[..., Place] | None, Any]] = {
    **DEVICE,
    "a new buffer": (None, NHWC),
    "new halves": (None, HALVES),
    "a new image": (None, IMAGE),
}


def calls(runtime: Runtime, src: Place, dst: Place | None, desc: Any) -> list[Any]:
    """Return the functions that make a layout, in memory as that of dst, of memory as that of src.

    Each takes src, dst and attributes, and returns the memory that it wrote and an event.
    """
    queue = runtime.queue

    def by_reorder(one: Place, other: Place | None, attr: Attr | None) -> Any:
        given: dict[str, Any] = {"src": one.says, "attr": attr}
        if not any(isinstance(side.given, _WITH_QUEUE) for side in (one, other) if side):
            given["queue"] = queue
        if other is None:
            made: Any = reorder(one.given, desc, **given)
        else:
            made = reorder(one.given, other.says, out=other.given, **given)
            is_held = isinstance(other.given, DeviceMemory)
            assert (made if is_held else made.data) is other.given
        assert made.queue == queue
        return made.data, made.event

    def by_pack(one: Place, other: Place | None, attr: Attr | None) -> Any:
        if other is None:
            return opencl.pack(queue, one.given, desc, src=one.says, attr=attr)
        done = opencl.enqueue_pack(queue, one.given, other.data, desc, src=one.says, attr=attr)
        return other.data, done

    def by_unpack(one: Place, other: Place | None, attr: Attr | None) -> Any:
        if other is None:
            return opencl.unpack(queue, one.data, desc, one.desc, attr=attr)
        done = opencl.enqueue_unpack(queue, one.data, other.data, desc, one.desc, attr=attr)
        return other.data, done

    def by_enqueue_reorder(one: Place, other: Place, attr: Attr | None) -> Any:
        given: dict[str, Any] = {"src": one.says, "dst": desc, "attr": attr}
        return other.given, opencl.enqueue_reorder(queue, one.given, other.given, **given)

    is_plain = dst is None or dst.says is not None or isinstance(dst.given, DeviceMemory)
    unpacks = isinstance(src.desc, ImageDesc) and not isinstance(desc, ImageDesc)
    are_described = src.says is not None and dst is not None and dst.says is not None
    return [
        by_reorder,
        *([by_pack] if isinstance(desc, ImageDesc) else []),
        *([by_unpack] if unpacks and is_plain else []),
        *([by_enqueue_reorder] if are_described else []),
    ]


def made_of(runtime: Runtime, desc: Any, made: Any) -> bytes:
    """Return what new memory holds."""
    is_image = isinstance(desc, ImageDesc)
    return (runtime.pixels(made, np.float32) if is_image else runtime.read(made)).tobytes()


@pytest.mark.parametrize("source", SOURCES)
def test_a_call_with_memory_of_any_kind_gives_what_the_cpu_gives(
    source: str, runtime: Runtime
) -> None:
    make, of = SOURCES[source]
    sources = [make(runtime, of) for _ in range(2)]
    for name, (make_dst, desc) in TARGETS.items():
        targets: list[Any] = [make_dst(runtime, desc) if make_dst else None for _ in range(2)]
        for call in calls(runtime, sources[0], targets[0], desc):
            kept = []
            for which, factor, attr in ((0, 1, None), (0, 2, None), (1, 3, None), (1, 4, SCALED)):
                src, dst, x = sources[which], targets[which], X * factor
                src.fill(x)
                made, event = call(src, dst, attr)
                event.wait()
                kept.append((made, stored(x, desc, attr).tobytes()))
                assert dst is None or dst.read() == kept[-1][1], (name, call, factor)
            # that memory is known does not mean that it is other memory
            if call.__name__ == "by_enqueue_reorder":
                with pytest.raises(OverlapError, match="x and out share device memory"):
                    call(targets[0]._replace(says=desc), targets[0], None)
            # what an earlier call allocated is as it was
            for made, wanted in kept if make_dst is None else ():
                assert made_of(runtime, desc, made) == wanted, (name, call)
