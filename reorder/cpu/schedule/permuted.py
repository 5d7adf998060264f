"""Permuted lines: elements of dst put in order by an instruction that permutes a line's bytes.

Pairs and quads of narrow elements that are adjacent on only one side become wide elements of a
transposition: a row of them, up to a line, is permuted when it is loaded or before it is stored.

If the innermost loops of a box are contiguous in src and in dst alike, they are a block that lies
in one piece on both sides: a small matrix that is transposed, as in `abc -> acb` of many, or the
part `4b16a` of `ABcd16b16a` beside `16a4b` of `ABcd4b16a4b`. Such blocks are rows of permuted
lines: as many blocks as a line holds, or one block of up to two lines. So are elements of a line of
dst that lie within two lines of src in any order: a run that goes backwards, every second element.
"""

from collections.abc import Iterator
from functools import partial
from itertools import permutations, product

from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.cpu.machine import LINE_BITS, LINE_NBYTES, Instructions
from reorder.cpu.schedule.cuts import cut_to_fit, find_cut
from reorder.cpu.schedule.loops import contiguous_loops, offset_table, size_of
from reorder.cpu.schedule.select import (
    MANY_LINES,
    PART_BITS,
    PERMUTED,
    PERMUTED_BITS,
    TRANSPOSED,
    Permutation,
    ScheduledBox,
    contiguous_group,
    row_loops,
    transposed_groups,
    width_of,
)
from reorder.plan.nodes import Box, Node
from reorder.plan.passes import split_node


def permuted_boxes(
    box: Box, bits: int, instructions: Instructions, *, streams: bool = False
) -> tuple[ScheduledBox, ...]:
    """Schedule a box as permuted elements or blocks, cut to what a call moves.

    Returns nothing for other boxes, or if the processor lacks the instruction. The offsets of
    the box in dst count from the start of a line. With `streams`, non-temporal stores write whole
    lines of blocks.
    """
    if bits < BYTE_BITS or box.is_zero or box.indirect or not instructions.masks:
        return ()
    # AVX-512BW permutes pairs of bytes
    unit = 1 if instructions.permutes_lines else 2
    elements = _permuted_elements(box, bits) if instructions.permutes_lines else ()
    return elements or _permuted_windows(box, bits, unit, streams=streams)


def _permuted_elements(box: Box, bits: int) -> tuple[ScheduledBox, ...]:
    scheduled = select_permuted(box, bits)
    if not scheduled:
        return ()
    cut = find_cut(scheduled)
    pieces = [*split_node(box, *cut)] if cut else []
    parts = tuple(part for piece in pieces if (part := select_permuted(piece, bits)))
    return parts if cut and len(parts) == len(pieces) else (scheduled,)


def select_permuted(box: Box, bits: int) -> ScheduledBox | None:
    """Select the transposition of 32- or 64-bit elements whose parts are in another order in src.

    On one side a row of elements, up to a line, has the first parts of all, then their second
    parts, as `abcd` beside `ABcd8b16a2b` if both spatial dims have few steps; or each element has
    parts along two dims, as `ABcd8a16b2a` beside that. Returns None for other boxes.
    """
    is_whole = all(node.valid == node.extent for node in box.nodes)
    if bits not in PART_BITS or not is_whole or box.indirect:
        return None
    width = width_of(bits)
    if box.offsets[1] % width:
        return None
    for side, (part, run) in product((0, 1), permutations(box.nodes, 2)):
        is_pair = part.strides[1 - side] == run.strides[side] == width
        if is_pair and part.strides[side] == run.extent * width:
            scheduled = _permuted(box, bits, side, (part, run))
            if scheduled:
                return scheduled
    return None


def _permuted(box: Box, bits: int, side: int, pair: tuple[Node, Node]) -> ScheduledBox | None:
    """Select it by two loops: contiguous on a side, and the first one on the other side too."""
    part, run = pair
    count, length, nbytes = part.extent, run.extent, width_of(bits)
    others = tuple(node for node in box.nodes if node not in pair)
    extents = (length, count) if side == 0 else (count, length)
    row: tuple[Node, ...] = ()
    if run.strides[1 - side] == count * nbytes and count * length * bits in PERMUTED_BITS:
        count *= length
        wide = count * bits
        columns, rows = transposed_groups(others, wide)
        few, many = (columns, rows) if side == 0 else (rows, columns)
    else:
        wide = count * bits
        # on the way to rows of a power of two, tiles of narrow elements are as fast
        if wide != PERMUTED_BITS[0] or (side == 1 and length & (length - 1) == 0):
            return None
        strides = (count * nbytes, run.strides[1])
        strides = strides if side == 0 else (run.strides[0], count * nbytes)
        few = row = (run._replace(strides=strides),)
        many = contiguous_group(others, 1 - side, wide)
    if not (few and size_of(few) <= LINE_BITS // wide <= size_of(many)):
        return None
    columns, rows = (few, many) if side == 0 else (many, few)
    scheduled = ScheduledBox(box._replace(nodes=(*others, *row)), wide, TRANSPOSED, rows, columns)
    parts = [k * extents[0] + j for j, k in product(*map(range, extents))]
    if not row:
        parts = [k + part for k in range(0, LINE_BITS // bits, count) for part in parts]
    picks = tuple(nbytes * part + k for part in parts for k in range(nbytes))
    return scheduled._replace(permutation=Permutation(side, picks))


# Fewer bytes of dst than this are not worth loading two lines, and runs of as many are copied.
_LEAST_NBYTES = 16


def _permuted_windows(box: Box, bits: int, unit: int, *, streams: bool) -> tuple[ScheduledBox, ...]:
    width = width_of(bits)
    block = _block_of(box, bits)
    inner, along = block or _window_of(box, bits)
    others = tuple(node for node in box.nodes if node not in (*inner, along))
    starts = offset_table((node.extent for node in inner), (node.strides[0] for node in inner))
    most = 2 * LINE_NBYTES - max(starts) + min(starts) - width
    count = min(
        along.extent,
        max(1, LINE_NBYTES // (len(starts) * width)),
        1 + most // max(1, abs(along.strides[0])),
    )
    picks = [
        k * along.strides[0] + at + j for k in range(count) for at in starts for j in range(width)
    ]
    # loops that read the same lines are better moved together, by other kernels
    span = max(picks) - min(picks)
    row = along._replace(strides=(2 * count * along.strides[0], 0))
    is_shared = any(0 < abs(node.strides[0]) <= span for node in (*others, row))
    is_run = picks[:_LEAST_NBYTES] == [*range(_LEAST_NBYTES)]
    is_small = not block and len(picks) < _LEAST_NBYTES
    starts_evenly = not any(node.strides[1] % LINE_NBYTES for node in others)
    head = -box.offsets[1] % LINE_NBYTES if streams and starts_evenly else 0
    is_uneven = any(at % unit for at in (width, head, *(k - picks[0] for k in picks[::unit])))
    if is_small or is_shared or is_run or is_uneven:
        return ()
    done: list[ScheduledBox] = []
    for rows in _rows_of(head, along, count, picks):
        low = min(rows.picks)
        loop = Node(rows.extent, rows.extent, rows.strides)
        run = Node(len(rows.picks), len(rows.picks), (1, 1))
        offsets = box.offsets[0] + rows.start[0] + low, box.offsets[1] + rows.start[1]
        part = Box(offsets, (*others, *[loop] * (rows.extent > 1), run))
        permutation = Permutation(0, tuple((k - low) // unit for k in rows.picks[::unit]), unit)
        schedule = partial(_permuted_rows, permutation=permutation)
        done += cut_to_fit(schedule(part), schedule)
    return tuple(done)


def _block_of(box: Box, bits: int) -> tuple[tuple[Node, ...], Node] | None:
    """Return the smallest block of up to two lines, and the loop over blocks that follow it.

    Its loops are the innermost ones that are contiguous on each side.
    """
    from_src, from_dst = (contiguous_group(box.nodes, side, bits) for side in (0, 1))
    for count in range(2, min(len(from_src), len(from_dst)) + 1):
        block = from_dst[:count]
        if {*block} == {*from_src[:count]}:
            size = size_of(block) * width_of(bits)
            if size > 2 * LINE_NBYTES or any(node.valid < node.extent for node in block):
                return None
            return block, _next_block(box, size)
    return None


def _next_block(box: Box, size: int) -> Node:
    """Return the loop over blocks that follow each other on both sides, or a single step."""
    loops = (node for node in box.nodes if node.strides == (size, size))
    return next((node for node in loops if node.valid == node.extent), Node(1, 1, (size, size)))


def _window_of(box: Box, bits: int) -> tuple[tuple[Node, ...], Node]:
    """Return innermost loops of dst, and the loop around them.

    Their elements fill up to a line of dst, and lie within two lines of src.
    """
    inner: tuple[Node, ...] = ()
    size = span = width_of(bits)
    for k in contiguous_loops(box.nodes, 1, size):
        node = box.nodes[k]
        more = (node.extent - 1) * abs(node.strides[0])
        if node.valid < node.extent:
            break
        if size * node.extent > LINE_NBYTES or span + more > 2 * LINE_NBYTES:
            return inner, node
        inner, size, span = (*inner, node), size * node.extent, span + more
    return inner, Node(1, 1, (0, size))


class _Rows(NamedTuple):
    """Rows of permuted lines."""

    # where the first one starts on both sides, how far apart they are, and how many there are
    start: tuple[int, int]
    strides: tuple[int, int]
    extent: int
    # how far from the start in src each byte comes from
    picks: list[int]


def _rows_of(head: int, along: Node, count: int, picks: list[int]) -> Iterator[_Rows]:
    """Yield rows of `count` steps of a loop each, then a row of the remaining steps.

    If `head` bytes come before the first whole line of dst, each line is made of two lines of src,
    so that it can be written by a non-temporal store.
    """
    strides = src, dst = count * along.strides[0], len(picks)
    whole, rest = divmod(along.extent, count)
    if head and src == dst == LINE_NBYTES and whole >= MANY_LINES:
        last = (whole - 1) * LINE_NBYTES
        shared = picks[head:] + [LINE_NBYTES + k for k in picks[:head]]
        yield _Rows((0, 0), strides, 1, picks[:head])
        yield _Rows((0, head), strides, whole - 1, shared)
        yield _Rows((last, last + head), strides, 1, picks[head:])
    else:
        yield _Rows((0, 0), strides, whole, picks)
    if rest:
        yield _Rows((whole * src, whole * dst), strides, 1, picks[: dst // count * rest])


def _permuted_rows(box: Box, permutation: Permutation) -> ScheduledBox:
    """Schedule rows of a box, each a permuted line."""
    *outer, run = box.nodes
    rows = row_loops(tuple(outer)) or (Node(1, 1, (1, 1)),)
    return ScheduledBox(box, BYTE_BITS, PERMUTED, rows, (run,), permutation=permutation)
