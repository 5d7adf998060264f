"""Every kernel family with strides of every sign, at several places within a line.

A cell of the matrix is a family, a sign for each stride of src and dst (0 in src too: an element is
repeated), and the places of the first elements. A device must write what the definition writes,
and nothing else. Each test prints how many cells it ran; a campaign runs all places of all signs,
while the default tests take them in turn.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from memdesc import Extra, ImageDesc, MemoryDesc, image_desc, memory_desc
from memdesc.names.images import is_image
from reorder import Attr
from reorder.opencl.kernel.launch import Body
from reorder.opencl.kernel.rows import RowCopy
from tests.opencl.runtimes import TILES, Planned, Runtime, check

# the first elements of src and dst: of a line, of no vector, of no byte if they have 4 bits
PLACES = ((0, 0), (3, 0), (0, 5), (7, 1), (16, 4))
# with more dims, only some of the signs
_ALL_SIGNS = 2


class Family(NamedTuple):
    """What makes a family of kernels lower a box: two layouts, each as the order of its dims.

    `fires` is what the kernels of the plain cell have. An order that names an image is one; its
    layout is not varied. `gaps` has the elements that separate rows of src and of dst; `blocks` has
    the dim and the size of a block of each.
    """

    fires: str
    dims: tuple[int, ...]
    dtypes: tuple[str, str]
    orders: tuple[str, str]
    gaps: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]
    attr: Attr | None

    @classmethod
    def of(cls, line: str) -> "Family":
        """Read a line of the table."""
        fires, sizes, types, one, other, *words = line.split()
        options: dict[str, str] = dict(word.split("=") for word in words)
        dtype, _, to_dtype = types.partition("->")
        blocks = (options[side].split(":") if side in options else () for side in ("src", "dst"))
        return cls(
            fires,
            tuple(map(int, sizes.split("x"))),
            (dtype, to_dtype or dtype),
            (one, other),
            tuple(map(int, options.get("gaps", "0,0").split(","))),
            tuple(tuple(map(int, of)) for of in blocks),
            _ATTRS.get(options.get("attr", "")),
        )


_ATTRS = {
    "SCALES": Attr(src_scale=np.linspace(0.5, 2, 12), src_scale_mask=2),
    "BETA": Attr(beta=0.5),
    "ROWS": Attr(dst_scale=np.linspace(1, 2, 128), dst_scale_mask=1),
    "SHORT": Attr(src_scale=np.linspace(0.5, 2, 3), src_scale_mask=1),
    "HALF": Attr(src_scale=0.5),
    "SUMS": Attr(src_scale=0.9),
}
# a name | its kernels, sizes, types and layouts; gaps, blocks as DIM:SIZE, attributes
_TABLE = """
rows | RowCopy 7x9x51 u8 abc bac
rows of 4 bits | RowCopy 7x9x51 u4 abc bac gaps=1,0
rows of halves | RowCopy 5x7x71 f16 abc bac gaps=1,0
crops of halves | Direct 300x40 f16 ab ab gaps=1,0
skewed bytes | Staged 101x131 u8 ab ba
skewed rows that end where vectors do | Staged 97x112 u8 ab ba gaps=1,0
rows that end where vectors do | Staged 17x112 u8 ab ba gaps=1,0
skewed halves | Staged 58x101 f16 ab ba gaps=1,0
skewed words | Staged 40x33 f32 ab ba
skewed rows of two loops of src | Staged 97x31x3 u8 abc cba
skewed conversions with scales along src | Staged 130x12 f32->s8 ab ba gaps=0,1 attr=SCALES
skewed conversions with scales along dst | Staged 128x37 f16->s8 ab ba gaps=0,1 attr=ROWS
joined conversions | Staged 3x101x37 f32->s8 abc acb
joined conversions with scales | Staged 3x50x37 s8->f16 abc acb attr=SHORT
joined bytes | Staged 3x101x37 u8 abc acb
joined halves | Staged 3x50x37 f16 abc acb
joined rows of two loops | Staged 3x21x5x37 u8 abcd adbc gaps=0,0
joined rows of blocks | Staged 3x37x21 u8 abc acb src=1:16
joined rows of blocks of words | Staged 3x21x13 f32 abc acb src=1:8
rows with gaps as long as padding | Direct 9x17x101 u8 abc bac gaps=3,0 dst=2:8
tiles of bytes | Staged 48x64 s8 ab ba
tiles of halves | Staged 64x48 f16 ab ba
tiles of words | Staged 24x20 f32 ab ba
tiles of 64 bits | Staged 23x21 f64 ab ba
tiles of short rows | Staged 18x22 u8 ab ba
tiles of runs that share a loop | Staged 24x7 u8 ba ab
tiles of 4 bits | Staged 64x96 u4 ab ba
tiles of 4 bits in rows at any byte | Staged 34x70 u4 ab ba
tiles of rows at any byte | Staged 32x43 u8 ab ab dst=0:16
tiles of halves at any byte | Staged 3x24x37 f16 abc abc dst=1:8
tiles of short planes | Staged 32x13x13 u8 abc abc dst=0:16
tiles into blocks | Staged 32x40 s8 ab ab dst=0:16
tiles with padding | Staged 37x43 u8 ab ab dst=0:16
tiles of planes with padding | Staged 21x13x13 u8 abc abc dst=0:16
tiles with padding along a run | Staged 43x20 f16 ab ab src=0:4 dst=1:8
tiles that keep blocks | Staged 39x43 u8 ba ab dst=0:16
tiles that keep parts of rows | Staged 48x43 u8 ba ab gaps=1,0 dst=0:8
tiles that keep pairs | Staged 38x43 f16 ba ab dst=0:2
tiles that keep pairs of bytes | Staged 64x44 u8 ba ab gaps=1,0 dst=0:2
tiles that keep words | Staged 39x21 f32 ba ab dst=0:8
tiles of runs that keep parts | Staged 39x21 f32->s8 ba ab dst=0:8
runs | Direct 9x40 f32->f16 ab ab
runs that end within vectors | Direct 9x39 f32->f16 ab ab gaps=1,1
runs with scales | Direct 9x12 s8->f32 ab ab attr=SCALES
runs that add | Direct 9x24 f32->s8 ab ab attr=BETA
runs of 4 bits | Direct 6x14 u4 ab ab gaps=1,3
runs into 4 bits | Direct 5x13 s8->s4 ab ab
runs out of 4 bits | Direct 5x14 u4->f32 ab ab
tiles of runs of 4 bits at any byte | Staged 5x14 u4->f32 ba ab
tiles of runs from any byte | Staged 67x40 u8->f32 ba ab
tiles of runs to any byte | Staged 107x133 f32->s8 ab ba
tiles of runs of short rows | Staged 21x19 bf16->f16 ab ba
tiles of runs into blocks | Staged 40x37 f16->s8 ab ab dst=0:16
tiles of runs with scales and padding | Staged 37x12 s8->f32 ab ab dst=0:16 attr=SCALES
tiles of runs | Staged 130x128 f32->f16 ab ba
tiles of runs that end within vectors | Direct 9x39 f32->f16 ab ab gaps=1,1
tiles of runs with scales | Staged 128x130 f16->s8 ab ba attr=ROWS
tiles of runs of 4 bits | Staged 128x130 u4->u8 ab ba gaps=2,0
copies | Direct 5x6x7 u8 abc acb gaps=1,2
short rows of halves | Staged 12x7x13 f16 abc bac
copies of pairs | Direct 3x5x2 f64 abc bac
copies without a common stride | Direct 3x97 u8 ab ab src=1:47 dst=1:31
conversions without a common stride | Direct 3x97 s8->f32 ab ab src=1:47 dst=1:31 attr=SHORT
sums | Sums 5x19 f32->s8 ab ab dst=0:4 attr=SUMS
pixels of nhwc | Staged 2x40x7x9 f16 acdb in_out_channel
pixels of rows at any byte | Staged 2x40x7x9 s8 acdb in_out_channel gaps=1,0
rows at any byte of pixels | Staged 2x40x7x9 f16 in_out_channel acdb gaps=0,1
planes at any byte of pixels | Staged 2x8x5x37 u8 in_out_channel abcd gaps=0,1
nhwc of pixels | Staged 2x40x7x9 f32 in_out_channel acdb
pixels of nhwc with padding | Staged 2x38x7x9 f16 acdb in_out_channel
nhwc of pixels with padding | Staged 2x38x7x9 f32 in_out_channel acdb
pixels of rows with padding | Staged 2x4x9x38 u8 abcd in_out_width
rows of pixels with padding | Staged 2x4x9x38 f16 in_out_width acdb
nchw of pixels | Staged 2x8x6x16 u8 in_out_channel abcd
converted pixels of nchw | Staged 2x8x6x16 f32->f16 abcd in_out_channel attr=HALF
converted pixels of blocks | Staged 2x36x5x6 f32->f16 abcd in_out_channel src=1:16
copies into pixels | Direct 2x3x3x5 s8 acdb in_out_channel
copies into pixels with scales | Direct 2x12x3x5 s8->f32 acdb in_out_channel attr=SCALES
copies out of pixels | Direct 2x3x3x5 f32 in_out_channel acdb
copies out of pixels with scales | Direct 2x12x3x5 f16->s8 in_out_channel abcd attr=SCALES
additions of pixels | Direct 2x12x3x5 f32 in_out_channel acdb attr=BETA
pixels of filters | Staged 9x7x3x2 f16 abcd conv2d_filter
filters of pixels | Staged 9x7x3x2 s32 conv2d_filter bacd
"""
_ROWS = [row.split(" | ") for row in _TABLE.strip().splitlines()]
MATRIX = {name: Family.of(line) for name, line in _ROWS}
assert len(MATRIX) == len(_ROWS), "two rows have one name"


class Cell(NamedTuple):
    """The signs of the strides of src and dst, and the places of their first elements."""

    signs: tuple[tuple[int, ...], tuple[int, ...]]
    places: tuple[int, int] = (0, 0)


def cells(family: Family, *, every_place: bool) -> Iterator[Cell]:
    """Yield the cells of a family; the first has neither a negative stride nor a place."""
    ndims = len(family.dims)
    src, dst = (list(product(of, repeat=ndims)) for of in ((1, -1, 0), (1, -1)))
    if ndims > _ALL_SIGNS:
        src, dst = ([of for of in signs if _is_simple(of)] for signs in (src, dst))
    src, dst = (
        [(1,) * ndims] if is_image(order) else of
        for order, of in zip(family.orders, (src, dst), strict=True)
    )
    count = max(len(src), len(dst))
    some = ((src[k % len(src)], dst[(k + k // len(dst)) % len(dst)]) for k in range(count))
    for k, signs in enumerate(product(src, dst) if every_place else some):
        for places in PLACES if every_place else (PLACES[k % len(PLACES)],):
            # the sums behind weights start at a multiple of their size
            place = 0 if family.fires == "Sums" else places[1]
            yield Cell(signs, (places[0], place))


def _is_simple(signs: tuple[int, ...]) -> bool:
    """Whether one stride is not positive, or all are negative, or none."""
    return sum(sign < 1 for sign in signs) < _ALL_SIGNS or set(signs) == {-1}


def described(family: Family, side: int, cell: Cell) -> MemoryDesc:
    """Return the descriptor of src or dst in a cell."""
    dims, order, dtype = family.dims, family.orders[side], family.dtypes[side]
    signs, place, blocks = cell.signs[side], cell.places[side], family.blocks[side]
    counts = list(dims)
    stride = 1
    if blocks:
        dim, stride = blocks
        counts[dim] = -(-counts[dim] // stride)
    strides = [0] * len(dims)
    first = place
    for k, letter in enumerate(reversed(order)):
        dim = ord(letter) - ord("a")
        strides[dim] = signs[dim] * stride
        first += (counts[dim] - 1) * stride if signs[dim] < 0 else 0
        stride *= counts[dim]
        stride += 0 if k else family.gaps[side]
    inner: dict[str, Any] = (
        {"inner_blks": (blocks[1],), "inner_idxs": (blocks[0],)} if blocks else {}
    )
    desc = memory_desc(dims, dtype, strides=tuple(strides), offset0=first, **inner)
    return desc.with_extra(Extra(s8s8_mask=1)) if side and family.fires == "Sums" else desc


def operand(family: Family, side: int, cell: Cell) -> MemoryDesc | ImageDesc:
    """Return src or dst in a cell."""
    if is_image(family.orders[side]):
        return image_desc(family.dims, family.dtypes[side], family.orders[side])
    return described(family, side, cell)


def run_cell(runtime: Runtime, family: Family, cell: Cell, seed: int) -> set[str]:
    """Compare a device with the definition; return what the kernels have."""
    src, dst = (operand(family, side, cell) for side in (0, 1))
    bodies = check(runtime, (src, dst, family.attr), seed, planned=TILES)
    return {type(body).__name__ for body in bodies}


def run_matrix(runtime: Runtime, name: str, *, every_place: bool) -> None:
    family = MATRIX[name]
    of = enumerate(cells(family, every_place=every_place))
    fired = [run_cell(runtime, family, cell, seed) for seed, cell in of]
    assert family.fires in fired[0], (name, fired[0])
    kinds = ", ".join(sorted(set.union(*fired)))
    print(f"{name}: {len(fired)} cells on {runtime.name}, by {kinds}")


@pytest.mark.parametrize("name", MATRIX)
def test_a_family_takes_strides_of_every_sign(name: str, runtime: Runtime) -> None:
    run_matrix(runtime, name, every_place=False)


@pytest.mark.campaign
@pytest.mark.parametrize("name", MATRIX)
def test_a_family_takes_all_signs_at_every_place(name: str, runtime: Runtime) -> None:
    run_matrix(runtime, name, every_place=True)


def test_the_matrix_has_every_family() -> None:
    fires = {family.fires for family in MATRIX.values()}
    assert {body.__name__ for body in Body.__subclasses__()} == fires


# What the matrix does not have: sizes that leave parts of tiles and vectors, and src that ends, or
# starts, where memory is inaccessible, in whole vectors. Types, layouts, sizes, what kernels have,
# the most work items of a group.
_SIZES = """
u8 ab ba 301x259 Staged 256
u8 ab ba 301x259 Staged 64
u8 ab ba 81x20 Staged 16
u8 ab ba 32x71 Staged 256
f32 ab ba 300x9 Staged 64
u8 ab ba 9x300 Staged 128
f16 ab bA203a 129x131 Staged 256
f16 ab ba 96x101 Staged 256
s8 oihw OIhw4i16o4i 64x128x3x3 Staged 64
s8 oihw OIhw4i16o4i 37x23x3x3 Staged 64
s8 oihw OIhw4o4i 37x23x5x5 Staged 128
s8 oihw os_is_yx_osv16_isv4 33x20x3x3 Staged 128
f16 oihw os_is_yx_osv16_isv4 33x20x3x3 Staged 256
f32 oihw OIhw2i8o4i 24x37x3x3 Staged 256
f32->s8 oihw OIhw4i16o4i 40x21x3x3 Staged 256
s8->f32 oihw OIhw4i16o4i 20x20x5x5 Staged 256
s8 ab BA16a64b4a 93x91 Staged 128
s8 ab BA16a64b4a 40x94 Staged 256
f16->s8 ab BA16b16a 40x37 Staged 128
u8 aB16b BA16b16a 40x37 Staged 128
u4 ab ba 264x520 Staged 64
u4 ab ba 32x70 Staged 256
u4->f32 ab ba 32x70 Staged 256
u4 ab ba 67x193 Staged 256
u4 ab ba 193x131 Staged 256
u4 ab ba 301x64 Staged 64
u4 nchw nhwc 2x97x5x13 Staged 256
u4->f16 ab ba 129x67 Staged 256
u4->u8 nhwc nchw 2x65x5x13 Staged 128
f16->u4 ab ba 193x67 Staged 256
f32->s4 nchw nhwc 2x129x5x13 Staged 256
u4 cdba aBcd2b 40x6x5x8 Staged 256
f16 ab BA8b16a2b 95x93 Staged 256
u8 nhwc aBcd16b 2x40x5x16 Staged 256
u8->f32 ab ab 16x37 Direct 256
s4->f16 ab ab 16x38 Direct 256
u8 abcd acbd 2x37x3x111 RowCopy 256
u8 abcd acbd 4x9x4x37 RowCopy 256
u4 abcd acbd 2x37x3x111 RowCopy 256
u4->u8 abcd acbd 2x9x3x111 Staged 256
f16->u4 abcd acbd 2x9x3x111 Direct 256
f32 aBcd16b nchw 2x37x5x13 Staged 256
u8 aBcd16b nchw 2x21x7x9 Staged 128
s8 ABcd16a16b nchw 3x21x5x8 Staged 256
f16 OIhw16i16o oihw 37x23x3x3 Staged 256
s8->f32 aBcd16b nchw 2x21x5x12 Staged 64
f32->s8 aBcd16b nchw 2x37x5x13 Staged 256
s8 OIhw4i16o4i oihw 37x23x5x5 Staged 128
f16 ABcd16a16b nhwc 4x40x7x7 Staged 256
s8 BA16a64b4a ab 37x201 Staged 128
f16 OIhw16i16o oihw 37x22x3x3 Staged 256
bf16 OIhw8i16o2i oihw 20x23x7x7 Staged 256
s8 ABcd16a16b nchw 20x40x13x21 Staged 256
f32->s8 ABcd16a16b nchw 37x21x9x23 Staged 256
u4 aBcd16b nchw 1x37x16x16 Staged 256
u4 aBcd16b nchw 1x37x17x17 Direct 256
"""


def test_sizes_that_leave_parts_of_tiles_and_vectors(first: Runtime) -> None:
    for line in _SIZES.strip().splitlines():
        types, one, other, sizes, fires, most = line.split()
        dtype, _, to_dtype = types.partition("->")
        dims = tuple(map(int, sizes.split("x")))
        src, dst = memory_desc(dims, dtype, one), memory_desc(dims, to_dtype or dtype, other)
        for seed in range(2):
            bodies = check(first, (src, dst, None), seed, planned=Planned(most=int(most)))
            assert fires in {type(body).__name__ for body in bodies}, line


def test_rows_of_views_start_at_odd_offsets(first: Runtime) -> None:
    part = memory_desc((3, 9, 1040), "s8", "abc").submemory((2, 8, 1031), (1, 1, 3))
    plain = memory_desc((2, 8, 1031), "s8", "bac")
    one, other = (memory_desc((7, 1500), "u8", strides=(step, 1)) for step in (1501, 1503))
    # src and dst end where vectors do
    rows, ends = memory_desc((17, 112), "u8", strides=(113, 1)), memory_desc((17, 112), "u8", "ab")
    for pair in ((one, other), (part, plain), (plain, part), (rows, ends)):
        for seed in range(2):
            (body,) = check(first, (*pair, None), seed, planned=TILES)
            assert isinstance(body, RowCopy)
    # what is behind the data of a row is no padding
    apart = memory_desc((37, 42), "f32", strides=(44, 1))
    for dtype, attr in (("f32", None), ("s8", Attr(src_scale=0.5, dst_zero_point=3))):
        check(first, (apart, memory_desc(apart.dims, dtype, "BA16b16a"), attr), planned=TILES)


def test_memory_may_start_anywhere(first: Runtime) -> None:
    for dtype in ("u8", "f16"):
        src, dst = (memory_desc((35, 71), dtype, tag) for tag in ("ab", "ba"))
        check(first, (src, dst, None), planned=Planned(is_aligned=False))
