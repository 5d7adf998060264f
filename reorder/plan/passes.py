"""Passes from boxes to boxes. The law of each: dst gets the same elements from src."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memdesc.dtypes import BYTE_BITS
from reorder.plan.nodes import DST, Box, Node


def simplify(boxes: tuple[Box, ...]) -> tuple[Box, ...]:
    """Drop loops of one step, sort the others by their stride in dst, and fuse contiguous ones."""
    return tuple(_simplify(box) for box in boxes)


def pack_elements(
    box: Box, bits: int, *, widest: int = 64, packs_long_runs: bool = False
) -> tuple[Box, int]:
    """Pack elements of `bits` bits that are contiguous in every operand into wider ones.

    Returns the box in terms of these, and their width: at most `widest`, which is 64 on the CPU,
    and on devices what buffers are aligned to. Pairs and quads of weights become single elements,
    4-bit elements bytes. The innermost loop may then have a single step; `simplify` drops it.

    Contiguous runs of more than `widest` bits are packed with `packs_long_runs`: on devices each
    work item moves one element, while the CPU moves such runs as vectors.
    """
    while bits < widest and box.nodes and not box.indirect:
        *outer, run = box.nodes
        is_contiguous = all(stride == 1 for stride in run.strides) or (
            box.is_zero and run.strides[DST] == 1
        )
        is_long_run = not packs_long_runs and bits >= BYTE_BITS and run.extent * bits > widest
        counts = [*box.offsets, run.extent, run.valid, *(s for node in outer for s in node.strides)]
        if not is_contiguous or is_long_run or any(count % 2 for count in counts):
            break
        nodes = [Node(node.extent, node.valid, _halved(node.strides)) for node in outer]
        nodes.append(Node(run.extent // 2, run.valid // 2, run.strides))
        box, bits = Box(_halved(box.offsets), tuple(nodes)), 2 * bits
    return box, bits


def _halved(counts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(count // 2 for count in counts)


def split_node(box: Box, node: Node, size: int) -> Iterator[Box]:
    """Split a node of a box into whole pieces of `size` steps, the tail of its data, and zeros."""
    k = box.nodes.index(node)

    def piece(start: int, *loops: Node) -> Box:
        nodes = (*box.nodes[:k], *loops, *box.nodes[k + 1 :])
        part = Box(moved(box.offsets, node, start), nodes, box.indirect)
        return zeros_of(part) if part.is_zero else part

    outer = tuple(size * stride for stride in node.strides)
    if not node.valid:
        whole, rest = divmod(node.extent, size)
        if whole:
            yield piece(0, Node(whole, 0, outer), Node(size, 0, node.strides))
        if rest:
            yield piece(whole * size, Node(rest, 0, node.strides))
        return
    whole = node.valid // size
    if whole:
        yield piece(0, Node(whole, whole, outer), Node(size, size, node.strides))
    done = whole * size
    if done < node.valid:
        extent = min(size, node.extent - done)
        yield piece(done, Node(extent, node.valid - done, node.strides))
        done += extent
    if done < node.extent:
        yield piece(done, Node(node.extent - done, 0, node.strides))


def zeros_beyond(box: Box, covered: Sequence[int]) -> Iterator[Box]:
    """Yield boxes of zeros for the steps of a box beyond the first `covered` steps of each node.

    Each box has the steps of one node beyond the covered ones, the covered steps of the nodes
    before it, and all steps of the nodes after it, so no two boxes write the same element.
    """
    for k, node in enumerate(box.nodes):
        if covered[k] == node.extent:
            continue
        inside = [
            Node(count, 0, outer.strides)
            for outer, count in zip(box.nodes, covered[:k], strict=False)
        ]
        beyond = Node(node.extent - covered[k], 0, node.strides)
        if all(outer.extent for outer in inside):
            offsets = moved(box.offsets, node, covered[k])
            yield zeros_of(Box(offsets, (*inside, beyond, *box.nodes[k + 1 :]), box.indirect))


def zeros_of(box: Box) -> Box:
    """Return a box that writes zeros wherever the given box writes, and reads nothing."""

    def unread(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(number if k == DST else 0 for k, number in enumerate(numbers))

    nodes = [Node(node.extent, 0, unread(node.strides)) for node in box.nodes]
    one_step = Node(1, 0, (0,) * len(box.offsets))
    return Box(unread(box.offsets), tuple(nodes) or (one_step,), box.indirect)


def src_and_dst(box: Box) -> Box:
    """Return a box with only its first two operands."""
    nodes = [Node(node.extent, node.valid, node.strides[:2]) for node in box.nodes]
    return Box(box.offsets[:2], tuple(nodes), box.indirect)


def moved(offsets: tuple[int, ...], node: Node, steps: int) -> tuple[int, ...]:
    """Return the offsets after the given number of steps of a node."""
    return tuple(at + steps * stride for at, stride in zip(offsets, node.strides, strict=True))


def _simplify(box: Box) -> Box:
    is_zero = box.is_zero
    if is_zero:
        box = zeros_of(box)
    nodes = [node for node in box.nodes if node.extent > 1]
    nodes.sort(key=lambda node: (-abs(node.strides[DST]), -node.extent))
    fused: list[Node] = []
    for node in nodes:
        if fused and _continues(fused[-1], node):
            outer = fused.pop()
            node = Node(outer.extent * node.extent, outer.valid * node.extent, node.strides)  # noqa: PLW2901 - the two become one
        fused.append(node)
    if is_zero and not fused:
        fused = [Node(1, 0, (0,) * len(box.offsets))]
    return Box(box.offsets, tuple(fused), box.indirect)


def _continues(outer: Node, inner: Node) -> bool:
    """Whether one step of the outer loop spans the inner one, all data, in every operand."""
    if inner.valid != inner.extent and not inner.valid == outer.valid == 0:
        return False
    return all(
        stride == inner.extent * step
        for stride, step in zip(outer.strides, inner.strides, strict=True)
    )
