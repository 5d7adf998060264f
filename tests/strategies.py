"""Hypothesis strategies for dims, tags, descriptors and pairs of descriptors.

They favour what breaks reorders: sizes that are not multiples of a block, 0 and 1, nested
blocks of one dim, adjacent blocks of one dim. Elements with padding, without the gaps of strides,
number at most `max_nelems`.
"""

import contextlib
from dataclasses import replace
from functools import cache
from math import lcm, prod

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from memdesc import MemdescError, MemoryDesc, known_names, memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.tags import Digit, FormatTag

MAX_NELEMS = 2048
_SIZES = (1, 2, 3, 5, 4, 7, 8, 9, 15, 16, 17, 31, 33)
_EXTENTS = (2, 4, 3, 8, 16, 5)


def data_types(max_bits: int = 64) -> SearchStrategy[str]:
    """Return names of data types, f32 first."""
    names = [name for name, dtype in DATA_TYPES.items() if dtype.bits <= max_bits]
    return st.sampled_from(sorted(names, key="f32".__ne__))


def name_strings() -> SearchStrategy[str]:
    """Return strings that look like names: known, changed, of the same letters, and any."""
    known = st.sampled_from([name.text for name in known_names()])
    letters = st.text("abcdefghilnowxyzABCDNIO_0123456789()/.|", max_size=24)
    joined = st.tuples(known, st.integers(0, 20), letters).map(
        lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] :]
    )
    return st.one_of(known, letters, joined, st.text(max_size=12))


@st.composite
def dims(
    draw: DrawFn,
    min_ndims: int = 1,
    max_ndims: int = 12,
    max_nelems: int = MAX_NELEMS // 8,
    *,
    zero: bool = True,
) -> tuple[int, ...]:
    """Draw logical sizes whose product is at most `max_nelems`, one in 16 with a 0."""
    # mostly few dims, seldom 12
    counts = [*(3, 2, 4, 5, 3, 2, 4, 1), *range(1, max_ndims + 1)]
    ndims = draw(st.sampled_from([count for count in counts if min_ndims <= count <= max_ndims]))
    budget = max_nelems
    sizes = []
    for _ in range(ndims):
        sizes.append(draw(st.sampled_from([size for size in _SIZES if size <= budget] or [1])))
        budget //= sizes[-1]
    sizes = draw(st.permutations(sizes))
    if zero and draw(st.integers(0, 15)) == 15:
        sizes[draw(st.integers(0, ndims - 1))] = 0
    return tuple(sizes)


@st.composite
def tags(draw: DrawFn, ndims: int, max_tile: int = 64, *, any_digits: bool = False) -> FormatTag:
    """Draw a tag of `ndims` dims whose blocks pad by at most `max_tile` times.

    By default in oneDNN's notation; with `any_digits` also fused dims,
    swizzled blocks, blocks outside of outer letters, and alignments.
    """
    axes = draw(_axes(ndims)) if any_digits else [(dim,) for dim in range(ndims)]
    budget = max_tile
    inner: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(0, 4))):
        fitting = [extent for extent in _EXTENTS if extent <= budget]
        if not fitting:
            break
        # the same axis again, with others between or adjacent, is the interesting case
        again = st.sampled_from([other for other, _ in inner] or [0])
        axis = draw(again if draw(st.booleans()) else st.integers(0, len(axes) - 1))
        inner.append((axis, draw(st.sampled_from(fitting))))
        budget //= inner[-1][1]
    steps = [1] * len(axes)
    digits: list[Digit] = []
    for axis, extent in reversed(inner):
        digits.insert(0, Digit(axis, steps[axis], extent))
        steps[axis] *= extent
    outer = [Digit(axis, step, 0) for axis, step in enumerate(steps)]
    if len(axes) > 1 and draw(st.booleans()):
        outer = draw(st.permutations(outer))
    digits = [*outer, *digits]
    align = [1] * len(axes)
    if any_digits:
        if draw(st.booleans()):
            digits = draw(st.permutations(digits))
        axis = draw(st.integers(0, len(axes) - 1))
        most = budget * steps[axis]
        counts = [count for count in (1, 2, 3, 8) if lcm(count, steps[axis]) <= most]
        align[axis] = draw(st.sampled_from(counts))
    return FormatTag(tuple(axes), tuple(digits), tuple(align))


@st.composite
def _axes(draw: DrawFn, ndims: int) -> list[tuple[int, ...]]:
    """Draw a partition of the dims: at times two or three of them fused."""
    count = draw(st.integers(1, min(3, ndims)))
    fused = tuple(draw(st.permutations(range(ndims)))[:count])
    return sorted([fused, *((dim,) for dim in range(ndims) if dim not in fused)])


def _max_padding(sizes: tuple[int, ...], max_nelems: int) -> int:
    """Return how many times larger padding may make a tensor."""
    return max(max_nelems // prod(size or 1 for size in sizes), 1)


@st.composite
def tag_descs(
    draw: DrawFn,
    sizes: tuple[int, ...],
    dtype: str = "f32",
    max_nelems: int = MAX_NELEMS,
    *,
    any_digits: bool = True,
) -> MemoryDesc:
    """Draw a dense descriptor of these dims: by a tag, or by a known name."""
    budget = _max_padding(sizes, max_nelems)
    if (
        any_digits
        and draw(st.integers(0, 3)) == 0
        and (names := [name for name, tile in _tiles(len(sizes)) if tile <= budget])
    ):
        with contextlib.suppress(MemdescError):  # a few names exist for some sizes only
            return memory_desc(sizes, dtype, draw(st.sampled_from(names)))
    any_digits = any_digits and draw(st.booleans())
    return memory_desc(sizes, dtype, draw(tags(len(sizes), budget, any_digits=any_digits)))


@cache
def _tiles(ndims: int) -> list[tuple[str, int]]:
    """Return the known names for `ndims` dims, and the elements of one block of each."""
    tiles = []
    for name in known_names():
        with contextlib.suppress(MemdescError):
            tiles.append((name.text, memory_desc((1,) * ndims, "f32", name.text).padded_nelems))
    return tiles


@st.composite
def strided_descs(
    draw: DrawFn,
    sizes: tuple[int, ...],
    dtype: str = "f32",
    max_nelems: int = MAX_NELEMS,
    *,
    source: bool = True,
) -> MemoryDesc:
    """Draw a descriptor of these dims by strides: gaps, blocks, padding, an offset.

    With `source` also strides that are 0, negative or do not nest.
    """
    ndims = len(sizes)
    tag = draw(tags(ndims, _max_padding(sizes, max_nelems)))
    inner = [digit for digit in tag.digits if digit.extent]
    steps = tag.block_sizes
    padded = [-(-size // step) * step for size, step in zip(sizes, steps, strict=True)]
    more = draw(st.integers(0, ndims - 1))
    others = prod(size or 1 for dim, size in enumerate(padded) if dim != more)
    grown = others * (padded[more] + steps[more])
    if sizes[more] and grown <= max_nelems and draw(st.booleans()):
        padded[more] += steps[more]
    strides = [0] * ndims
    need = prod(digit.extent for digit in inner)
    for digit in reversed(tag.digits[:ndims]):
        strides[digit.axis] = need + draw(st.sampled_from((0, 0, 0, 1, 3)))
        need = strides[digit.axis] * max(padded[digit.axis] // steps[digit.axis], 1)
    offset0 = draw(st.sampled_from((0, 0, 1, 2, 7)))
    kinds = ("nested", "negative", "broadcast", "small") if source else ("nested",)
    kind = draw(st.sampled_from(kinds))
    if kind == "small" and not inner:  # strides that overlap are replaced by nested ones
        small = [draw(st.integers(-9, 9)) for _ in sizes]
        with contextlib.suppress(MemdescError):
            memory_desc(padded, "u8", strides=small, offset0=4096)
            strides = small
    if kind in {"negative", "broadcast"}:
        for dim in draw(st.sets(st.integers(0, ndims - 1), min_size=1, max_size=3)):
            strides[dim] = 0 if kind == "broadcast" else -strides[dim]
    outers = [padded[dim] // steps[dim] for dim in range(ndims)]
    if all(sizes):
        steps_back = zip(outers, strides, strict=True)
        offset0 += sum((count - 1) * max(-stride, 0) for count, stride in steps_back)
    return memory_desc(
        sizes,
        dtype,
        strides=strides,
        inner_blks=[digit.extent for digit in inner],
        inner_idxs=[digit.axis for digit in inner],
        padded_dims=padded,
        offset0=offset0,
    )


@st.composite
def view_descs(
    draw: DrawFn, sizes: tuple[int, ...], dtype: str = "f32", max_nelems: int = MAX_NELEMS
) -> MemoryDesc:
    """Draw a view of these dims into a larger parent with a tag or with strides."""
    ndims = len(sizes)
    tag = draw(tags(ndims, _max_padding(sizes, max_nelems)))
    budget = _max_padding(sizes, max_nelems) // prod(tag.block_sizes)
    whole, at = list(sizes), [0] * ndims
    for dim in draw(st.lists(st.integers(0, ndims - 1), max_size=2, unique=True)):
        block = tag.block_sizes[dim]
        after = draw(st.integers(0, 3)) if sizes[dim] % block == 0 or sizes[dim] < block else 0
        before = block * draw(st.integers(0, 2))
        larger = max(-(-(before + sizes[dim] + after) // max(sizes[dim], 1)), 1)
        if larger <= budget:
            whole[dim], at[dim], budget = before + sizes[dim] + after, before, budget // larger
    return memory_desc(whole, dtype, tag).submemory(sizes, at)


@st.composite
def descs_of(
    draw: DrawFn,
    sizes: tuple[int, ...],
    dtype: str = "f32",
    max_nelems: int = MAX_NELEMS,
    *,
    source: bool = True,
) -> MemoryDesc:
    """Draw any descriptor of these dims; with `source` also those that are sources only."""
    kind = draw(st.sampled_from(("tag", "tag", "strides", "view")))
    if kind == "tag":
        return draw(tag_descs(sizes, dtype, max_nelems))
    if kind == "strides":
        return draw(strided_descs(sizes, dtype, max_nelems, source=source))
    return draw(view_descs(sizes, dtype, max_nelems))


@st.composite
def descs(
    draw: DrawFn,
    *,
    max_ndims: int = 12,
    max_nelems: int = MAX_NELEMS,
    source: bool = True,
    dtypes: SearchStrategy[str] | None = None,
) -> MemoryDesc:
    """Draw any descriptor; with `source` also those that are sources only."""
    sizes = draw(dims(1, max_ndims, max(max_nelems // 8, 1)))
    dtype = draw(data_types() if dtypes is None else dtypes)
    return draw(descs_of(sizes, dtype, max_nelems, source=source))


@st.composite
def swizzled_descs(draw: DrawFn, *, max_ndims: int = 5, max_nelems: int = 256) -> MemoryDesc:
    """Draw a descriptor whose offsets an XOR term swizzles, if bases have the bits it reads."""
    desc = draw(descs(max_ndims=max_ndims, max_nelems=max_nelems))
    term = draw(st.sampled_from((-4, -3, -1, 1, 3, 4, 7))), draw(st.integers(0, 511))
    return memory_desc(desc.dims, desc.dtype, replace(desc.layout, xor=(term,)))


@st.composite
def desc_pairs(
    draw: DrawFn,
    *,
    max_ndims: int = 12,
    max_nelems: int = MAX_NELEMS,
    dtypes: SearchStrategy[str] | None = None,
) -> tuple[MemoryDesc, MemoryDesc]:
    """Draw a source and a destination of the same dims and data type."""
    sizes = draw(dims(1, max_ndims, max(max_nelems // 8, 1)))
    dtype = draw(data_types() if dtypes is None else dtypes)
    src = draw(descs_of(sizes, dtype, max_nelems))
    return src, draw(descs_of(sizes, dtype, max_nelems, source=False))
