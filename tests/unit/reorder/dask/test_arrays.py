"""Arrays of Dask in other layouts, with the real Dask."""

import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from numpy.typing import NDArray

import memdesc
import reorder
from memdesc import MemdescError
from memdesc.errors import NotBlockedError
from tests import hints
from tests.strategies import dims, tags

pytestmark = pytest.mark.peers

da = pytest.importorskip("dask.array", reason="dask is not installed")
rd = pytest.importorskip("reorder.dask")

_RNG = np.random.default_rng(0)


def _computed(array: Any) -> NDArray[Any]:
    """Compute an array, whose chunks must have the sizes that it says."""
    done: NDArray[Any] = array.compute(scheduler="sync")
    assert done.shape == array.shape
    assert done.dtype == array.dtype
    if array.ndim:
        last = array.blocks[tuple(count - 1 for count in array.numblocks)]
        assert last.compute(scheduler="sync").shape == last.shape
    return done


@pytest.mark.parametrize(
    "layout", ["nChw16c", "nhwc", "nChw8c", "Bacd4b", "plain", "b_fs_yx_fsv16", "aBcd8b__b32"]
)
def test_blocks_are_those_of_the_whole_array_and_lead_back(layout: str) -> None:
    x = _RNG.random((8, 40, 5, 4), np.float32)
    whole = reorder.reorder(x, layout)
    lazy = da.from_array(x, chunks=(4, 16, 5, 2))
    blocks = rd.reorder(lazy, layout)
    assert blocks.npartitions == lazy.npartitions
    assert (_computed(blocks) == whole.blocks()).all()
    back = rd.reorder(blocks, "plain", src=whole.desc)
    assert back.chunks == lazy.chunks
    assert (_computed(back) == x).all()
    other = rd.reorder(blocks, "nChw4c", src=whole.desc, dtype="f16")
    assert (_computed(other) == reorder.reorder(x, "nChw4c", dtype="f16").blocks()).all()


def _moved_by_a_byte(block: NDArray[Any]) -> NDArray[Any]:
    """Return a copy at an odd address, as workers of dask.distributed receive arrays."""
    raw = np.frombuffer(bytearray(block.nbytes + 1), np.uint8, offset=1)
    moved = raw.view(block.dtype).reshape(block.shape)
    moved[:] = block
    return moved


def test_chunks_may_start_at_any_address() -> None:
    x = _RNG.random((8, 40, 5, 4), np.float32)
    whole = reorder.reorder(x, "nChw16c")
    lazy = da.from_array(x, chunks=(4, 16, 5, 2)).map_blocks(_moved_by_a_byte, dtype=x.dtype)
    blocks = rd.reorder(lazy, "nChw16c")
    assert (_computed(blocks) == whole.blocks()).all()
    moved = blocks.map_blocks(_moved_by_a_byte, dtype=x.dtype)
    assert (_computed(rd.reorder(moved, "plain", src=whole.desc)) == x).all()


def test_four_bits_are_bytes_and_move_between_packings() -> None:
    q = _RNG.integers(0, 16, (128, 256), np.uint8)
    gptq = reorder.reorder(q, "gptq", dtype="u4")
    lazy = rd.reorder(da.from_array(q, chunks=(64, 128)), "gptq", dtype="u4")
    assert lazy.chunks == ((8, 8), (128, 128), (4,))
    assert _computed(lazy).tobytes() == gptq.data.tobytes()
    marlin = rd.reorder(lazy, "marlin", src=gptq.desc)
    assert _computed(marlin).tobytes() == reorder.reorder(gptq, "marlin").data.tobytes()
    desc = memdesc.memory_desc(q.shape, "u4", "marlin")
    assert (_computed(rd.reorder(marlin, "plain", src=desc, dtype="u8")) == q).all()
    plain = rd.reorder(da.from_array(q.astype(ml_dtypes.uint4), chunks=(64, 128)), "ab")
    assert plain.chunks == ((64, 64), (64, 64))
    assert _computed(plain).tobytes() == reorder.reorder(q, "ab", dtype="u4").data.tobytes()


def test_fused_axes_and_views_of_strides_keep_their_dims_whole() -> None:
    x = _RNG.random((6, 4, 8), np.float32)
    desc = memdesc.memory_desc(x.shape, "f32", memdesc.tags.parse_tag("a(bc)"))
    whole = reorder.reorder(x, desc)
    blocks = rd.reorder(da.from_array(x, chunks=(2, 4, 8)), desc)
    assert blocks.chunks == ((2, 2, 2), (32,))
    assert (_computed(blocks) == whole.blocks()).all()
    assert (_computed(rd.reorder(blocks, "cba", src=desc)) == x.transpose(2, 1, 0)).all()
    with pytest.raises(MemdescError, match=r"2 chunks along axis 1.* x\.rechunk\(\{1: -1\}\)"):
        rd.reorder(da.from_array(x, chunks=(2, 2, 8)), desc)
    gaps = memdesc.memory_desc(x.shape, "f32", strides=(100, 10, 1))
    assert (_computed(rd.reorder(da.from_array(x, chunks=(2, 2, 4)), gaps)) == x).all()


@pytest.mark.parametrize(
    ("chunks", "layout", "message"),
    [
        ((4, 20, 5, 4), "nChw16c", r"\(20, 20\) along .* 16 of dim 1; x\.rechunk\(\{1: 32\}\)"),
        ((3, 40, 5, 4), "Ncdhw16n4c", "Ncdhw16n4c"),
        ((3, 16, 5, 4), "Abcd4a", r"spans 4 of dim 0; x\.rechunk\(\{0: 4\}\)"),
    ],
)  # fmt: skip
def test_chunks_that_cut_blocks_are_refused_with_those_that_do_not(
    chunks: tuple[int, ...], layout: str, message: str
) -> None:
    with pytest.raises(MemdescError, match=message):
        rd.reorder(da.ones((8, 40, 5, 4), chunks=chunks), layout)


def test_the_way_out_of_a_message_works() -> None:
    x = _RNG.random((70, 64), np.float32)
    desc = memdesc.memory_desc(x.shape, "f32", "Ab8a")
    blocks = rd.reorder(da.from_array(x, chunks=(24, 64)), "Ab8a")
    with pytest.raises(MemdescError, match=r"spans 16 of dim 0; x\.rechunk\(\{0: 4\}\)"):
        rd.reorder(blocks, "Ab16a", src=desc)
    done = rd.reorder(blocks.rechunk({0: 4}), "Ab16a", src=desc)
    assert (_computed(done) == reorder.reorder(x, "Ab16a").blocks()).all()
    whole = reorder.reorder(x[:10], "Ab8a__a64")
    padded = da.from_array(whole.blocks(), chunks=(1, 64, 8))
    with pytest.raises(MemdescError, match="has only padding") as no:
        rd.reorder(padded, "plain", src=whole.desc)
    joined = eval(str(no.value).partition("others: ")[2], {"x": padded})
    assert (_computed(rd.reorder(joined, "plain", src=whole.desc)) == x[:10]).all()
    with pytest.raises(MemdescError, match=r"2 chunks along axis 2, .* x\.rechunk\(\{2: -1\}\)"):
        rd.reorder(blocks.rechunk((3, 64, 4)), "plain", src=desc)


def test_what_is_not_an_array_of_blocks_is_refused() -> None:
    x = da.ones((8, 40), chunks=(4, 40))
    desc = memdesc.memory_desc((8, 40), "f32", "aB16b")
    with pytest.raises(MemdescError, match=r"x is an array of float64 and shape \(8, 40\), but"):
        rd.reorder(x, "ab", src=desc)
    with pytest.raises(MemdescError, match="src must be the MemoryDesc of the whole array"):
        rd.reorder(x, "ab", src="aB16b")
    with pytest.raises(MemdescError, match=r"src has dims \(8, 40\), but dst \(8, 41\)"):
        rd.reorder(x, memdesc.memory_desc((8, 41), "f64", "ab"))
    view = memdesc.memory_desc((8, 64), "f64", "aB64b").submemory((8, 40), (0, 0))
    with pytest.raises(NotBlockedError, match="ends inside a block"):
        rd.reorder(x, view)


def test_a_large_array_is_described_at_once_and_its_graph_is_small() -> None:
    x = da.ones((1 << 20, 1 << 16), chunks=(1 << 14, 1 << 13), dtype="f4")
    blocks = rd.reorder(x, "AB16a16b")
    assert blocks.numblocks == (64, 8, 1, 1)
    assert len(pickle.dumps(blocks.dask)) < 100_000
    assert (blocks[3, 5].compute() == 1).all()


@pytest.mark.parametrize(
    ("sizes", "layouts"),
    [
        # orders that differ by a dim of size 1
        ((5, 1, 31), ("abc", "acb", "bca", "cab", "31x31x1")),
        *(((*sizes,), ("aB4b",)) for sizes in ((0, 5), (4, 0), (0, 0))),
    ],
)
def test_dims_of_sizes_0_and_1_have_blocks(sizes: tuple[int, ...], layouts: tuple[str]) -> None:
    x = _RNG.random(sizes, np.float32)
    for layout in layouts:
        blocks = rd.reorder(da.from_array(x, chunks=(2, 1, 16)[-len(sizes) :]), layout)
        assert (_computed(blocks) == reorder.reorder(x, layout).blocks()).all()


@given(st.data())
def test_blocks_of_chunks_are_blocks_of_the_whole(data: DataObject) -> None:
    sizes = data.draw(dims(1, 4, zero=False))
    tag = data.draw(tags(len(sizes)))
    desc = memdesc.memory_desc(sizes, "s16", tag)
    x = np.random.default_rng(0).integers(-999, 999, sizes).astype(np.int16)
    steps = [1] * len(sizes)
    for k, axis in enumerate(desc.axes):
        for dim in axis.dims:
            is_whole = len(axis.dims) > 1
            steps[dim] = sizes[dim] if is_whole else desc.layout.outer(k).step
    chunks = tuple(
        min(size, -(-size // step // data.draw(st.integers(1, 3))) * step) or 1
        for size, step in zip(sizes, steps, strict=True)
    )
    blocks = rd.reorder(da.from_array(x, chunks=chunks), desc)
    assert (_computed(blocks) == reorder.reorder(x, desc).blocks()).all()
    assert (_computed(rd.reorder(blocks, "plain", src=desc)) == x).all()


CUT = da.ones((4, 6), chunks=(4, 3), dtype="float32")
WEIGHTS = memdesc.memory_desc((4, 6), "s8", "ab")
CODES = da.ones((4, 3), dtype="uint8", chunks=4)


def unknown() -> Any:
    """Return an array with chunks of sizes that are not known yet."""
    return da.arange(8, dtype="float32", chunks=4)[da.ones(8, dtype=bool, chunks=4)]


def moved(x: Any, dst: object, **options: object) -> object:
    return rd.reorder(x, dst, **options).compute(scheduler="sync")


def test_every_hint_is_given_and_works() -> None:
    hints.check(Path(__file__).with_name("hints.txt"), globals(), ["reorder/dask.py"])
