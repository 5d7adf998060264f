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

from memdesc import ImageDesc, MemoryDesc, image_desc, memory_desc
from memdesc.dtypes import DATA_TYPES
from reorder import Attr, execute, plan_reorder, reorder
from reorder.opencl.execution import build_transfers, enqueue_transfers
from reorder.opencl.kernel.launch import Body, DeviceTraits
from reorder.opencl.kernel.placement import ImageShape
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers
from reorder.opencl.programs import floats_of
from reorder.reference import execute_reference
from tests.opencl.runtimes import BESIDE
from tests.property.reorder.test_convert_laws import elements
from tests.reorders import random_bytes

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

    `gaps` has the elements that separate rows of src and of dst. An operand with `image` is one, of
    that type; its layout is not varied. `fires` is what the kernels of the plain cell have.
    """

    fires: str
    dims: tuple[int, ...]
    dtypes: tuple[str, str]
    orders: tuple[str, str]
    gaps: tuple[int, int] = (0, 0)
    attr: Attr | None = None
    blocks: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    images: tuple[str, str] = ("", "")


_SCALES: dict[str, Any] = {"src_scale": np.linspace(0.5, 2, 12), "src_scale_mask": 2}
_IMAGE: dict[str, Any] = {"dims": (2, 12, 3, 5)}

MATRIX = {
    "rows": Family("RowCopy", (7, 9, 50), ("u8", "u8"), ("abc", "bac")),
    "rows of f32": Family("RowCopy", (5, 7, 43), ("f32", "f32"), ("abc", "bac"), (1, 0)),
    "skewed bytes": Family("Staged", (101, 131), ("u8", "u8"), ("ab", "ba")),
    "skewed halves": Family("Staged", (58, 101), ("f16", "f16"), ("ab", "ba"), (1, 0)),
    "skewed words": Family("Staged", (40, 33), ("f32", "f32"), ("ab", "ba")),
    "tiles of bytes": Family("Staged", (48, 64), ("s8", "s8"), ("ab", "ba")),
    "tiles of halves": Family("Staged", (64, 48), ("f16", "f16"), ("ab", "ba")),
    "tiles of words": Family("Staged", (24, 20), ("f32", "f32"), ("ab", "ba")),
    "tiles of 64 bits": Family("Staged", (23, 21), ("f64", "f64"), ("ab", "ba")),
    "tiles of short rows": Family("Staged", (18, 22), ("u8", "u8"), ("ab", "ba")),
    "tiles of runs that share a loop": Family("Staged", (24, 7), ("u8", "u8"), ("ba", "ab")),
    "tiles of 4 bits": Family("Staged", (64, 96), ("u4", "u4"), ("ab", "ba")),
    "tiles of rows at any byte": Family(
        "Staged", (32, 43), ("u8", "u8"), ("ab", "ab"), blocks=((), (0, 16))
    ),
    "tiles of halves at any byte": Family(
        "Staged", (3, 24, 37), ("f16", "f16"), ("abc", "abc"), blocks=((), (1, 8))
    ),
    "tiles of short planes": Family(
        "Staged", (32, 13, 13), ("u8", "u8"), ("abc", "abc"), blocks=((), (0, 16))
    ),
    "tiles into blocks": Family(
        "Staged", (32, 40), ("s8", "s8"), ("ab", "ab"), blocks=((), (0, 16))
    ),
    "runs": Family("Direct", (9, 40), ("f32", "f16"), ("ab", "ab")),
    "runs with scales": Family(
        "Direct", (9, 12), ("s8", "f32"), ("ab", "ab"), attr=Attr(**_SCALES)
    ),
    "runs that add": Family("Direct", (9, 24), ("f32", "s8"), ("ab", "ab"), attr=Attr(beta=0.5)),
    "runs of 4 bits": Family("Direct", (6, 14), ("u4", "u4"), ("ab", "ab"), (1, 3)),
    "runs into 4 bits": Family("Direct", (5, 13), ("s8", "s4"), ("ab", "ab")),
    "runs out of 4 bits": Family("Direct", (5, 14), ("u4", "f32"), ("ab", "ab")),
    "tiles of runs of 4 bits at any byte": Family("Staged", (5, 14), ("u4", "f32"), ("ba", "ab")),
    "tiles of runs from any byte": Family("Staged", (67, 40), ("u8", "f32"), ("ba", "ab")),
    "tiles of runs to any byte": Family("Staged", (107, 133), ("f32", "s8"), ("ab", "ba")),
    "tiles of runs of short rows": Family("Staged", (21, 19), ("bf16", "f16"), ("ab", "ba")),
    "tiles of runs into blocks": Family(
        "Staged", (40, 37), ("f16", "s8"), ("ab", "ab"), blocks=((), (0, 16))
    ),
    "tiles of runs": Family("Staged", (130, 128), ("f32", "f16"), ("ab", "ba")),
    "tiles of runs with scales": Family(
        "Staged",
        (128, 130),
        ("f16", "s8"),
        ("ab", "ba"),
        attr=Attr(dst_scale=np.linspace(1, 2, 128), dst_scale_mask=1),
    ),
    "tiles of runs of 4 bits": Family("Staged", (128, 130), ("u4", "u8"), ("ab", "ba"), (2, 0)),
    "copies": Family("Direct", (5, 6, 7), ("u8", "u8"), ("abc", "acb"), (1, 2)),
    "copies of pairs": Family("Direct", (3, 5, 2), ("f64", "f64"), ("abc", "bac")),
    "copies without a common stride": Family(
        "Direct", (3, 97), ("u8", "u8"), ("ab", "ab"), blocks=((1, 47), (1, 31))
    ),
    "conversions without a common stride": Family(
        "Direct",
        (3, 97),
        ("s8", "f32"),
        ("ab", "ab"),
        attr=Attr(src_scale=np.linspace(0.5, 2, 3), src_scale_mask=1),
        blocks=((1, 47), (1, 31)),
    ),
    "pixels of nhwc": Family(
        "Staged", (2, 40, 7, 9), ("f16", "f16"), ("acdb", ""), images=("", "in_out_channel")
    ),
    "pixels of rows at any byte": Family(
        "Staged", (2, 40, 7, 9), ("s8", "s8"), ("acdb", ""), (1, 0), images=("", "in_out_channel")
    ),
    "rows at any byte of pixels": Family(
        "Staged", (2, 40, 7, 9), ("f16", "f16"), ("", "acdb"), (0, 1), images=("in_out_channel", "")
    ),
    "planes at any byte of pixels": Family(
        "Staged", (2, 8, 5, 37), ("u8", "u8"), ("", "abcd"), (0, 1), images=("in_out_channel", "")
    ),
    "nhwc of pixels": Family(
        "Staged", (2, 40, 7, 9), ("f32", "f32"), ("", "acdb"), images=("in_out_channel", "")
    ),
    "nchw of pixels": Family(
        "Staged", (2, 8, 6, 16), ("u8", "u8"), ("", "abcd"), images=("in_out_channel", "")
    ),
    "converted pixels of nchw": Family(
        "Staged",
        (2, 8, 6, 16),
        ("f32", "f16"),
        ("abcd", ""),
        attr=Attr(src_scale=0.5),
        images=("", "in_out_channel"),
    ),
    "converted pixels of blocks": Family(
        "Staged",
        (2, 36, 5, 6),
        ("f32", "f16"),
        ("abcd", ""),
        blocks=((1, 16), ()),
        images=("", "in_out_channel"),
    ),
    "copies into pixels": Family(
        "Direct", (2, 11, 3, 5), ("s8", "s8"), ("abcd", ""), images=("", "in_out_channel")
    ),
    "copies into pixels with scales": Family(
        "Direct",
        **_IMAGE,
        dtypes=("s8", "f32"),
        orders=("acdb", ""),
        attr=Attr(**_SCALES),
        images=("", "in_out_channel"),
    ),
    "copies out of pixels": Family(
        "Direct", (2, 11, 3, 5), ("f32", "f32"), ("", "acdb"), images=("in_out_channel", "")
    ),
    "copies out of pixels with scales": Family(
        "Direct",
        **_IMAGE,
        dtypes=("f16", "s8"),
        orders=("", "abcd"),
        attr=Attr(**_SCALES),
        images=("in_out_channel", ""),
    ),
    "additions of pixels": Family(
        "Direct",
        **_IMAGE,
        dtypes=("f32", "f32"),
        orders=("", "acdb"),
        attr=Attr(beta=0.5),
        images=("in_out_channel", ""),
    ),
    "pixels of filters": Family(
        "Direct", (9, 7, 3, 2), ("f16", "f16"), ("abcd", ""), images=("", "conv2d_filter")
    ),
    "filters of pixels": Family(
        "Direct", (9, 7, 3, 2), ("s32", "s32"), ("", "bacd"), images=("conv2d_filter", "")
    ),
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
        [(1,) * ndims] if image else of for image, of in zip(family.images, (src, dst), strict=True)
    )
    count = max(len(src), len(dst))
    some = ((src[k % len(src)], dst[(k + k // len(dst)) % len(dst)]) for k in range(count))
    for k, signs in enumerate(product(src, dst) if every_place else some):
        for places in PLACES if every_place else (PLACES[k % len(PLACES)],):
            yield Cell(signs, places)


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
    return memory_desc(dims, dtype, strides=tuple(strides), offset0=first, **inner)


def operand(family: Family, side: int, cell: Cell) -> MemoryDesc | ImageDesc:
    """Return src or dst in a cell."""
    if family.images[side]:
        return image_desc(family.dims, family.dtypes[side], family.images[side])
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
    one, other = (
        OperandSpec(linear(of), ImageShape.of(of) if isinstance(of, ImageDesc) else None)
        for of in (src, dst)
    )
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
