"""The transfers of a reorder on a device: launches, and the buffers between them. Pure functions.

Most reorders are one transfer. If boxes do not move whole pixels, elements go through a linear
buffer of the pixels of the image. Images of one f16 channel are copied by the runtime, not by
kernels: PoCL 3.1 offers them, but its kernels cannot access them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError
from reorder.opencl.codegen.pattern import Access, AccessKind
from reorder.opencl.schedule.conversions import Floats, buffers_of, conversion_of, numbers_of
from reorder.opencl.schedule.lower import lower
from reorder.opencl.schedule.lower_runs import ConversionSpec, lower_runs, without_others
from reorder.opencl.schedule.placement import place_box
from reorder.opencl.schedule.profile import GPU, Profile
from reorder.opencl.schedule.sums import lower_sums
from reorder.plan.passes import pack_elements
from reorder.plan.plan import plan_reorder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import MemoryDesc
    from reorder.opencl.schedule.lower import Launch
    from reorder.opencl.schedule.placement import ImageShape, PixelNest
    from reorder.plan.nodes import Box
    from reorder.values.attr import Attr

__all__ = ["DeviceTraits", "OperandSpec", "Transfer", "plan_transfers"]

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

    Without launches the runtime copies `region`, (width, height) pixels, without conversion. The
    `second` launches start when the others are done. `buffers` are the scales and zero points that
    differ along the dims, which kernels read.
    """

    launches: tuple[Launch, ...]
    dst: OperandSpec
    region: tuple[int, int] | None = None
    second: tuple[Launch, ...] = ()
    buffers: tuple[NDArray[Any], ...] = ()


class DeviceTraits(NamedTuple):
    """What plans depend on: the largest work-group of a device, its arithmetic, what suits it."""

    max_work_items: int
    floats: Floats = Floats()
    profile: Profile = GPU


def plan_transfers(
    src: OperandSpec,
    dst: OperandSpec,
    device: DeviceTraits,
    attr: Attr | None = None,
    *,
    is_aligned: bool,
) -> tuple[Transfer, ...]:
    """Plan the transfers of a reorder.

    Parameters
    ----------
    src, dst : OperandSpec
        Of the same dims.
    device : DeviceTraits
        The device.
    attr : Attr, optional
        Scales, zero points, accumulation.
    is_aligned : bool
        Whether buffers start at multiples of 16 bytes.

    Raises
    ------
    MemdescError
        If the device cannot compute the conversion to the bit.
    """
    if attr is not None and attr.is_large:
        return _plan.__wrapped__(src, dst, device, attr, is_aligned=is_aligned)
    return _plan(src, dst, device, attr, is_aligned=is_aligned)


@lru_cache(maxsize=1024)
def _plan(
    src: OperandSpec,
    dst: OperandSpec,
    device: DeviceTraits,
    attr: Attr | None,
    *,
    is_aligned: bool,
) -> tuple[Transfer, ...]:
    if src.image is None and dst.image is None:
        return (_between_buffers(src, dst, device, attr, is_aligned=is_aligned),)
    if attr is not None:
        msg = f"attr is {attr}: images take no scales; convert in a buffer, then pack it"
        raise MemdescError(msg)
    first = [Transfer((), src.as_buffer(src), _region(src))] if src.is_copied else []
    last = [Transfer((), dst, _region(dst))] if dst.is_copied else []
    source = first[-1].dst if first else src
    target = dst.as_buffer(dst) if last else dst
    direct = _launches(source, target, device, is_aligned=is_aligned)
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
        launches = _launches(one, other, device, is_aligned=is_aligned)
        if launches is None:
            msg = f"no loops over pixels lead from {one} to {other}"
            raise AssertionError(msg)
        transfers.append(Transfer(launches, other))
    return (*first, *transfers, *last)


def _region(operand: OperandSpec) -> tuple[int, int]:
    """Return width and height of an image of one channel."""
    assert operand.image is not None  # noqa: S101 - for the type checker
    return operand.image.width, operand.desc.padded_nelems // operand.image.width


def _between_buffers(
    src: OperandSpec,
    dst: OperandSpec,
    device: DeviceTraits,
    attr: Attr | None,
    *,
    is_aligned: bool,
) -> Transfer:
    """Return the transfer between two buffers: boxes move as wide elements, or are converted."""
    plan = plan_reorder(src.desc, dst.desc, attr)
    bound = plan.bound_attr
    conversion = conversion_of(src.desc.dtype, dst.desc.dtype, bound, device.floats)
    numbers = numbers_of(conversion, bound)
    spec = ConversionSpec(conversion, numbers, device.max_work_items, is_aligned)
    first: list[Launch] = []
    second: list[Launch] = []
    for box in plan.boxes:
        if conversion.is_move or box.is_zero:
            packed, bits = _packed(without_others(box), dst, is_aligned=is_aligned)
            if bits >= _BYTE:
                access = Access(AccessKind.BUFFER, f"b{bits}")
                (nest,) = place_box(packed, (None, None)) or ()
                first.append(_lowered(nest, (access, access), device, is_aligned=is_aligned))
                continue
        now, later = lower_runs(box, spec)
        first += now
        second += later
    second += lower_sums(dst.desc, device.max_work_items)
    return Transfer(tuple(first), dst, None, tuple(second), buffers_of(conversion, bound))


def _launches(
    src: OperandSpec, dst: OperandSpec, device: DeviceTraits, *, is_aligned: bool
) -> tuple[Launch, ...] | None:
    """Return the launches of one transfer, or None if boxes do not move whole pixels."""
    plan = plan_reorder(src.desc.with_dtype(dst.desc.dtype), dst.desc)
    launches: list[Launch] = []
    for box in plan.boxes:
        # a box of zeros reads nothing, so src may be treated as a buffer
        is_linear = dst.image is None and (src.image is None or box.is_zero)
        packed, accesses = box, (src.access, dst.access)
        if is_linear and (src.element == dst.element or box.is_zero):
            packed, bits = _packed(box, dst, is_aligned=is_aligned)
            element = f"b{bits}"
            accesses = src.access._replace(element=element), dst.access._replace(element=element)
        nests = place_box(packed, (None, None) if is_linear else (src.image, dst.image))
        if nests is None:
            return None
        launches += [_lowered(nest, accesses, device, is_aligned=is_aligned) for nest in nests]
    return tuple(launches)


def _lowered(
    nest: PixelNest, accesses: tuple[Access, Access], device: DeviceTraits, *, is_aligned: bool
) -> Launch:
    return lower(
        nest, accesses, device.max_work_items, is_aligned=is_aligned, profile=device.profile
    )


def _packed(box: Box, dst: OperandSpec, *, is_aligned: bool) -> tuple[Box, int]:
    """Return a box packed into wider elements, and the bits of one."""
    bits = dst.desc.dtype.bits
    # elements wider than the dtype need their alignment; two 4-bit elements always make a byte
    widest = _MAX_BITS if is_aligned else max(bits, _BYTE)
    return pack_elements(box, bits, widest=widest, packs_long_runs=True)
