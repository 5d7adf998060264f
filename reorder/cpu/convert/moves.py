"""Steps that move elements without conversion, from one buffer of a tile to another."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memdesc import DATA_TYPES
from reorder.cpu.convert.records import Base
from reorder.cpu.convert.scratch import SLOT_NBYTES
from reorder.cpu.convert.step_writer import Code
from reorder.cpu.runtime.walker import walker_at
from reorder.cpu.schedule.kernel import Kernel
from reorder.cpu.schedule.packing import pack_for_kernels
from reorder.cpu.schedule.partition import partition_chunks
from reorder.cpu.schedule.program import encode
from reorder.cpu.schedule.tiling import tile_boxes
from reorder.cpu.target import BYTE_BITS
from reorder.memory.buffers import address_of
from reorder.plan.nodes import Box, Node
from reorder.plan.passes import simplify

if TYPE_CHECKING:
    from reorder.cpu.convert.step_writer import StepWriter, TileBuffer

__all__ = ["fits_slots_as_bytes", "move"]

# Slots for 4-bit elements unpacked to bytes: the first two that are neither src nor dst are used.
_BYTE_SLOTS = Base.SRC_ELEMENTS, Base.VALUES, Base.RESULT
# 4-bit elements of a byte.
_PER_BYTE = 2


def move(writer: StepWriter, src: TileBuffer, dst: TileBuffer, *, pads: bool = False) -> TileBuffer:
    """Move a tile; with `pads` zeros are written to its padding."""
    is_packed = any(DATA_TYPES[buffer.dtype].is_packed for buffer in (src, dst))
    if is_packed and (src.dtype != dst.dtype or fits_slots_as_bytes(writer, pads=pads)):
        return _move_as_bytes(writer, src, dst, pads=pads)
    recipe = writer.recipe
    nodes = writer.tile.inner if pads else writer.nodes
    inner = tuple(
        Node(node.extent, node.valid, strides)
        for node, strides in zip(nodes, zip(src.strides, dst.strides, strict=True), strict=True)
    )
    (box,) = simplify((Box((0, 0), inner),))
    # moves take offsets in bytes
    shift = 1 - max(1, src.bits // BYTE_BITS).bit_length()
    packed, bits, unit = pack_for_kernels(box, src.bits)
    if is_packed and bits >= BYTE_BITS:
        # 4-bit elements, joined to whole bytes
        outer = [writer.outer_strides[side.placed_by] for side in (src, dst) if not side.is_slot]
        if any(stride % _PER_BYTE for strides in outer for stride in strides):
            packed, bits, unit = box, src.bits, 1
        else:
            shift = _PER_BYTE.bit_length() - 1
    program, workloads = encode(
        tile_boxes((packed,), bits, unit),
        bits,
        writer.end_of(src) * src.bits // BYTE_BITS,
        prefetches=recipe.prefetches and src.base is Base.SRC,
    )
    tasks, _ = partition_chunks(workloads, 1)
    recipe.kept += [program, tasks]
    code = Code(walker_at(Kernel(bits)), address_of(program), address_of(tasks), len(tasks))
    return writer.step(code, src, dst, shift=shift)


def fits_slots_as_bytes(writer: StepWriter, *, pads: bool) -> bool:
    """Whether a slot holds a byte for each element, and enough slots are free."""
    nodes = writer.tile.inner
    size = prod(node.extent if pads else node.valid for node in nodes)
    return size <= SLOT_NBYTES and not writer.recipe.bound.beta


def _move_as_bytes(
    writer: StepWriter, src: TileBuffer, dst: TileBuffer, *, pads: bool
) -> TileBuffer:
    """Move 4-bit elements as bytes: unpacked in the order of src, packed in that of dst.

    Where only one side is packed, the other one holds the same numbers in a type of bytes.
    """
    data = list(writer.nodes)
    whole = [node._replace(valid=node.extent) for node in writer.tile.inner] if pads else data
    free = [base for base in _BYTE_SLOTS if base not in {src.base, dst.base}]
    # the bits of elements that stay as wide are not converted
    as_codes = src.dtype == dst.dtype
    if DATA_TYPES[src.dtype].is_packed:
        order = _order(src)
        unpack = writer.reordered([data[k] for k in order])
        unpacked = unpack.slot(free.pop(), "u8" if as_codes else dst.dtype)
        unpack.convert(src.reordered(order), unpacked, as_codes=as_codes)
        src = unpacked.reordered(_inverse(order))
    if not DATA_TYPES[dst.dtype].is_packed:
        return move(writer, src, dst, pads=pads)
    order = _order(dst)
    pack = writer.reordered([whole[k] for k in order])
    moved = pack.slot(free.pop(), src.dtype)
    move(writer, src, moved.reordered(_inverse(order)), pads=pads)
    pack.convert(moved, dst.reordered(order), as_codes=as_codes)
    return dst


def _order(buffer: TileBuffer) -> list[int]:
    """Return the nodes in the order of their strides in a buffer, outermost first."""
    return sorted(range(len(buffer.strides)), key=lambda k: -abs(buffer.strides[k]))


def _inverse(order: list[int]) -> list[int]:
    return [order.index(k) for k in range(len(order))]
