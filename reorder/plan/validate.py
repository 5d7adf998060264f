"""Check the boxes of plans made by hand, so that none reads or writes outside the buffers."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from memdesc import Axis, Block, MemdescError, MemoryDesc
from memdesc.diophantine import SearchLimitError, Term, solve
from memdesc.errors import short_repr
from memdesc.int64 import INT64_MAX, checked_int, exact_ints
from memdesc.layout import exact_axes, exact_blocks
from memdesc.swizzle import exact_terms
from reorder.plan.nodes import DST, Box, IndirectLoop, Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reorder.values.binding import ParameterLayout

_MAX_NODES = 64
_COUNTS = ("two", "three", "four", "five", "six")


def exact_boxes(boxes: tuple[Box, ...], dst: MemoryDesc, roles: Sequence[str]) -> tuple[Box, ...]:
    """Return boxes with Python ints as numbers; refuse what is not a box.

    `roles` are the operands besides src and dst. Bounds are not checked.
    """
    return tuple(_checked_box(box, DST + 1 + len(roles), dst.ndims) for box in boxes)


def bounded_boxes(
    boxes: tuple[Box, ...],
    descs: tuple[MemoryDesc, MemoryDesc],
    varying: tuple[ParameterLayout, ...],
) -> tuple[Box, ...]:
    """Return boxes that stay inside src and dst, and write no element twice; refuse others."""
    lasts = [(repr(desc), _last(desc)) for desc in descs]
    lasts += [(f"{operand.sizes}", prod(operand.sizes) - 1) for operand in varying]
    names = ["src", "dst", *(operand.role for operand in varying)]
    if any(loop.xor for box in boxes for loop in box.indirect):
        msg = "boxes with swizzled indirect loops are not checked; take those of plan_reorder"
        raise MemdescError(msg)
    for box in boxes:
        for (low, high), (described, last), name in zip(_bounds(box), lasts, names, strict=True):
            if low < 0 or high > last:
                msg = (
                    f"box {box} reaches offsets {low} to {high} of {name}, but {described} ends "
                    f"at {last}"
                )
                raise MemdescError(msg)
        if not _writes_once(box):
            msg = (
                f"box {box} may write one element of {descs[DST]!r} twice; every step of a box "
                "must lead to a different element of dst"
            )
            raise MemdescError(msg)
    return tuple(map(_without_unused, boxes))


def _last(desc: MemoryDesc) -> int:
    """Return the offset of the last element, or -1 if the tensor is empty."""
    return desc.layout.last if desc.nelems else -1


def _writes_once(box: Box) -> bool:
    """Whether a bounded search proves that all steps of a box lead to different elements of dst."""
    loops = [(node.strides[DST], node.extent) for node in box.nodes if node.extent > 1]
    for loop in box.indirect:
        for axis, blocks in loop.dst:
            extents = [min(block.extent, -(-axis.padded // block.step)) for block in blocks]
            loops += [
                (block.stride, extent)
                for block, extent in zip(blocks, extents, strict=True)
                if extent > 1
            ]
    covered = 1
    for stride, extent in sorted((abs(stride), extent) for stride, extent in loops):
        if stride < covered:
            break
        covered = stride * extent
    else:
        return True
    if not all(stride for stride, _ in loops):
        return False
    try:
        found = solve(
            (Term(stride, 1 - extent, extent - 1) for stride, extent in loops), 0, trivial=False
        )
    except SearchLimitError:
        return False
    return found is None


def _without_unused(box: Box) -> Box:
    """Set to 0 the numbers of a box that no offset depends on, since no check bounds them."""
    offsets = tuple(
        0 if box.is_zero and operand != DST else offset
        for operand, offset in enumerate(box.offsets)
    )
    nodes = tuple(
        node._replace(
            strides=tuple(
                stride if _count_steps(box, node, operand) > 1 else 0
                for operand, stride in enumerate(node.strides)
            )
        )
        for node in box.nodes
    )
    return box._replace(offsets=offsets, nodes=nodes)


def _count_steps(box: Box, node: Node, operand: int) -> int:
    """Return how many steps of a loop read an operand, or write dst."""
    if operand == DST:
        return node.extent
    return 1 if box.is_zero else node.valid


def _checked_box(box: Box, count: int, ndims: int) -> Box:
    """Return a box whose numbers are Python ints; refuse what breaks a rule."""
    try:
        offsets, nodes, indirect = box
        checked = Box(
            exact_ints("offsets", offsets),
            tuple(map(_checked_node, nodes)),
            tuple(_checked_loop(loop, ndims) for loop in indirect),
        )
        operands = [len(node.strides) for node in checked.nodes]
        operands += [2 + len(loop.params) for loop in checked.indirect]
        dims = [dim for loop in checked.indirect for dim, _ in loop.sizes]
        _require(
            {len(checked.offsets), *operands} == {count},
            len(checked.nodes) <= _MAX_NODES,
            len(dims) == len(set(dims)),
            checked.size <= INT64_MAX,
        )
    except (TypeError, ValueError):
        msg = (
            f"{short_repr(box)} is not a box of {_COUNTS[count - 2]} operands whose nodes have 1 "
            "or more steps, at most as many of them valid, and whose indirect loops have legal "
            "axes and blocks"
        )
        raise MemdescError(msg) from None
    return checked


def _require(*rules: bool) -> None:
    if not all(rules):
        raise ValueError


def _checked_node(node: Node) -> Node:
    extent, valid, strides = node
    checked = Node(
        checked_int("extent", extent), checked_int("valid", valid), exact_ints("strides", strides)
    )
    _require(0 <= checked.valid <= checked.extent, checked.extent >= 1)
    return checked


def _checked_loop(loop: IndirectLoop, ndims: int) -> IndirectLoop:
    """Refuse an indirect loop unless all its operands have axes over the same dims."""
    given, src, dst, params, xor = loop
    terms = tuple((checked_int("start", start), exact_terms(own)) for start, own in xor)
    _require(len(terms) in {0, 2})
    sizes = tuple((checked_int("dim", dim), checked_int("size", size)) for dim, size in given)
    _require(bool(sizes), all(0 <= dim < ndims and size >= 1 for dim, size in sizes))
    return IndirectLoop(
        sizes,
        _checked_operand(src, dict(sizes)),
        _checked_operand(dst, dict(sizes)),
        tuple(_checked_operand(param, dict(sizes)) for param in params),
        terms,
    )


_AxisBlocks = tuple[tuple[Axis, tuple[Block, ...]], ...]


def _checked_operand(given: _AxisBlocks, sizes: dict[int, int]) -> _AxisBlocks:
    """Check the axes and blocks of one operand by the rules of a layout."""
    parts = tuple((exact_axes((axis,))[0], exact_blocks(blocks)) for axis, blocks in given)
    dims = [dim for axis, _ in parts for dim in axis.dims]
    _require(sorted(dims) == sorted(sizes))
    for axis, blocks in parts:
        _require(bool(axis.dims), bool(blocks))
        _require(prod(sizes[dim] for dim in axis.dims) <= axis.padded)
        outer, *inner = blocks
        _require(outer.step >= 1, outer.extent == -(-axis.padded // max(outer.step, 1)))
        step = outer.step
        for block in inner:
            _require(block.step >= 1, block.extent > 1, block.step * block.extent == step)
            step = block.step
        _require(step == 1)
    return parts


def _bounds(box: Box) -> list[tuple[int, int]]:
    """Return the lowest and the highest offset that a box may touch in each of its operands."""
    bounds = []
    for operand, offset in enumerate(box.offsets):
        # a box of zeros reads nothing
        if operand != DST and box.is_zero:
            bounds.append((0, 0))
            continue
        steps = [step for loop in box.indirect for step in _loop_steps(loop, operand)]
        steps += [
            node.strides[operand] * (_count_steps(box, node, operand) - 1) for node in box.nodes
        ]
        low, high = (offset + sum(pick(step, 0) for step in steps) for pick in (min, max))
        bounds.append((low, high))
    return bounds


def _loop_steps(loop: IndirectLoop, operand: int) -> Iterator[int]:
    """Yield the offset farthest from 0 that each block can add; it has the sign of the stride."""
    sizes = dict(loop.sizes)
    for axis, blocks in (loop.src, loop.dst, *loop.params)[operand]:
        # dst is written in its padding too
        size = axis.padded if operand == DST else prod(sizes[dim] for dim in axis.dims)
        for block in blocks:
            yield min(block.extent - 1, (size - 1) // block.step) * block.stride
