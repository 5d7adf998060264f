"""Every kernel family with strides of every sign, at several places within a line.

A cell of the matrix is a family, a sign for each stride of src and dst (0 in src too: an element is
repeated), and the places of the first elements. Its device and the CPU must both write what the
definition writes, and nothing else. Each test prints how many cells it ran; a campaign runs all
places of all signs, while the default tests take them in turn.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl.array as cl_array
import pytest

from memdesc import Extra, ImageDesc, MemoryDesc, image_desc, memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.names import is_image
from reorder import Attr, execute, plan_reorder, reorder
from reorder.opencl.execution import build_transfers, enqueue_transfers
from reorder.opencl.kernel.launch import Body, DeviceTraits
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers
from reorder.opencl.programs import floats_of
from reorder.reference import execute_reference
from tests.opencl.runtimes import BESIDE
from tests.reorders import elements, random_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tests.opencl.runtimes import Runtime

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
    def of(cls, line: str) -> Family:
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
rows | RowCopy 7x9x50 u8 abc bac
rows of f32 | RowCopy 5x7x43 f32 abc bac gaps=1,0
skewed bytes | Staged 101x131 u8 ab ba
skewed halves | Staged 58x101 f16 ab ba gaps=1,0
skewed words | Staged 40x33 f32 ab ba
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
runs | Direct 9x40 f32->f16 ab ab
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
tiles of runs with scales | Staged 128x130 f16->s8 ab ba attr=ROWS
tiles of runs of 4 bits | Staged 128x130 u4->u8 ab ba gaps=2,0
copies | Direct 5x6x7 u8 abc acb gaps=1,2
copies of pairs | Direct 3x5x2 f64 abc bac
copies without a common stride | Direct 3x97 u8 ab ab src=1:47 dst=1:31
conversions without a common stride | Direct 3x97 s8->f32 ab ab src=1:47 dst=1:31 attr=SHORT
sums | Sums 5x19 f32->s8 ab ab dst=0:4 attr=SUMS
pixels of nhwc | Staged 2x40x7x9 f16 acdb in_out_channel
pixels of rows at any byte | Staged 2x40x7x9 s8 acdb in_out_channel gaps=1,0
rows at any byte of pixels | Staged 2x40x7x9 f16 in_out_channel acdb gaps=0,1
planes at any byte of pixels | Staged 2x8x5x37 u8 in_out_channel abcd gaps=0,1
nhwc of pixels | Staged 2x40x7x9 f32 in_out_channel acdb
nchw of pixels | Staged 2x8x6x16 u8 in_out_channel abcd
converted pixels of nchw | Staged 2x8x6x16 f32->f16 abcd in_out_channel attr=HALF
converted pixels of blocks | Staged 2x36x5x6 f32->f16 abcd in_out_channel src=1:16
copies into pixels | Direct 2x11x3x5 s8 abcd in_out_channel
copies into pixels with scales | Direct 2x12x3x5 s8->f32 acdb in_out_channel attr=SCALES
copies out of pixels | Direct 2x11x3x5 f32 in_out_channel acdb
copies out of pixels with scales | Direct 2x12x3x5 f16->s8 in_out_channel abcd attr=SCALES
additions of pixels | Direct 2x12x3x5 f32 in_out_channel acdb attr=BETA
pixels of filters | Direct 9x7x3x2 f16 abcd conv2d_filter
filters of pixels | Direct 9x7x3x2 s32 conv2d_filter bacd
"""
MATRIX = {
    name: Family.of(line)
    for name, line in (row.split(" | ") for row in _TABLE.strip().splitlines())
}


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


def linear(desc: MemoryDesc | ImageDesc) -> MemoryDesc:
    return desc.desc if isinstance(desc, ImageDesc) else desc


def content(desc: MemoryDesc | ImageDesc, seed: int) -> NDArray[np.uint8]:
    """Return the bytes of an operand and beside it; NaN in an image of f16 may change its bits."""
    of = linear(desc)
    if isinstance(desc, ImageDesc):
        data = elements(of, seed)
        if of.dtype.name == "f16":
            halves = data.view(np.float16)
            halves[np.isnan(halves)] = 1
        return data
    return np.concatenate([elements(of, seed)[: of.nbytes], random_bytes(BESIDE, seed)])


def device_memory(runtime: Runtime, desc: MemoryDesc | ImageDesc, data: NDArray[np.uint8]) -> Any:
    if not isinstance(desc, ImageDesc):
        return runtime.buffer(data)
    shape = desc.height, desc.width, desc.channels
    return runtime.image(desc, data.view(desc.dtype.numpy).reshape(shape))


def run_cell(runtime: Runtime, family: Family, cell: Cell) -> set[str]:
    """Compare a device and the CPU with the definition; return what the kernels have."""
    src, dst = (operand(family, side, cell) for side in (0, 1))
    source, before = content(src, 1), content(dst, 2)
    wanted = before.copy()
    execute_reference(linear(src), linear(dst), source, wanted, family.attr)
    plan = plan_reorder(linear(src), linear(dst), family.attr)
    found = before.copy()
    execute(plan, source, found)
    assert np.array_equal(found, wanted), ("CPU", cell)
    one, other = map(OperandSpec.of, (src, dst))
    device = runtime.device.device
    traits = DeviceTraits(256, floats_of(device), min_tiled=0)
    transfers = plan_transfers(one, other, traits, family.attr, is_aligned=True)
    prepared = build_transfers(runtime.context, device, transfers)
    memory = device_memory(runtime, src, source), device_memory(runtime, dst, before)
    event = enqueue_transfers(runtime.queue, prepared, memory, None)
    if isinstance(dst, ImageDesc):
        pixels = runtime.pixels(memory[1], dst.dtype.numpy, event)
        found = pixels.reshape(-1).view(np.uint8)
        if dst.dtype.name == "f16":
            halves, same = found.view(np.float16), wanted.view(np.float16)
            halves[np.isnan(halves) & np.isnan(same)] = 0
            same[np.isnan(same)] = 0
    else:
        found = runtime.read(memory[1], event)
    assert np.array_equal(found, wanted), (runtime.name, cell)
    bodies = [launch.pattern.body for transfer in transfers for launch in transfer.launches]
    return {type(body).__name__ for body in bodies}


def run_matrix(runtime: Runtime, name: str, *, every_place: bool) -> None:
    family = MATRIX[name]
    fired = [run_cell(runtime, family, cell) for cell in cells(family, every_place=every_place)]
    assert family.fires in fired[0], (name, fired[0])
    kinds = ", ".join(sorted(set.union(*fired)))
    print(f"{name}: {len(fired)} cells on {runtime.name} and the CPU, by {kinds}")


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


@pytest.mark.parametrize("dtype", ["f32", "f16", "u8"])
@pytest.mark.parametrize("attr", [None, Attr(src_scale=[0.5, 2.0, 3.0, 1.5] * 3, src_scale_mask=2)])
def test_an_image_is_unpacked_into_reversed_lanes(
    dtype: str, attr: Attr | None, runtime: Runtime
) -> None:
    x = np.arange(1, 61, dtype=np.float32).reshape(1, 12, 1, 5).astype(DATA_TYPES[dtype].numpy)
    image = reorder(x, "in_out_channel", queue=runtime.queue)
    for view in (np.s_[:, ::-1], np.s_[:, ::-1, :, ::-1], np.s_[..., ::-1]):
        out = cl_array.zeros(runtime.queue, x.shape, x.dtype)
        reorder(image, out=out[view], attr=attr)
        wanted = reorder(x, "abcd", attr=attr).numpy()
        assert out.get()[view].tobytes() == wanted.tobytes(), view
