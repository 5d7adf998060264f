"""Tiles by the definition of XLA's page: each divides the last dims and moves its own last."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from numpy.typing import NDArray

from memdesc import UnsupportedFormatError
from tests import strategies
from tests.named import buffer_layout

COMBINE = -1  # a `*` in a tile
Tiling = tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, ...]]]


def expected_offsets(
    dims: tuple[int, ...], minor_to_major: tuple[int, ...], tiles: list[tuple[int, ...]]
) -> NDArray[np.int64]:
    """Return the offset of each index of an array with this layout."""
    order = minor_to_major[::-1]
    index, extents = [np.indices(dims)[dim] for dim in order], [dims[dim] for dim in order]
    for tile in tiles:
        first = len(index) - len(tile)
        inner: list[tuple[NDArray[np.int64], int]] = []
        outer: list[tuple[NDArray[np.int64], int]] = []
        joined, extent = np.zeros_like(index[0]), 1
        for own, count, size in zip(index[first:], extents[first:], tile, strict=True):
            joined, extent = joined * count + own, extent * count
            if size != COMBINE:
                outer.append((joined // size, -(-extent // size)))
                inner.append((joined % size, size))
                joined, extent = np.zeros_like(joined), 1
        index[first:], extents[first:] = map(list, zip(*outer, *inner, strict=True))
    return np.asarray(np.ravel_multi_index(tuple(index), tuple(extents)))


def text_of(
    dims: tuple[int, ...], minor_to_major: tuple[int, ...], tiles: list[tuple[int, ...]]
) -> str:
    shown = "".join(f"({','.join(map(str, tile))})" for tile in tiles).replace(str(COMBINE), "*")
    sizes, order = (",".join(map(str, values)) for values in (dims, minor_to_major))
    return f"f32[{sizes}]{{{order}{':T' if shown else ''}{shown}}}"


@st.composite
def tilings(draw: DrawFn) -> Tiling:
    dims = draw(strategies.dims(1, 4, 64, zero=False))
    minor_to_major = tuple(draw(st.permutations(range(len(dims)))))
    ndims, tiles = len(dims), []
    for _ in range(draw(st.integers(0, 3))):
        count = draw(st.integers(1, min(ndims, 5)))
        sizes = [draw(st.sampled_from((COMBINE, 1, 1, 2, 4, 3))) for _ in range(count - 1)]
        tiles.append((*sizes, draw(st.sampled_from((1, 2, 4, 8)))))
        ndims += sum(size != COMBINE for size in tiles[-1]) * 2 - count
    return dims, minor_to_major, tiles


@given(tilings())
@settings(max_examples=200)
def test_offsets_are_those_of_the_definition_wherever_a_tiling_is_read(tiling: Tiling) -> None:
    try:
        desc = buffer_layout(f"xla:{text_of(*tiling)}")
    except UnsupportedFormatError:  # tiles that pad the inside of others
        return
    assert np.array_equal(desc.layout.offsets(), expected_offsets(*tiling))
