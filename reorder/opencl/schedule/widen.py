"""Elements that stay neighbours on both sides, joined into wider ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.plan.nodes import Box, Node

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["widen"]

_BYTE, _WIDEST = 8, 128


def widen(box: Box, bits: int, *, is_aligned: bool) -> tuple[Box, int]:
    """Join neighbours of a box into elements of up to 128 bits.

    Where buffers may start anywhere (`is_aligned` is false) elements stay as wide as
    they are; two of 4 bits become a byte all the same.
    """
    widest = _WIDEST if is_aligned else max(bits, _BYTE)
    while bits < widest and box.nodes and not box.lookups:
        *outer, run = box.nodes
        is_run = run.strides[-1] == 1 and (box.is_zero or run.strides[0] == 1)
        if not is_run or any(number % 2 for number in _numbers(box)):
            break
        nodes = [Node(node.extent, node.valid, _halved(node.strides)) for node in outer]
        box = Box(
            _halved(box.offsets), (*nodes, Node(run.extent // 2, run.valid // 2, run.strides))
        )
        bits *= 2
    return box, bits


def _numbers(box: Box) -> Iterator[int]:
    """Return what must be even: all that counts elements."""
    yield from box.offsets
    *outer, run = box.nodes
    yield run.extent
    yield run.valid
    for node in outer:
        yield from node.strides


def _halved(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(number // 2 for number in numbers)
