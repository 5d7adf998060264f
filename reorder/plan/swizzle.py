"""XOR swizzles as boxes: with a sign for each bit that terms change, or with a table of granules.

A box over bases, which are offsets before the XOR, is cut until each of its loops is a multiple of
the period of the terms, or runs over aligned powers of two within it. One box for each value of
the bits that the terms read then has constant strides: a bit that they set starts at 1 and goes
down.

A granule is an aligned run within which the terms change nothing. Loops that do not count whole
bits, such as rows of 72 elements, are cut into these, and those that step by less than the period
become one indirect loop, whose table has the offset of each granule after the XOR. So do all loops
where that is faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import gcd, lcm
from typing import TYPE_CHECKING

from memdesc.layout import Axis, Block
from memdesc.swizzle import concerned, period_of, swizzled
from reorder.plan.nodes import DST, SRC, Box, IndirectLoop, Node
from reorder.plan.passes import moved, simplify, split_node, zeros_beyond

if TYPE_CHECKING:
    from memdesc.swizzle import Terms

# A plan with more boxes than this is slower than one with an indirection table.
_MAX_BOXES = 64


class TooManyBoxesError(Exception):
    """There are loops without constant strides, or too many boxes with them."""


def swizzled_boxes(boxes: Iterable[Box], operands: tuple[Terms, Terms]) -> tuple[Box, ...]:
    """Apply the XOR terms of src and dst to boxes over bases, by boxes with constant strides.

    Raises `TooManyBoxesError` if that takes too many boxes.

    >>> (box,) = swizzled_boxes((Box((0, 0), (Node(4, 4, (1, 1)),)),), ((), ((1, 1),)))[:1]
    >>> print(box)  # elements 0 and 1; then 2 and 3, in reverse
    @0:0 2:1:1
    """
    boxes = tuple(boxes)
    for k, terms in enumerate(operands):
        if not terms:
            continue
        signed: list[Box] = []
        # loops that are fused need fewer cuts
        whole = tuple(part for box in boxes for part in _data_and_zeros(box))
        for box in simplify(whole):
            if box.is_zero and k != DST:
                signed.append(box)  # zeros read nothing
                continue
            for part in _cut(box, k, period_of(terms)):
                signed += _signed(part, k, terms, is_zero=box.is_zero)
                _check_count(len(signed))
        boxes = simplify(tuple(signed))
    return boxes


def granule_boxes(boxes: Iterable[Box], operands: tuple[Terms, Terms]) -> tuple[Box, ...]:
    """Apply the XOR terms of src and dst to boxes over bases, by tables with a step per granule."""
    sizes = [_granule_of(terms) for terms in operands]
    whole = simplify(tuple(part for box in boxes for part in _data_and_zeros(box)))
    while True:
        try:
            cut = [part for box in whole for part in _cut_into_granules(box, operands, sizes)]
            _check_count(len(cut))
        except TooManyBoxesError:
            if max(sizes) == 1:
                raise
            # rows that start at any element of a granule
            sizes = [max(1, size // 2) for size in sizes]
        else:
            return simplify(tuple(cut))


def _granule_of(terms: Terms) -> int:
    """Return the elements of an aligned run within which terms change nothing."""
    bits = sum(concerned(terms)) or 1
    return bits & -bits


def _data_and_zeros(box: Box) -> Iterator[Box]:
    """Yield a box as boxes that are all data or all zeros."""
    if box.is_zero or all(node.valid == node.extent for node in box.nodes):
        yield box
        return
    yield box._replace(nodes=tuple(node._replace(extent=node.valid) for node in box.nodes))
    yield from zeros_beyond(box, [node.valid for node in box.nodes])


def _cut_into_granules(box: Box, operands: tuple[Terms, Terms], sizes: list[int]) -> Iterator[Box]:
    """Cut a box into granules; yields boxes whose other loops are plain, or in one table."""
    # zeros read nothing
    swizzled_ones = [k for k, terms in enumerate(operands) if terms and (k or not box.is_zero)]
    boxes = [box]
    for k in swizzled_ones:
        boxes = [part for box in boxes for part in _cut(box, k, sizes[k])]
    if max(sizes) > 1:
        boxes = [part for box in boxes for part in _cut_into_periods(box, operands)]
    for part in boxes:
        plain: list[Node] = []
        counted: list[Node] = []
        for node in part.nodes:
            is_plain = all(
                node.strides[k] % period_of(operands[k]) == 0 or abs(node.strides[k]) < sizes[k]
                for k in swizzled_ones
            )
            (plain if is_plain else counted).append(node)
        one_step = Node(1, 0 if box.is_zero else 1, (0,) * len(part.offsets))
        plain.append(one_step)
        counted = counted or [one_step]
        loop = IndirectLoop(
            tuple((dim, node.extent) for dim, node in enumerate(counted)),
            _axes_of(counted, SRC),
            _axes_of(counted, DST),
            tuple(_axes_of(counted, k) for k in range(2, len(part.offsets))),
            ((part.offsets[SRC], operands[SRC]), (part.offsets[DST], operands[DST])),
        )
        yield Box((0, 0, *part.offsets[2:]), tuple(plain), (loop,))


def _cut_into_periods(box: Box, operands: tuple[Terms, Terms]) -> list[Box]:
    """Cut loops where the pattern of both operands repeats, so that tables need not have all."""
    boxes = [box]
    for node in box.nodes:
        periods = zip(map(period_of, operands), node.strides, strict=False)
        count = lcm(*(period // gcd(period, stride) for period, stride in periods))
        if 1 < count <= node.extent // 2:
            boxes = [part for box in boxes for part in split_node(box, node, count)]
    return boxes


def _axes_of(loops: list[Node], k: int) -> tuple[tuple[Axis, tuple[Block, ...]], ...]:
    """Return loops as axes of an operand, one for each."""
    return tuple(
        (Axis((dim,), node.extent), (Block(dim, 1, node.extent, node.strides[k]),))
        for dim, node in enumerate(loops)
    )


def _check_count(count: int) -> None:
    if count > _MAX_BOXES:
        raise TooManyBoxesError


def _cut(box: Box, k: int, granule: int) -> list[Box]:
    """Cut a box until each loop of operand k steps by whole granules, or by bits within one."""
    if box.indirect:
        raise TooManyBoxesError
    parts, digits = [Box(box.offsets, ())], []
    for node in box.nodes:
        stride = node.strides[k]
        if stride < 0:
            parts = [_along(part, node, node.extent - 1) for part in parts]
            stride, node = -stride, _scaled(node, node.extent, -1)  # noqa: PLW2901 - forwards
        if stride % granule == 0:
            parts = [_along(part, node, 0, node) for part in parts]
        elif stride & (stride - 1):  # not a power of two: the pattern repeats after some steps
            count = granule // gcd(stride, granule)
            parts = [
                _along(part, node, i, _scaled(node, -(-(node.extent - i) // count), count))
                for part in parts
                for i in range(min(node.extent, count))
            ]
            _check_count(len(parts))
        else:
            digits.append(node)
    for node in sorted(digits, key=lambda node: node.strides[k]):
        parts = [piece for part in parts for piece in _aligned(part, node, k, granule)]
        _check_count(len(parts))
    return parts


def _aligned(part: Box, node: Node, k: int, granule: int) -> Iterator[Box]:
    """Split a loop whose stride is a power of two into aligned ranges of powers of two."""
    steps = granule // node.strides[k]
    first = part.offsets[k] // node.strides[k] % steps
    at, end = first, first + node.extent
    while at < end:
        size = min(at & -at or steps, 1 << (end - at).bit_length() - 1, steps)
        count = (end - at) // steps if size == steps else 1
        loops = _scaled(node, count, steps), _scaled(node, size, 1)
        yield _along(part, node, at - first, *loops)
        at += size * count


def _along(part: Box, node: Node, start: int, *loops: Node) -> Box:
    """Return a part that starts at a step of a node, with more loops."""
    kept = (loop for loop in loops if loop.extent > 1 or not loop.valid)
    return Box(moved(part.offsets, node, start), (*part.nodes, *kept))


def _scaled(node: Node, extent: int, by: int) -> Node:
    return Node(extent, extent if node.valid else 0, tuple(by * stride for stride in node.strides))


def _signed(part: Box, k: int, terms: Terms, *, is_zero: bool) -> Iterator[Box]:
    """Yield a box for each value of the bits of a part that are fixed."""
    sources, targets = concerned(terms)
    loops: list[Node] = []
    bits: dict[int, Node] = {}
    for node in part.nodes:
        stride, run = node.strides[k], 1  # for bits that the terms do not concern
        if stride % period_of(terms) == 0:
            loops.append(node)
            continue
        for step in (1 << j for j in range(node.extent.bit_length())):
            is_concerned = step * stride & (sources | targets)
            if step < node.extent and not is_concerned:
                run *= 2
                continue
            if run > 1:
                loops.append(_scaled(node, run, step // run))
                run = 1
            if step < node.extent:
                bits[(step * stride).bit_length() - 1] = _scaled(node, 2, step)
    fixed = sorted(_fixed(bits, k, terms))
    # a box of zeros stays one if its loops are cut to single steps
    loops += [Node(1, 0, (0,) * len(part.offsets))] * is_zero
    for values in product((0, 1), repeat=len(fixed)):
        at = part.offsets
        for value, bit in zip(values, fixed, strict=True):
            at = moved(at, bits[bit], value)
        first, nodes = swizzled(terms, at[k]), list(loops)
        for bit, node in bits.items():
            if bit not in fixed:
                stride = swizzled(terms, at[k] ^ 1 << bit) - first
                strides = (*node.strides[:k], stride, *node.strides[k + 1 :])
                nodes.append(node._replace(strides=strides))
        yield Box((*at[:k], first, *at[k + 1 :]), tuple(nodes))


def _fixed(bits: dict[int, Node], k: int, terms: Terms) -> set[int]:
    """Return the bits to fix, so that no two others change the same bit of the offset.

    That is every bit that is read, or the only bit that it changes if the other operand is
    contiguous along the bit that is read.
    """
    pairs = [(bit + shift, bit) for shift, mask in terms for bit in range(63) if mask >> bit & 1]
    ends = [end for pair in pairs for end in pair]
    fixed = set()
    for source, target in pairs:
        if source not in bits:
            continue
        strides = bits[source].strides
        is_only = ends.count(source) == ends.count(target) == 1 and target in bits
        if is_only and len(strides) > 1:
            other = 1 - k
            is_across = abs(strides[other]) < abs(bits[target].strides[other])
            fixed.add(target if is_across else source)
        else:
            fixed.add(source)
    return fixed
