"""Conversions with scales, zero points and sums, against the reference of oneDNN 3.13."""

import random
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemoryDesc, memory_desc
from memdesc.dtypes import DATA_TYPES
from reorder import Attr
from tests.conversions import INTEGERS

from .cases import draw_dims_with_tails, make_rng
from .compare import reordered_by_both
from .known import KNOWN_VALUES, ignores_masks_of_zero_points, is_unimplemented
from .libdnnl import RUNTIME, Library, Parameters
from .tally import Tally

_PAIRS = {
    "f32": ("f32", "bf16", "f16", "s32", "s8", "u8", "f8_e5m2", "f8_e4m3"),
    "bf16": ("bf16", "f32", "s8", "u8"),
    "f16": ("f16", "f32", "s8", "u8"),
    "s32": ("s32", "f32", "s8", "u8"),
    "s8": ("s8", "u8", "s32", "f32", "bf16", "f16"),
    "u8": ("u8", "s8", "s32", "f32", "bf16"),
    "f8_e5m2": ("f32", "f16", "bf16"),
    "f8_e4m3": ("f32", "f16", "bf16"),
}
_DTYPES = [(src, dst) for src, targets in _PAIRS.items() for dst in targets]
# of these, a type on each side of each kind, other tests compile kernels too
_SHARED = (
    *(("f32", "f32"), ("f32", "s8"), ("s8", "f32"), ("f32", "bf16"), ("bf16", "s8"), ("u8", "f32")),
    *(("f16", "s8"), ("s32", "u8"), ("f32", "f16"), ("f32", "f8_e5m2"), ("f8_e4m3", "f32")),
)
_TAGS = {
    1: ("a", "A8a", "A16a"),
    2: ("ab", "ba", "aB8b", "AB4b16a4b", "Ab32a"),
    3: ("abc", "acb", "cba", "aBc16b", "ABc8b8a", "ABc4b16a4b", "Bac4b"),
    4: ("abcd", "acdb", "cdba", "aBcd16b", "ABcd16b16a", "ABcd4b16a4b", "ABcd8a4b"),
}
# the reference rounds larger zero points of src to f32 before it subtracts them, in 3.13 too
_EXACT = 2**24


def _values(rng: random.Random, desc: MemoryDesc, *, small: bool = False) -> NDArray[np.uint8]:
    """Fill a buffer with numbers of middling size, and its padding with zeros."""
    draw = np.random.default_rng(rng.randrange(2**32))
    name, dims = desc.dtype.name, desc.dims
    if name in INTEGERS:
        largest = 2**20 if name == "s32" and not small else 128
        logical = draw.integers(-largest, largest, dims) + 128 * (name == "u8")
    else:
        signs = draw.choice([-1, 1], dims)
        logical = np.ldexp(1 + draw.random(dims), draw.integers(-6, 8, dims)) * signs
        # halves, which rounding to even decides
        halves = np.rint(2 * logical) / 2 + (abs(logical) < 0.3)
        logical = np.where(draw.random(dims) < 0.3, halves, logical)
        logical = np.where(logical == 0, 1, logical)
    return reorder.reorder(logical.astype(desc.dtype.numpy), desc).data


def _parameters(
    rng: random.Random, dims: tuple[int, ...], names: tuple[str, str]
) -> tuple[Parameters, Attr]:
    """Draw attributes of oneDNN's reference: masks of neighbouring dims, equal on both sides."""
    given: dict[str, Any] = {}
    first = rng.randrange(len(dims))
    mask = sum(1 << dim for dim in range(first, rng.randint(first, len(dims) - 1) + 1))
    for role in Parameters._fields[:-1]:
        is_scale, is_of_dst = role.endswith("scale"), role.startswith("dst")
        if rng.random() < 0.4 or (not is_scale and names[is_of_dst] not in INTEGERS):
            continue
        is_ignored = not is_scale and ignores_masks_of_zero_points(role[:3])
        bits = mask if rng.random() < 0.5 and not is_ignored else 0
        count = prod(size for dim, size in enumerate(dims) if bits >> dim & 1)
        draw = np.random.default_rng(rng.randrange(2**32))
        if is_scale:
            values: Any = np.ldexp(1 + draw.random(count), draw.integers(-3, 4, count))
        else:
            largest = rng.choice((20, 300, _EXACT))
            values = draw.integers(-largest, largest, count)
        given[role] = values.astype(np.float32 if is_scale else np.int32), bits
    beta = rng.choice((0.0, 0.0, 1.0, 0.5, -2.0))
    attr: dict[str, Any] = {"beta": beta, "f8_rounding": "onednn"}
    for role, (values, bits) in given.items():
        attr |= {role: values if bits else values[0], f"{role}_mask": bits}
    return Parameters(**given, beta=beta), Attr(**attr)


def compare(library: Library, tally: Tally, rng: random.Random, names: tuple[str, str]) -> None:
    """Reorder one drawn case from one type to another with both, and count it."""
    ndims = rng.choice((1, 2, 2, 3, 3, 4))
    blocks = [rng.choice((1, 2, 4, 8, 16)) for _ in range(ndims)]
    dims = draw_dims_with_tails(rng, blocks, max_nelems=300)
    tags = rng.choice(_TAGS[ndims]), rng.choice(_TAGS[ndims])
    src, dst = (memory_desc(dims, name, tag) for name, tag in zip(names, tags, strict=True))
    parameters, attr = _parameters(rng, dims, names)
    buffers = _values(rng, src), _values(rng, dst, small=True)
    # with runtime dims no other implementation is chosen than the reference
    unknown = [
        library.by_string_tag((RUNTIME,) * ndims, *side) for side in zip(names, tags, strict=True)
    ]
    descs = [library.by_fields(desc) for desc in (src, dst)]
    plan = reorder.plan_reorder(src, dst, attr)
    status, ours, theirs = reordered_by_both(
        library, plan, descs, buffers, rng, parameters, unknown
    )
    tally.kinds.update(role for role, value in parameters._asdict().items() if value)
    if is_unimplemented(status):
        tally.excuse(is_unimplemented)
        return
    kind = DATA_TYPES[names[1]].bits_dtype
    mine, its = ours.view(kind), theirs.view(kind)
    wrong = mine != its
    for reason in KNOWN_VALUES:
        excused = wrong & reason(mine, its, names[1])
        if excused.any():
            tally.excuse(reason)
            wrong &= ~excused
    tally.compared += 1
    if status or wrong.any():
        seen = [(hex(a), hex(b)) for a, b in zip(mine[wrong][:2], its[wrong][:2], strict=True)]
        tally.differ(
            f"{src!r} -> {dst!r} {attr!r}: {status.name}, {wrong.sum()} elements, such as {seen}"
        )


@pytest.mark.parametrize(
    ("count", "pairs"),
    [(33, _SHARED), pytest.param(20_000, _DTYPES, marks=pytest.mark.campaign)],
    ids=["shared", "all"],
)
def test_reorders_with_attributes_write_the_bytes_that_the_reference_of_libdnnl_writes(
    dnnl_3_13: Library, count: int, pairs: Sequence[tuple[str, str]]
) -> None:
    tally = Tally("reorders with attributes", dnnl_3_13.version)
    for case in range(count):
        names = pairs[case % len(pairs)]
        compare(dnnl_3_13, tally, make_rng("attributes", case), names)
    tally.check()
    assert all(tally.kinds[role] > count / 10 for role in Parameters._fields)
