"""A .npy and its descriptor: whether they belong together, and a new pair in the place of another.

Nothing is mapped here: a file that gets shorter while it is read is an error, not a signal.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, to_json
from memdesc.disk import open_file
from reorder.storage.arrays import check_form
from reorder.storage.crc32 import crc32_of_file
from reorder.storage.fingerprint import free_generation, of_file
from reorder.storage.npy import header_of, read_header
from reorder.storage.sidecar import read_sidecar, sidecar

if TYPE_CHECKING:
    from pathlib import Path

    from memdesc import MemoryDesc
    from reorder.storage.npy import Header
    from reorder.storage.sidecar import Record, Sidecar

__all__ = ["desc_of_file", "describe", "mismatch", "present", "record_for", "write_sidecar"]


def record_for(header: Header, nbytes: int, described: Sidecar, what: str) -> Record:
    """Return the facts about a file that are known before its data is read."""
    if record := described.record_for(header, nbytes):
        return record
    current = described.records[0]
    # says more where it is an array of another shape
    describe(current, header, described, what)
    size, generation, *_ = current.array or (nbytes, 0)
    reason = (
        f"it has {nbytes} bytes and generation {header.generation}, not {size} and {generation}"
    )
    raise mismatch(what, described, reason)


def describe(record: Record, header: Header, described: Sidecar, what: str) -> MemoryDesc | None:
    """Return the descriptor of an array, if it had one."""
    if not record.is_described:
        return None
    desc, form = record.describe(described.path)
    check_form(header, form, (what, repr(str(described.path))))
    return desc


def mismatch(what: str, described: Sidecar, reason: str) -> MemdescError:
    """Return the error of an array that its descriptor does not describe."""
    beside = repr(str(described.path))
    return MemdescError(
        f"{what} is not the array that {beside} describes: {reason}. One of the two was replaced "
        f"without the other: save the tensor again; or, if the array is newer, delete {beside}, "
        "or only its key 'array' where the layout has stayed"
    )


def desc_of_file(path: Path) -> MemoryDesc | None:
    """Return what the descriptor beside a .npy says of it; None where there is none.

    Raises
    ------
    MemdescError
        If one is damaged, or they do not fit each other.
    """
    described = read_sidecar(sidecar(path))
    if described is None:
        return None
    what = repr(str(path))
    with open_file(path) as file:
        nbytes = os.fstat(file.fileno()).st_size
        header = read_header(file)
        record = record_for(header, nbytes, described, what)
        desc = describe(record, header, described, what)
        if record.array and not record.array.is_of(of_file(header, file, nbytes)):
            raise mismatch(what, described, "its header or its data differ")
    return desc


def present(given: Path, beside: Path) -> tuple[set[int], dict[str, Any]]:
    """Return the generations of the files that are there, and ``before``: what describes the array.

    There is no such key where there is no array, and where the two files do not fit: they are
    refused now, and will be until the new ones are there.
    """
    taken: set[int] = set()
    try:
        described = read_sidecar(beside)
        for known in () if described is None else described.records:
            taken.update({known.array.generation} if known.array else ())
        with open_file(given) as file:
            nbytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            header = read_header(file)
            taken.add(header.generation)
            found = of_file(header, file, nbytes)
    except MemdescError:
        return taken, {}
    if described is None:
        return taken, {"before": {"array": found._asdict()}}
    record = described.record_for(header, nbytes)
    if record is None or (record.array and not record.array.is_of(found)):
        return taken, {}
    array = (record.array or found)._asdict()
    return taken, {"before": {**record.fields, "array": array}}


def write_sidecar(grown: Path, target: Path, *, desc: MemoryDesc) -> None:
    """Write the descriptor beside a complete .npy that is about to take the place of another.

    Parameters
    ----------
    grown : Path
        The .npy, whose header has generation 0; the descriptor is written beside it.
    target : Path
        What it will be called; what is there now is described as well.

    Raises
    ------
    MemdescError
        If a file cannot be read or written.
    """
    taken, before = present(target, sidecar(target))
    with open_file(grown) as file:
        nbytes = os.fstat(file.fileno()).st_size
        header = header_of(read_header(file), free_generation(taken))
        found = of_file(header, file, nbytes)
    start = len(header.raw)
    found = found._replace(checksum=crc32_of_file(grown, start, nbytes - start))
    with grown.open("r+b") as written:
        written.write(header.raw)
    fields = json.loads(to_json(desc)) | {"array": found._asdict()} | before
    sidecar(grown).write_text(f"{json.dumps(fields)}\n")
