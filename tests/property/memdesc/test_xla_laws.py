"""Tiles by the definition of XLA's page, on arrays: pad, divide, and move the tile dims last."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from numpy.typing import NDArray

from memdesc import UnsupportedFormatError
from tests import strategies
from tests.named import buffer_layout

COMBINE = -1  # a `*` in a tile


def tile_array(x: NDArray[np.int64], tile: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the physical array after one tile; -1 stands for padding."""
    kept, rest = x.shape[: x.ndim - len(tile)], list(x.shape[x.ndim - len(tile) :])
    sizes: list[int] = []
    joined = 1
    extents = []
    for extent, size in zip(rest, tile, strict=True):
        joined *= extent
        if size != COMBINE:
            extents.append(joined)
            sizes.append(size)
            joined = 1
    x = x.reshape(*kept, *extents)
    for k, size in enumerate(sizes):
        widths = [(0, 0)] * x.ndim
        widths[len(kept) + k] = (0, -extents[k] % size)
        x = np.pad(x, widths, constant_values=-1)
    pairs = [part for e, s in zip(extents, sizes, strict=True) for part in (-(-e // s), s)]
    x = x.reshape(*kept, *pairs)
    front = list(range(len(kept)))
    outer = [len(kept) + 2 * k for k in range(len(sizes))]
    return x.transpose(*front, *outer, *(k + 1 for k in outer))


def expected_offsets(
    dims: tuple[int, ...], minor_to_major: tuple[int, ...], tiles: list[tuple[int, ...]]
) -> NDArray[np.int64]:
    """Return the offset of each index of an array with this layout."""
    x = np.arange(int(np.prod(dims)), dtype=np.int64).reshape(dims)
    x = x.transpose(minor_to_major[::-1])
    for tile in tiles:
        x = tile_array(x, tile)
    flat = x.ravel()
    offsets = np.empty(int(np.prod(dims)), np.int64)
    places = np.flatnonzero(flat >= 0)
    offsets[flat[places]] = places
    return offsets.reshape(dims)


def text_of(
    dims: tuple[int, ...], minor_to_major: tuple[int, ...], tiles: list[tuple[int, ...]]
) -> str:
    shown = "".join(
        "(" + ",".join("*" if size == COMBINE else str(size) for size in tile) + ")"
        for tile in tiles
    )
    sizes, order = (",".join(map(str, values)) for values in (dims, minor_to_major))
    return f"f32[{sizes}]{{{order}{':T' if shown else ''}{shown}}}"


@st.composite
def tilings(draw: DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, ...]]]:
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
def test_offsets_are_those_of_the_definition_wherever_a_tiling_is_read(
    tiling: tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, ...]]],
) -> None:
    try:
        desc = buffer_layout(f"xla:{text_of(*tiling)}")
    except UnsupportedFormatError:  # tiles that pad the inside of others
        return
    expected = expected_offsets(*tiling)
    assert np.array_equal(desc.layout.offsets(), expected)
