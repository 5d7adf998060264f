"""The transfers of a reorder on a device: launches, and the buffers between them. Pure functions.

Most reorders are one transfer. If boxes do not move whole pixels, elements go through a linear
buffer of the pixels of the image. PoCL 3.1 offers images of one
f16 channel, but its kernels cannot access them: the runtime copies these from and to buffers.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError
from reorder.opencl.codegen.pattern import Access, AccessKind
from reorder.opencl.schedule.conversions import (
    ConversionSpec,
    Floats,
    buffers_of,
    conversion_of,
    numbers_of,
)
from reorder.opencl.schedule.lower import lower
from reorder.opencl.schedule.lower_pixels import lower_pixels
from reorder.opencl.schedule.lower_rows import lower_rows
from reorder.opencl.schedule.lower_runs import lower_runs, without_others
from reorder.opencl.schedule.lower_skewed import lower_skewed
from reorder.opencl.schedule.lower_squares import lower_squares
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
    from reorder.plan.plan import ReorderPlan
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
    def is_linear(self) -> bool:
        """Whether kernels access the pixels as a buffer because they cannot access the image."""
        return self.image is not None and self.image.channels == 1 and self.desc.dtype.name == "f16"

    @property
    def access(self) -> Access:
        """How kernels access it."""
        kind = AccessKind.BUFFER if self.image is None else AccessKind.IMAGE
        return Access(kind, self.element)

    @property
    def code_access(self) -> Access:
        """How kernels that compute access it: a buffer by the bits of its elements."""
        if self.image is not None:
            return self.access
        return Access(AccessKind.BUFFER, f"b{self.desc.dtype.bits}")

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
    if dst.image is not None and attr is not None and attr.beta:
        msg = (
            f"beta {attr.beta} adds to what dst holds, and kernels do not read an image that they "
            "write; accumulate in a buffer, then pack it"
        )
        raise MemdescError(msg)
    first = [_pixels(src, src.as_buffer(src))] if src.is_linear else []
    last = [_pixels(dst, dst)] if dst.is_linear else []
    source = first[-1].dst if first else src
    target = dst.as_buffer(dst) if last else dst
    direct = _transfer(source, target, device, attr, is_aligned=is_aligned)
    if direct is not None:
        return (*first, direct, *last)
    # through linear buffers of the pixels; elements are computed between two buffers
    operands = [source]
    if source.image is not None:
        operands.append(source.as_buffer(source))
    if target.image is not None:
        linear = target.as_buffer(target)
        if source.image is None or operands[-1].desc != linear.desc or attr is not None:
            operands.append(linear)
    transfers = []
    for one, other in pairwise([*operands, target]):
        computed = attr if one.image is None and other.image is None else None
        transfer = _transfer(one, other, device, computed, is_aligned=is_aligned)
        if transfer is None:
            msg = f"no loops over pixels lead from {one} to {other}"
            raise AssertionError(msg)
        transfers.append(transfer)
    return (*first, *transfers, *last)


def _transfer(
    src: OperandSpec,
    dst: OperandSpec,
    device: DeviceTraits,
    attr: Attr | None,
    *,
    is_aligned: bool,
) -> Transfer | None:
    """Return one transfer; None if there is an image, and boxes do not move whole pixels."""
    if src.image is None and dst.image is None:
        return _between_buffers(src, dst, device, attr, is_aligned=is_aligned)
    return _with_image(src, dst, device, attr, is_aligned=is_aligned)


def _pixels(image: OperandSpec, dst: OperandSpec) -> Transfer:
    """Return the transfer between all pixels of an image and a linear buffer of them."""
    assert image.image is not None  # noqa: S101 - for the type checker
    width, channels = image.image
    region = width, image.desc.padded_nelems // (width * channels)
    return Transfer((), dst, region)


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
    spec = _spec(src, dst, plan, device, is_aligned=is_aligned)
    conversion = spec.conversion
    first: list[Launch] = []
    second: list[Launch] = []
    for box in plan.boxes:
        if conversion.is_move or box.is_zero:
            packed, bits = _packed(without_others(box), dst, is_aligned=is_aligned)
            if bits >= _BYTE:
                access = Access(AccessKind.BUFFER, f"b{bits}")
                (nest,) = place_box(packed, (None, None)) or ()
                rows = _rows(nest, access, device, is_aligned=is_aligned)
                first.append(
                    rows or _lowered(nest, (access, access), device, is_aligned=is_aligned)
                )
                continue
            squares = lower_squares(
                packed, device.max_work_items, device.profile, is_aligned=is_aligned
            )
            if squares is not None:
                first.append(squares)
                continue
        now, later = lower_runs(box, spec)
        first += now
        second += later
    second += lower_sums(dst.desc, device.max_work_items)
    return Transfer(tuple(first), dst, None, tuple(second), buffers_of(conversion, plan.bound_attr))


def _rows(
    nest: PixelNest, access: Access, device: DeviceTraits, *, is_aligned: bool
) -> Launch | None:
    """Return the launch of rows that start at any byte, in vectors that are aligned in dst."""
    for lower_ in (lower_rows, lower_skewed):
        launch = lower_(nest, access, device.max_work_items, device.profile, is_aligned=is_aligned)
        if launch is not None:
            return launch
    return None


def _with_image(
    src: OperandSpec,
    dst: OperandSpec,
    device: DeviceTraits,
    attr: Attr | None,
    *,
    is_aligned: bool,
) -> Transfer | None:
    """Return the transfer from or to an image, or None if boxes do not move whole pixels."""
    plan = plan_reorder(src.desc, dst.desc, attr)
    profile = device.profile
    spec, accesses = None, (src.access, dst.access)
    if plan.converts:
        spec = _spec(src, dst, plan, device, is_aligned=is_aligned)
        if src.desc.dtype.is_packed or dst.desc.dtype.is_packed:
            return None
        accesses = src.code_access, dst.code_access
    launches: list[Launch] = []
    for box in plan.boxes:
        # a box of zeros reads nothing, so src may be treated as a buffer
        if dst.image is None and box.is_zero:
            packed, bits = _packed(without_others(box), dst, is_aligned=is_aligned)
            element = Access(AccessKind.BUFFER, f"b{bits}")
            nests = place_box(packed, (None, None)) or ()
            launches += [
                _lowered(nest, (element, element), device, is_aligned=is_aligned) for nest in nests
            ]
            continue
        placed = place_box(box, (src.image, dst.image))
        if placed is None:
            return None
        for nest in placed:
            tiled = None
            if is_aligned:
                tiled = lower_pixels(nest, accesses, device.max_work_items, profile, spec)
            launches.append(tiled or _lowered(nest, accesses, device, spec, is_aligned=is_aligned))
    buffers = () if spec is None else buffers_of(spec.conversion, plan.bound_attr)
    return Transfer(tuple(launches), dst, buffers=buffers)


def _spec(
    src: OperandSpec,
    dst: OperandSpec,
    plan: ReorderPlan,
    device: DeviceTraits,
    *,
    is_aligned: bool,
) -> ConversionSpec:
    """Return what the elements of a plan are computed with; images of f16 are read as f32."""
    bound = plan.bound_attr
    reads_floats = src.image is not None and src.desc.dtype.name == "f16"
    name = "f32" if reads_floats else src.desc.dtype.name
    conversion = conversion_of(name, dst.desc.dtype.name, bound, device.floats)
    if dst.image is not None and dst.desc.dtype.name == "f16":
        conversion = conversion._replace(writes_halves=True)
    if "f16" in (name, dst.desc.dtype.name):
        conversion = conversion._replace(has_half_instructions=True)
    numbers = numbers_of(conversion, bound)
    has_fma = device.floats.has_fma and device.floats.divides
    return ConversionSpec(conversion, numbers, device.max_work_items, is_aligned, has_fma)


def _lowered(
    nest: PixelNest,
    accesses: tuple[Access, Access],
    device: DeviceTraits,
    spec: ConversionSpec | None = None,
    *,
    is_aligned: bool,
) -> Launch:
    return lower(
        nest,
        accesses,
        device.max_work_items,
        is_aligned=is_aligned,
        profile=device.profile,
        spec=spec,
    )


def _packed(box: Box, dst: OperandSpec, *, is_aligned: bool) -> tuple[Box, int]:
    """Return a box packed into wider elements, and the bits of one."""
    bits = dst.desc.dtype.bits
    # elements wider than the dtype need their alignment; two 4-bit elements always make a byte
    widest = _MAX_BITS if is_aligned else max(bits, _BYTE)
    return pack_elements(box, bits, widest=widest, packs_long_runs=True)
