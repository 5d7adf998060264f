"""Sub-memory, reshape and permute against oneDNN's."""

import random

import pytest

from memdesc import MemoryDesc
from memdesc.tags import parse_tag

from . import known
from .cases import (
    Recipe,
    Start,
    ask,
    count_tags,
    draw_dims_with_tails,
    draw_free_tag,
    draw_ndims,
    draw_step,
    draw_strides,
    dtypes_of,
    make_ours,
    make_rng,
    make_theirs,
    step_ours,
    step_theirs,
    tags_of,
)
from .known import StartAnswer, StepAnswer
from .libdnnl import Desc, Fields, Status
from .libdnnl_reorder import Executor
from .tally import Tally

_SIZES = [known.counts_no_bytes_of_what_is_read]
_STEPS = [*_SIZES, known.drops_a_blocked_unit_dim, known.merges_a_blocked_dim_as_if_it_were_plain]


def draw_start(rng: random.Random, library: Executor) -> Start:
    """Draw a descriptor by a tag of the enum, by another tag, or by strides."""
    ndims = draw_ndims(rng)
    kind = rng.choice(("tag", "tag", "free tag", "strides"))
    if kind == "strides":
        dims = draw_dims_with_tails(
            rng, [rng.choice((1, 2, 4, 6)) for _ in range(ndims)], zero=0.05
        )
        return Start(dims, rng.choice(dtypes_of(library)), strides=draw_strides(rng, dims))
    if kind == "tag":
        tag = rng.choice(tags_of(ndims, count_tags(library)))
        return Start(
            draw_dims_with_tails(rng, parse_tag(tag).block_sizes, zero=0.05),
            rng.choice(dtypes_of(library)),
            tag,
        )
    tag = draw_free_tag(rng, ndims)
    return Start(draw_dims_with_tails(rng, parse_tag(tag).block_sizes), "f32", tag)


def _fields(theirs: Desc | Status) -> Fields | Status:
    return theirs.fields() if isinstance(theirs, Desc) else theirs


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=pytest.mark.campaign)])
def test_chains_of_views_reshapes_and_permutations_are_accepted_and_lie_as_in_libdnnl(
    library: Executor, count: int
) -> None:
    tally = Tally("views, reshapes, permutations", library.version)
    case = 0
    while sum(tally.kinds.values()) < count:
        rng = make_rng("steps", case)
        case += 1
        start = draw_start(rng, library)
        ours, theirs = ask(make_ours, start), make_theirs(library, start)
        tally.judge(StartAnswer(library.version, ours, _fields(theirs), start), _SIZES, start)
        recipe = Recipe(start)
        while isinstance(ours, MemoryDesc) and isinstance(theirs, Desc) and len(recipe.steps) < 3:
            step = draw_step(rng, ours)
            recipe = Recipe(start, (*recipe.steps, step))
            before, before_fields = ours, theirs.fields()
            ours, theirs = ask(step_ours, ours, step), step_theirs(theirs, step)
            answer = StepAnswer(library.version, ours, _fields(theirs), before, before_fields, step)
            tally.kinds[
                f"{step.name} {'refused' if isinstance(theirs, Status) else 'accepted'}"
            ] += 1
            if known.regroups_only_plain_dims(answer):
                tally.excuse(known.regroups_only_plain_dims)
                break
            if not tally.judge(answer, _STEPS, recipe) and not answer.only_the_size_is_0():
                break
    # 3.2 has no size for any of the many views that do not start at 0
    tally.check(most_left_out=0.01 if library.version >= (3, 13) else 0.05)
    for name in ("submemory", "reshape", "permute_axes"):
        assert tally.kinds[f"{name} accepted"] > count / 10
        assert tally.kinds[f"{name} refused"] > count / 200
