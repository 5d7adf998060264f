"""Reorders of int8 weights with compensation, against libdnnl 3.13: the sums after the elements.

Sums start at a multiple of 4 bytes; libdnnl leaves the bytes in front of them as they are.
"""

import random
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import Extra, MemoryDesc, memory_desc

from . import known
from .cases import draw_dims_with_tails, make_rng
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
_SLACK = 4096
_UNTOUCHED = 77


class _Case(NamedTuple):
    """A reorder; dst has no compensation yet."""

    src: MemoryDesc
    dst: MemoryDesc
    tags: tuple[str, str]
    extra: Extra


def _draw(rng: random.Random) -> _Case:
    ndims = rng.choice((2, 3, 4, 5))
    blocks = [rng.choice((1, 2, 4, 8, 16)) if dim < 3 else 1 for dim in range(ndims)]
    dims = draw_dims_with_tails(rng, blocks, zero=0.0, max_nelems=5000)
    # blocked sources often pad, which libdnnl does not expect
    tags = (
        "abcde"[:ndims] if rng.random() < 0.7 else rng.choice(_TAGS[ndims]),
        rng.choice(_TAGS[ndims]),
    )
    mask = rng.choice(_MASKS)
    s8s8, asymmetric = rng.choice(((mask, None), (None, mask), (mask, mask)))
    extra = Extra(s8s8, asymmetric, rng.choice((1.0, 1.0, 0.5)))
    src, dst = (
        memory_desc(dims, dtype, tag)
        for dtype, tag in zip((rng.choice(("f32", "s8")), "s8"), tags, strict=True)
    )
    return _Case(src, dst, tags, extra)


def _weights(rng: random.Random, desc: MemoryDesc) -> NDArray[np.uint8]:
    """Fill a buffer with numbers, of which some saturate and some are halves."""
    draw = np.random.default_rng(rng.randrange(2**32))
    values = draw.integers(-500, 500, desc.dims) / 2
    is_float = desc.dtype.name == "f32"
    array = values.astype(np.float32) if is_float else np.clip(values, -128, 127).astype(np.int8)
    return reorder.reorder(array, desc).data


def _compare(library: Library, tally: Tally, rng: random.Random) -> None:
    case = _draw(rng)
    dst = case.dst.with_extra(case.extra)
    source = _weights(rng, case.src)
    descs = [library.by_fields(desc) for desc in (case.src, dst)]
    if dst.nbytes != (size := descs[1].fields().size):
        tally.differ(f"{dst!r}: {dst.nbytes} bytes, theirs {size}")
        return
    ours = np.full(dst.nbytes, _UNTOUCHED, np.uint8)
    theirs = np.full(dst.nbytes + _SLACK, _UNTOUCHED, np.uint8)
    padded = np.concatenate([source, np.zeros(_SLACK, np.uint8)])
    reorder.execute(
        reorder.plan_reorder(case.src, dst), source, ours, threads=rng.choice((1, 2, None))
    )
    masks = case.extra.masks
    tally.kinds.update([case.tags[1], case.src.dtype.name, *(f"{k} {m}" for k, m in masks.items())])
    tally.kinds["scale_adjust"] += case.extra.scale_adjust != 1
    tally.kinds["order"] += 3 in masks.values() and case.tags[1] in {"Abcde16a", "ABc4a4b", "bac"}
    status = library.reorder(descs, (padded, theirs))
    if known.is_unimplemented(status):
        tally.excuse(known.is_unimplemented)
        return
    wrong = ours != theirs[: ours.size]
    wrong[case.dst.nbytes : -(-case.dst.nbytes // 4) * 4] = False
    of_elements = wrong[: case.dst.nbytes].any()
    if (
        wrong.any()
        and not of_elements
        and known.lays_sums_out_over_the_padding_of_src(case.src, dst)
    ):
        tally.excuse(known.lays_sums_out_over_the_padding_of_src)
        return
    tally.compared += 1
    if status or wrong.any():
        what = "elements" if of_elements else "sums"
        tally.differ(f"{case}: {status.name}, {wrong.sum()} bytes, among them {what}")


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
