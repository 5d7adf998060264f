"""Describe the memory accesses of a loop nest's kernel in words, for `memdesc explain`."""

from math import prod

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.machine import LINE_BITS, Instructions
from reorder.cpu.schedule.loops import size_of
from reorder.cpu.schedule.permuted import permuted_boxes
from reorder.cpu.schedule.select import (
    PERMUTED,
    RUN,
    STRIDED,
    pack_for_kernels,
    scaled,
    select_kernel,
    width_of,
)
from reorder.plan.nodes import Box
from reorder.plan.plan import ReorderPlan

_WHAT = {
    RUN: "copies runs",
    STRIDED: "moves single elements",
    PERMUTED: "permutes the bytes of runs",
}


def describe_access(plan: ReorderPlan, box: Box, instructions: Instructions) -> str:
    """Describe the contiguous runs of a box on both sides: how long they are, and how far apart.

    >>> src, dst = (memdesc.memory_desc((64, 16), "f32", tag) for tag in ("ab", "ba"))
    >>> plan = reorder.plan_reorder(src, dst)
    >>> describe_access(plan, plan.boxes[0], Instructions())  # doctest: +NORMALIZE_WHITESPACE
    'transposes 64 x 16 elements: reads 64-byte runs 64 bytes apart (whole lines), writes 256-byte
    runs 256 bytes apart (whole lines)'
    """
    bits = plan.dst.dtype.bits
    if plan.converts or box.indirect:
        scheduled = select_kernel(scaled(box, width_of(bits)), bits)
        sizes = plan.src.dtype.bits, bits
    else:
        packed, size = pack_for_kernels(box, bits)
        # 4-bit elements are transposed as bytes
        scheduled = select_kernel(packed, max(size, BYTE_BITS))
        for piece in permuted_boxes(packed, size, instructions)[:1]:
            if piece.micro_kernel == PERMUTED:
                scheduled, size = piece, piece.bits
        sizes = size, size
    box = scheduled.box
    around = (*scheduled.rows, *reversed(scheduled.outer))
    runs = []
    for side, size in enumerate(sizes):
        if scheduled.is_transposed:
            inner, outer = (scheduled.columns, scheduled.rows)[:: -1 if side else 1]
        elif abs(scheduled.columns[0].strides[side]) == scheduled.width:
            inner, outer = scheduled.columns, around
        else:
            inner, outer = (), (*scheduled.columns, *around)
        run = prod(node.extent if side else node.valid for node in inner)
        if scheduled.permutation and not side:
            run = scheduled.permutation.loaded_nbytes
        steps = [node for node in outer if node.extent > 1]
        others = [node for node in box.nodes if node not in inner]
        apart, around_run = (
            [abs(node.strides[side]) * size // scheduled.width for node in nodes]
            for nodes in (steps[:1], others)
        )
        start = box.offsets[side] * size // scheduled.width
        runs.append(_runs(run * size, next(iter(apart), None), around_run, start))
    zeros = 1 - prod(node.valid for node in box.nodes) / prod(node.extent for node in box.nodes)
    said = f"writes {runs[1]}" if box.is_zero else f"reads {runs[0]}, writes {runs[1]}"
    said += f", {zeros:.0%} zeros" if zeros else ""
    said += ", at offsets from indirection tables" if box.indirect else ""
    if box.is_zero:
        return said
    if scheduled.is_transposed:
        return (
            f"transposes {size_of(scheduled.rows)} x {size_of(scheduled.columns)} elements: {said}"
        )
    return f"{_WHAT[scheduled.micro_kernel]}: {said}"


def _runs(bits: int, apart: int | None, steps: list[int], start: int) -> str:
    """Describe runs of `bits` bits that start `apart` bits apart; None: there is one run.

    `start` is the offset of the first run, `steps` are the strides of the loops around runs: bits.
    """
    if apart is None:
        text = f"one run of {_count_bytes(bits)} bytes"
    else:
        text = f"{_count_bytes(bits)}-byte runs {_count_bytes(apart)} bytes apart"
    if not any(place % LINE_BITS for place in (bits, start, *steps)):
        return f"{text} (whole lines)"
    is_alone = steps and bits < LINE_BITS <= min(steps)
    return f"{text} (a line each)" if is_alone else text


def _count_bytes(bits: int) -> str:
    return str(bits / BYTE_BITS if bits % BYTE_BITS else bits // BYTE_BITS)
