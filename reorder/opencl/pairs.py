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

__all__ = ["check_apart", "check_kinds", "check_old_values"]


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
    if src.place is None or dst.place is None:
        return
    (src_root, src_start), (dst_root, dst_start) = src.place, dst.place
    if src_root != dst_root or not dst.desc.nelems:
        return
    if src_start + src.memory.size <= dst_start or dst_start + dst.memory.size <= src_start:
        return
    has_image = src.image is not None or dst.image is not None
    if not has_image and are_apart(src.desc, dst.desc, dst_start - src_start):
        return
    msg = (
        f"src and dst share device memory: {src.desc.min_nbytes} bytes from byte {src_start} "
        f"and {dst.desc.min_nbytes} from byte {dst_start} of one buffer, and dst would "
        "overwrite what is still to be read; reorder into another buffer"
    )
    raise OverlapError(msg)
