"""Strips of pieces: which sides are streamed, and what they write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import memory_desc
from reorder.storage.pieces.files import Place
from reorder.storage.pieces.move import Strips, move_piece, strips_of
from reorder.storage.pieces.pieces import Piece, cut
from reorder.storage.pieces.regions import Bound

if TYPE_CHECKING:
    from pathlib import Path

_STRIP = 1 << 18


def piece_of(dtype: str, tags: tuple[str, str], attr: reorder.Attr | None = None) -> Piece:
    """Return the first piece of a matrix of 5.9 million elements."""
    src, dst = (memory_desc((2816, 2096), dtype, tag) for tag in tags)
    return next(iter(cut(reorder.plan_reorder(src, dst, attr), Bound(30 << 20, 30 << 20))))


def held(found: Strips) -> tuple[bool, bool]:
    return found.holds_src, found.holds_dst


@pytest.mark.parametrize("tag", ["AB16a8b", "OI16i64o", "ab"])
def test_both_sides_are_streamed_where_outer_blocks_agree(tag: str) -> None:
    found = strips_of(piece_of("u8", ("ab", tag)), _STRIP)
    assert held(found) == (False, False)
    assert len(found.parts) > 10
    assert all(part.reads.number == part.writes.number == 1 for part in found.parts)
    assert all(part.nbytes <= 4 * _STRIP for part in found.parts)


def test_one_side_of_a_transposition_is_held_and_the_other_streamed() -> None:
    found = strips_of(piece_of("u8", ("ab", "ba")), _STRIP)
    assert held(found) == (True, False)
    assert all(part.writes.loops == () for part in found.parts)
    assert sum(part.writes.nbytes for part in found.parts) == 2816 * 2096


def test_what_is_read_in_short_runs_is_held() -> None:
    piece = piece_of("u8", ("ba", "ab"))
    assert (piece.reads.number, piece.writes.number) == (1, 1)
    short = piece._replace(writes=piece.writes._replace(loops=((2, 1 << 25),)))
    assert held(strips_of(short, _STRIP)) == (False, True)
    both = short._replace(reads=piece.reads._replace(loops=((2, 1 << 25),)))
    assert held(strips_of(both, _STRIP)) == (True, True)
    assert len(strips_of(both, _STRIP).parts) == 1


def test_scales_of_elements_leave_a_piece_as_it_is() -> None:
    scales = np.ones(2816, np.float32)
    for attr, count in (
        (reorder.Attr(dst_scale=2.0), 36),
        (reorder.Attr(dst_scale=scales, dst_scale_mask=1), 1),
    ):
        found = strips_of(piece_of("u8", ("ab", "AB16a8b"), attr), _STRIP)
        assert len(found.parts) >= count
        assert held(found) == (count == 1, count == 1)


@pytest.mark.parametrize("dtype", ["u4", "u8", "f32"])
@pytest.mark.parametrize("tags", [("ab", "ba"), ("ba", "AB16a64b"), ("AB8b16a", "ab")])
def test_strips_write_what_the_reorder_writes(
    tmp_path: Path, dtype: str, tags: tuple[str, str]
) -> None:
    src, dst = (memory_desc((770, 1290), dtype, tag) for tag in tags)
    data = np.random.default_rng(0).integers(0, 256, src.nbytes, np.uint8)
    data = reorder.Memory(src, data).data
    wanted = np.zeros(dst.nbytes, np.uint8)
    reorder.execute(reorder.plan_reorder(src, dst), data, wanted)
    given, made = tmp_path / "in", tmp_path / "out"
    given.write_bytes(b"head" + data.tobytes())
    made.write_bytes(bytes(3 + dst.nbytes))
    for piece in cut(reorder.plan_reorder(src, dst), Bound(3 << 19, 1 << 30)):
        places = Place(given, 4, src.nbytes), Place(made, 3, dst.nbytes)
        move_piece(piece, *places, threads=1, strip_bytes=_STRIP)
    assert made.read_bytes() == bytes(3) + wanted.tobytes()
