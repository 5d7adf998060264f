"""Checks of the two operands of a reorder on a device against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyopencl as cl

from memdesc import MemdescError, OverlapError
from reorder.memory.buffers import are_apart
from reorder.plan.plan import check_dims

if TYPE_CHECKING:
    from reorder.opencl.operands import DeviceOperand
    from reorder.values.attr import Attr

__all__ = ["check_apart", "check_kinds", "check_old_values", "shared_distance"]


def check_kinds(src: DeviceOperand, dst: DeviceOperand) -> None:
    """Refuse two operands whose dims or channel types do not match; their memory does not matter.

    Raises
    ------
    MemdescError
        With both.
    """
    check_dims(src.desc, dst.desc)
    channel_types = {src.channel_type, dst.channel_type}
    if "" not in channel_types and len(channel_types) > 1 and "UNORM_INT8" in channel_types:
        msg = (
            f"src is an image of {src.channel_type}, dst of {dst.channel_type}: "
            "fractions and integers meet in a buffer only"
        )
        raise MemdescError(msg)


def check_old_values(dst: DeviceOperand, attr: Attr | None) -> None:
    """Refuse memory that kernels may not read where `beta` adds what it holds."""
    flags = getattr(dst.memory, "flags", 0)
    if attr is not None and attr.beta and flags & cl.mem_flags.WRITE_ONLY:
        msg = (
            f"dst was created WRITE_ONLY, so kernels may not read it, but beta={attr.beta} adds "
            "what it holds; create it READ_WRITE, or leave out beta"
        )
        raise MemdescError(msg)


def check_apart(src: DeviceOperand, dst: DeviceOperand) -> None:
    """Refuse two operands that share memory; one that is not allocated yet shares none.

    Raises
    ------
    OverlapError
        Unless their bytes are proven disjoint by bounded work.
    """
    if src.place is None or dst.place is None or not dst.desc.nelems:
        return
    distance = shared_distance(src.place, src.memory.size, dst.place, dst.memory.size)
    if distance is None:
        return
    has_image = src.image is not None or dst.image is not None
    if not has_image and are_apart(src.desc, dst.desc, distance):
        return
    msg = (
        f"src and dst share device memory: {src.desc.min_nbytes} bytes from byte {src.place[1]} "
        f"and {dst.desc.min_nbytes} from byte {dst.place[1]} of one buffer, and dst would "
        "overwrite what is still to be read; reorder into another buffer"
    )
    raise OverlapError(msg)


def shared_distance(
    src: tuple[int, int] | None, src_nbytes: int, dst: tuple[int, int] | None, dst_nbytes: int
) -> int | None:
    """Return how many bytes dst starts behind src in one allocation; None if they share no bytes.

    Places are those of `place_of`; None if nothing is allocated yet.
    """
    if src is None or dst is None or src[0] != dst[0]:
        return None
    distance = dst[1] - src[1]
    return distance if -dst_nbytes < distance < src_nbytes else None
