"""An independent, element-by-element definition of a reorder."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import reorder
from memdesc import MemoryDesc
from reorder import Attr
from reorder.cpu import PreparedReorder
from reorder.cpu.host import this_machine
from reorder.cpu.machine import Machine
from reorder.cpu.runtime.fast_call import fast_call
from reorder.plan import Box, ReorderPlan
from reorder.plan.nodes import NOWHERE
from reorder.plan.plan import _plan
from tests.conversions import random_codes
from tests.guarded import Guarded

Case: TypeAlias = tuple[MemoryDesc, MemoryDesc] | tuple[MemoryDesc, MemoryDesc, Attr | None]

# Buffers up to this many bytes are moved three times.
_REPEATED_NBYTES = 1 << 13


def random_bytes(count: int, seed: int) -> NDArray[np.uint8]:
    """Return random bits: among them NaN payloads, -0.0 and every s32."""
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def elements(desc: MemoryDesc, seed: int) -> NDArray[np.uint8]:
    """Return bytes of numbers of middling size and of any bits."""
    name, nbytes = desc.dtype.name, desc.min_nbytes
    if desc.dtype.bits < 32:
        return random_bytes(nbytes, seed)
    codes = random_codes(name, nbytes // desc.dtype.bits_dtype.itemsize + 3, seed)
    np.random.default_rng(seed).shuffle(codes)
    return codes.view(np.uint8)[:nbytes].copy()


def _offsets(blocks: Any, i: NDArray[np.int64]) -> NDArray[np.int64]:
    outermost = max(block.step for block in blocks)
    total = np.zeros_like(i)
    for block in blocks:
        digit = i // block.step
        total += (digit if block.step == outermost else digit % block.extent) * block.stride
    return total


def element_map(src: MemoryDesc, dst: MemoryDesc) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for all padded positions of dst their offsets, and the offset in src (-1: padding)."""
    grid = np.indices([axis.padded for axis in dst.axes], dtype=np.int64).reshape(len(dst.axes), -1)
    count = grid.shape[1]
    to = np.full(count, dst.offset0, np.int64)
    is_data = np.full(count, fill_value=True)
    index: dict[int, NDArray[np.int64]] = {}
    for k, axis in enumerate(dst.axes):
        to += _offsets([block for block in dst.layout.blocks if block.axis == k], grid[k])
        is_data &= grid[k] < prod(dst.dims[dim] for dim in axis.dims)
        rest = grid[k]
        for dim in reversed(axis.dims):
            size = max(dst.dims[dim], 1)
            rest, index[dim] = rest // size, rest % size
    fro = np.full(count, src.offset0, np.int64)
    for k, axis in enumerate(src.axes):
        joint = np.zeros(count, np.int64)
        for dim in axis.dims:
            joint = joint * src.dims[dim] + index[dim]
        fro += _offsets([block for block in src.layout.blocks if block.axis == k], joint)
    to, fro = _swizzled(dst, to), _swizzled(src, fro)
    return to, np.where(is_data, fro, -1)


def _swizzled(desc: MemoryDesc, base: NDArray[np.int64]) -> NDArray[np.int64]:
    offset = base.copy()
    for shift, mask in desc.layout.xor:
        offset ^= np.floor_divide(base, 1 << shift) & mask if shift > 0 else (base << -shift) & mask
    return offset


def box_map(boxes: tuple[Box, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return offsets of dst, and of src (-1: zero), one for each step of the loops of boxes."""
    to, fro = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for box in boxes:
        src, dst = (np.full(1, offset, np.int64) for offset in box.offsets)
        is_data = np.full(1, fill_value=True)
        for loop in box.indirect:
            own_src, own_dst, is_padding = (table[None, :] for table in _indirection_tables(loop))
            src, dst = (src[:, None] + own_src).ravel(), (dst[:, None] + own_dst).ravel()
            is_data = (is_data[:, None] & ~is_padding).ravel()
        for node in box.nodes:
            steps = np.arange(node.extent, dtype=np.int64)[None, :]
            src, dst = (
                (src[:, None] + steps * node.strides[0]).ravel(),
                (dst[:, None] + steps * node.strides[1]).ravel(),
            )
            is_data = (is_data[:, None] & (steps < node.valid)).ravel()
        to.append(dst)
        fro.append(np.where(is_data, src, -1))
    return np.concatenate(to), np.concatenate(fro)


def sorted_map(
    boxes: tuple[Box, ...], parts: int = 1, step: int | None = None
) -> NDArray[np.int64]:
    """Return `box_map` by offsets of dst, where an element of the boxes packs as many parts.

    Neighbours of the boxes are `step` parts apart, by default all of them.
    """
    step = parts if step is None else step
    to, fro = (offsets[:, None] for offsets in box_map(boxes))
    within = np.arange(parts)
    found = np.stack([to * step + within, np.where(fro < 0, -1, fro * step + within)])
    found = found.reshape(2, -1)
    return found[:, np.argsort(found[0])]


def _indirection_tables(
    loop: Any,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    src, dst = loop.tables(0, loop.extent)
    return src, dst, src == NOWHERE


def _unpack(data: NDArray[np.uint8], desc: MemoryDesc) -> NDArray[Any]:
    if desc.dtype.bits == 4:
        return np.stack([data & 15, data >> 4], axis=1).reshape(-1)
    size = desc.dtype.bits // 8
    return data[: data.size // size * size].view(f"u{size}")


def _pack(values: NDArray[Any], desc: MemoryDesc) -> NDArray[np.uint8]:
    if desc.dtype.bits == 4:
        values = (values[0::2] | values[1::2] << 4).astype(np.uint8)
    packed: NDArray[np.uint8] = values.view(np.uint8)
    return packed


def expect(
    src: MemoryDesc, dst: MemoryDesc, source: NDArray[np.uint8], before: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Return the bytes of dst after a reorder; untouched bytes keep their old value."""
    to, fro = element_map(src, dst)
    values, out = _unpack(source, src), _unpack(before.copy(), dst)
    out[to] = np.where(fro >= 0, values[fro], 0) if values.size else 0
    return _pack(out, dst)


def spoil_padding(desc: MemoryDesc, data: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """Return a copy with different bits in padding and gaps."""
    to, fro = element_map(desc, desc)
    other = _unpack(random_bytes(data.size, seed), desc)
    values = _unpack(data, desc)
    other[to[fro >= 0]] = values[to[fro >= 0]]
    return _pack(other, desc)


@contextmanager
def forced_parts(parts: int) -> Iterator[None]:
    """Make `move_guarded` divide reorders of any size among `parts` threads."""
    with _on(assumed_machine()._replace(threads=parts, min_thread_nbytes=1)):
        yield


@contextmanager
def beyond_caches() -> Iterator[None]:
    """Make `move_guarded` treat every reorder as exceeding all caches."""
    with _on(assumed_machine()._replace(cache_nbytes=-1)):
        yield


@contextmanager
def beyond_own_caches() -> Iterator[None]:
    """Make `move_guarded` treat every reorder as exceeding a thread's share of the caches."""
    with _on(assumed_machine()._replace(streamed_nbytes=-1)):
        yield


@contextmanager
def _on(machine: Machine) -> Iterator[None]:
    _machines.append(machine)
    try:
        yield
    finally:
        _machines.pop()


# the machines that are assumed, one inside the other
_machines: list[Machine] = []


def assumed_machine() -> Machine:
    """Return the machine that `move_guarded` schedules for."""
    return _machines[-1] if _machines else this_machine()


@contextmanager
def few_boxes() -> Iterator[None]:
    """Let dims whose blocks do not divide use indirection tables, as those of large tensors do."""
    _plan.cache_clear()
    with mock.patch("reorder.plan.boxes._MAX_BOXES", 1):
        yield
    _plan.cache_clear()


@cache
def _region(side: str, nbytes: int) -> Guarded:
    del side  # src and dst have one each
    return Guarded(nbytes)


def move_guarded(
    plan: ReorderPlan,
    source: NDArray[np.uint8],
    before: NDArray[np.uint8],
    *,
    at_end: bool,
    threads: int = 1,
) -> NDArray[np.uint8]:
    """Run a plan with both buffers next to inaccessible memory; return dst.

    A write into src, and a read or write beyond the buffers, ends the process; a
    write in front of them fails here (after them where they start at the edge).
    """
    src, dst = (
        _region(side, 1 << max(data.size - 1, 4095).bit_length())
        for side, data in (("src", source), ("dst", before))
    )
    src_buffer, dst_buffer = src.buffer(source, at_end=at_end), dst.buffer(before, at_end=at_end)
    src.forbid_writes()
    prepared = PreparedReorder(plan, threads, assumed_machine())
    fast_call()
    # the second call loads the compiled one, the third one is it; large buffers are moved once
    for _ in range(3 if before.size <= _REPEATED_NBYTES else 1):
        dst_buffer[...] = before
        prepared(src_buffer, dst_buffer)
    assert dst.is_intact(), "bytes beside dst were written"
    return dst_buffer.copy()


def check(case: Case, seed: int, *, at_end: bool, threads: int = 1) -> None:
    """Compare a reorder with its definition, gaps and bytes of others included."""
    src, dst, attr = (*case, None)[:3]
    source, before = elements(src, seed), elements(dst, seed + 1)
    wanted = before.copy()
    reorder.reference.execute_reference(src, dst, source, wanted, attr)
    if attr is None and src.dtype == dst.dtype:
        assert np.array_equal(wanted, expect(src, dst, source, before))
    plan = reorder.plan_reorder(src, dst, attr)
    # only elements of src may affect the result
    spoilt = source if src.has_broadcast else spoil_padding(src, source, seed + 2)
    for given, is_at_end in ((source, at_end), (spoilt, not at_end)):
        moved = move_guarded(plan, given, before, at_end=is_at_end, threads=threads)
        assert np.array_equal(moved, wanted), plan
