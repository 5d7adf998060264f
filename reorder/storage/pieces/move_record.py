"""A piece of a record, executed on files: its numbers are converted, its codes move in strips."""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError, RecordDesc
from reorder.records.convert_numbers import convert_numbers, same_codes, write_numbers
from reorder.records.decode import dequantize_record
from reorder.records.moves import integer_desc
from reorder.records.record import Record, fill_constants
from reorder.storage.pieces.files import open_to_read, open_to_write, read_runs, write_runs
from reorder.storage.pieces.move import move_piece, scratch
from reorder.storage.pieces.pieces import Piece, permutation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from reorder.storage.pieces.files import Place
    from reorder.storage.pieces.pieces import RecordPiece

__all__ = ["convert_record", "move_record", "read_tensors"]


class _Codes(NamedTuple):
    """Codes that may move as they are, from and to tensors that hold nothing else."""

    src: str
    dst: str
    piece: Piece
    # what is written
    record: RecordDesc


def move_record(
    piece: RecordPiece,
    src: Mapping[str, Place],
    dst: Mapping[str, Place],
    name: str,
    threads: int,
) -> None:
    """Read a piece of a record, convert it, and write it.

    Parameters
    ----------
    piece : RecordPiece
        From `cut_record`.
    src, dst : mapping of str to Place
        Where the tensors are.
    name : str
        Of the record, for messages.
    threads : int
        As for `reorder`.

    Raises
    ------
    MemdescError
        If a file cannot be read or written, or the new format does not have a number.
    """
    codes = _codes(piece)
    made = None if codes is None else _numbers(piece, src, codes, name, threads)
    if codes is None or made is None:
        made = convert_record(piece, src, name, threads)
        codes = None
    for tensor, runs in piece.writes:
        if codes is None or tensor != codes.dst:
            with open_to_write(dst[tensor].path) as file:
                write_runs(file, runs, dst[tensor], made[tensor])
    if codes is not None:
        move_piece(codes.piece, src[codes.src], dst[codes.dst], threads)


def convert_record(
    piece: RecordPiece, src: Mapping[str, Place], name: str, threads: int
) -> dict[str, NDArray[np.uint8]]:
    """Return what is to be written, by the names of the tensors.

    Raises
    ------
    MemdescError
        As for `move_record`.
    """
    record = Record(piece.src, read_tensors(piece, src))
    if not isinstance(piece.dst, RecordDesc):
        return {"": dequantize_record(record, piece.dst.dtype, piece.dst, threads).data}
    made, out = _target(piece, piece.dst)
    with _named(name):
        # `check_numbers` has said what is rounded
        convert_numbers(record, out, permutation(piece.src, piece.dst), threads, [])
    return made


def read_tensors(
    piece: RecordPiece, places: Mapping[str, Place], without: str | None = None
) -> dict[str, NDArray[np.uint8]]:
    """Return the bytes of a piece in each tensor that is read; those of one may be left out."""
    found = {}
    for k, (name, runs) in enumerate(piece.reads):
        nbytes = piece.src.tensors[name]
        data = scratch.take(f"src {k}", max(runs.nbytes, nbytes))
        if name != without:
            with open_to_read(places[name].path) as file:
                read_runs(file, runs, places[name], data)
        found[name] = data[:nbytes]
    return found


@lru_cache(maxsize=256)  # pieces of the layers of a model are alike
def _codes(piece: RecordPiece) -> _Codes | None:
    """Return the codes of a piece, if they are integers in tensors of their own on both sides."""
    if not isinstance(piece.dst, RecordDesc):
        return None
    same = same_codes(piece.src, piece.dst)
    if same is None:
        return None
    for desc, part in zip((piece.src, piece.dst), same, strict=True):
        if [each.tensor for each in desc.fields].count(part.tensor) > 1:
            return None
    old, new = same
    moved = Piece(
        integer_desc(old).permute_axes(permutation(piece.src, piece.dst)),
        integer_desc(new),
        dict(piece.reads)[old.tensor],
        dict(piece.writes)[new.tensor],
    )
    return _Codes(old.tensor, new.tensor, moved, piece.dst)


def _numbers(
    piece: RecordPiece, src: Mapping[str, Place], codes: _Codes, name: str, threads: int
) -> dict[str, NDArray[np.uint8]] | None:
    """Return what is to be written beside the codes; None if these change."""
    record = Record(piece.src, read_tensors(piece, src, without=codes.src))
    made, out = _target(piece, codes.record, without=codes.dst)
    with _named(name):
        delta = write_numbers(record, out, permutation(piece.src, piece.dst), threads, [])
    return None if delta.values.any() else made


def _target(
    piece: RecordPiece, desc: RecordDesc, without: str | None = None
) -> tuple[dict[str, NDArray[np.uint8]], Record]:
    """Return bytes for what is written, and the record in them; zeros where it has gaps."""
    sizes = desc.tensors
    made = {
        name: scratch.take(f"dst {k}", max(runs.nbytes, sizes[name]))
        for k, (name, runs) in enumerate(piece.writes)
    }
    if sum(part.layout.nelems * part.bits for part in desc.fields) != 8 * desc.bare.nbytes:
        for name, data in made.items():
            if name != without:
                data[:] = 0
    fill_constants(desc, made)
    return made, Record(desc, {name: data[: sizes[name]] for name, data in made.items()})


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Say of which record an error is."""
    try:
        yield
    except MemdescError as error:
        msg = f"{name}: {error}"
        raise MemdescError(msg) from None
