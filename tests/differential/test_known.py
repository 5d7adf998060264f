"""The known differences, each in a small case: defects of oneDNN, not of memdesc.

Which code of oneDNN runs depends on the processor, so each test accepts the recorded defect, the
correct result, and a refusal. Anything else is a difference without a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import DATA_TYPES, Extra, memory_desc
from reorder import execute, plan_reorder

from . import known
from .cases import (
    Recipe,
    Start,
    Step,
    ask,
    follow_ours,
    follow_theirs,
    make_ours,
    make_rng,
    make_theirs,
    step_ours,
    step_theirs,
)
from .compare import count_elements, offsets_of, where_bytes_differ
from .known import StartAnswer, StepAnswer
from .known_values import loses_the_sign_of_zero, saturates_s32_below_its_largest
from .libdnnl import Desc, Status
from .libdnnl_extra import with_extra
from .libdnnl_reorder import Parameters, reorder_with_attributes
from .pairs import Side
from .tally import Tally
from .test_reorder import compare

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from .known import Answer
    from .libdnnl_reorder import Executor

pytestmark = pytest.mark.peers

# written into dst beforehand
_UNTOUCHED = 7
# oneDNN may write and read behind a buffer
_SLACK = 4096


def _is_accepted(answer: Answer, defect: Callable[..., bool]) -> bool:
    return defect(answer) or answer.agrees() or isinstance(answer.theirs, Status)


def _step(library: Executor, recipe: Recipe) -> StepAnswer:
    *before, step = recipe.steps
    parent = Recipe(recipe.start, tuple(before))
    ours, theirs = follow_ours(parent), follow_theirs(library, parent)
    made = step_theirs(theirs, step)
    fields = made.fields() if isinstance(made, Desc) else made
    return StepAnswer(
        library.version, ask(step_ours, ours, step), fields, ours, theirs.fields(), step
    )


def _start(library: Executor, start: Start) -> StartAnswer:
    theirs = make_theirs(library, start)
    return StartAnswer(
        library.version,
        ask(make_ours, start),
        theirs.fields() if isinstance(theirs, Desc) else theirs,
        start,
    )


@pytest.mark.parametrize(
    ("defect", "recipe"),
    [
        (
            known.drops_a_blocked_unit_dim,
            Recipe(
                Start((3, 8), "f32", "AB8a8b"),
                (Step("submemory", ((3, 1), (0, 0))), Step("reshape", ((3,),))),
            ),
        ),
        (
            known.merges_a_blocked_dim_as_if_it_were_plain,
            Recipe(Start((2, 4, 31, 2), "f32", "aCdB32c2b"), (Step("reshape", ((8, 31, 2),)),)),
        ),
        (
            known.counts_no_bytes_of_what_is_read,
            Recipe(Start((21,), "f32", "A16a"), (Step("submemory", ((8,), (0,))),)),
        ),
    ],
)
def test_a_step_differs_as_its_name_says_in_both_libraries(
    library: Executor, defect: Callable[..., bool], recipe: Recipe
) -> None:
    assert _is_accepted(_step(library, recipe), defect)


@pytest.mark.parametrize(
    ("defect", "start"),
    [
        (known.counts_no_bytes_of_what_is_read, Start((4, 5), "f32", strides=(0, 0))),
        (known.needs_more_bytes_than_int64_holds, Start((2**61 + 1,), "f32", strides=(1,))),
        (known.counts_broadcasts_as_bytes, Start((2**63 - 1,), "f32", strides=(0,))),
        (known.counts_the_outermost_extent_twice, Start((2**40, 5), "f32", "AB4b16a4b")),
        (known.fits_unsigned_64_bits_only, Start((2**61 + 1,), "f32", "a")),
        (known.wraps_strides_of_no_elements, Start((0, 7706474725063832843), "u8", "AB48a32b")),
    ],
)
def test_a_start_differs_as_its_name_says_in_3_13(
    dnnl_3_13: Executor, defect: Callable[..., bool], start: Start
) -> None:
    assert _is_accepted(_start(dnnl_3_13, start), defect)


def test_no_view_behind_an_offset_has_a_size_in_3_2_alone(
    dnnl_3_2: Executor, dnnl_3_13: Executor
) -> None:
    view = Recipe(Start((4, 5), "f32", "ab"), (Step("submemory", ((2, 5), (1, 0))),))
    assert _is_accepted(_step(dnnl_3_2, view), known.has_no_size_behind_an_offset)
    assert _step(dnnl_3_13, view).agrees()


def test_what_would_divide_by_zero_is_known_without_asking() -> None:
    assert known.divides_by_zero(Start((2**62, 1), "f32", "AB16a16b"))
    assert not known.divides_by_zero(Start((2**40, 1), "f32", "AB16a16b"))


def _side(
    dims: tuple[int, ...],
    dtype: str,
    tag: str,
    view: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> Side:
    recipe = Recipe(Start(dims, dtype, tag), (Step("submemory", view),) if view else ())
    return Side("view", recipe, follow_ours(recipe))


_SLICE = ((2, 32, 3, 3), (0, 0, 0, 0))


@pytest.mark.parametrize(
    ("defect", "src", "dst"),
    [
        (
            known.takes_outer_loops_for_dense,
            _side((2, 64, 3, 3), "f32", "abcd", _SLICE),
            _side((2, 64, 3, 3), "f32", "aBcd8b", _SLICE),
        ),
        (
            known.zeroes_padding_in_six_dims_only,
            # more loops than any generated code takes, on any machine
            _side((1, *[2] * 9, 3), "f32", "kjihgfedcba"),
            _side((1, *[2] * 9, 3), "f32", "Abcdefghijk8a"),
        ),
    ],
)
def test_a_reorder_differs_as_its_name_says(
    dnnl_3_2: Executor, defect: Callable[..., bool], src: Side, dst: Side
) -> None:
    tally = Tally("known", dnnl_3_2.version)
    compare(dnnl_3_2, tally, make_rng("known", 0), src, dst)
    assert tally.differences == []
    assert tally.excused in ({}, {defect.__name__: 1}, {known.is_unimplemented.__name__: 1})


def test_zero_padding_of_a_view_inside_a_block_clears_the_block_in_front_of_it(
    dnnl_3_2: Executor,
) -> None:
    dst = _side((19, 1, 2), "f32", "ABc16a16b", ((1, 1, 2), (16, 0, 0)))
    src = _side((1, 1, 2), "f32", "abc")
    from_desc, to_desc = follow_theirs(dnnl_3_2, src.recipe), follow_theirs(dnnl_3_2, dst.recipe)
    fields = to_desc.fields()
    assert known.pads_a_view_inside_a_block(fields)
    values = np.ones(2, np.float32).view(np.uint8)
    theirs = np.full(4 * count_elements(fields) + _SLACK, _UNTOUCHED, np.uint8)
    ours = theirs.copy()
    status = dnnl_3_2.reorder(from_desc, to_desc, values, theirs)
    execute(plan_reorder(src.desc, dst.desc), values, ours)
    assert known.is_unimplemented(status) or where_bytes_differ(fields, ours, theirs, 4) in (
        {},
        {"padding": 30, "gaps": 480},
    )
    # memdesc writes the view and its padding, and nothing else
    written = np.flatnonzero((ours != _UNTOUCHED).reshape(-1, 4).any(axis=1))
    assert np.array_equal(written, np.sort(offsets_of(fields, fields.padded_dims), axis=None))


def test_more_loops_than_3_2_holds_are_known_without_asking(dnnl_3_2: Executor) -> None:
    dims = (2,) * 11
    for tag, is_known in (("abcdefghijK4k", False), ("abcdefghijK4k2k", True)):
        theirs = make_theirs(dnnl_3_2, Start(dims, "f32", tag))
        assert isinstance(theirs, Desc)
        assert known.has_more_loops_than_3_2_holds(theirs.fields()) == is_known
        assert memory_desc(dims, "f32", tag).nbytes == theirs.fields().size


def test_sums_lie_by_the_padding_of_src_where_it_pads_further_than_dst(dnnl_3_13: Executor) -> None:
    dims, tag, extra = (5, 20, 17, 2), "ABcd4b16a4b", Extra(s8s8_mask=3)
    src, dst = memory_desc(dims, "f32", tag), memory_desc(dims, "s8", "abdc").with_extra(extra)
    assert known.lays_sums_out_over_the_padding_of_src(src, dst)
    x = make_rng("known", 0).choices(range(-128, 128), k=src.nelems)
    ours = reorder.reorder(np.array(x, np.float32).reshape(dims), dst)
    source = reorder.reorder(np.array(x, np.float32).reshape(dims), src).data
    from_desc, to_desc = (
        make_theirs(dnnl_3_13, Start(dims, *side)) for side in (("f32", tag), ("s8", "abdc"))
    )
    assert isinstance(from_desc, Desc)
    assert isinstance(to_desc, Desc)
    theirs = np.full(dst.nbytes + _SLACK, _UNTOUCHED, np.uint8)
    status = dnnl_3_13.reorder(from_desc, with_extra(dnnl_3_13, to_desc, extra), source, theirs)
    if known.is_unimplemented(status):
        return
    assert not status
    assert np.array_equal(ours.data[: dst.nelems], theirs[: dst.nelems])
    sums = ours.compensation()["s8s8"]
    rows = np.pad(sums, ((0, 0), (0, 32 - 20))).ravel()[: sums.size]
    # what the first two rows hold differs from call to call
    found = theirs[dst.nelems : dst.nbytes].view(np.int32)[64:].tolist()
    assert found in (rows[64:].tolist(), sums.ravel()[64:].tolist())


@pytest.mark.parametrize("dst", ["s4", "u4", "s64", "e8m0", "f4_e2m1"])
@pytest.mark.parametrize("src", ["f16", "bf16", "s32", "s8", "u8", "f8_e5m2", "f8_e4m3"])
def test_direct_copies_into_types_that_they_lack_write_nothing(
    dnnl_3_13: Executor, src: str, dst: str
) -> None:
    assert known.leaves_dst_as_it_was(src, dst)
    # numbers that all of these types hold
    x = np.array([1, 2, 4] * 12, np.float32).astype(DATA_TYPES[src].numpy)
    from_desc, to_desc = (make_theirs(dnnl_3_13, Start(x.shape, side, "a")) for side in (src, dst))
    assert isinstance(from_desc, Desc)
    assert isinstance(to_desc, Desc)
    theirs = np.full(8 * x.size + _SLACK, _UNTOUCHED, np.uint8)
    source = np.concatenate([x.view(np.uint8), np.zeros(_SLACK, np.uint8)])
    status = dnnl_3_13.reorder(from_desc, to_desc, source, theirs)
    correct = reorder.reorder(x, "a", dtype=dst).data
    found = theirs[: correct.size]
    assert known.is_unimplemented(status) or (
        not status and ((theirs == _UNTOUCHED).all() or np.array_equal(found, correct))
    )


def _with_zero_points(
    library: Executor, dtypes: tuple[str, str], points: Parameters, *, by_reference: bool
) -> list[int] | None:
    """Return what oneDNN makes of 0 to 11, or None if it refuses."""
    source = np.arange(12).astype(DATA_TYPES[dtypes[0]].numpy).view(np.uint8)
    theirs = np.zeros(12 * 4 + _SLACK, np.uint8)
    sides = (dtypes[0], "ab"), (dtypes[1], "ab")
    buffers = np.concatenate([source, np.zeros(_SLACK, np.uint8)]), theirs
    status = reorder_with_attributes(
        library, (4, 3), sides, buffers, points, by_reference=by_reference
    )
    if known.is_unimplemented(status):
        return None
    assert not status
    kind = DATA_TYPES[dtypes[1]].numpy
    found: list[int] = theirs[: 12 * kind.itemsize].view(kind).tolist()
    return found


@pytest.mark.parametrize("by_reference", [True, False])
@pytest.mark.parametrize("dtypes", [("s8", "s8"), ("s32", "s8"), ("s8", "s32"), ("s32", "s32")])
def test_masks_of_zero_points_are_ignored(
    dnnl_3_13: Executor, dtypes: tuple[str, str], by_reference: bool
) -> None:
    points = np.array([1, 2, 3, 4], np.int32), 1
    for side, sign, parameters in (
        ("src", -1, Parameters(src_zero_point=points)),
        ("dst", 1, Parameters(dst_zero_point=points)),
    ):
        found = _with_zero_points(dnnl_3_13, dtypes, parameters, by_reference=by_reference)
        correct = [k + sign * (k // 3 + 1) for k in range(12)]
        accepted = [None, correct]
        if known.ignores_masks_of_zero_points(side, by_reference=by_reference):
            accepted.append([k + sign for k in range(12)])
        assert found in accepted


def test_zero_points_of_src_are_rounded_to_f32(dnnl_3_13: Executor) -> None:
    for point, theirs in ((2**24 + 3, -(2**24 + 4)), (-(2**31), -(2**31))):
        points = Parameters(src_zero_point=(np.array([point], np.int32), 0))
        assert known.rounds_zero_points_to_f32(points)
        found = _with_zero_points(dnnl_3_13, ("s8", "f32"), points, by_reference=True)
        assert found in (
            None,
            [np.float32(theirs + k) for k in range(12)],
            [np.float32(k - point) for k in range(12)],
        )
    exact = Parameters(src_zero_point=(np.array([-(2**24)], np.int32), 0))
    assert not known.rounds_zero_points_to_f32(exact)
    found = _with_zero_points(dnnl_3_13, ("s8", "f32"), exact, by_reference=True)
    assert found in (None, [np.float32(k + 2**24) for k in range(12)])


@pytest.mark.parametrize(
    ("values", "dst", "correct", "recorded", "reason"),
    [
        (
            [3e9, np.inf, 5.0],
            "s32",
            [2**31 - 1, 2**31 - 1, 5],
            [2147483520, 2147483520, 5],
            saturates_s32_below_its_largest,
        ),
        ([-0.0, 1.0], "f16", [0x8000, 0x3C00], [0, 0x3C00], loses_the_sign_of_zero),
    ],
)
def test_values_differ_as_their_names_say(
    dnnl_3_13: Executor,
    values: list[float],
    dst: str,
    correct: list[int],
    recorded: list[int],
    reason: Callable[..., NDArray[np.bool_]],
) -> None:
    x = np.array(values, np.float32)
    source, buffer = (
        np.concatenate([own, np.zeros(_SLACK, np.uint8)])
        for own in (x.view(np.uint8), np.zeros(4 * x.size, np.uint8))
    )
    sides = ("f32", "a"), (dst, "a")
    status = reorder_with_attributes(dnnl_3_13, x.shape, sides, (source, buffer), Parameters())
    if known.is_unimplemented(status):
        return
    assert not status
    kind = DATA_TYPES[dst].bits_dtype
    ours = reorder.reorder(x, "a", dtype=dst).data.view(kind)
    theirs = buffer.view(kind)[: x.size]
    assert ours.tolist() == correct
    assert theirs.tolist() in (correct, recorded)
    assert np.array_equal(reason(ours, theirs, dst), ours != theirs)
