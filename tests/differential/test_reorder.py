"""Reorders against oneDNN 3.2: every byte of dst, padding and gaps included."""

import random
from contextlib import nullcontext

import numpy as np
import pytest
from numpy.typing import NDArray

from memdesc.dtypes import DATA_TYPES
from reorder import execute, plan_reorder
from tests.reorders import few_boxes

from . import known
from .cases import follow_theirs, make_rng
from .compare import count_elements, is_padding, offsets_of, where_bytes_differ
from .libdnnl import Desc, Fields, Status
from .libdnnl_reorder import Executor
from .pairs import DTYPES, Side, draw_pair, poison, values
from .tally import Tally

_SLACK = 4096
# how many of the reorders use indirection tables wherever blocks do not divide dims
_LOOKED_UP = 0.2
_KINDS = ("tag", "permuted tag", "free tag", "strides", "view", "misaligned", "same")


def make_src(rng: random.Random, dtype: str, fields: Fields) -> NDArray[np.uint8]:
    """Fill a buffer with values, and its padding with zeros."""
    width = DATA_TYPES[dtype].bits // 8
    at = rng.randrange(4096)
    src = values(dtype)[at * width : (at + count_elements(fields)) * width].copy()
    if 0 not in fields.dims and fields.padded_dims != fields.dims:
        padding = offsets_of(fields, fields.padded_dims)[is_padding(fields)]
        src.reshape(-1, width)[padding] = 0
    return src


def make_dst(rng: random.Random, nbytes: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return two equal buffers of random bytes, with room after them."""
    at = rng.randrange(4096)
    dst = poison()[at : at + nbytes + _SLACK]
    return dst.copy(), dst.copy()


def compare(library: Executor, tally: Tally, rng: random.Random, src: Side, dst: Side) -> None:
    """Reorder with both sides and count what they wrote."""
    dtype = src.recipe.start.dtype
    width = DATA_TYPES[dtype].bits // 8
    from_desc, to_desc = follow_theirs(library, src.recipe), follow_theirs(library, dst.recipe)
    for side, desc in ((src, from_desc), (dst, to_desc)):
        fields = desc if isinstance(desc, Status) else desc.fields()
        if known.regroups_otherwise(side.desc, fields, side.recipe.steps):
            tally.leave_out(known.regroups_otherwise)
            return
    assert isinstance(from_desc, Desc)
    assert isinstance(to_desc, Desc)
    from_fields, to_fields = from_desc.fields(), to_desc.fields()
    if known.has_more_loops_than_3_2_holds(from_fields) or known.has_more_loops_than_3_2_holds(
        to_fields
    ):
        tally.leave_out(known.has_more_loops_than_3_2_holds)
        return
    if known.pads_a_view_inside_a_block(to_fields):
        tally.leave_out(known.pads_a_view_inside_a_block)
        return
    # dims whose blocks do not divide each other rarely need an indirection table
    is_looked_up = rng.random() < _LOOKED_UP
    from_bytes = make_src(rng, dtype, from_fields)
    ours, theirs = make_dst(rng, count_elements(to_fields) * width)
    with few_boxes() if is_looked_up else nullcontext():
        plan = plan_reorder(src.desc, dst.desc)
        execute(plan, from_bytes, ours, threads=rng.choice((1, 2, None)))
    if known.may_divide_by_no_elements(to_fields):
        tally.leave_out(known.may_divide_by_no_elements)
        if (ours != theirs).any():
            tally.differ(f"{src.recipe} -> {dst.recipe}: wrote although there are no elements")
        return
    tally.kinds.update((f"src {src.kind}", f"dst {dst.kind}", dtype, f"{to_fields.ndims} dims"))
    tally.kinds["indirect loops"] += any(box.indirect for box in plan.boxes)
    status = library.reorder(from_desc, to_desc, from_bytes, theirs)
    is_equal = not status and (ours == theirs).all()
    if known.is_unimplemented(status):
        tally.excuse(known.is_unimplemented)
    elif not is_equal and known.zeroes_padding_in_six_dims_only(to_fields, ours, theirs, width):
        tally.excuse(known.zeroes_padding_in_six_dims_only)
    elif not is_equal and known.takes_outer_loops_for_dense(plan):
        tally.excuse(known.takes_outer_loops_for_dense)
    else:
        tally.compared += 1
        if not is_equal:
            tally.differ(
                f"{src.recipe} -> {dst.recipe}: {status.name}, "
                f"{where_bytes_differ(to_fields, ours, theirs, width)}"
            )


@pytest.mark.parametrize("count", [1000, pytest.param(20_000, marks=pytest.mark.campaign)])
def test_reorders_of_one_dtype_write_the_bytes_that_libdnnl_writes(
    dnnl_3_2: Executor, count: int
) -> None:
    tally = Tally("reorders", dnnl_3_2.version)
    for case in range(count):
        rng = make_rng("reorder", case)
        src, dst = draw_pair(rng)
        compare(dnnl_3_2, tally, rng, src, dst)
    tally.check(most_left_out=0.03)
    kinds = tally.kinds
    wanted = [
        *DTYPES,
        *(f"src {kind}" for kind in (*_KINDS, "broadcast", "steps")),
        *(f"dst {kind}" for kind in _KINDS),
        "indirect loops",
    ]
    assert all(
        kinds[kind] > count / 200 for kind in [*wanted, *(f"{ndims} dims" for ndims in range(1, 7))]
    ), kinds
    assert kinds["12 dims"]
