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
from .known import KNOWN_VALUES, ignores_masks_of_zero_points, is_unimplemented
from .libdnnl import RUNTIME, Desc, Library, Parameters
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
_SLACK = 4096
# the reference rounds larger zero points of src to f32 before it subtracts them, in 3.13 too
_EXACT = 2**24


def _values(rng: random.Random, desc: MemoryDesc, *, small: bool = False) -> NDArray[np.uint8]:
    """Fill a buffer with numbers of middling size, and its padding with zeros."""
    draw = np.random.default_rng(rng.randrange(2**32))
    name, dims = desc.dtype.name, desc.dims
    if name in INTEGERS:
        low, high = (0, 256) if name == "u8" else (-128, 128)
        logical = (
            draw.integers(low, high, dims)
            if name != "s32" or small
            else draw.integers(-(2**20), 2**20, dims)
        )
    else:
        logical = np.ldexp(1 + draw.random(dims), draw.integers(-6, 8, dims)) * draw.choice(
            [-1, 1], dims
        )
        # halves, which rounding to even decides
        logical = np.where(
            draw.random(dims) < 0.3, np.rint(2 * logical) / 2 + (abs(logical) < 0.3), logical
        )
        logical = np.where(logical == 0, 1, logical)
    array = logical.astype(desc.dtype.numpy)
    return reorder.reorder(array, desc).data


def _parameters(
    rng: random.Random, dims: tuple[int, ...], names: tuple[str, str]
) -> tuple[Parameters, Attr]:
    """Draw attributes of oneDNN's reference: masks of neighbouring dims, equal on both sides."""
    given: dict[str, Any] = {}
    first = rng.randrange(len(dims))
    mask = sum(1 << dim for dim in range(first, rng.randint(first, len(dims) - 1) + 1))
    for role, own in (
        ("src_scale", names[0]),
        ("dst_scale", names[1]),
        ("src_zero_point", names[0]),
        ("dst_zero_point", names[1]),
    ):
        is_scale = role.endswith("scale")
        if rng.random() < 0.4 or (not is_scale and own not in INTEGERS):
            continue
        is_ignored = not is_scale and ignores_masks_of_zero_points(role[:3])
        bits = mask if rng.random() < 0.5 and not is_ignored else 0
        count = prod(size for dim, size in enumerate(dims) if bits >> dim & 1)
        draw = np.random.default_rng(rng.randrange(2**32))
        if is_scale:
            values: Any = np.ldexp(1 + draw.random(count), draw.integers(-3, 4, count)).astype(
                np.float32
            )
        else:
            largest = rng.choice((20, 300, _EXACT))
            values = draw.integers(-largest, largest, count).astype(np.int32)
        given[role] = values, bits
    beta = rng.choice((0.0, 0.0, 1.0, 0.5, -2.0))
    attr: dict[str, Any] = {"beta": beta, "f8_rounding": "onednn"}
    for role, (values, bits) in given.items():
        attr |= {role: values if bits else values[0], f"{role}_mask": bits}
    return Parameters(**given, beta=beta), Attr(**attr)


def _described(library: Library, dims: tuple[int, ...], dtype: str, tag: str) -> Desc:
    made = library.by_string_tag(dims, dtype, tag)
    assert isinstance(made, Desc)
    return made


def compare(library: Library, tally: Tally, rng: random.Random, names: tuple[str, str]) -> None:
    """Reorder one drawn case from one type to another with both, and count it."""
    ndims = rng.choice((1, 2, 2, 3, 3, 4))
    dims = draw_dims_with_tails(
        rng, [rng.choice((1, 2, 4, 8, 16)) for _ in range(ndims)], zero=0.0, max_nelems=300
    )
    tags = rng.choice(_TAGS[ndims]), rng.choice(_TAGS[ndims])
    src, dst = (memory_desc(dims, name, tag) for name, tag in zip(names, tags, strict=True))
    parameters, attr = _parameters(rng, dims, names)
    source = _values(rng, src)
    old = _values(rng, dst, small=True)
    ours, theirs = old.copy(), np.concatenate([old, np.zeros(_SLACK, np.uint8)])
    reorder.execute(
        reorder.plan_reorder(src, dst, attr), source, ours, threads=rng.choice((1, 2, None))
    )
    padded = np.concatenate([source, np.zeros(_SLACK, np.uint8)])
    # with runtime dims no other implementation is chosen than the reference
    descs, planned = (
        [_described(library, sizes, *side) for side in zip(names, tags, strict=True)]
        for sizes in (dims, (RUNTIME,) * ndims)
    )
    status = library.reorder(descs, (padded, theirs), parameters, planned)
    tally.kinds.update(
        role for role in parameters._fields[:-1] if getattr(parameters, role) is not None
    )
    tally.kinds["beta"] += bool(parameters.beta)
    if is_unimplemented(status):
        tally.excuse(is_unimplemented)
        return
    kind = DATA_TYPES[names[1]].bits_dtype
    mine, its = ours.view(kind), theirs[: old.size].view(kind)
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
    assert all(
        tally.kinds[kind] > count / 10
        for kind in ("src_scale", "dst_scale", "src_zero_point", "dst_zero_point", "beta")
    )
