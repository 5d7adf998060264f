"""Reorders against oneDNN 3.2: every byte of dst, padding and gaps included."""

import random
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from memdesc import MemoryDesc
from memdesc.dtypes import DATA_TYPES
from reorder import execute, plan_reorder
from tests.reorders import few_boxes
from tests.strategies import dims

from . import known
from .cases import SEED, examples, make_rng, onednns
from .compare import differing_fields, is_padding, offsets_of, reordered_by_both, where_bytes_differ
from .libdnnl import Fields, Library
from .tally import Tally

Pair = tuple[MemoryDesc, MemoryDesc]

_DTYPES = ("f32", "s32", "s8", "u8", "f16", "bf16")
_POOL = 1 << 17
_SLACK = 4096
# how many of the reorders use indirection tables wherever blocks do not divide dims
_LOOKED_UP = 0.2


@st.composite
def _pairs(draw: st.DrawFn) -> Pair:
    sizes = draw(dims(1, 12, 256))
    dtype = draw(st.sampled_from(("f32", *_DTYPES)))
    return draw(onednns(sizes, dtype)), draw(onednns(sizes, dtype, source=False))


@cache
def _values(dtype: str) -> NDArray[np.uint8]:
    """Return the bytes of many random numbers that oneDNN's reference moves unchanged.

    No -0.0, no NaN, no denormal, nothing beyond 2^24 in s32: it computes in f32 and adds a
    zero point of 0.
    """
    rng = np.random.default_rng([SEED, _DTYPES.index(dtype)])
    if dtype == "s32":
        return rng.integers(-(2**24), 2**24 + 1, _POOL).astype(np.int32).view(np.uint8)
    if DATA_TYPES[dtype].bits == 8:
        return rng.integers(0, 256, _POOL).astype(np.uint8)
    low, high = (-13, 15) if dtype == "f16" else (-120, 120)
    magnitudes = np.ldexp(1 + rng.random(_POOL), rng.integers(low, high, _POOL)).astype(np.float32)
    signed: NDArray[Any] = (magnitudes * rng.choice([-1, 1], _POOL)).astype(DATA_TYPES[dtype].numpy)
    return signed.view(np.uint8)


@cache
def _poison() -> NDArray[np.uint8]:
    """Return random bytes."""
    return np.random.default_rng(SEED).integers(0, 256, 8 * _POOL).astype(np.uint8)


def _make_src(rng: random.Random, width: int, dtype: str, fields: Fields) -> NDArray[np.uint8]:
    """Fill a buffer with values, and its padding with zeros."""
    at = rng.randrange(4096)
    src = _values(dtype)[at * width : (at + max(fields.count_elements(), 1)) * width].copy()
    if 0 not in fields.dims and fields.padded_dims != fields.dims:
        padding = offsets_of(fields, fields.padded_dims)[is_padding(fields)]
        src.reshape(-1, width)[padding] = 0
    return src


def compare(
    library: Library, tally: Tally, rng: random.Random, pair: Pair, given: Pair | None = None
) -> None:
    """Reorder with both sides and count what they wrote; oneDNN is given other layouts at times."""
    dtype = pair[0].dtype.name
    width = DATA_TYPES[dtype].bits // 8
    descs = [library.by_fields(desc) for desc in given or pair]
    from_fields, to_fields = (desc.fields() for desc in descs)
    for desc, fields in zip(given or pair, (from_fields, to_fields), strict=True):
        assert {*differing_fields(desc, fields)} <= {"size", "nbytes"}, desc
    for defect in (known.has_more_loops_than_3_2_holds, known.pads_a_view_inside_a_block):
        if defect(to_fields) or defect(from_fields):
            tally.leave_out(defect)
            return
    # dims whose blocks do not divide each other rarely need an indirection table
    is_looked_up = rng.random() < _LOOKED_UP
    from_bytes = _make_src(rng, width, dtype, from_fields)
    nbytes, at = to_fields.count_elements() * width + _SLACK, rng.randrange(4096)
    before = _poison()[at : at + nbytes]
    with few_boxes() if is_looked_up else nullcontext():
        plan = plan_reorder(*pair)
    if known.may_divide_by_no_elements(to_fields):
        tally.leave_out(known.may_divide_by_no_elements)
        execute(plan, from_bytes, ours := before.copy())
        if (ours != before).any():
            tally.differ(f"{pair}: wrote although there are no elements")
        return
    tally.kinds.update((dtype, f"{to_fields.ndims} dims"))
    tally.kinds["indirect loops"] += any(box.indirect for box in plan.boxes)
    tally.kinds["views"] += max(from_fields.offset0, to_fields.offset0) > 0
    status, ours, theirs = reordered_by_both(library, plan, descs, (from_bytes, before), rng)
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
            differ = where_bytes_differ(to_fields, ours, theirs, width)
            tally.differ(f"{pair}: {status.name}, {differ}")


@pytest.mark.parametrize("count", [500, pytest.param(20_000, marks=pytest.mark.campaign)])
def test_reorders_of_one_dtype_write_the_bytes_that_libdnnl_writes(
    dnnl_3_2: Library, count: int
) -> None:
    tally = Tally("reorders", dnnl_3_2.version)
    for case, pair in enumerate(examples(count, _pairs())):
        compare(dnnl_3_2, tally, make_rng("reorders", case), pair)
    tally.check(most_left_out=0.2)
    wanted = [*_DTYPES, "indirect loops", "views", *(f"{ndims} dims" for ndims in range(1, 7))]
    assert all(tally.kinds[kind] > count / 200 for kind in wanted), tally.kinds
