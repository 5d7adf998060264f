"""Pieces of records on files: codes that move as they are, and codes that change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, RecordDesc, record_desc
from reorder.storage.containers.entry import Place
from reorder.storage.pieces.changes import Repack
from reorder.storage.pieces.pieces import cut
from reorder.storage.pieces.regions import Bound
from reorder.storage.pieces.tasks import Task
from tests.checkpoints import awq_layer

if TYPE_CHECKING:
    from pathlib import Path

_DIMS = (1024, 4096)


def moved(
    folder: Path, record: reorder.Record, dst: RecordDesc, bound: int = 1 << 30
) -> dict[str, bytes]:
    """Move a record from files into files of other bytes, and return these."""
    src = {name: Place(folder / name, 3, n) for name, n in record.desc.tensors.items()}
    for name, place in src.items():
        place.path.write_bytes(b"abc" + record.tensors[name].tobytes())
    made = {name: Place(folder / f"new {name}", 5, n) for name, n in dst.tensors.items()}
    for place in made.values():
        place.path.write_bytes(b"x" * (place.nbytes + 9))
    places = tuple(src.items()), tuple(made.items())
    for piece in cut(Repack(record.desc, dst), Bound(bound, bound)):
        Task("layer", piece, *places).run()
    found = {}
    for name, place in made.items():
        data = place.path.read_bytes()
        assert data[:5] + data[-4:] == b"x" * 9
        found[name] = data[5:-4]
    return found


def layer(zeros: tuple[int, int]) -> reorder.Record:
    return reorder.Record(record_desc(_DIMS, "awq", group=64), awq_layer(dims=_DIMS, zeros=zeros))


@pytest.mark.parametrize("bound", [1 << 30, 1 << 19])
@pytest.mark.parametrize(("name", "zeros"), [("gptq", (1, 16)), ("marlin", (8, 9))])
def test_pieces_write_what_repack_makes(
    tmp_path: Path, name: str, zeros: tuple[int, int], bound: int
) -> None:
    record = layer(zeros)
    wanted = reorder.repack(record, name)
    found = moved(tmp_path, record, wanted.desc, bound)
    assert found == {tensor: data.tobytes() for tensor, data in wanted.tensors.items()}


def test_codes_that_change_are_read_as_well(tmp_path: Path) -> None:
    tensors = layer((7, 8)).tensors
    tensors["qweight"] = np.full_like(tensors["qweight"], 0x77)
    record = reorder.Record(layer((7, 8)).desc, tensors)
    wanted = reorder.repack(record, "marlin")  # whose zero point is 8
    assert moved(tmp_path, record, wanted.desc)["qweight"] == wanted.tensors["qweight"].tobytes()


def test_the_record_of_a_number_that_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(MemdescError, match=r"layer: zero points: .* does not hold"):
        moved(tmp_path, layer((0, 3)), record_desc(_DIMS, "gptq", group=64))
