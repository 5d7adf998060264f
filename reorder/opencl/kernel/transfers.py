"""The transfers of a reorder on a device: launches, and the buffers between them. Pure functions.

Most reorders are one transfer. Each box of a plan has a launch, unless tiles cover the padded space
of dst as a whole. If boxes do not move whole pixels, elements go through a linear buffer of the
image's pixels. PoCL 3.1's kernels cannot access images of one f16 channel: the runtime copies them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from memdesc import ImageDesc, MemdescError, MemoryDesc
from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.opencl.kernel import direct, rows, tile
from reorder.opencl.kernel.access import Access, Mode
from reorder.opencl.kernel.formula import KernelFormula
from reorder.opencl.kernel.launch import DeviceTraits, KernelTask, Launch
from reorder.opencl.kernel.placement import ImageShape, Nest, place_box
from reorder.opencl.kernel.sums import lower_sums
from reorder.plan.boxes import whole_box
from reorder.plan.nodes import Box, Node
from reorder.plan.passes import pack_elements, src_and_dst
from reorder.plan.plan import plan_reorder
from reorder.values.convert import without_quotient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from reorder.plan.plan import ReorderPlan
    from reorder.values.attr import Attr
    from reorder.values.binding import BoundAttr

_NOTHING = Nest((), (), ())
_RG = 2  # lanes of pixels that only the runtime copies
# The first family that makes launches lowers a nest; the last one lowers every nest.
_FAMILIES = (
    rows.try_lower,
    tile.try_lower_joined,
    tile.try_lower_skewed,
    tile.try_lower,
    tile.try_lower_pixels,
    direct.try_lower,
)


class OperandSpec(NamedTuple):
    """What launches depend on in one operand: its linear descriptor, its pixels, and their type."""

    desc: MemoryDesc
    image: ImageShape | None = None
    channel_type: str = ""

    @classmethod
    def of(cls, desc: MemoryDesc | ImageDesc, channel_type: str = "") -> OperandSpec:
        """Return the specification of a descriptor's operand."""
        if isinstance(desc, ImageDesc):
            return cls(desc.desc, ImageShape.of(desc), channel_type)
        return cls(desc)

    @property
    def is_linear(self) -> bool:
        """Whether kernels access the pixels as a buffer because they cannot access the image."""
        image = self.image
        return image is not None and (
            image.channels == _RG or (image.channels == 1 and self.desc.dtype.name == "f16")
        )

    @property
    def access(self) -> Access:
        """How kernels access it."""
        dtype = self.desc.dtype
        if self.image is None:
            return Access(Mode.ELEMENTS, dtype.bits)
        # bytes that are numbers from 0 to 1
        channel = "unorm8" if self.channel_type == "UNORM_INT8" else dtype.name
        return Access(Mode.IMAGE, dtype.bits, channel, self.image.slice_rows, self.image.is_array)

    def as_buffer(self, like: OperandSpec) -> OperandSpec:
        """Return the same layout as a linear buffer with the elements of another operand."""
        return OperandSpec(self.desc.with_dtype(like.desc.dtype))


class Transfer(NamedTuple):
    """Launches, which run one after another, and the operand that they write.

    Without launches the runtime copies `region`, (width, height, depth) pixels, without conversion.
    `buffers` are the scales and zero points that differ along the dims.
    """

    launches: tuple[Launch, ...]
    dst: OperandSpec
    region: tuple[int, int, int] | None = None
    buffers: tuple[NDArray[Any], ...] = ()


def plan_transfers(
    src: OperandSpec,
    dst: OperandSpec,
    device: DeviceTraits,
    attr: Attr | None = None,
) -> tuple[Transfer, ...]:
    """Plan the transfers of a reorder between operands of the same dims.

    A conversion that the device cannot compute to the bit is refused.
    """
    if dst.image is not None and attr is not None and attr.beta:
        raise MemdescError(
            f"beta {attr.beta} adds to what dst holds, but kernels cannot read an image that they "
            "write; accumulate in a buffer, then pack it"
        )
    first = [_copied_pixels(src, src.as_buffer(src))] if src.is_linear else []
    last = [_copied_pixels(dst, dst)] if dst.is_linear else []
    source = first[-1].dst if first else src
    target = dst.as_buffer(dst) if last else dst
    direct = _transfer(source, target, device, attr)
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
    for before, after in pairwise([*operands, target]):
        computed = attr if before.image is None and after.image is None else None
        transfer = _transfer(before, after, device, computed)
        if transfer is None:
            raise AssertionError(f"no loops over pixels lead from {before} to {after}")
        transfers.append(transfer)
    return (*first, *transfers, *last)


def _transfer(
    src: OperandSpec, dst: OperandSpec, device: DeviceTraits, attr: Attr | None
) -> Transfer | None:
    """Return one transfer; None if there is an image and boxes do not move whole pixels."""
    plan = plan_reorder(src.desc, dst.desc, attr)
    bound = without_quotient(plan.bound_attr, src.desc.dtype, dst.desc.dtype)
    has_image = src.image is not None or dst.image is not None
    conversion = _conversion(src, dst, plan, bound, device)
    if has_image and plan.converts and (src.desc.dtype.is_packed or dst.desc.dtype.is_packed):
        return None
    accesses, numbers = (src.access, dst.access), conversion.numbers(bound)
    task = KernelTask(_NOTHING, accesses, device, conversion, numbers, plan.converts)
    moves = conversion.is_move and not has_image
    whole = _whole(plan, (src, dst), task)
    launches = [*whole]
    for box in () if whole else plan.boxes:
        # a box of zeros reads nothing, so src may be treated as a buffer
        if dst.image is None and (moves or box.is_zero):
            launches += _moved(box, dst, device)
            continue
        placed = place_box(box, (src.image, dst.image))
        if placed is None:
            return None
        for nest in placed:
            launches += _lower(task._replace(nest=nest))
    launches += lower_sums(dst.desc, device.max_work_items)
    return Transfer(tuple(launches), dst, None, conversion.buffers(bound))


def _whole(
    plan: ReorderPlan, operands: tuple[OperandSpec, OperandSpec], task: KernelTask
) -> tuple[Launch, ...]:
    """Return the launch of tiles that are partly padding, instead of one for each box."""
    src, dst = operands
    bits, layouts = dst.desc.dtype.bits, [operand.desc.layout for operand in operands]
    images = src.image, dst.image
    has_image = images != (None, None)
    # the padded space of dst, or that of src where dst has no padding
    is_padded = dst.desc.nelems < dst.desc.padded_nelems
    if has_image and is_padded != (dst.image is not None):
        # only the image may have padding
        return ()
    is_wide = is_padded and not has_image and _packed(plan.boxes[0], dst, task.device)[1] != bits
    if is_wide or not (has_image or plan.boxes[1:]):
        return ()
    if not plan.converts and bits >= BYTE_BITS and not has_image:
        task = task._replace(conversion=None)
    end = src.desc.min_nbytes * BYTE_BITS // src.desc.dtype.bits
    one, other = layouts if is_padded else layouts[::-1]
    whole = whole_box(one, other, *plan.bound_attr.varying)
    if whole is None or (has_image and not whole[1]):
        return ()
    box, sizes = whole
    if not is_padded:
        nodes = tuple(_swapped(node, () if has_image else sizes) for node in box.nodes)
        box = box._replace(offsets=(*box.offsets[1::-1], *box.offsets[2:]), nodes=nodes)
    nests = place_box(box, images)
    if nests is None or len(nests) > 1:
        return ()
    nest = nests[0]._replace(sizes=sizes, is_limited=not is_padded)
    task = task._replace(nest=nest, numbers={**task.numbers, "src_end": end})
    if has_image:
        return tile.try_lower_pixels(task)
    of_rows = () if is_padded else (tile.try_lower_joined, tile.try_lower_skewed)
    return next(filter(None, (lower(task) for lower in (*of_rows, tile.try_lower))), ())


def _swapped(node: Node, sizes: tuple[int, ...]) -> Node:
    """Return a loop from the first operand to the second, of the steps below the sizes."""
    steps = node.strides[len(node.strides) - len(sizes) :]
    below = (-(-size // step) for size, step in zip(sizes, steps, strict=True) if step)
    extent = min((node.extent, *below))
    return Node(extent, extent, (*node.strides[1::-1], *node.strides[2:]))


def _moved(box: Box, dst: OperandSpec, device: DeviceTraits) -> Iterator[Launch]:
    """Return the launches of a box that moves bits between two buffers, as wide elements."""
    moved, bits = _packed(box, dst, device)
    name = dst.desc.dtype.name
    conversion = KernelFormula(name, name) if bits < BYTE_BITS else None
    access = Access(Mode.ELEMENTS, bits)
    for nest in place_box(moved, (None, None)) or ():
        yield from _lower(KernelTask(nest, (access, access), device, conversion))


def _lower(task: KernelTask) -> tuple[Launch, ...]:
    """Return the launches of the first family that suits a nest."""
    return next(filter(None, (try_lower(task) for try_lower in _FAMILIES)))


def _copied_pixels(image: OperandSpec, dst: OperandSpec) -> Transfer:
    """Return the transfer between all pixels of an image and a linear buffer of them."""
    assert image.image is not None  # noqa: S101 - for the type checker
    width, channels, slice_rows, _ = image.image
    rows = image.desc.padded_nelems // (width * channels)
    height = slice_rows or rows
    return Transfer((), dst, (width, height, rows // height))


def _conversion(
    src: OperandSpec, dst: OperandSpec, plan: ReorderPlan, bound: BoundAttr, device: DeviceTraits
) -> KernelFormula:
    """Return what the elements of a plan are computed with; images of f16 are read as f32."""
    reads_floats = src.image is not None and src.desc.dtype.name == "f16"
    name = "f32" if reads_floats else src.desc.dtype.name
    made = KernelFormula.on_device(name, dst.desc.dtype.name, bound, device.floats)
    return replace(
        made,
        writes_halves=dst.image is not None and dst.desc.dtype.name == "f16",
        moves_halves=not plan.converts and src.desc.dtype.name == "f16",
    )


def _packed(box: Box, dst: OperandSpec, device: DeviceTraits) -> tuple[Box, int]:
    """Return a box of src and dst alone in wider elements, and the bits of one."""
    indirect = tuple(loop._replace(params=()) for loop in box.indirect)
    box = src_and_dst(box)._replace(indirect=indirect)
    bits = dst.desc.dtype.bits
    # two 4-bit elements always make a byte
    widest = max(bits, device.alignment * BYTE_BITS)
    return pack_elements(box, bits, widest=widest, packs_long_runs=True)
