"""The known differences: each shows in a small case, so that no name outlives its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from memdesc import memory_desc
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
from .libdnnl import Desc
from .pairs import Side
from .tally import Tally
from .test_reorder import compare

if TYPE_CHECKING:
    from collections.abc import Callable

    from .libdnnl_reorder import Executor


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
    answer = _step(library, recipe)
    assert not answer.agrees()
    assert defect(answer)


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
    answer = _start(dnnl_3_13, start)
    assert not answer.agrees()
    assert defect(answer)


def test_no_view_behind_an_offset_has_a_size_in_3_2_alone(
    dnnl_3_2: Executor, dnnl_3_13: Executor
) -> None:
    view = Recipe(Start((4, 5), "f32", "ab"), (Step("submemory", ((2, 5), (1, 0))),))
    assert known.has_no_size_behind_an_offset(_step(dnnl_3_2, view))
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
    assert tally.left_out == {defect.__name__: 1}


def test_zero_padding_of_a_view_inside_a_block_clears_the_block_in_front_of_it(
    dnnl_3_2: Executor,
) -> None:
    dst = _side((19, 1, 2), "f32", "ABc16a16b", ((1, 1, 2), (16, 0, 0)))
    src = _side((1, 1, 2), "f32", "abc")
    from_desc, to_desc = follow_theirs(dnnl_3_2, src.recipe), follow_theirs(dnnl_3_2, dst.recipe)
    fields = to_desc.fields()
    assert known.pads_a_view_inside_a_block(fields)
    values = np.ones(2, np.float32).view(np.uint8)
    theirs = np.full(4 * (count_elements(fields) + 1024), 7, np.uint8)
    ours = theirs.copy()
    assert not dnnl_3_2.reorder(from_desc, to_desc, values, theirs)
    execute(plan_reorder(src.desc, dst.desc), values, ours)
    assert where_bytes_differ(fields, ours, theirs, 4) == {"padding": 30, "gaps": 480}
    # memdesc writes the view and its padding, and nothing else
    written = np.flatnonzero((ours != 7).reshape(-1, 4).any(axis=1))
    assert np.array_equal(written, np.sort(offsets_of(fields, fields.padded_dims), axis=None))


def test_more_loops_than_3_2_holds_are_known_without_asking(dnnl_3_2: Executor) -> None:
    dims = (2,) * 11
    for tag, is_known in (("abcdefghijK4k", False), ("abcdefghijK4k2k", True)):
        theirs = make_theirs(dnnl_3_2, Start(dims, "f32", tag))
        assert isinstance(theirs, Desc)
        assert known.has_more_loops_than_3_2_holds(theirs.fields()) == is_known
        assert memory_desc(dims, "f32", tag).nbytes == theirs.fields().size
