"""Enqueue a reorder between buffers and images of one device."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyopencl as cl

from memdesc import MemdescError
from memdesc.errors import shown
from reorder.opencl.lower import Launch, lower
from reorder.opencl.operands import Operand, check_apart, check_types, operand
from reorder.opencl.programs import prepare
from reorder.opencl.sides import Raster, place_box
from reorder.opencl.widen import widen
from reorder.plan import plan_reorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memdesc import ImageDesc, MemoryDesc

__all__ = ["check_queue", "enqueue_operands", "enqueue_reorder", "plan_launches"]


class Side(NamedTuple):
    """What launches depend on of one side: its linear descriptor, its pixels, its elements."""

    desc: MemoryDesc
    image: Raster | None
    element: str


def enqueue_reorder(
    queue: cl.CommandQueue,
    src: Any,
    src_desc: MemoryDesc | ImageDesc,
    dst: Any,
    dst_desc: MemoryDesc | ImageDesc,
    attr: None = None,
    *,
    wait_for: Sequence[cl.Event] | None = None,
) -> cl.Event:
    """Enqueue a reorder from a buffer or image into another, on the queue's device.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it runs; in order or out of order.
    src, dst : pyopencl.Buffer, pyopencl.array.Array or pyopencl.Image
        The memory. A Buffer or an Array, from its first element on, has at least the
        `min_nbytes` of its descriptor; an Image may be larger than its descriptor.
    src_desc, dst_desc : MemoryDesc or ImageDesc
        Of the same dims and dtype; f32 and f16 are converted into or out of an image.
    attr : None
        Scales and zero points are not supported on devices.
    wait_for : sequence of pyopencl.Event, optional
        What must have happened before src is read and dst written.

    Returns
    -------
    pyopencl.Event
        Done when dst is: the padding of dst is zero, its gaps are untouched.

    Raises
    ------
    MemdescError
        If the descriptors do not fit each other, the memory or the device; nothing is
        enqueued then.

    Notes
    -----
    *Law*: dst equals what `execute_reference` makes of the same descriptors, bit for bit,
    but that images of f16 may quiet a signalling NaN.
    """
    check_queue(queue)
    if attr is not None:
        msg = f"attr is {shown(attr)}: scales and zero points are not supported on devices; reorder on the CPU, or scale in a kernel"
        raise MemdescError(msg)
    return enqueue_operands(queue, operand(queue, src, src_desc, "src"), operand(queue, dst, dst_desc, "dst"), wait_for)


def check_queue(queue: Any) -> None:
    """Refuse what is no command queue."""
    if not isinstance(queue, cl.CommandQueue):
        msg = f"queue must be a pyopencl.CommandQueue, not {shown(queue)}"
        raise MemdescError(msg)


def enqueue_operands(queue: cl.CommandQueue, src: Operand, dst: Operand, wait_for: Sequence[cl.Event] | None) -> cl.Event:
    """Enqueue a reorder between sides that are checked alone, not yet together."""
    check_types(src, dst)
    check_apart(src, dst)
    sides = Side(src.desc, src.image, src.element(dst)), Side(dst.desc, dst.image, dst.element(src))
    is_aligned = src.is_aligned and dst.is_aligned
    max_items = queue.device.max_work_group_size
    stages = plan_launches(*sides, max_items, is_aligned=is_aligned)
    handles = [src.handle, *(_staging(queue, side) for side in stages.between), dst.handle]
    waiting = None if wait_for is None else list(wait_for)
    # all are built before the first one starts
    kernels = [[prepare(queue.context, launch) for launch in launches] for launches in stages.launches]
    for prepared, source, target in zip(kernels, handles, handles[1:], strict=False):
        events = [kernel.start(queue, source, target, waiting) for kernel in prepared]
        if events:
            waiting = events
    if waiting is not None and len(waiting) == 1 and any(stages.launches):
        return waiting[0]
    return cl.enqueue_marker(queue, wait_for=waiting)


class Stages(NamedTuple):
    """Launches that run one after the other, and the buffers between them."""

    launches: tuple[tuple[Launch, ...], ...]
    between: tuple[MemoryDesc, ...] = ()


@lru_cache(maxsize=1024)
def plan_launches(src: Side, dst: Side, max_items: int, *, is_aligned: bool) -> Stages:
    """Plan the launches of a reorder; a pure function.

    Where pixels cannot be moved whole, elements go through a linear buffer of the
    image's pixels.
    """
    direct = _launches(src, dst, max_items, is_aligned=is_aligned)
    if direct is not None:
        return Stages((direct,))
    # what lies between is of the type of a buffer at either end: images convert
    sides = [src]
    if src.image is not None:
        plain = src if dst.image is not None else dst
        sides.append(Side(src.desc.with_dtype(plain.desc.dtype), None, plain.element))
    if dst.image is not None and (src.image is None or sides[-1].desc.layout != dst.desc.layout):
        sides.append(Side(dst.desc.with_dtype(sides[-1].desc.dtype), None, sides[-1].element))
    sides.append(dst)
    launches = []
    for one, other in zip(sides, sides[1:], strict=False):
        found = _launches(one, other, max_items, is_aligned=is_aligned)
        if found is None:
            msg = f"no pixels of {one} lead to those of {other}"
            raise AssertionError(msg)
        launches.append(found)
    return Stages(tuple(launches), tuple(side.desc for side in sides[1:-1]))


def _staging(queue: cl.CommandQueue, desc: MemoryDesc) -> cl.Buffer:
    # the runtime keeps it until the kernels that use it are done
    return cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, desc.nbytes)


def _launches(src: Side, dst: Side, max_items: int, *, is_aligned: bool) -> tuple[Launch, ...] | None:
    """Return the launches of one stage, or None where boxes do not move whole pixels."""
    plan = plan_reorder(src.desc.with_dtype(dst.desc.dtype), dst.desc)
    rasters = src.image, dst.image
    is_image = src.image is not None, dst.image is not None
    launches = []
    for box in plan.boxes:
        elements = src.element, dst.element
        own, bits = box, dst.desc.dtype.bits
        if rasters == (None, None) or (dst.image is None and box.is_zero):
            own, bits = widen(box, bits, is_aligned=is_aligned)
            if bits < 8:  # noqa: PLR2004 - two elements share a byte, and work items would meet in it
                msg = f"{dst.desc.dtype} elements of {dst.desc!r} do not move as whole bytes; reorder them on the CPU"
                raise MemdescError(msg)
            elements = f"b{bits}", f"b{bits}"
            tasks = place_box(own, (None, None))
        else:
            tasks = place_box(own, rasters)
        if tasks is None:
            return None
        launches += [lower(task, *elements, max_items, is_image=is_image, is_aligned=is_aligned) for task in tasks]
    return tuple(launches)
