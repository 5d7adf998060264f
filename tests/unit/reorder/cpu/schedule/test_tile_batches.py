"""Schedules of conversions: which code runs in which order, decided without any compiled code."""

from functools import partial
from itertools import pairwise
from math import prod

import numpy as np
import pytest

from memdesc import memory_desc
from reorder import Attr, plan_reorder
from reorder.cpu.machine import LINE_NBYTES, Instructions, Machine
from reorder.cpu.schedule.batches import Batch, BatchBuilder
from reorder.cpu.schedule.operands import Operands, dense_strides, find_rows
from reorder.cpu.schedule.select import Kernel
from reorder.cpu.schedule.tile_batches import join, tile_batches
from reorder.cpu.schedule.tile_program import (
    Operation,
    StageTable,
    StageTypes,
    TileHead,
    TileStep,
)
from reorder.memory.buffers import address_of
from reorder.plan.nodes import Node

_MACHINE = Machine(threads=1, cache_nbytes=32 << 20)
_SCALE = Attr(dst_scale=np.linspace(1, 2, 32), dst_scale_mask=2)


def _tiles(src: tuple[str, str], dst: tuple[str, str], attr: Attr | None) -> Batch:
    """Return the batch of the tiles of a reorder."""
    dims = (1, 32, 8, 8)
    one, other = (memory_desc(dims, dtype, tag) for dtype, tag in (src, dst))
    batch, *_ = tile_batches(BatchBuilder(plan_reorder(one, other, attr), 1, _MACHINE))
    assert batch.kernel is None
    return batch


def _words(code: object) -> str:
    match code:
        case StageTypes(operation=Operation.CONVERT):
            return f"{code.src} to {code.dst}"
        case StageTypes():
            return f"{code.src}, {code.work}, {code.dst}"
    assert isinstance(code, Kernel)
    return f"move {code.bits}"


@pytest.mark.parametrize(
    ("src", "dst", "attr", "steps"),
    [
        # one stage from src to dst, in place
        (("f32", "abcd"), ("bf16", "abcd"), None, "f32 to bf16"),
        # the narrower elements are moved
        (("f32", "abcd"), ("s8", "acdb"), None, "f32 to s8; move 8"),
        (("s8", "abcd"), ("f32", "acdb"), None, "move 8; s8 to f32"),
        # the post-op loads src and stores dst
        (("f32", "abcd"), ("s8", "acdb"), _SCALE, "f32, f32, s8; move 8"),
        # a pair without a stage of its own has values between
        (("f16", "abcd"), ("bf16", "abcd"), None, "f16 to f32; f32 to bf16"),
        # the old dst becomes values first, if it has others
        (("f32", "abcd"), ("s8", "abcd"), Attr(beta=0.5), "s8 to f32; f32, f32, s8"),
        (("s8", "abcd"), ("f32", "abcd"), Attr(beta=0.5), "s8, f32, f32"),
        # differences of 32 bits are exact in f64 only
        (
            ("s32", "abcd"),
            ("f32", "abcd"),
            Attr(src_zero_point=3),
            "s32, f64, f64; f64 to f32",
        ),
        # elements of 4 bits need no values between, if their bytes need none
        (("u4", "abcd"), ("bf16", "acdb"), None, "u4 to s8; move 8; s8 to bf16"),
        # elements of 4 bits are unpacked and packed in steps of their own, and moved as bytes
        (("f32", "abcd"), ("s4", "acdb"), None, "f32 to s8; move 8; s8 to s4"),
        (("s4", "abcd"), ("s4", "acdb"), None, "u4 to s8; move 8; s8 to u4"),
        # floats of 4 bits are moved as bits, and then read as floats
        (
            ("f4_e2m1", "abcd"),
            ("s32", "acdb"),
            None,
            "u4 to s8; move 8; s8 to u4; f4_e2m1 to f32; f32 to s32",
        ),
    ],
)
def test_a_tile_takes_the_steps_that_it_needs(
    src: tuple[str, str], dst: tuple[str, str], attr: Attr | None, steps: str
) -> None:
    program = _tiles(src, dst, attr).program
    codes = [word for word in program if isinstance(word, StageTypes | Kernel)]
    assert "; ".join(map(_words, codes)) == steps


@pytest.mark.parametrize(("has_fma", "operation"), [(False, "DIVIDE"), (True, "NARROW_QUOTIENT")])
def test_quotients_are_products_if_the_processor_has_an_fma(
    operation: str, *, has_fma: bool
) -> None:
    src, dst = memory_desc((1, 32), "f32", "ab"), memory_desc((1, 32), "s8", "ab")
    machine = _MACHINE._replace(instructions=Instructions(fma=has_fma))
    batch, *_ = tile_batches(BatchBuilder(plan_reorder(src, dst, _SCALE), 1, machine))
    stages = [code for code in batch.program if isinstance(code, StageTypes)]
    assert [code.operation.name for code in stages] == [operation]
    assert [code.operands for code in stages] == [Operands.EACH]


_LARGE = Machine(1, cache_nbytes=1 << 30, streamed_nbytes=0)


def _stages(dst: tuple[str, str], machine: Machine) -> list[StageTypes]:
    """Return the stages of the tiles that convert f32."""
    source, target = (memory_desc((2, 256, 32, 32), *each) for each in (("f32", "abcd"), dst))
    builder = BatchBuilder(plan_reorder(source, target), 1, machine)
    return [w for w in tile_batches(builder)[0].program if isinstance(w, StageTypes)]


@pytest.mark.parametrize(
    ("dst", "machine", "bits"),
    [
        (("bf16", "acdb"), _LARGE, [32]),
        # the data fit into the caches
        (("bf16", "acdb"), _LARGE._replace(streamed_nbytes=1 << 30), [0]),
        # one row: the processor prefetches it
        (("bf16", "abcd"), _LARGE, [0]),
        # the first stage of a tile
        (("s4", "acdb"), _LARGE, [32, 0]),
    ],
)
def test_a_stage_prefetches_the_next_tile(
    dst: tuple[str, str], machine: Machine, bits: list[int]
) -> None:
    assert [code.prefetched_bits for code in _stages(dst, machine)] == bits


@pytest.mark.parametrize("types", [("f32", "bf16"), ("bf16", "f32"), ("u4", "f32")])
def test_a_line_of_each_row_is_prefetched_before_the_next(types: tuple[str, str]) -> None:
    dims = (1, 64, 16, 64)
    src, dst = map(partial(memory_desc, dims), types, ("abcd", "acdb"))
    batch, *_ = tile_batches(BatchBuilder(plan_reorder(src, dst), 1, _LARGE))
    size = len(StageTable._fields)
    steps = pairwise(batch.program)
    tables = [table.tolist() for code, table in steps if isinstance(code, StageTypes)]
    lines = [table[size + 3 * StageTable(*table[:size]).rows :] for table in tables]
    stride = 16 * 64 * src.dtype.bits // 8
    count = len(next(filter(None, lines))) // 64
    # their last bytes: the tile before reads the line in which a row starts
    right = [stride * row + 64 * k + 63 for k in range(count) for row in range(64)]
    assert [each for each in lines if each] == [[*right, 0]]


@pytest.mark.parametrize(
    ("dims", "place", "streams"),
    [((2, 256, 32, 32), 0, True), ((2, 256, 32, 32), 16, True), ((2, 256, 25, 40), 0, False)],
)
def test_moves_out_of_scratch_stream_where_tiles_start_lines(
    dims: tuple[int, ...], place: int, *, streams: bool
) -> None:
    src, dst = memory_desc(dims, "f32", "acdb"), memory_desc(dims, "s8", "abcd")
    builder = BatchBuilder(plan_reorder(src, dst), 1, Machine(1, cache_nbytes=0), place)
    moves = [code for code in tile_batches(builder)[0].program if isinstance(code, Kernel)]
    assert any(kernel.streams for kernel in moves) is streams


_GROUPS = Attr(src_scale=np.ones((512, 16)), src_scale_mask=3, src_scale_groups=(1, 32))
_ROWS = Attr(dst_scale=np.linspace(1, 2, 512), dst_scale_mask=1)


@pytest.mark.parametrize(
    ("types", "attr", "bits"),
    [
        (("s8", "f32"), _GROUPS, 8),
        (("u4", "bf16"), None, 8),
        (("f32", "s4"), _ROWS, 8),
        # operations store no 4-bit floats, so values are between
        (("f32", "f4_e2m1"), _ROWS, 32),
    ],
)
def test_a_tile_has_as_many_elements_as_a_slot_holds_of_those_in_scratch(
    types: tuple[str, str], attr: Attr | None, bits: int
) -> None:
    src, dst = map(partial(memory_desc, (512, 512)), types, ("ab", "ba"))
    batch, *_ = tile_batches(BatchBuilder(plan_reorder(src, dst, attr), 1, _MACHINE))
    size = len(StageTable._fields)
    tables = [
        StageTable(*table[:size])
        for code, table in pairwise(batch.program)
        if isinstance(code, StageTypes)
    ]
    assert {table.rows * table.columns for table in tables} == {(1 << 17) // bits}


@pytest.mark.parametrize("place", [0, 16, 18])
@pytest.mark.parametrize(("dtype", "tag"), [("f32", "acdb"), ("bf16", "aBcd16b"), ("s8", "acdb")])
def test_vectors_that_start_lines_of_dst_load_whole_lines_of_operands(
    dtype: str, tag: str, place: int
) -> None:
    dims = (2, 32, 64, 64)
    source, target = memory_desc(dims, "f32", tag), memory_desc(dims, dtype, tag)
    size = target.dtype.nbytes(1)
    place = place // size * size
    builder = BatchBuilder(plan_reorder(source, target, _SCALE), 1, _LARGE, place)
    program = tile_batches(builder)[0].program
    offsets = program[len(TileHead._fields) :]
    first = -place % LINE_NBYTES // size
    codes = [k for k, word in enumerate(program) if isinstance(word, StageTypes)]
    steps = [TileStep(*program[k : k + len(TileStep._fields)]) for k in codes]
    (step,) = (step for step in steps if step.interpreter.operands is Operands.EACH)
    start = offsets[step.operand_placed_by] + first
    assert address_of(step.operand_base[start:]) % LINE_NBYTES == 0


def test_joined_batches_keep_their_chunks_and_threads() -> None:
    src, dst = (memory_desc((1071, 975), "f16", tag) for tag in ("ba", "BA8a16b2a"))
    plan = plan_reorder(src, dst)
    boxes = BatchBuilder(plan, 4, _MACHINE._replace(threads=4)).move(plan.boxes)
    batches = [*boxes, _tiles(("f32", "abcd"), ("s8", "acdb"), None)]
    shares = [batch.partition for batch in batches]
    joined = join(batches).partition
    assert joined.chunks == sum(each.chunks for each in shares)
    assert joined.workers == max(each.workers for each in shares) > shares[-1].workers


def test_a_schedule_has_no_addresses() -> None:
    batch = _tiles(("f32", "abcd"), ("s8", "acdb"), _SCALE)
    words = [word for word in batch.program if isinstance(word, int)]
    assert len(words) < len(batch.program)
    assert max(map(abs, words)) < 1 << 32


def _nodes(extents: tuple[int, ...], operand: tuple[int, ...]) -> tuple[Node, ...]:
    """Return the loops of a tile that is dense in src and in dst."""
    strides = zip(dense_strides(extents), dense_strides(extents), operand, strict=True)
    return tuple(Node(extent, extent, of) for extent, of in zip(extents, strides, strict=True))


@pytest.mark.parametrize(
    ("extents", "operand", "loops", "columns", "size"),
    [
        # a block of 16 channels, stored 5 times; tiles of other blocks have other ones
        ((60, 16), (0, 1), [(4, 16)], 960, 4 * 80),
        # any number of channels, in whole lines if these are few
        ((100, 3), (0, 1), [(2, 0)], 300, 112),
        ((4, 48), (0, 32), [(8, 1)], 192, 8 * 112),
        ((4, 1000), (0, 1), [(8, 1000)], 4000, 8 * 1064),
        # a value for each element of small groups, if all tiles have the same
        ((32, 8), (1, 0), [(4, 0)], 256, 256),
        ((32, 8), (1, 0), [(4, 32)], 8, 0),
        # rows that are long in place
        ((4, 64), (64, 1), [(8, 256)], 256, 0),
        ((4, 64), (1, 0), [(8, 4)], 256, 0),
        ((4, 64), (1000, 1), [(8, 64)], 64, 0),
        # values that repeat between others: once for each row, or for each element of short rows
        ((4, 8, 64), (64, 0, 1), [(8, 256)], 512, 8 * 4 * 128),
        ((4, 8, 4), (4, 0, 1), [(8, 16)], 128, 8 * 128),
        # a block would have more values than its row has elements
        ((4, 2, 40), (40, 0, 1), [(8, 160)], 40, 0),
        # more values than a table holds
        ((4, 1000), (0, 1), [(8000, 1000)], 1000, 0),
    ],
)
def test_operands_are_gathered_where_rows_would_be_short(
    extents: tuple[int, ...],
    operand: tuple[int, ...],
    loops: list[tuple[int, int]],
    columns: int,
    size: int,
) -> None:
    rows = find_rows(_nodes(extents, operand), loops)
    blocks = prod(extent for extent, stride in loops if stride)
    assert (rows.columns, 0 if rows.block is None else blocks * len(rows.block)) == (columns, size)


@pytest.mark.parametrize(
    ("extents", "operand", "columns", "shift"),
    [
        # groups of 32 with operands that follow each other, but not in the next row of them
        ((3, 8, 32), (16, 1, 0), 8 * 32, 5),
        ((3, 4, 2, 16), (64, 2, 1, 0), 8 * 16, 4),
        ((8, 128), (1, 0), 8 * 128, 7),
        # too small, too large, no power of two, and operands that are apart
        ((32, 8), (1, 0), 8, 0),
        ((8, 256), (1, 0), 256, 0),
        ((8, 48), (1, 0), 48, 0),
        ((8, 32), (2, 0), 32, 0),
    ],
)
def test_a_row_has_several_groups_of_elements(
    extents: tuple[int, ...], operand: tuple[int, ...], columns: int, shift: int
) -> None:
    rows = find_rows(_nodes(extents, operand), [(2, 1 << 20)])
    assert (rows.columns, rows.shift) == (columns, shift)
    assert (rows.operands is Operands.GROUPS) is (shift > 0)
