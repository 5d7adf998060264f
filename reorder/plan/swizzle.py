"""XOR swizzles as boxes with constant strides: bits that terms read are fixed, others get a sign.

A box over bases, which are offsets before the XOR, is cut until each bit that the terms read or
change is constant in it, or a loop of two steps of its own. One box for each value of some of these
bits then has constant strides: a bit that the terms set starts at 1 and goes down.

If loops do not count whole bits, such as rows of 72 elements, boxes are cut into granules: aligned
runs within which the terms change nothing. An indirection table then has the offset of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import gcd, lcm
from typing import TYPE_CHECKING, NamedTuple

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


class _Part(NamedTuple):
    """A part of a box: where it starts, its loops, and its loops over one bit of the base."""

    offsets: tuple[int, ...]
    loops: tuple[Node, ...]
    bits: dict[int, Node]


def swizzled_boxes(
    boxes: tuple[Box, ...], operands: Iterable[Terms], most: int | None = _MAX_BOXES
) -> tuple[Box, ...]:
    """Apply the XOR terms of each operand to boxes over bases; simplified if there are any.

    Raises `TooManyBoxesError` if that takes more than `most` boxes; None is no limit.

    >>> (box,) = swizzled_boxes((Box((0, 0), (Node(4, 4, (1, 1)),)),), ((), ((1, 1),)))[:1]
    >>> print(box)  # elements 0 and 1; then 2 and 3, in reverse
    @0:0 2:1:1
    """
    for k, terms in enumerate(operands):
        if not terms:
            continue
        # loops that are fused need fewer cuts
        whole = simplify(tuple(part for box in boxes for part in _data_and_zeros(box)))
        found: list[Box] = []
        for box in whole:
            if box.is_zero and k != DST:
                found.append(box)  # it reads nothing
                continue
            if box.indirect:
                raise TooManyBoxesError
            sources, targets = concerned(terms)
            for part in _cut(box, k, (period_of(terms), sources | targets), most):
                found += _signed(part, k, terms, is_zero=box.is_zero)
                _check_count(len(found), most)
        boxes = simplify(tuple(found))
    return boxes


def granule_boxes(boxes: tuple[Box, ...], operands: tuple[Terms, Terms]) -> tuple[Box, ...]:
    """Apply the XOR terms of src and dst to boxes over bases, by tables with a step per granule.

    Raises `TooManyBoxesError` if a box has indirect loops already.
    """
    sizes = [_granule_of(terms) for terms in operands]
    while True:
        try:
            found = [
                part
                for box in simplify(tuple(part for box in boxes for part in _data_and_zeros(box)))
                for part in _cut_into_granules(box, operands, sizes)
            ]
            _check_count(len(found), _MAX_BOXES)
        except TooManyBoxesError:
            if max(sizes) == 1:
                raise
            # rows that start at any element of a granule
            sizes = [max(1, size // 2) for size in sizes]
        else:
            return simplify(tuple(found))


def _granule_of(terms: Terms) -> int:
    """Return the elements of an aligned run within which terms change nothing."""
    bits = sum(concerned(terms)) or 1
    return bits & -bits


def _cut_into_granules(box: Box, operands: tuple[Terms, Terms], sizes: list[int]) -> Iterator[Box]:
    """Cut a box into granules; yields boxes whose other loops are plain, or in one table."""
    if box.indirect:
        raise TooManyBoxesError
    # zeros read nothing
    swizzled_ones = [k for k, terms in enumerate(operands) if terms and (k or not box.is_zero)]
    boxes = [box]
    for k in swizzled_ones:
        cut = [part for box in boxes for part in _cut(box, k, (sizes[k], 0), _MAX_BOXES)]
        boxes = [Box(part.offsets, part.loops) for part in cut]
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
            boxes = [part for each in boxes for part in split_node(each, node, count)]
    return boxes


def _axes_of(loops: list[Node], k: int) -> tuple[tuple[Axis, tuple[Block, ...]], ...]:
    """Return loops as axes of an operand, one for each."""
    return tuple(
        (Axis((dim,), node.extent), (Block(dim, 1, node.extent, node.strides[k]),))
        for dim, node in enumerate(loops)
    )


def _check_count(count: int, most: int | None) -> None:
    if most is not None and count > most:
        raise TooManyBoxesError


def _data_and_zeros(box: Box) -> Iterator[Box]:
    """Yield a box as boxes that are all data or all zeros."""
    if box.is_zero or all(node.valid == node.extent for node in box.nodes):
        yield box
        return
    yield box._replace(nodes=tuple(node._replace(extent=node.valid) for node in box.nodes))
    yield from zeros_beyond(box, [node.valid for node in box.nodes])


def _scaled(node: Node, extent: int, by: int) -> Node:
    return Node(extent, extent if node.valid else 0, tuple(by * stride for stride in node.strides))


def _cut(box: Box, k: int, pattern: tuple[int, int], most: int | None) -> list[_Part]:
    """Cut a box until each bit of a mask is constant in operand k, or a loop.

    `pattern` has a period, which is a power of two beyond all bits, and the mask. The loops of a
    part are multiples of the period, or within one.
    """
    period, _ = pattern
    box = _forwards(box, k)
    parts = [_Part(box.offsets, (), {})]
    digits = []
    for node in box.nodes:
        stride = node.strides[k]
        if stride % period == 0:
            parts = [part._replace(loops=(*part.loops, node)) for part in parts]
        elif stride & (stride - 1):  # not a power of two: the pattern repeats after some steps
            count = period // gcd(stride, period)
            parts = [each for part in parts for each in _periods(part, node, count)]
            _check_count(len(parts), most)
        else:
            digits.append(node)
    for node in sorted(digits, key=lambda node: node.strides[k]):
        parts = [each for part in parts for each in _aligned(part, node, k, pattern)]
        _check_count(len(parts), most)
    return parts


def _forwards(box: Box, k: int) -> Box:
    """Return a box whose loops have no negative stride in operand k."""
    offsets, nodes = box.offsets, []
    for node in box.nodes:
        if node.strides[k] < 0:
            offsets = moved(offsets, node, node.extent - 1)
            nodes.append(_scaled(node, node.extent, -1))
        else:
            nodes.append(node)
    return Box(offsets, tuple(nodes))


def _periods(part: _Part, node: Node, count: int) -> Iterator[_Part]:
    """Split a loop into `count` loops, each over every `count`-th step."""
    for i in range(min(node.extent, count)):
        own = _scaled(node, -(-(node.extent - i) // count), count)
        yield part._replace(offsets=moved(part.offsets, node, i), loops=(*part.loops, own))


def _aligned(part: _Part, node: Node, k: int, pattern: tuple[int, int]) -> Iterator[_Part]:
    """Split a loop whose stride is a power of two into aligned ranges of powers of two.

    `pattern` is that of `_cut`.
    """
    period, mask = pattern
    stride = node.strides[k]
    unit = period // stride
    first = part.offsets[k] // stride % unit
    at, end = first, first + node.extent
    while at < end:
        size = min(at & -at or unit, 1 << (end - at).bit_length() - 1, unit)
        count = (end - at) // unit if size == unit else 1
        loops, bits = list(part.loops), dict(part.bits)
        if count > 1:
            loops.append(_scaled(node, count, unit))
        run = 1  # of bits that the mask does not have
        for step in (1 << j for j in range(size.bit_length())):
            if step == size or step * stride & mask:
                if run > 1:
                    loops.append(_scaled(node, run, step // run))
                run = 1
                if step < size:
                    bits[(step * stride).bit_length() - 1] = _scaled(node, 2, step)
            else:
                run *= 2
        yield _Part(moved(part.offsets, node, at - first), tuple(loops), bits)
        at += size * count


def _signed(part: _Part, k: int, terms: Terms, *, is_zero: bool) -> Iterator[Box]:
    """Yield a box for each value of the bits of a part that are fixed."""
    fixed = sorted(_fixed(part.bits, k, terms))
    free = [bit for bit in part.bits if bit not in fixed]
    # a box of zeros stays one if its loops are cut to single steps
    zero = (Node(1, 0, (0,) * len(part.offsets)),) if is_zero else ()
    for values in product((0, 1), repeat=len(fixed)):
        at = part.offsets
        for value, bit in zip(values, fixed, strict=True):
            at = moved(at, part.bits[bit], value)
        first = swizzled(terms, at[k])
        nodes = [*part.loops, *zero]
        for bit in free:
            stride = swizzled(terms, at[k] ^ 1 << bit) - first
            strides = part.bits[bit].strides
            nodes.append(part.bits[bit]._replace(strides=(*strides[:k], stride, *strides[k + 1 :])))
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
