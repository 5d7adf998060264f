"""Boxes to launches of processors: groups of one work item, each with loops of its own."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from reorder.opencl.codegen.conversion import Conversion
from reorder.opencl.codegen.pattern import Access, AccessKind, Pattern, Run, Serial
from reorder.opencl.schedule.placement import PixelLoop
from reorder.opencl.schedule.run_launch import Shares, make_launch, quotients
from reorder.opencl.schedule.tiles import chain_of, grown
from reorder.plan.nodes import Node
from reorder.plan.passes import src_and_dst

if TYPE_CHECKING:
    from reorder.opencl.schedule.conversions import ConversionSpec
    from reorder.opencl.schedule.lower import Launch
    from reorder.opencl.schedule.profile import Profile, TileShape
    from reorder.plan.nodes import Box

__all__ = ["lower_serial"]

_BYTE, _MAX_TILED = 8, 64
# Groups that keep many threads busy; loops of at most so many steps have a kernel of their own.
_MIN_GROUPS, _MAX_WHOLE = 64, 64
_MIN_LOOPS = 3
# Bytes of a tile that fit the stacks of threads; profiles of users may ask for more.
_MAX_PRIVATE = 1 << 16
# Bytes of a cache line, and of runs of rows of dst that start anywhere: both of their ends share
# lines with other tiles. f16 of 4097 x 2047 takes 0.55 of the time that runs of 128 bytes take.
_LINE, _LONG_RUN = 64, 1024


def lower_serial(
    box: Box, bits: tuple[int, int], spec: ConversionSpec, profile: Profile
) -> Launch | None:
    """Make the launch of a box; None if it has gathers, or writes halves of bytes.

    Parameters
    ----------
    box : Box
        Between two buffers.
    bits : pair of int
        Of an element of src and of dst.
    spec : ConversionSpec
        What is computed; bits move where its types are the same.
    profile : Profile
        What suits the device.
    """
    if box.lookups or not box.nodes:
        return None
    if box.is_zero or spec.conversion.is_move:
        box = src_and_dst(box)
        name = spec.conversion.dst
        spec = spec._replace(conversion=Conversion(name, name), numbers={})
    nodes = sorted(
        (node for node in box.nodes if node.extent > 1 or not node.valid),
        key=lambda node: (abs(node.strides[1]), abs(node.strides[0])),
    )
    unit = Node(1, 1, (0,) * len(box.offsets))
    box = box._replace(nodes=(*nodes, *[unit] * (_MIN_LOOPS - len(nodes))))
    # kernels for a layout or for short runs are worth building where much is moved
    total = prod(node.extent for node in box.nodes) * bits[1] // _BYTE
    if total < profile.min_tiled:
        return _runs(box, bits, spec, profile, most=0)
    return _tile(box, bits, spec, profile) or _runs(box, bits, spec, profile)


def _is_whole(box: Box, bits: tuple[int, int], loops: tuple[int, int] = (0, 0)) -> bool:
    """Whether elements of 4 bits are whole bytes along a loop of src and one of dst."""
    for operand, loop in enumerate(loops):
        if bits[operand] < _BYTE and not (operand == 0 and box.is_zero):
            node = box.nodes[loop]
            numbers = [box.offsets[operand], node.extent, node.valid]
            numbers += [n.strides[operand] for k, n in enumerate(box.nodes) if k != loop]
            if node.strides[operand] != 1 or any(number % 2 for number in numbers):
                return False
    return True


def _accesses(box: Box, bits: tuple[int, int]) -> tuple[Access, Access]:
    kinds = AccessKind.NONE if box.is_zero else AccessKind.BUFFER, AccessKind.BUFFER
    src, dst = (Access(kind, f"b{width}") for kind, width in zip(kinds, bits, strict=True))
    return src, dst


def _pattern(box: Box, bits: tuple[int, int], spec: ConversionSpec, serial: Serial) -> Pattern:
    conversion = spec.conversion
    computed = None
    if not conversion.is_move and not box.is_zero:
        computed = quotients(conversion, serial.uniform, spec)
    src, dst = _accesses(box, bits)
    return Pattern(src, dst, (0,), (), 1, conversion=computed, run=Run(1), serial=serial)


def _runs(
    box: Box, bits: tuple[int, int], spec: ConversionSpec, profile: Profile, most: int = _MAX_WHOLE
) -> Launch | None:
    """Make the launch of runs along the first loop; None if they end within bytes.

    Those of at most `most` steps have a kernel for their length.
    """
    if not _is_whole(box, bits):
        return None
    first = box.nodes[0]
    operands = ("src", "dst", *spec.conversion.varying)
    strides = dict(zip(operands, first.strides, strict=False))
    is_small = first.extent <= most and first.valid == first.extent
    serial = Serial(
        tuple(name for name, stride in strides.items() if stride == 1),
        tuple(role for role in spec.conversion.varying if strides.get(role, 0) == 0),
        first.extent if is_small else 0,
    )
    total = prod(node.extent for node in box.nodes)
    chunk = max(min(profile.chunk * _BYTE // max(bits), total // _MIN_GROUPS), 1)
    shifts = []
    for k, node in enumerate(box.nodes):
        shift = (node.extent - 1).bit_length()
        if k or not is_small:
            # elements of 4 bits are moved as whole bytes
            least = int(k == 0 and min(bits) < _BYTE)
            shift = max(min(shift, chunk.bit_length() - 1), least)
        shifts.append(shift)
        chunk = max(chunk >> shift, 1)
    ones = (1,) * len(box.nodes)
    return make_launch(box, _pattern(box, bits, spec, serial), spec, Shares(ones, tuple(shifts)))


def _tile(box: Box, bits: tuple[int, int], spec: ConversionSpec, profile: Profile) -> Launch | None:
    """Make the launch of tiles, where the innermost loops in src and in dst differ."""
    private_bits = _private_bits(bits, spec)
    nodes = box.nodes
    if (
        private_bits > _MAX_TILED
        or box.is_zero
        or "beta" in spec.conversion.roles
        or any(node.valid != node.extent for node in nodes)
    ):
        return None
    along_dst = nodes[0]
    along_src = next((n for n in nodes if n.strides[0] == 1 and n.extent > 1), None)
    if along_src is None or along_src is along_dst or along_dst.strides[1] != 1:
        return None
    others = [node for node in nodes if node is not along_src and node is not along_dst]
    box = box._replace(nodes=(along_src, along_dst, *others))
    loops = [PixelLoop(n.extent, n.valid, n.strides[:1], n.strides[1:2]) for n in box.nodes]
    shape = profile.tile(private_bits // _BYTE)
    extents = _steps(loops, shape, private_bits)
    if extents is None:
        return None
    # rows that pass private memory first would take as much of it again
    if (spec.conversion.is_move and bits[0] >= _BYTE) or private_bits < bits[1]:
        extents = _lengthened(extents, loops, shape, bits[1], private_bits)
    if not _is_whole(box, bits, (0, 1)) or any(bits[k] < _BYTE and extents[k] % 2 for k in (0, 1)):
        return None
    order = _order(loops, extents)
    roles = spec.conversion.varying
    strides = dict(zip(roles, along_src.strides[2:], strict=False))
    serial = Serial(
        ("src", *(role for role, stride in strides.items() if stride == 1)),
        tuple(role for role, stride in strides.items() if stride == 0),
        tile=tuple(extents),
        order=order,
        private_bits=private_bits,
        is_dense=extents[0] == along_src.extent == along_dst.strides[0],
    )
    shares = Shares(tuple(extents), (0,) * len(extents))
    return make_launch(box, _pattern(box, bits, spec, serial), spec, shares)


def _lengthened(
    extents: list[int], loops: list[PixelLoop], shape: TileShape, bits: int, private_bits: int
) -> list[int]:
    """Return the steps of a tile with longer runs of dst, where rows of dst start anywhere.

    `bits` are those of an element of dst.
    """
    nbytes = private_bits // _BYTE
    order = _order(loops, extents)
    run = prod(extents[k] for k in order) * nbytes
    starts = [loop.dst[0] for k, loop in enumerate(loops) if k not in order and loop.extent > 1]
    is_large = prod(loop.extent for loop in loops) * nbytes >= _MIN_GROUPS * _MAX_PRIVATE
    if run >= _LONG_RUN // 2 or not is_large:
        return extents
    if not any(start * bits % (_LINE * _BYTE) for start in starts):
        return extents
    longest = min(_LONG_RUN, _MAX_PRIVATE * nbytes // shape.src_run)
    longer = shape._replace(dst_run=max(longest, shape.dst_run), nbytes=_MAX_PRIVATE)
    return _steps(loops, longer, private_bits) or extents


def _steps(loops: list[PixelLoop], shape: TileShape, private_bits: int) -> list[int] | None:
    """Return the steps of a tile of a shape along each loop; None if it would be too large."""
    nbytes = private_bits // _BYTE
    src, dst = (chain_of(loops, k, shape[k] // nbytes) for k in range(2))
    if src is None or dst is None:
        return None
    extents = [1] * len(loops)
    for chain in (dst, src):
        for k, extent in zip(chain.run, chain.extents, strict=True):
            extents[k] = max(extents[k], min(extent, loops[k].extent))
    grown(extents, loops, (src, dst), shape.nbytes // nbytes)
    extents = [min(extent, loop.extent) for extent, loop in zip(extents, loops, strict=True)]
    return None if prod(extents) * nbytes > _MAX_PRIVATE else extents


def _private_bits(bits: tuple[int, int], spec: ConversionSpec) -> int:
    """Return the bits of an element of a tile in private memory."""
    widens = _BYTE <= bits[0] < bits[1] and not spec.conversion.varying
    return bits[0] if widens else max(bits[1], _BYTE)


def _order(loops: list[PixelLoop], extents: list[int]) -> tuple[int, ...]:
    """Return the loops of a tile that are contiguous in dst, innermost first."""
    order: list[int] = []
    length = 1
    while True:
        found = [
            k
            for k, loop in enumerate(loops)
            if extents[k] > 1 and loop.dst[0] == length and k not in order
        ]
        if not found:
            return tuple(order)
        order.append(found[0])
        length *= extents[found[0]]
