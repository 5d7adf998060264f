"""Reorders into a dst that starts anywhere within a cache line."""

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memdesc import MemoryDesc, memory_desc
from reorder import Attr, plan_reorder
from reorder.cpu.execute import PreparedReorder
from reorder.cpu.machine import LINE_NBYTES, Machine
from reorder.cpu.runtime.fast_call import fast_call
from reorder.cpu.target import instructions
from reorder.reference import execute_reference
from reorder.values.formats import INTEGERS
from tests.guarded import POISON, Guarded
from tests.reorders import random_bytes

# a machine that writes whole lines of every reorder: by non-temporal stores, or into its caches
_HERE = Machine(2, 1 << 30, instructions=instructions())
_LARGE = _HERE._replace(min_thread_nbytes=1, filled_nbytes=0)
_SMALL = _LARGE._replace(cache_nbytes=-1, streamed_nbytes=-1)

_MAX_NBYTES = 1 << 22
_KINDS = ("f32", "bf16", "s8", "f64", "u4")
_BLOCKED = (
    "aBcd3b",
    "aBcd4b",
    "aBcd16b",
    "ABcd16a16b",
    "ABcd16b16a",
    "ABcd8b8a2b",
    "BAcd16a4b",
    "ABcd4b16a4b",
)
_EXTENTS = (1, 2, 3, 4, 5, 12, 16, 17, 32, 48, 64, 65, 96, 128)


@cache
def _region(side: str) -> Guarded:
    del side  # src and dst have one each
    return Guarded(_MAX_NBYTES + 2 * LINE_NBYTES)


def _check(
    pair: tuple[MemoryDesc, MemoryDesc],
    places: Sequence[int],
    machine: Machine,
    threads: int,
    attr: Attr | None = None,
) -> None:
    """Run a reorder at some places of dst, with src at either edge of inaccessible memory."""
    src, dst = pair
    run = PreparedReorder(plan_reorder(src, dst, attr), threads, machine)
    fast_call()
    data, before = random_bytes(src.min_nbytes, 1), random_bytes(dst.min_nbytes, 2)
    right = before.copy()
    execute_reference(src, dst, data, right, attr)
    for number, place in enumerate(places):
        region, source = _region("dst"), _region("src")
        source_buffer = source.buffer(data, at_end=number % 2 == 0)
        source.forbid_writes()
        margins = np.pad(before, (place, LINE_NBYTES), constant_values=POISON)
        buffer = region.buffer(margins, at_end=False)
        # from the second call on, a compiled one may run
        for _ in range(1 + number % 3):
            buffer[:] = margins
            run(source_buffer, buffer[place : place + right.size])
            np.testing.assert_array_equal(buffer[place : place + right.size], right)
            assert (buffer[:place] == POISON).all()
            assert (buffer[place + right.size :] == POISON).all()
        assert region.is_intact()


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[MemoryDesc, MemoryDesc]:
    """Draw two layouts of four dims, some of whose extents fill lines."""
    kind = draw(st.sampled_from(_KINDS))
    dims = draw(st.lists(st.sampled_from(_EXTENTS), min_size=4, max_size=4))
    layouts = st.permutations("abcd").map("".join) | st.sampled_from(_BLOCKED)
    tags = draw(layouts), draw(layouts)
    while prod(dims) > 1 << 16 or any(
        memory_desc(dims, kind, tag).nbytes > _MAX_NBYTES for tag in tags
    ):
        dims[dims.index(max(dims))] //= 2
    to = draw(st.sampled_from((kind, kind, "bf16"))) if kind == "f32" else kind
    src, dst = memory_desc(dims, kind, tags[0]), memory_desc(dims, to, tags[1])
    if draw(st.integers(0, 3)) == 0 and not dst.has_padding and not dst.inner_blks:
        gap = draw(st.sampled_from((1, LINE_NBYTES)))
        strides = [stride if stride == 1 else stride * 2 * gap for stride in dst.strides]
        wider = memory_desc(dims, to, strides=tuple(strides))
        dst = wider if wider.min_nbytes <= _MAX_NBYTES else dst
    return src, dst


def _cases(
    kind: str, dims: tuple[int, ...], src: str, dst: str, to: str = ""
) -> tuple[MemoryDesc, MemoryDesc]:
    return memory_desc(dims, kind, src), memory_desc(dims, to or kind, dst)


# twenty runs of a line, and half of one; twenty of half a line, and a line
_APART = memory_desc((20, 40, 3, 16), "f32", strides=(16, 328, 40 * 328, 1))
_PAIRS_APART = memory_desc((20, 40, 3, 16), "bf16", strides=(16, 352, 40 * 352, 1))
_PAIRS_AT_ODD_BYTES = memory_desc((3, 34, 7, 32), "s8", strides=(34 * 7 * 32 + 1, 32, 34 * 32, 1))
_PAIRS_AT_STEPS = memory_desc((64, 33, 13, 8), "f32", strides=(104, 6663, 8, 1))
_PAIRS_ELSEWHERE = memory_desc((20, 8, 16), "bf16", strides=(16, 336, 1))
_REPEATED = memory_desc((20, 64, 59), "f32", strides=(0, 59, 1))
# rows that all start at the same place of their lines of src, but not where these start
_ALIKE = (
    memory_desc((3, 33, 130), "f32", strides=(64 * 144, 144, 1), offset0=4),
    memory_desc((3, 33, 130), "f32", strides=(64 * 144, 144, 1), offset0=1),
    memory_desc((1, 64, 300), "s8", strides=(1, 4096, 1), offset0=5),
    memory_desc((1, 70, 200), "bf16", strides=(1, 224, 1), offset0=24),
)
_REPEATED_IN_ROWS = (
    memory_desc((5, 129, 128), "f64", strides=(0, 1, 645)),
    memory_desc((5, 129, 128), "f64", strides=(1, 656, 5)),
)
# a loop of as many steps as the indirection table beside it, with the strides of runs in succession
_BESIDE_TABLE = (
    memory_desc(
        (77, 77, 3, 6),
        "s8",
        strides=(77 * 56, 56, 14, 11 * 77 * 56),
        inner_blks=(7, 2),
        inner_idxs=(0, 3),
    ),
    memory_desc(
        (77, 77, 3, 6),
        "s8",
        strides=(77 * 132, 132, 33, 7 * 77 * 132),
        padded_dims=(77, 77, 4, 6),
        inner_blks=(11, 3),
        inner_idxs=(0, 3),
    ),
)


@settings(deadline=None)
@given(
    _pairs(),
    st.lists(st.integers(0, 63), min_size=1, max_size=2),
    st.sampled_from((_SMALL, _LARGE)),
    st.integers(1, 2),
)
# a conversion with an indirection table and padding
@example(_cases("f32", (18, 50, 5, 5), "aBcd3b", "ABcd8b16a2b", "bf16"), [16, 60], _SMALL, 2)
@example(_cases("f32", (18, 50, 5, 5), "aBcd3b", "ABcd8b16a2b", "bf16"), [16, 60], _LARGE, 1)
@example(_BESIDE_TABLE, [16], _LARGE, 1)
# rows off the lines of src
@example((_ALIKE[0], memory_desc((3, 33, 130), "f32", "cab")), [16, 60], _LARGE, 1)
@example((_ALIKE[0], memory_desc((3, 33, 130), "f32", "acb")), [0], _SMALL, 2)
@example((_ALIKE[1], memory_desc((3, 33, 130), "f32", "cab")), [0, 20], _SMALL, 1)
@example((_ALIKE[2], memory_desc((1, 64, 300), "s8", "cab")), [1], _LARGE, 1)
@example((_ALIKE[3], memory_desc((1, 70, 200), "bf16", "cab")), [16], _SMALL, 1)
# rows cut into pieces; a piece that ends in the next row
@example(_cases("f32", (4096, 33), "ab", "ba"), [4, 60], _SMALL, 2)
@example(_cases("f32", (1040, 50), "ab", "ba"), [4], _LARGE, 1)
# rows of two loops, around which others follow
@example(_cases("f32", (5, 4, 20, 24), "abcd", "cdab"), [16], _SMALL, 1)
@example(_cases("f32", (20, 96, 18, 20), "abcd", "dacb"), [16], _SMALL, 2)
# runs of whole lines and of others, in pieces that follow each other, and repeated
@example(_cases("f32", (18, 20, 3, 64), "abcd", "acbd"), [8], _SMALL, 1)
@example(_cases("f32", (18, 20, 3, 59), "abcd", "acbd"), [0, 12], _SMALL, 2)
@example(_cases("f32", (304, 1600, 1, 1), "abcd", "BAcd16a16b"), [16], _SMALL, 2)
@example((_REPEATED, memory_desc((20, 64, 59), "f32", "bac")), [16], _SMALL, 1)
@example(_REPEATED_IN_ROWS, [0, 56], _SMALL, 1)
@example(_cases("f32", (3, 70, 5, 64), "abcd", "acbd"), [8], _SMALL, 2)
@example(_cases("f32", (5, 3, 9000, 1), "abcd", "bacd"), [8], _SMALL, 1)
@example(_cases("f32", (3, 70, 5, 64), "abcd", "acbd"), [16, 36], _LARGE, 2)
@example(_cases("bf16", (3, 33, 5, 64), "abcd", "cabd"), [2, 48], _LARGE, 1)
# runs of one to four lines, a part of which follow others in dst
@example((memory_desc((20, 40, 3, 16), "f32", "abcd"), _APART), [4, 36], _SMALL, 2)
@example(_cases("f32", (5, 40, 3, 64), "abcd", "acbd"), [4, 36], _SMALL, 2)
@example(_cases("bf16", (3, 33, 7, 64), "abcd", "acbd"), [18, 2], _LARGE, 1)
@example(_cases("s8", (3, 33, 7, 64), "abcd", "acbd"), [9, 6], _LARGE, 1)
@example(_cases("f32", (3, 33, 7, 48), "abcd", "acbd"), [4, 36], _LARGE, 2)
# runs in steps that start anywhere in lines, with a table for each place
@example(_cases("s8", (3, 13, 24, 9, 49), "abcde", "adcbe"), [9, 60], _SMALL, 2)
@example(_cases("bf16", (3, 5, 24, 9, 33), "abcde", "adcbe"), [2, 0], _SMALL, 1)
@example(_cases("s8", (3, 7, 11, 5, 130), "abcde", "adcbe"), [1], _LARGE, 2)
# pairs of runs of half a line
@example((memory_desc((20, 40, 3, 16), "bf16", "abcd"), _PAIRS_APART), [4, 48], _SMALL, 2)
@example((memory_desc((20, 40, 3, 16), "bf16", "abcd"), _PAIRS_APART), [34, 32], _LARGE, 2)
@example(_cases("bf16", (3, 48, 9, 10), "acdb", "aBcd16b"), [16, 2], _LARGE, 2)
@example(_cases("s8", (3, 34, 7, 32), "abcd", "acbd"), [9, 6], _LARGE, 1)
@example(_cases("bf16", (10, 9, 16), "abc", "bac"), [16], _LARGE, 2)
@example((memory_desc((20, 8, 16), "bf16", "abc"), _PAIRS_ELSEWHERE), [16], _LARGE, 1)
@example((memory_desc((3, 34, 7, 32), "s8", "abcd"), _PAIRS_AT_ODD_BYTES), [16, 2], _LARGE, 1)
@example(_cases("bf16", (5, 40, 24, 16), "abcd", "acbd"), [4, 48], _SMALL, 2)
@example(_cases("s8", (6, 64, 31, 30), "acdb", "aBcd32b"), [16, 6], _SMALL, 1)
@example((memory_desc((64, 33, 13, 8), "f32", "acbd"), _PAIRS_AT_STEPS), [16], _SMALL, 1)
# few columns of long rows
@example(_cases("bf16", (2, 16, 33, 40), "aBcd16b", "abcd"), [2, 16], _LARGE, 1)
@example(_cases("bf16", (2, 13, 32, 40), "aBcd16b", "abcd"), [2, 16], _LARGE, 2)
@example(_cases("f32", (2, 250, 4, 8), "abcd", "aBcd256b"), [4, 16], _LARGE, 1)
# rows that are interleaved, columns that are split, elements of four bytes at any byte
@example(_cases("f32", (1, 4, 64, 16), "abcd", "acdb"), [16], _SMALL, 1)
@example(_cases("f32", (1, 4, 64, 16), "acdb", "abcd"), [16], _SMALL, 1)
# the same in runs of blocks
@example(_cases("f32", (32, 32, 32, 7), "ABcd8b8a2b", "bdca"), [16], _SMALL, 1)
@example(_cases("f32", (32, 32, 32, 7), "bdca", "ABcd8b8a2b"), [16], _SMALL, 1)
@example(_cases("s8", (64, 64, 1, 1), "abcd", "BAcd16a4b"), [1, 2, 4], _SMALL, 1)
# rows and their ends in turns
@example(_cases("f32", (28, 1, 512, 64), "abcd", "abdc"), [16], _LARGE, 1)
# 4-bit elements at steps of a table, in runs along different dims
@example(_cases("u4", (1000, 32, 1, 1), "Abcd376a", "ABcd248a8b"), [0], _LARGE, 1)
# pairs of rows in short runs
@example(_cases("bf16", (512, 96, 1, 1), "abcd", "BAcd16a32b2a"), [16, 18], _LARGE, 2)
@example(_cases("bf16", (80, 48, 3, 3), "dcba", "ABcd8b16a2b"), [2, 62], _LARGE, 1)
@example(_cases("bf16", (70, 96, 1, 1), "abcd", "BAcd16a32b2a"), [16, 18], _LARGE, 1)
# the same, where pieces of dst share a set of the first-level cache
@example(_cases("bf16", (100, 256, 1, 1), "dcba", "ABcd8b8a2b"), [16, 18], _LARGE, 2)
@example(_cases("f32", (64, 96, 2, 1), "abcd", "ABcd8a16b2a"), [4, 36], _LARGE, 2)
# permuted pairs and quads: tiles start lines, and the last one goes on with the first rows
@example(_cases("bf16", (64, 48, 3, 3), "abcd", "ABcd16b16a2b"), [16, 18, 2], _LARGE, 1)
@example(_cases("s8", (64, 48, 3, 3), "abcd", "ABcd4b16a4b"), [16, 9], _LARGE, 2)
# permuted blocks: lines that start lines of dst, and blocks of two lines
@example(_cases("s8", (99, 8, 8, 1), "abcd", "acbd"), [16, 9], _SMALL, 2)
@example(_cases("bf16", (5, 70, 4, 4), "abcd", "badc"), [16, 2], _LARGE, 2)
@example(_cases("f32", (99, 5, 5, 1), "abcd", "acbd"), [16, 4], _SMALL, 1)
@example(_cases("s8", (100, 64, 3, 1), "ABcd4b16a4b", "ABcd16b16a"), [16, 63], _SMALL, 2)
# rows that end in padding, and what follows the last one
@example(_cases("f32", (5, 8, 9, 7), "acdb", "aBcd16b"), [4, 16], _SMALL, 2)
@example(_cases("f32", (5, 3, 30, 40), "abcd", "aBcd16b"), [16, 56], _LARGE, 2)
@example(_cases("f32", (48, 32, 3, 3), "abcd", "ABcd16b16a"), [16, 12], _LARGE, 2)
@example(_cases("f32", (48, 32, 3, 3), "abcd", "ABcd16b16a"), [16, 12], _SMALL, 2)
# the same in runs of a line
@example(_cases("f32", (5, 3, 30, 40), "acdb", "aBcd16b"), [16, 60], _SMALL, 2)
@example(_cases("s8", (3, 5, 40, 20), "acdb", "BAcd2a64b"), [6, 7], _SMALL, 2)
# one element in each block, and zeros
@example(_cases("f32", (5, 1, 30, 40), "abcd", "aBcd16b"), [16, 60], _SMALL, 1)
@example(_cases("f32", (40, 33, 5, 7), "dcba", "ABcd16a16b"), [4, 8], _LARGE, 2)
def test_a_reorder_is_right_at_every_place_of_dst(
    pair: tuple[MemoryDesc, MemoryDesc], places: list[int], machine: Machine, threads: int
) -> None:
    size = max(1, pair[1].dtype.bits // 8)
    _check(pair, [place // size * size for place in places], machine, threads)


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from((("s8", "f32"), ("f16", "f32"), ("f32", "bf16"), ("f32", "s8"), ("u4", "f32"))),
    st.sampled_from(((3, 16, 40, 41), (2, 64, 30, 30), (700, 33, 1, 1))),
    st.sampled_from(("abcd", "acdb", "aBcd16b")),
    st.sampled_from((None, 0, 2)),
    st.integers(0, 15),
    st.sampled_from((_SMALL, _LARGE)),
)
@example(("s8", "f32"), (2, 64, 30, 30), "abcd", 2, 4, _LARGE)
# rows with scales of their own that share lines of dst
@example(("s8", "f32"), (3, 16, 40, 41), "abcd", 2, 4, _SMALL)
@example(("f32", "bf16"), (3, 16, 40, 41), "abcd", 2, 5, _SMALL)
@example(("f32", "s8"), (3, 16, 40, 41), "abcd", 2, 7, _SMALL)
@example(("u4", "f32"), (700, 33, 1, 1), "abcd", None, 1, _LARGE)
def test_a_conversion_is_right_at_every_place_of_dst(
    kinds: tuple[str, str],
    dims: tuple[int, ...],
    tag: str,
    mask: int | None,
    element: int,
    machine: Machine,
) -> None:
    pair = memory_desc(dims, kinds[0], "abcd"), memory_desc(dims, kinds[1], tag)
    scales = np.array([0.5, 2, 3, 1.25] * (dims[1] // 4) + [1.5] * (dims[1] % 4), np.float32)
    attr = None
    if mask is not None:
        attr = Attr(src_scale=scales if mask else 1.5, src_scale_mask=mask)
    place = element * pair[1].dtype.bits // 8 % LINE_NBYTES
    _check(pair, [place], machine, 1, attr)


@pytest.mark.parametrize("kinds", [("s8", "f32"), ("f32", "bf16"), ("f32", "s8"), ("f32", "f32")])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_rows_with_operands_for_each_element_share_lines_of_dst(
    kinds: tuple[str, str], beta: float
) -> None:
    dims = (2, 70, 9, 11)
    src, dst = (memory_desc(dims, *each) for each in zip(kinds, ("abcd", "acdb"), strict=True))
    scales = np.random.default_rng(0).uniform(0.5, 2, (70,)).astype(np.float32)
    attrs = [
        Attr(src_scale=scales, src_scale_mask=2, beta=beta),
        Attr(dst_scale=scales, dst_scale_mask=2, beta=beta),
    ]
    if kinds[1] == "s8":
        points = np.arange(70, dtype=np.int32)
        attrs.append(Attr(dst_zero_point=points, dst_zero_point_mask=2, beta=beta))
    for attr in attrs:
        _check((src, dst), [0, 4, 20, 48], _SMALL, 1, attr)


def test_many_places_are_right_too() -> None:
    _check(_cases("s8", (128, 70), "ab", "ba"), range(1, 40, 2), _SMALL, 1)


def test_calls_schedule_only_for_the_places_of_their_dst() -> None:
    plan = plan_reorder(*_cases("f32", (64, 48), "ab", "ba"))
    x, buffer = np.ones((64, 48), np.float32), np.zeros(64 * 48 + 64, np.float32)
    start = -buffer.ctypes.data % LINE_NBYTES // 4
    for machine, places in ((_LARGE, {16, 32}), (_HERE, {0})):
        run = PreparedReorder(plan, 1, machine)
        for place in (16, 32):
            first = start + place // 4
            run(x, buffer[first : first + x.size])
        assert {*run._places} == places  # noqa: SLF001 - no other sign of it


@pytest.mark.parametrize("machine", [_SMALL, _LARGE])
@pytest.mark.parametrize(
    "kinds", [("s8", "bf16"), ("u4", "f32"), ("f32", "s8"), ("f32", "f32"), ("f64", "f32")]
)
@pytest.mark.parametrize("size", [8, 16, 32, 48, 64, 128])
def test_groups_of_scales_are_right_at_every_place_of_dst(
    machine: Machine, kinds: tuple[str, str], size: int
) -> None:
    dims = (37, 5 * size)
    src, dst = (memory_desc(dims, kind) for kind in kinds)
    scales = np.random.default_rng(0).uniform(0.5, 2, (37, 5)).astype(np.float32)
    side = "dst" if kinds[0] == "f32" else "src"
    given: dict[str, Any] = {f"{side}_scale": scales}
    if src.dtype.name in INTEGERS:
        given["src_zero_point"] = np.arange(37 * 5).reshape(37, 5) % 15 - 7
    for role in [*given]:
        given |= {f"{role}_mask": 3, f"{role}_groups": (1, size)}
    width = dst.dtype.bits // 8
    _check((src, dst), [0, 4 * width, 9 * width], machine, 2, Attr(**given))
