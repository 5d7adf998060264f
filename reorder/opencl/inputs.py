"""Whatever a caller passes as a tensor, as memory of the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array

from memdesc import FormatTag, ImageDesc, MemdescError, MemoryDesc
from memdesc.errors import short_repr
from reorder.memory.inputs import as_memory, from_pixels
from reorder.opencl.device_memory import DeviceMemory
from reorder.opencl.operands import Operand, array_operand, check_types, operand

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Layout", "check_image_desc", "new_buffer", "source_operand"]

Layout = str | FormatTag | MemoryDesc | ImageDesc


def source_operand(
    queue: cl.CommandQueue,
    src: Any,
    desc: Layout | None,
    target: Operand | None,
    wait_for: Sequence[cl.Event] | None,
) -> tuple[Operand, list[cl.Event] | None]:
    """Return a tensor as memory of the device, and what to wait for before it is read."""
    waiting = None if wait_for is None else list(wait_for)
    if isinstance(src, DeviceMemory):
        if desc is not None:
            msg = "src_desc describes plain memory; a DeviceMemory has its own descriptor"
            raise MemdescError(msg)
        waiting = [*(waiting or []), *([src.event] if src.event is not None else [])]
        return operand(queue, src.data, src.desc, "src"), waiting
    if isinstance(src, cl.array.Array):
        if desc is None:
            buffer, own = array_operand(queue, src, "src")
            waiting = [*(waiting or []), *src.events]
            return operand(queue, buffer, own, "src"), waiting
        return operand(queue, src, _described(desc, src), "src"), [*(waiting or []), *src.events]
    if isinstance(src, cl.Buffer | cl.Image):
        return operand(queue, src, _described(desc, src), "src"), waiting
    memory = (
        from_pixels(src, desc)
        if isinstance(desc, ImageDesc)
        else as_memory(_compact(src, desc), desc)
    )
    if target is not None:
        # before anything is copied
        check_types(Operand(None, memory.desc, None, "", is_aligned=True), target)
    flags = cl.mem_flags.READ_ONLY
    buffer = cl.Buffer(queue.context, flags, max(memory.desc.min_nbytes, 1))
    if memory.desc.min_nbytes:
        cl.enqueue_copy(queue, buffer, memory.data[: memory.desc.min_nbytes])
    return operand(queue, buffer, memory.desc, "src"), waiting


def _described(desc: Layout | None, memory: Any) -> MemoryDesc | ImageDesc:
    if isinstance(desc, MemoryDesc | ImageDesc):
        return desc
    kind, needed = (
        ("Image", "an ImageDesc") if isinstance(memory, cl.Image) else ("Buffer", "a MemoryDesc")
    )
    msg = f"src is a pyopencl {kind}, which does not say what it holds; give src_desc=, {needed}"
    raise MemdescError(msg)


def _compact(x: Any, desc: Layout | None) -> Any:
    """Return an array without large gaps, which would be copied to the device as well."""
    if isinstance(x, np.ndarray) and not isinstance(desc, MemoryDesc) and x.size:
        low, high = np.lib.array_utils.byte_bounds(x)
        if high - low > x.nbytes:
            return np.ascontiguousarray(x)
    return x


def new_buffer(
    queue: cl.CommandQueue, desc: MemoryDesc, source: Operand
) -> tuple[cl.Buffer, Operand]:
    """Allocate a buffer for what comes from a source, once the two are known to fit."""
    check_types(source, Operand(None, desc, None, "", is_aligned=True))
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, max(desc.nbytes, 1))
    return buffer, operand(queue, buffer, desc, "dst")


def check_image_desc(image_desc: Any) -> None:
    """Refuse what is no ImageDesc."""
    if not isinstance(image_desc, ImageDesc):
        msg = (
            f"image_desc must be an ImageDesc, not {short_repr(image_desc)}; see memdesc.image_desc"
        )
        raise MemdescError(msg)
