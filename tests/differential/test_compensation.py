"""Reorders of int8 weights with compensation, against libdnnl 3.13: the sums after the elements.

Sums start at a multiple of 4 bytes; libdnnl leaves the bytes in front of them as they are.
"""

import random

import numpy as np
import pytest

import reorder
from memdesc import Extra, memory_desc

from . import known
from .cases import draw_dims_with_tails, make_rng
from .compare import reordered_by_both
from .libdnnl import Library
from .tally import Tally

_TAGS = {
    2: ("ab", "ba", "Ab16a", "aB8b", "AB2b32a", "AB4b16a4b", "BA16a16b4a", "BA16a64b4a"),
    3: (
        *("abc", "acb", "bac", "bca", "cab", "cba", "Abc16a", "aBc8b", "aBc16b", "Acb16a"),
        *("Bac8b", "bAc8a", "ABc4a4b", "ABc4b4a", "ABc16b16a", "ABc4b16a4b", "BAc16a16b"),
    ),
    4: (
        *("abcd", "abdc", "acdb", "bacd", "cdba", "dcab", "Abcd16a", "aBcd16b"),
        *("aBCd8c8b", "aBCd4c16b4c", "ABcd4b16a4b", "ABcd16b16a4b"),
    ),
    5: (
        *("abcde", "abdec", "acbde", "decab", "Abcde4a", "Abcde8a", "Abcde16a"),
        *("aBcde16b", "aBdec16b", "aBCde2c8b4c", "aBCde4c16b4c"),
    ),
}
# libdnnl has no reorders for other masks, and only few for 2
_MASKS = (1, 1, 2, 3, 3, 3)


def _compare(library: Library, tally: Tally, rng: random.Random) -> None:
    ndims = rng.choice((2, 3, 4, 5))
    blocks = [rng.choice((1, 2, 4, 8, 16)) if dim < 3 else 1 for dim in range(ndims)]
    dims = draw_dims_with_tails(rng, blocks, max_nelems=5000)
    mask = rng.choice(_MASKS)
    s8s8, asymmetric = rng.choice(((mask, None), (None, mask), (mask, mask)))
    extra = Extra(s8s8, asymmetric, rng.choice((1.0, 1.0, 0.5)))
    # blocked sources often pad, which libdnnl does not expect
    plain, tag = "abcde"[:ndims], rng.choice(_TAGS[ndims])
    src_tag = plain if rng.random() < 0.7 else rng.choice(_TAGS[ndims])
    src = memory_desc(dims, rng.choice(("f32", "s8")), src_tag)
    bare = memory_desc(dims, "s8", tag)
    dst = bare.with_extra(extra)
    descs = [library.by_fields(desc) for desc in (src, dst)]
    if dst.nbytes != (size := descs[1].fields().size):
        tally.differ(f"{dst!r}: {dst.nbytes} bytes, theirs {size}")
        return
    # some numbers saturate, and some are halves
    values = np.random.default_rng(rng.randrange(2**32)).integers(-500, 500, dims) / 2
    values = values if src.dtype.name == "f32" else np.clip(values, -128, 127)
    buffers = reorder.reorder(values.astype(src.dtype.numpy), src).data, np.full(size, 77, np.uint8)
    plan = reorder.plan_reorder(src, dst)
    status, ours, theirs = reordered_by_both(library, plan, descs, buffers, rng)
    tally.kinds.update([tag, src.dtype.name, *(f"{k} {m}" for k, m in extra.masks.items())])
    tally.kinds["scale_adjust"] += extra.scale_adjust != 1
    tally.kinds["order"] += mask == 3 and tag in {"Abcde16a", "ABc4a4b", "bac"}
    if known.is_unimplemented(status):
        tally.excuse(known.is_unimplemented)
        return
    wrong = ours != theirs
    wrong[bare.nbytes : -(-bare.nbytes // 4) * 4] = False
    of_elements = wrong[: bare.nbytes].any()
    is_known = known.lays_sums_out_over_the_padding_of_src(src, dst)
    if wrong.any() and not of_elements and is_known:
        tally.excuse(known.lays_sums_out_over_the_padding_of_src)
        return
    tally.compared += 1
    if status or wrong.any():
        what = "elements" if of_elements else "sums"
        tally.differ(f"{src!r} -> {dst!r}: {status.name}, {wrong.sum()} bytes, among them {what}")


@pytest.mark.parametrize("count", [500, pytest.param(20_000, marks=pytest.mark.campaign)])
def test_sums_after_weights_are_those_of_libdnnl(dnnl_3_13: Library, count: int) -> None:
    tally = Tally("reorders with compensation", dnnl_3_13.version)
    for case in range(count):
        _compare(dnnl_3_13, tally, make_rng("compensation", case))
    tally.check()
    wanted = [f"{name} {mask}" for name in ("s8s8", "asymmetric") for mask in (1, 3)]
    tags = [tag for tags in _TAGS.values() for tag in tags]
    assert all(
        tally.kinds[kind] > count / 400
        for kind in [*wanted, *tags, "f32", "s8", "scale_adjust", "order"]
    ), tally.kinds
