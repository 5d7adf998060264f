"""Hypothesis strategies for reorders that convert: two types, two layouts, attributes."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from memdesc import MemoryDesc
from memdesc.dtypes import DATA_TYPES
from reorder import Attr
from tests.conversions import INTEGERS
from tests.strategies import MAX_NELEMS, descs_of, dims

_SCALES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e8m0fnu)

_ALL_PAIRS = tuple(product(DATA_TYPES, DATA_TYPES))


@st.composite
def conversions(
    draw: st.DrawFn, max_nelems: int = MAX_NELEMS, *, pairs: Sequence[tuple[str, str]] = _ALL_PAIRS
) -> tuple[MemoryDesc, MemoryDesc, Attr | None]:
    """Draw two descriptors of a pair of types, and attributes that fit them, or none."""
    sizes = draw(dims(1, 12, max(max_nelems // 8, 1)))
    from_type, to_type = draw(st.sampled_from(pairs))
    src = draw(descs_of(sizes, from_type, max_nelems))
    dst = draw(descs_of(sizes, to_type, max_nelems, source=False))
    return src, dst, draw(attrs(src, dst)) if draw(st.integers(0, 3)) else None


@st.composite
def attrs(draw: st.DrawFn, src: MemoryDesc, dst: MemoryDesc) -> Attr:
    """Draw attributes that fit two descriptors."""
    given: dict[str, Any] = {}
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    for role in ("src_scale", "dst_scale", "src_zero_point", "dst_zero_point"):
        desc = src if role.startswith("src") else dst
        is_scale = role.endswith("scale")
        if draw(st.booleans()) or (not is_scale and desc.dtype.name not in INTEGERS):
            continue
        masks = st.sampled_from([0, 1, 2, 4095]) | st.integers(0, 4095)
        mask = draw(masks) & (1 << desc.ndims) - 1
        groups: tuple[int, ...] = ()
        if desc.ndims > 1 and draw(st.integers(0, 2)) == 0:
            mask |= 3 << (desc.ndims - 2)
            groups = tuple(
                draw(st.sampled_from([n for n in range(1, max(size, 1) + 1) if size % n == 0]))
                for size in desc.dims[-2:]
            )
        extents = (*(1,) * (desc.ndims - len(groups)), *groups)
        shape = [
            size // group if mask >> dim & 1 else 1
            for dim, (size, group) in enumerate(zip(desc.dims, extents, strict=True))
        ]
        if not all(shape):
            continue
        if is_scale:
            values = np.ldexp(1 + rng.random(shape), rng.integers(-6, 6, shape))
            values *= rng.choice([1, 1, -1], shape)
            kind = draw(st.sampled_from(_SCALES))
            given[role] = (abs(values) if kind is ml_dtypes.float8_e8m0fnu else values).astype(kind)
        else:
            # of the type, beyond it, and where sums in f32 are rounded
            bits = draw(st.sampled_from([min(INTEGERS[desc.dtype.name], 8), 10, 25, 32]))
            given[role] = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), shape)
        given |= {f"{role}_mask": mask, f"{role}_groups": groups}
    if draw(st.booleans()):
        given["beta"] = draw(st.sampled_from([1.0, 0.5, -3.0, 0.1]))
    return Attr(
        **given, saturate=draw(st.booleans()), f8_rounding=draw(st.sampled_from(["once", "onednn"]))
    )
