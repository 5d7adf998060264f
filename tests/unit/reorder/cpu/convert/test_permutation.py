"""Rows whose bytes are permuted in registers: which boxes have them, and every remainder."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memdesc import memory_desc
from reorder import Node, plan_reorder
from reorder.cpu.convert import moves, permute_rows
from reorder.cpu.convert.permutation import Permutation, permutation_of
from reorder.cpu.convert.selection import find_joined, is_permuted
from reorder.cpu.execute import PreparedReorder
from reorder.cpu.target import LINE_NBYTES, has_byte_permutations, this_machine
from tests.property.reorder.test_convert_laws import check

_SIDES = st.integers(2, 12)


def _matrices(count: int, rows: int, columns: int, *, gaps: tuple[int, int]) -> tuple[Node, ...]:
    """Return loops that transpose matrices; each is followed by gaps in src and in dst."""
    size = rows * columns
    around = Node(count, count, (size + gaps[0], size + gaps[1]))
    return around, Node(columns, columns, (1, rows)), Node(rows, rows, (columns, 1))


@given(
    st.integers(2, 300),
    _SIDES,
    _SIDES,
    st.tuples(*[st.sampled_from([0, 0, 3])] * 2),
    st.sampled_from([8, 16, 32, 64]),
)
def test_vectors_of_a_permutation_write_each_byte_of_a_row_from_bytes_of_that_row(
    count: int, rows: int, columns: int, gaps: tuple[int, int], bits: int
) -> None:
    nodes, size = _matrices(count, rows, columns, gaps=gaps), bits // 8
    permutation = permutation_of(nodes, bits)
    assume(permutation is not None)
    assert permutation is not None  # for mypy
    nbytes, moves, (src_table, dst_table) = permutation
    src = np.arange((rows * columns + gaps[0]) * count * size)
    dst = np.full((rows * columns + gaps[1]) * count * size, -1)
    for src_at, dst_at in zip(src_table, dst_table, strict=True):
        row = src[src_at : src_at + nbytes]
        for move in moves:
            ends = max(move.src) + LINE_NBYTES, move.dst + LINE_NBYTES
            assert nbytes < LINE_NBYTES or max(ends) <= nbytes
            vectors = np.concatenate([row[start : start + LINE_NBYTES] for start in move.src])
            length = min(nbytes, LINE_NBYTES)
            written = vectors[move.places[:length]]
            dst[dst_at + move.dst : dst_at + move.dst + length] = written
    i, j, k = np.ogrid[:count, :columns, :rows]
    for byte in range(size):
        to, fro = (
            sum(n * node.strides[s] for n, node in zip((i, j, k), nodes, strict=True))
            for s in (1, 0)
        )
        assert np.array_equal(dst[to * size + byte], fro * size + byte)
    assert np.count_nonzero(dst >= 0) == count * rows * columns * size


def test_matrices_whose_bytes_are_too_far_apart_are_not_permuted() -> None:
    assert permutation_of(_matrices(9, 64, 64, gaps=(0, 0)), 8) is None


@pytest.mark.parametrize(
    ("dtype", "dims", "src", "dst", "expected"),
    [
        ("s8", (40, 5, 5), "abc", "acb", True),
        ("bf16", (40, 3, 3), "abc", "acb", True),
        ("s8", (8, 16, 1, 3), "abcd", "aBcd4b", True),
        ("f32", (40, 4, 4), "abc", "acb", True),
        # pairs that both sides have: two moves of wide elements
        ("bf16", (16, 16, 3, 3), "ABcd8b16a2b", "ABcd8a16b2a", False),
        # interleaved as fast
        ("f32", (40, 8, 3), "abc", "acb", False),
        # padding, and rows that go on nowhere else
        ("s8", (8, 3, 1, 3), "abcd", "aBcd4b", False),
        ("s8", (40, 64, 64), "abc", "acb", False),
        ("s8", (40, 5, 5), "abc", "bca", False),
    ],
)
def test_boxes_that_are_dense_on_both_sides_are_permuted(
    dtype: str, dims: tuple[int, ...], src: str, dst: str, *, expected: bool
) -> None:
    plan = plan_reorder(memory_desc(dims, dtype, src), memory_desc(dims, dtype, dst))
    bits = plan.src.dtype.bits
    assert is_permuted(plan.boxes[0], bits) is (expected and has_byte_permutations())


def test_rows_beyond_the_caches_are_permuted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Permutation] = []
    numbers = permute_rows.permute_numbers

    def recorded(permutation: Permutation) -> list[int]:
        found.append(permutation)
        return numbers(permutation)

    monkeypatch.setattr(moves, "permute_numbers", recorded)
    src, dst = (memory_desc((10000, 4, 9), "s8", name) for name in ("abc", "acb"))
    machine = this_machine()._replace(cache_nbytes=1 << 16)
    PreparedReorder(plan_reorder(src, dst), 1, machine)
    assert bool(found) is has_byte_permutations()


@pytest.mark.parametrize(
    ("dtype", "dims", "src", "dst", "expected"),
    [
        # fours and pairs beside filters, which become short rows of dst
        ("s8", (64, 64, 3, 3), "ABcd4b16a4b", "abcd", True),
        ("bf16", (64, 64, 3, 3), "ABcd8b16a2b", "abcd", True),
        ("s8", (64, 64, 1, 5), "ABcd2b8a4b", "bacd", True),
        ("s8", (64, 64, 3, 3), "ABcd2b8a4b", "bacd", False),
        # and short rows of src
        ("s8", (64, 64, 1, 5), "abcd", "ABcd4b16a4b", True),
        ("s8", (64, 64, 3, 3), "abcd", "ABcd4b16a4b", False),
        ("s8", (64, 64, 1, 5), "abcd", "ABcd4a4b", True),
        ("s8", (64, 64, 1, 3), "bacd", "ABcd4b16a4b", False),
        ("s8", (64, 64, 3, 3), "cdba", "ABcd4a4b", True),
        # pairs on both sides
        ("bf16", (64, 64, 3, 3), "ABcd8b16a2b", "ABcd8a16b2a", False),
        # long rows; elements that fill no register
        ("s8", (64, 64, 7, 7), "ABcd4b16a4b", "abcd", False),
        ("bf16", (64, 64, 3, 3), "ABcd16b16a", "abcd", False),
        ("s8", (64, 62, 3, 3), "ABcd4b16a4b", "abcd", True),
        ("s8", (62, 64, 1, 7), "abcd", "aBcd4b", True),
    ],
)
def test_elements_that_one_side_joins_are_joined_in_scratch_beside_short_rows(
    dtype: str, dims: tuple[int, ...], src: str, dst: str, *, expected: bool
) -> None:
    plan = plan_reorder(memory_desc(dims, dtype, src), memory_desc(dims, dtype, dst))
    found = find_joined(plan.boxes[0], plan.src.dtype.bits)
    assert (found is not None) is (expected and has_byte_permutations())


@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
def test_matrices_of_every_size_are_right(dtype: str) -> None:
    for rows, columns in product((2, 3, 5, 9), (2, 4, 7)):
        count = (1, 2, 5, 29, 257)[(rows + columns) % 5]
        dims = count, rows, columns
        src, dst = memory_desc(dims, dtype, "abc"), memory_desc(dims, dtype, "acb")
        check((src, dst, None), rows, at_end=bool(columns % 2))
        # rows that start anywhere
        gaps = memory_desc(dims, dtype, strides=(rows * columns + 3, columns, 1))
        check((gaps, dst, None), columns, at_end=bool(rows % 2), threads=2)


@pytest.mark.parametrize(
    ("dtype", "blocked"),
    [
        *(("s8", name) for name in ("ABcd4b16a4b", "ABcd2b8a4b", "BAcd16a64b4a", "aBcd4b")),
        *(("s8", name) for name in ("ABcd4a4b", "ABcd16b16a4b")),
        *(("bf16", name) for name in ("ABcd8b16a2b", "ABcd16b16a2b", "BAcd8a16b2a")),
    ],
)
def test_weights_with_short_filters_are_right(dtype: str, blocked: str) -> None:
    for plain, pixels in (("abcd", (3, 3)), ("bacd", (1, 3)), ("cdba", (1, 5))):
        dims = 64, 64, *pixels
        src, dst = (memory_desc(dims, dtype, name) for name in (plain, blocked))
        check((src, dst, None), 3, at_end=True)
        check((dst, src, None), 4, at_end=False, threads=2)


def test_large_weights_of_which_some_blocks_are_not_filled_are_right() -> None:
    dims = 250, 1202, 1, 3
    plain, blocked = (memory_desc(dims, "s8", name) for name in ("abcd", "ABcd4b16a4b"))
    check((plain, blocked, None), 1, at_end=True)
    check((blocked, plain, None), 2, at_end=True, threads=2)
