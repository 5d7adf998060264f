"""The transfers of a reorder on a device: launches, and the buffers between them. Pure functions.

Most reorders are one transfer. If boxes do not move whole pixels, elements go through a linear
buffer of the pixels of the image. Images of one f16 channel are copied by the runtime, not by
kernels: PoCL 3.1 offers them, but its kernels cannot access them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError
from reorder.opencl.codegen.pattern import Access, AccessKind
from reorder.opencl.schedule.lower import lower
from reorder.opencl.schedule.placement import place_box
from reorder.opencl.schedule.profile import GPU
from reorder.plan.passes import pack_elements
from reorder.plan.plan import plan_reorder

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder.opencl.schedule.lower import Launch
    from reorder.opencl.schedule.placement import ImageShape
    from reorder.opencl.schedule.profile import Profile
    from reorder.plan.nodes import Box

__all__ = ["OperandSpec", "Transfer", "plan_transfers"]

# bits of a byte, and of the widest element that a work item moves
_BYTE, _MAX_BITS = 8, 128


class OperandSpec(NamedTuple):
    """One operand as launches depend on it: linear descriptor, pixels, name of its elements."""

    desc: MemoryDesc
    image: ImageShape | None
    element: str

    @property
    def is_copied(self) -> bool:
        """Whether the runtime copies the pixels, because kernels may fail to access them."""
        return self.image is not None and self.image.channels == 1 and self.desc.dtype.name == "f16"

    @property
    def access(self) -> Access:
        """How kernels access it."""
        kind = AccessKind.BUFFER if self.image is None else AccessKind.IMAGE
        return Access(kind, self.element)

    def as_buffer(self, like: OperandSpec) -> OperandSpec:
        """Return the same layout as a linear buffer with the elements of another operand."""
        return OperandSpec(self.desc.with_dtype(like.desc.dtype), None, like.element)


class Transfer(NamedTuple):
    """Launches that may run at the same time, and the operand that they write.

    Without launches the runtime copies `region`, (width, height) pixels, without conversion.
    """

    launches: tuple[Launch, ...]
    dst: OperandSpec
    region: tuple[int, int] | None = None


@lru_cache(maxsize=1024)
def plan_transfers(
    src: OperandSpec,
    dst: OperandSpec,
    max_work_items: int,
    *,
    is_aligned: bool,
    profile: Profile = GPU,
) -> tuple[Transfer, ...]:
    """Plan the transfers of a reorder.

    Parameters
    ----------
    src, dst : OperandSpec
        Of the same dims.
    max_work_items : int
        The largest work-group of the device.
    is_aligned : bool
        Whether buffers start at multiples of 16 bytes.
    profile : Profile, optional
        What suits the device.

    Raises
    ------
    MemdescError
        If 4-bit elements do not move as whole bytes.
    """
    first = [Transfer((), src.as_buffer(src), _region(src))] if src.is_copied else []
    last = [Transfer((), dst, _region(dst))] if dst.is_copied else []
    source = first[-1].dst if first else src
    target = dst.as_buffer(dst) if last else dst
    direct = _launches(source, target, max_work_items, is_aligned=is_aligned, profile=profile)
    if direct is not None:
        return (*first, Transfer(direct, target), *last)
    operands = [source]
    # only launches with an image convert, so between two buffers the type must be the same
    if source.image is not None:
        operands.append(source.as_buffer(source if target.image is not None else target))
    if target.image is not None and (
        source.image is None or operands[-1].desc.layout != target.desc.layout
    ):
        operands.append(target.as_buffer(operands[-1]))
    transfers = []
    for one, other in pairwise([*operands, target]):
        launches = _launches(one, other, max_work_items, is_aligned=is_aligned, profile=profile)
        if launches is None:
            msg = f"no loops over pixels lead from {one} to {other}"
            raise AssertionError(msg)
        transfers.append(Transfer(launches, other))
    return (*first, *transfers, *last)


def _region(operand: OperandSpec) -> tuple[int, int]:
    """Return width and height of an image of one channel."""
    assert operand.image is not None  # noqa: S101 - for the type checker
    return operand.image.width, operand.desc.padded_nelems // operand.image.width


def _launches(
    src: OperandSpec,
    dst: OperandSpec,
    max_work_items: int,
    *,
    is_aligned: bool,
    profile: Profile = GPU,
) -> tuple[Launch, ...] | None:
    """Return the launches of one transfer, or None if boxes do not move whole pixels."""
    plan = plan_reorder(src.desc.with_dtype(dst.desc.dtype), dst.desc)
    launches: list[Launch] = []
    for box in plan.boxes:
        # a box of zeros reads nothing, so src may be treated as a buffer
        is_linear = dst.image is None and (src.image is None or box.is_zero)
        packed, accesses = box, (src.access, dst.access)
        if is_linear and (src.element == dst.element or box.is_zero):
            packed, element = _packed(box, dst, is_aligned=is_aligned)
            accesses = src.access._replace(element=element), dst.access._replace(element=element)
        nests = place_box(packed, (None, None) if is_linear else (src.image, dst.image))
        if nests is None:
            return None
        launches += [
            lower(nest, accesses, max_work_items, is_aligned=is_aligned, profile=profile)
            for nest in nests
        ]
    return tuple(launches)


def _packed(box: Box, dst: OperandSpec, *, is_aligned: bool) -> tuple[Box, str]:
    """Return a box packed into wider elements, and the name of these."""
    bits = dst.desc.dtype.bits
    # elements wider than the dtype need their alignment; two 4-bit elements always make a byte
    widest = _MAX_BITS if is_aligned else max(bits, _BYTE)
    packed, bits = pack_elements(box, bits, widest=widest, packs_long_runs=True)
    if bits < _BYTE:
        msg = (
            f"{dst.desc.dtype} elements of {dst.desc!r} do not move as whole bytes; "
            "reorder them on the CPU"
        )
        raise MemdescError(msg)
    return packed, f"b{bits}"
