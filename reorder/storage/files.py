"""Tensors on disk: a .npy of the buffer, and its descriptor as JSON beside it.

`.npy` knows neither layouts nor bf16, f8 and 4-bit types; the sidecar `NAME.npy.json` says what
the bytes are, and which file they are in. Two files cannot be replaced at once, so the new
descriptor describes the older array as well, and gets its name before the new array does:
whenever a process ends, the array that is there is described.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError, data_type, to_json
from memdesc.disk import as_path, open_file, state_of, write_files
from memdesc.int64 import checked_flag
from memdesc.staging import own_turn
from reorder.memory.memory import Memory
from reorder.storage.arrays import array_of, form_of_image, memory_of, other_type, typed
from reorder.storage.fingerprint import checksum, free_generation, of_data
from reorder.storage.npy import (
    NpyError,
    array_from,
    check_end,
    header_of,
    map_data,
    read_data,
    read_header,
)
from reorder.storage.pair import describe, mismatch, present, record_for
from reorder.storage.sidecar import read_sidecar, sidecar

if TYPE_CHECKING:
    from typing import BinaryIO

    from numpy.typing import NDArray

    from memdesc import ImageDesc
    from reorder.storage.sidecar import Record, Sidecar

__all__ = ["load", "save", "save_image", "sidecar"]

# how often a pair is read that others write meanwhile
_ATTEMPTS = 5
# bytes whose checksum takes less time than starting a thread for it
_SMALL = 2**18


def load(
    path: str | os.PathLike[str],
    dtype: str | None = None,
    *,
    verify: bool = False,
    mmap: bool = False,
) -> Memory | NDArray[Any]:
    """Read a tensor: a Memory if a descriptor lies beside it, else the array.

    The descriptor says which file it describes: by size, a generation that `save` counts, and a
    digest of the header and of up to 1 MiB of the data. Any other array in its place is refused.
    Descriptors of versions that did not say so are compared by dtype and shape alone.

    *Law*: `load` gives back what `save` was given, bit for bit.

    Parameters
    ----------
    path : path
        A .npy file.
    dtype : str, optional
        What an array without descriptor holds where .npy cannot say it, such as bf16, which
        numpy saves as void elements (``V2``). Nothing is converted, and a file that says another
        type is refused.
    verify : bool
        Whether to compare the checksum of all data too, which takes a pass over them.
    mmap : bool
        Whether to map the file instead of reading it: the data are a read-only `numpy.memmap`, of
        which the system reads what is used. `reorder.load(path, mmap=True).blocks()` is the
        physical array of a file. The file must not get shorter as long as the array lives.

    Raises
    ------
    MemdescError
        If a file is missing, damaged, or the two do not fit each other; with ``verify``, also
        if there is no descriptor with a checksum.

    Examples
    --------
    >>> import os, tempfile, numpy as np, reorder
    >>> path = os.path.join(tempfile.mkdtemp(), "x.npy")
    >>> reorder.save(path, reorder.reorder(np.ones((1, 17, 2, 2), np.float32), "nChw16c"))
    >>> reorder.load(path, verify=True).desc
    memory_desc((1, 17, 2, 2), 'f32', 'aBcd16b')
    >>> np.save(path, np.zeros((1, 17, 2, 2), np.float32))
    >>> reorder.load(path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    memdesc.errors.MemdescError: '...x.npy' is an array of float32 and shape (1, 17, 2, 2), but ...
    """
    given, beside = as_path(path), sidecar(path)
    verify, mmap = checked_flag("verify", verify), checked_flag("mmap", mmap)
    described = read_sidecar(beside)
    for _ in range(_ATTEMPTS):
        try:
            found = _load(given, described, dtype, verify=verify, mmap=mmap)
        except MemdescError:
            # another process may have written a new pair between the two reads
            again = read_sidecar(beside)
            if again == described:
                raise
        else:
            again = described or read_sidecar(beside)
            if again is described:
                return found
        described = again
    return _load(given, described, dtype, verify=verify, mmap=mmap)


def _load(
    given: Path, described: Sidecar | None, dtype: str | None, *, verify: bool, mmap: bool
) -> Memory | NDArray[Any]:
    what = repr(str(given))
    record, desc = None, None
    try:
        with open_file(given) as file:
            nbytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            header = read_header(file)
            if described is not None:
                record = record_for(header, nbytes, described, what)
                desc = describe(record, header, described, what)
            check_end(header, nbytes)
            data = (map_data if mmap else read_data)(file, header, nbytes)
            array = array_from(data, header)
    except NpyError as error:
        msg = f"{what} is no .npy file, or a damaged one: {error}"
        raise MemdescError(msg) from None
    tie = record.array if record else None
    if described and tie and not tie.is_of(of_data(header, data, nbytes)):
        raise mismatch(what, described, "its header or its data differ")
    if verify:
        _check_all(data, record, what)
    if desc is None:
        return typed(array, dtype, str(given))
    if dtype is not None and data_type(dtype) != desc.dtype:
        said = f"{str(sidecar(given))!r} says {desc.dtype}"
        raise other_type(said, data_type(dtype))
    return memory_of(array, desc)


def _check_all(data: NDArray[np.uint8], record: Record | None, what: str) -> None:
    if record is None or record.array is None or record.array.checksum is None:
        msg = (
            f"{what} cannot be verified: no descriptor beside it has a checksum; save it again, or "
            "load without verify"
        )
        raise MemdescError(msg)
    found = checksum(data)
    if found != record.array.checksum:
        msg = (
            f"{what} is damaged: the checksum of its data is {found:#010x}, not "
            f"{record.array.checksum:#010x} as when it was saved"
        )
        raise MemdescError(msg)


def save(path: str | os.PathLike[str], memory: Memory) -> None:
    """Write a tensor and, beside it, its descriptor; nothing is left half written.

    A process that is killed at any moment, or a system that loses its power, leaves the older
    tensor or the new one, complete. `save` returns when the new one is on disk.

    Raises
    ------
    MemdescError
        If a file cannot be written.
    """
    if not isinstance(memory, Memory):
        msg = (  # type: ignore[unreachable] # callers without types
            f"save takes a Memory, not {type(memory).__name__}; reorder() makes one of an array"
        )
        raise MemdescError(msg)
    _write(path, array_of(memory), json.loads(to_json(memory.desc)))


def save_image(path: str | os.PathLike[str], pixels: NDArray[Any], image: ImageDesc) -> None:
    """Write the pixels of an image and, beside them, which image they are.

    `load` makes a Memory of `image.desc` of them.

    Raises
    ------
    MemdescError
        If a file cannot be written.
    """
    kind, shape = form_of_image(image.desc, image.name)
    fields = json.loads(to_json(image.desc)) | {"image": image.name}
    _write(path, np.ascontiguousarray(pixels.view(kind).reshape(shape)), fields)


def _write(path: str | os.PathLike[str], array: NDArray[Any], fields: dict[str, Any]) -> None:
    given, beside = as_path(path), sidecar(path)
    data = array.reshape(-1).view(np.uint8)
    totals: list[int] = []
    summing = Thread(target=lambda: totals.append(checksum(data)))
    states = state_of(given), state_of(beside)
    taken, before = present(given, beside)
    header = header_of(array, free_generation(taken))
    with ExitStack() as turn:
        opened: list[BinaryIO] = []

        def write_array(file: BinaryIO) -> None:
            opened.append(file)
            # the checksum is made while the data is written
            if data.nbytes > _SMALL:
                summing.start()
            else:
                summing.run()
            file.write(header.raw)
            file.write(memoryview(data))  # type: ignore[arg-type] # arrays of bytes are buffers

        def write_fields(file: BinaryIO) -> None:
            if data.nbytes > _SMALL:
                summing.join()
            # until both files have their names
            turn.enter_context(own_turn(Path(os.path.realpath(given)).parent))
            final, older = header, before
            if (state_of(given), state_of(beside)) != states:
                # others have saved meanwhile
                numbers, older = present(given, beside)
                final = header_of(array, free_generation(numbers))
                opened[0].seek(0)
                opened[0].write(final.raw)
                opened[0].flush()
                os.fsync(opened[0].fileno())
            found = of_data(final, data, len(final.raw) + data.nbytes)
            array_of_file = found._replace(checksum=totals[0])._asdict()
            text = json.dumps(fields | {"array": array_of_file} | older)
            file.write(f"{text}\n".encode())

        write_files({given: write_array, beside: write_fields})
