"""Reorders that take one kernel through every remainder of its tiles; run by test_kernels.py.

As a program it runs all of them: with MEMDESC_MACHINE for another processor, above all one with
shorter vectors.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import product
from typing import TypeVar

import numpy as np

from memdesc import MemoryDesc, memory_desc
from reorder import plan_reorder
from reorder.cpu.schedule.access import describe_access
from reorder.cpu.schedule.select import MICRO_KERNELS, pack_for_kernels, select_kernel
from reorder.cpu.target import instructions
from tests.reorders import beyond_caches, expect, move_guarded, random_bytes

T = TypeVar("T")

DTYPES = {4: "u4", 8: "s8", 16: "bf16", 32: "s32", 64: "f64"}
_TILE = 16
_PATTERN = random_bytes(1 << 20, 7)


def _half_of(cases: Iterable[T], half: int | None) -> list[T]:
    """Return every other case, or all if `half` is None; of pairs of remainders a chequerboard."""
    return [case for k, case in enumerate(cases) if half in {None, (k + k // _TILE) % 2}]


def _check(src: MemoryDesc, dst: MemoryDesc, *, at_end: bool) -> set[str]:
    """Move random bits next to inaccessible memory; return the kernels that did it."""
    plan = plan_reorder(src, dst)
    source, before = _PATTERN[: src.min_nbytes], _PATTERN[-dst.min_nbytes :]
    moved = move_guarded(plan, source, before, at_end=at_end)
    assert np.array_equal(moved, expect(src, dst, source, before)), f"{plan}"
    kernels = set()
    for box in plan.boxes:
        scheduled = select_kernel(*pack_for_kernels(box, src.dtype.bits))
        kernels.add(MICRO_KERNELS[scheduled.micro_kernel])
        # a kernel without words for `memdesc explain` fails here
        describe_access(plan, box, instructions())
    return kernels


def _sizes() -> Iterator[tuple[int, int]]:
    """Return every pair of remainders of tiles, after none or one whole tile on each side."""
    for i, j in product(range(_TILE), range(_TILE)):
        yield i + _TILE * ((i + j) % 2 or not i), j + _TILE * (i // 2 % 2 or not j)
    for i, j in product((1, 2, 3, 4), (32, 33, 40)):
        yield i, j
        yield j, i
    # tiles of whole cache lines, and sweeps of more columns than one
    for i, j in product((5, 16, 70, 130), (63, 64, 66, 72, 129)):
        yield i, j
        yield j, i
    # five to seven rows or columns of bytes, of at least a line
    for i, j in product((6, 7), (64, 129)):
        yield i, j
        yield j, i


def transposed(bits: int, half: int | None = None) -> set[str]:
    """Transpose matrices with padding on both sides, gaps, and outer loops ending in padding."""
    kernels = set()
    for m, n in _half_of(_sizes(), half):
        pad_m, pad_n, pad_o, gap = (m + n) % 3 * 2, (m * n) % 2 * 3, m % 2, n % 5 // 4
        tall, wide = m + pad_m, n + pad_n
        src = memory_desc((2, m, n), DTYPES[bits], strides=(m * (n + gap), n + gap, 1))
        dst = memory_desc(
            (2, m, n),
            DTYPES[bits],
            strides=(wide * (tall + gap), 1, tall + gap),
            padded_dims=(2 + pad_o, tall, wide),
            offset0=gap,
        )
        kernels |= _check(src, dst, at_end=(m + n) % 2 == 0)
        # and back: then src has the padding
        kernels |= _check(dst, src, at_end=(m + n) % 2 == 1)
    # pixels of few channels, and zeros up to a line or a part of one
    for m, part, n in _half_of(product((2, 3, 4), (1, 2, 4), (7, 16, 37)), half):
        tall = max(m, 512 // part // max(bits, 8))
        src = memory_desc((2, m, n), DTYPES[bits], strides=(m * n, n, 1))
        dst = memory_desc(
            (2, m, n), DTYPES[bits], strides=(n * tall, 1, tall), padded_dims=(2, tall, n)
        )
        kernels |= _check(src, dst, at_end=m % 2 == 0)
    # rows of src a page apart: tiles of whole lines on both sides, and what they leave over
    line, page = (nbytes * 8 // max(bits, 8) for nbytes in (64, 4096))
    extents = product((line, line + line // 2, 2 * line + 3), (line - 1, line, 2 * line + 5))
    for m, n in _half_of(extents, half):
        src = memory_desc((m, n), DTYPES[bits], strides=(page, 1))
        for pad, gap in ((0, 0), (3, 2)):
            dst = memory_desc(
                (m, n), DTYPES[bits], strides=(1, m + pad + gap), padded_dims=(m + pad, n)
            )
            kernels |= _check(src, dst, at_end=n % 2 == 0)
    # small loop groups, with the loop around them: as many as a call moves, and some more
    loops = product((2, 3, 8, 16, 64), (1, 3, 9, 17), (0, 1))
    for m, n, pad in _half_of(loops, half):
        count = 4096 // (m * n) + 3
        src = memory_desc((count, m, n), DTYPES[bits], strides=(m * n, n, 1))
        dst = memory_desc(
            (count, m, n),
            DTYPES[bits],
            strides=((m + pad) * n, 1, m + pad),
            padded_dims=(count, m + pad, n),
        )
        kernels |= _check(src, dst, at_end=m % 2 == 0)
        kernels |= _check(dst, src, at_end=m % 2 == 1)
    return kernels


def runs(bits: int, half: int | None = None) -> set[str]:
    """Copy rows of all lengths beyond the longest vector."""
    kernels = set()
    in_bytes = (nbytes * 8 // bits for nbytes in (191, 257, 700))
    lengths = *range(1, 70), *in_bytes, *range(1024 * 8 // bits - 2, 1024 * 8 // bits + 3)
    for n in _half_of(lengths, half):
        for wide in sorted(
            {
                n,
                n + 1,
                *(
                    -(-n * bits // (8 * size)) * 8 * size // bits
                    for size in (8, 16, 32, 64, 128, 256)
                ),
            }
        ):
            src = memory_desc((3, n), DTYPES[bits], strides=(n + n % 2, 1))
            dst = memory_desc(
                (3, n), DTYPES[bits], strides=(wide + n % 3, 1), padded_dims=(3 + n % 2, wide)
            )
            kernels |= _check(src, dst, at_end=n % 2 == 0)
    # rows of a quarter and of half a line that follow each other in dst, from any place of a line
    for nbytes, count, offset in product((16, 32), (1, 3, 9, 70), (0, 1, 5)):
        n = nbytes * 8 // bits
        src = memory_desc((count, 3, n), DTYPES[bits], strides=(n, count * n + 2, 1))
        dst = memory_desc((count, 3, n), DTYPES[bits], strides=(3 * n, n, 1), offset0=2 * offset)
        kernels |= _check(src, dst, at_end=count % 2 == 0)
        kernels |= _check(dst, src, at_end=count % 2 == 1)
    return kernels


def joined() -> set[str]:
    """Copy runs of a line and more that follow each other in dst, so that lines are shared."""
    kernels = set()
    for nbytes, count, at in product((64, 80, 128, 200), (3, 33, 70), (0, 16, 63)):
        src = memory_desc((count, 3, nbytes), "s8", strides=(nbytes, count * nbytes + 2, 1))
        dst = memory_desc((count, 3, nbytes), "s8", strides=(3 * nbytes, nbytes, 1), offset0=at)
        kernels |= _check(src, dst, at_end=count % 2 == 0)
        kernels |= _check(dst, src, at_end=count % 2 == 1)
    return kernels


def strided(bits: int) -> set[str]:
    """Move elements that are neighbours on neither side."""
    kernels = set()
    for n in range(1, 20):
        for pad in (0, 3):
            src = memory_desc((3, n), DTYPES[bits], strides=(2 * n, 2))
            dst = memory_desc(
                (3, n), DTYPES[bits], strides=(-2, 3 * 3), padded_dims=(3, n + pad), offset0=4
            )
            kernels |= _check(src, dst, at_end=n % 2 == 0)
    return kernels


def permuted(bits: int) -> set[str]:
    """Transpose blocks of pairs or quads whose parts are in another order on one side."""
    count, kernels = 32 // bits, set()
    for n, (a, b) in product(range(1, 18), ((16, 8), (12, 8), (16, 16))):
        # rows of up to a line and beyond; elements with parts along two dims
        for dims, tag in product(
            ((2 * a, 2 * b, n), (2 * a - 1, 2 * b - 3, n)), ("abc", "ABc8a16b2a", "ABc16a8b2a")
        ):
            src = memory_desc(dims, DTYPES[bits], tag)
            pairs = f"ABc{b // count}b{a}a{count}b" if tag == "abc" else f"ABc8b{a}a2b"
            dst = memory_desc(dims, DTYPES[bits], pairs)
            kernels |= _check(src, dst, at_end=n % 2 == 0)
            kernels |= _check(dst, src, at_end=n % 2 == 1)
    return kernels


def blocks(bits: int) -> set[str]:
    """Move elements that are near each other on both sides, in another order."""
    kernels = set()
    # runs that go backwards, leave gaps or repeat an element; pixels whose channels are reversed
    for n, step in product((3, 16, 37, 130, 300), (-3, -2, -1, 0, 2, 3, 5)):
        start = max(0, (1 - n) * step)
        src = memory_desc((3, n), DTYPES[bits], strides=(n * abs(step) + 1, step), offset0=start)
        kernels |= _check(src, memory_desc((3, n), DTYPES[bits], "ab"), at_end=n % 2 == 0)
    for n in (1, 5, 21, 22, 64, 100):
        src = memory_desc((4, n, 3), DTYPES[bits], strides=(3 * n + 1, 3, -1), offset0=2)
        kernels |= _check(src, memory_desc((4, n, 3), DTYPES[bits], "abc"), at_end=n % 2 == 1)
        kernels |= _check(src, memory_desc((4, n, 3), DTYPES[bits], "bac"), at_end=n % 2 == 0)
    for m, n in product((2, 3, 4, 5, 7, 16), (2, 3, 8, 11)):
        # many after each other, and in rows that change places
        for dims, order in (((37, m, n), "acb"), ((5, 9, m, n), "badc")):
            src = memory_desc(dims, DTYPES[bits], "abcd"[: len(dims)])
            dst = memory_desc(dims, DTYPES[bits], order)
            kernels |= _check(src, dst, at_end=n % 2 == 0)
    for tag, other in (("4b16a4b", "16b16a"), ("8b16a2b", "16b16a"), ("3a5b", "5b3a")):
        src = memory_desc((40, 52, 3), DTYPES[bits], f"BAc{tag}")
        dst = memory_desc((40, 52, 3), DTYPES[bits], f"ABc{other}")
        kernels |= _check(src, dst, at_end=False) | _check(dst, src, at_end=True)
    return kernels


if __name__ == "__main__":
    with beyond_caches():
        sys.stdout.write(f"{sorted(joined() | blocks(16))}\n")
    for bits in (8, 16):
        sys.stdout.write(f"{bits} {sorted(permuted(bits))}\n")
    for bits in DTYPES:
        sys.stdout.write(f"{bits} {sorted(transposed(bits) | runs(bits) | strided(bits))}\n")
        blocks(bits)
