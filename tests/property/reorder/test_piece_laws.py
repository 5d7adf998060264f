"""Reorders of files in pieces: the bytes of the whole reorder, each piece within its bound."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import reorder
from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.record import record_desc
from reorder.checkpoints.formats.entry import Place
from reorder.checkpoints.moves.changes import ONLY, Reorder, Repack, scratch
from reorder.checkpoints.moves.pieces import Piece, cut
from reorder.checkpoints.moves.tasks import Task
from tests.records import plain_scales, random_record
from tests.reorders import random_bytes
from tests.strategies import desc_pairs, dims, tag_descs

_START = 24


@st.composite
def _tagged(draw: DrawFn) -> tuple[MemoryDesc, MemoryDesc]:
    """Draw two dense layouts of one type, as files have them."""
    sizes = draw(dims(1, 5))
    dtype = draw(st.sampled_from(("u8", "u4", "bf16", "f32")))
    return draw(tag_descs(sizes, dtype)), draw(tag_descs(sizes, dtype))


def _moved(pieces: list[Piece], src: MemoryDesc, dst: MemoryDesc, seed: int) -> None:
    """Compare what pieces write into a file with what one reorder writes into memory."""
    data = random_bytes(src.min_nbytes, seed)
    wanted = np.zeros(dst.nbytes, np.uint8)
    reorder.execute(reorder.plan_reorder(src, dst), data, wanted)
    with TemporaryDirectory() as folder:
        given, made = Path(folder, "in"), Path(folder, "out")
        given.write_bytes(bytes(_START) + data.tobytes())
        made.write_bytes(bytes(_START + dst.nbytes))
        places = Place(given, _START, src.min_nbytes), Place(made, _START, dst.nbytes)
        src_places, dst_places = ({ONLY: each} for each in places)
        tasks = [Task("x", piece, src_places, dst_places) for piece in pieces]
        # in any order, and again; gaps hold zeros whatever a buffer held
        for task in (*reversed(tasks), *tasks[:1]):
            task.run()
            for buffer in scratch.held.values():
                buffer[:] = 255
        for task in tasks:
            task.check()
        found = np.frombuffer(made.read_bytes(), np.uint8)
    assert not found[:_START].any()
    assert np.array_equal(found[_START:], wanted)


_REPACKED = (
    ("awq", "gptq"),
    ("gptq", "awq"),
    ("gptq", "torch_int4_cpu_default"),
    ("q4_0", "q4_1"),
    ("q8_0", "q8_0"),
    ("q4_0", "awq"),
    ("q4_k", "q4_k"),
    ("ocp_mxfp4", "gguf_mxfp4"),
    ("tq1_0", "tq1_0"),
)


@settings(max_examples=12)
@given(
    st.sampled_from(_REPACKED),
    st.sampled_from(((128, 256), (256, 128), (512, 256))),
    st.integers(1, 40),
    st.integers(0, 99),
)
def test_pieces_of_records_write_what_repacking_the_whole_writes(
    names: tuple[str, str], dims: tuple[int, int], count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    dims = (dims[0], 256) if names[0] in {"q4_k", "tq1_0"} else dims
    options = {"group": 64} if names[0] in {"awq", "gptq"} else {}
    desc = record_desc(dims, names[0], **options)
    record = plain_scales(random_record(desc, rng), rng)
    if "qzeros" in record.tensors:
        record.tensors["qzeros"][:] = 0x77 if names[0] == "gptq" else 0x88
    whole = reorder.records.repack(record, names[1])
    bound = (desc.nbytes + whole.desc.nbytes) // count + 1
    pieces = list(cut(Repack(desc, whole.desc), 1 << 40, wanted=bound).pieces())
    with TemporaryDirectory() as folder:
        src = {name: Place(Path(folder, f"in.{name}"), 0, n) for name, n in desc.tensors.items()}
        dst = {
            name: Place(Path(folder, f"out.{name}"), 0, n) for name, n in whole.desc.tensors.items()
        }
        for name, place in src.items():
            place.path.write_bytes(record.tensors[name].tobytes())
        for place in dst.values():
            place.path.write_bytes(bytes(place.nbytes))
        for piece in reversed(pieces):
            task = Task("w", piece, src, dst)
            task.run()
            task.check()
        for name, place in dst.items():
            assert place.path.read_bytes() == whole.tensors[name].tobytes()


def _pair(
    dims: tuple[int, ...], dtype: str, src: str, dst: str | None = None, **given: Any
) -> tuple[MemoryDesc, MemoryDesc]:
    return memory_desc(dims, dtype, src), memory_desc(dims, dtype, dst, **given)


# of three rows of 5 the first two are read with what lies between them, the last one alone
@example(_pair((5, 17, 3, 5), "u4", "abcd", "AcdB16a4b"), 2, 0)
@example(_pair((4, 2), "f32", "ab", strides=(2, 1), offset0=8), 1, 0)
@example(_pair((3, 5), "u4", "ab", "ab"), 1, 0)
@example(_pair((4, 5), "s8", "ab", strides=(8, 1)), 1, 0)
@settings(max_examples=40)
@given(st.one_of(_tagged(), desc_pairs(max_ndims=4)), st.integers(2, 60), st.integers(0, 2**31))
def test_pieces_write_what_the_reorder_writes_and_stay_within_their_bound(
    pair: tuple[MemoryDesc, MemoryDesc], count: int, seed: int
) -> None:
    src, dst = pair
    bound = (src.nbytes + dst.nbytes) // count + 1
    try:
        pieces = list(cut(Reorder(src, dst), bound).pieces())
    except MemdescError as error:
        # legal where blocks are large, and where strides are negative
        assert re.search("whole blocks|negative stride", str(error))
        return
    assert all(piece.nbytes <= bound for piece in pieces)
    _moved(pieces, src, dst, seed)
