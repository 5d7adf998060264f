"""Each micro-kernel, at each width of elements, at every remainder of its tiles."""

import platform
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemoryDesc, memory_desc
from reorder import plan_reorder
from reorder.assumed import PROCESSORS
from reorder.cpu import compiled_kernels
from reorder.cpu.schedule.select import MICRO_KERNELS
from reorder.reference import execute_reference
from tests.processors import environment_of
from tests.programs import run_python
from tests.reorders import (
    beyond_caches,
    beyond_own_caches,
    expect,
    forced_parts,
    move_guarded,
    random_bytes,
)
from tests.unit.reorder.cpu.kernels.kernel_matrix import (
    DTYPES,
    blocks,
    permuted,
    runs,
    strided,
    transposed,
)

_SIZES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "cache-resident": nullcontext,
    "exceeds the cache": beyond_caches,
}


# of neighbouring sizes, each width has one in the caches and the next one beyond; slow tests have
# the others
_HALVES = [
    pytest.param(bits, size, half, marks=pytest.mark.slow if (j + k + half) % 2 else ())
    for j, bits in enumerate(DTYPES)
    for k, size in enumerate(_SIZES)
    for half in (0, 1)
]


@pytest.mark.parametrize(("bits", "size", "half"), _HALVES)
def test_matrices_of_every_size_are_transposed(bits: int, size: str, half: int) -> None:
    with _SIZES[size]():
        # 4-bit elements are moved one by one, or as bytes
        assert ("transposed" if bits >= 8 else "strided") in transposed(bits, half)


@pytest.mark.parametrize(("bits", "size", "half"), _HALVES)
def test_runs_of_every_length_are_copied(bits: int, size: str, half: int) -> None:
    with _SIZES[size]():
        assert "run" in runs(bits, half)


@pytest.mark.parametrize("bits", DTYPES)
def test_elements_that_have_no_neighbours_are_moved_one_by_one(bits: int) -> None:
    assert "strided" in strided(bits)


def test_every_kernel_is_on_the_page_of_explain() -> None:
    page = Path(reorder.__file__).parents[1] / "docs" / "commands" / "explain.md"
    rows = re.findall(r"^\| ([a-z ]+) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert {*MICRO_KERNELS.values()} <= {*rows}


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("bits", [8, 16])
def test_rows_of_pairs_and_quads_are_permuted(bits: int, size: str) -> None:
    with _SIZES[size]():
        assert "transposed" in permuted(bits)


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("bits", DTYPES)
def test_blocks_are_permuted_within_lines(bits: int, size: str) -> None:
    with _SIZES[size]():
        # the kernels for processors that cannot permute lines
        assert blocks(bits) <= {"transposed", "strided"}


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(
    ("src", "dst"),
    [("f32 abc", "bf16 ABc8b16a2b"), ("s8 ABc4b16a4b", "f32 abc"), ("f16 ABc8b16a2b", "bf16 abc")],
)
def test_permuted_rows_are_converted(src: str, dst: str, *, at_end: bool) -> None:
    one, other = (memory_desc((65, 34, 9), *text.split()) for text in (src, dst))
    source, before = random_bytes(one.min_nbytes, 1), random_bytes(other.min_nbytes, 2)
    right = before.copy()
    execute_reference(one, other, source, right)
    moved = move_guarded(plan_reorder(one, other), source, before, at_end=at_end)
    assert np.array_equal(moved, right)


@pytest.mark.parametrize(
    ("dtype", "row"), [("f32", 16), ("f32", 48), ("s8", 64), ("s8", 256), ("bf16", 33)]
)
def test_runs_of_lines_are_right_where_threads_have_no_room_for_them(dtype: str, row: int) -> None:
    src, dst = (memory_desc((37, 9, row), dtype, tag) for tag in ("abc", "bac"))
    with beyond_own_caches():
        for at_end in (False, True):
            _check_shared(src, dst, 1, at_end=at_end)


@pytest.mark.campaign
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86-64 machines")
@pytest.mark.parametrize("processor", PROCESSORS)
def test_kernels_for_other_processors_are_right_on_this_one(processor: str, tmp_path: Path) -> None:
    program = Path(__file__).with_name("kernel_matrix.py")
    ran = run_python(program, **environment_of(processor, tmp_path))
    # elements of 4 bits are transposed as bytes; bytes and pairs of them are permuted too
    assert ran.stdout.count("transposed") == len(DTYPES) - 1 + 2


_LARGE = {
    "a long run": ((70_001,), "a", "a"),
    "a wide matrix": ((3, 40_001), "ab", "ba"),
    "a tall matrix": ((40_001, 3), "ab", "ba"),
    "a square": ((300, 701), "ab", "ba"),
    "rows that start anywhere in a line": ((1093, 211), "ab", "ba"),
    "rows in more than one call": ((67, 66, 67), "abc", "cab"),
    "blocks both ways": ((530, 277), "AB16a16b", "BA8b32a"),
    "images": ((2, 67, 37, 41), "abcd", "aBcd16b"),
    "channels last": ((2, 3, 170, 171), "abcd", "acdb"),
    "pairs of other dims": ((70, 130, 3), "ABc8b16a2b", "ABc8a16b2a"),
    "quads of other dims": ((33, 20, 2), "ABc4b16a4b", "ABc4a16b4a"),
    "weights": ((70, 130, 3, 3), "abcd", "ABcd4b16a4b"),
    "whole cache lines": ((2, 128, 32, 64), "abcd", "acdb"),
    "whole cache lines both ways": ((128, 4, 192), "abc", "bca"),
    "rows of whole cache lines": ((5, 64, 3, 128), "abcd", "acbd"),
    "runs of one cache line": ((3, 128, 40), "acb", "aBc64b"),
    "blocks that do not divide each other": ((3, 1000, 17), "aBc48b", "aBc32b"),
    "blocks of two dims as one": ((5, 6, 31, 33), "abdc", "ab(CD)4(cd)"),
}


# each case of each width once, in turn on one thread or seven and with either size; the campaign
# has the other three
_TURNS = [
    pytest.param(
        case, bits, threads, size, marks=() if turn == (k + j) % 4 else pytest.mark.campaign
    )
    for k, case in enumerate(_LARGE)
    for j, bits in enumerate(DTYPES)
    for turn, (threads, size) in enumerate(product((1, 7), _SIZES))
]


@pytest.mark.parametrize(("case", "bits", "threads", "size"), _TURNS)
def test_what_is_larger_than_a_tile_is_cut_and_shared_without_a_seam(
    case: str, bits: int, threads: int, size: str
) -> None:
    dims, a, b = _LARGE[case]
    with _SIZES[size]():
        _check_shared(
            memory_desc(dims, DTYPES[bits], a), memory_desc(dims, DTYPES[bits], b), threads
        )


def _check_shared(src: MemoryDesc, dst: MemoryDesc, threads: int, *, at_end: bool = True) -> None:
    source, before = random_bytes(src.min_nbytes, 1), random_bytes(dst.min_nbytes, 2)
    with forced_parts(threads):
        moved = move_guarded(plan_reorder(src, dst), source, before, at_end=at_end, threads=threads)
    assert np.array_equal(moved, expect(src, dst, source, before))


_PADDED = """
bf16 cdab   BAcd8a16b2a
s8   cdab   BAcd4a16b4a
s8   cdab   BAcd2a32b2a
f16  aBcd8b aBcd32b
f32  aBcd8b aBcd32b
u8   aBcd16b aBcd48b
"""


def _rare() -> Iterator[tuple[str, tuple[int, ...], MemoryDesc, MemoryDesc]]:
    """Yield what is rare or was wrong once: its name, numbers of threads, and both layouts."""
    for dtype, row in (("s8", 16), ("bf16", 8), ("f32", 8), ("f64", 4)):
        src = memory_desc((70, 3, row), dtype, strides=(row, 70 * row + 2, 1))
        yield "short rows in succession", (2, 7), src, memory_desc(src.dims, dtype, "abc")
    few = memory_desc((3, 5), "bf16", strides=(5, 1))
    for strides, padded in (
        *(((1, 3000), (3000, 9)), ((1, 5), (5, 30_000))),
        ((70_000, 1), (3, 70_000)),
    ):
        dst = memory_desc((3, 5), "bf16", strides=strides, padded_dims=padded)
        yield "padding larger than a tile", (1, 3), few, dst
    for stride in (2**62, -(2**62), 2**63 - 1, 2**63 - 3):
        src = memory_desc((1, 3), "u8", strides=(stride, 1))
        tall: dict[str, Any] = {"padded_dims": (100_000, 3)}
        for dst in (
            memory_desc((1, 3), "u8", strides=(1, 100_000), **tall),
            memory_desc((1, 3), "u8", strides=(4, 1), **tall),
            memory_desc((1, 3), "u8", "AB4a16b4a2b"),
        ):
            yield "a stride that no memory has", (1, 3), src, dst
    for line in _PADDED.strip().splitlines():
        dtype, *tags = line.split()
        for channels in (*range(1, 34, 3), 32, 43):
            src, dst = (memory_desc((18, channels, 3, 3), dtype, tag) for tag in tags)
            yield "padding behind data", (1,), src, dst
    for line in ("bf16 cdba ABcd8b8a2b", "s8 cdba ABcd2b8a4b", "f32 dcba ABcd8b4a2b"):
        dtype, *tags = line.split()
        for sizes in ((48, 24, 2, 3), (44, 23, 1, 2)):
            src, dst = (memory_desc(sizes, dtype, tag) for tag in tags)
            yield "rows of short blocks", (1,), src, dst
    of_threads = (2, 16, 32)
    plain = memory_desc((3, 4, 47, 127), "f32", "abcd")
    yield "rows cut inside a run", of_threads, plain, memory_desc(plain.dims, "f32", "cadb")
    for dtype, (dims, steps) in product(
        ("s8", "bf16", "f32"), (((2, 2, 70), (1, 1140, 2)), ((3, 2, 100), (240, 1, 2)))
    ):
        src, dst = memory_desc(dims, dtype, "abc"), memory_desc(dims, dtype, strides=steps)
        yield "rows cut inside a run", of_threads, src, dst
    blocks: dict[str, Any] = {"inner_blks": (16, 3), "inner_idxs": (0, 1), "padded_dims": (48, 69)}
    src = memory_desc((33, 64), "u8", strides=(48, -144), offset0=3184, **blocks)
    yield "zeros beside offset tables", (1,), src, memory_desc((33, 64), "u8", "BA16b8a__a48")


_RARE = [*_rare()]


@pytest.mark.parametrize("name", dict.fromkeys(name for name, *_ in _RARE))
def test_what_is_rare_is_moved_as_by_definition(name: str) -> None:
    for _, counts, src, dst in (row for row in _RARE if row[0] == name):
        for threads, at_end in product(counts, (False, True)):
            _check_shared(src, dst, threads, at_end=at_end)


def test_whole_lines_are_written_by_non_temporal_stores() -> None:
    src, dst = (memory_desc((2, 128, 32, 64), "f32", tag) for tag in ("abcd", "acdb"))
    with beyond_caches():
        _check_shared(src, dst, 1, at_end=False)
    assert any("non-temporal" in kernel["kernel"] for kernel in compiled_kernels())


@pytest.mark.parametrize("dtype", ["s8", "bf16", "f32", "f64"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_rows_that_are_interleaved_or_split_beyond_the_caches_are_right(
    dtype: str, count: int
) -> None:
    for extent in (4, 16, 20, 36, 64, 132, 1040, 4112):
        layouts = [memory_desc((3, count, extent), dtype, tag) for tag in ("abc", "acb")]
        for (src, dst), threads in product((layouts, layouts[::-1]), (1, 3)):
            with beyond_caches():
                _check_shared(src, dst, threads, at_end=threads > 1)
