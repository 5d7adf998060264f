"""`memdesc decode`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

import memdesc
from memdesc import MemdescError, data_type
from reorder.api import reorder
from reorder.cli.command import Command, Facts, dims_of
from reorder.cli.layouts import buffer_name
from reorder.cli.padding import add_limit, padding_facts
from reorder.cli.progress import Progress
from reorder.memory.memory import Memory
from reorder.storage.files import save, sidecar

if TYPE_CHECKING:
    import argparse

    from numpy.typing import NDArray

    from memdesc import MemoryDesc

__all__ = ["COMMAND"]

_CHUNK_NBYTES = 1 << 26


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", help="a file of raw bytes")
    parser.add_argument(
        "out",
        help="the .npy to write, row-major over the logical dims, with its descriptor beside it",
    )
    parser.add_argument(
        "--format",
        required=True,
        metavar="TAG",
        help="how the dump lies in memory, such as b_fs_yx_fsv16",
    )
    parser.add_argument(
        "--dims", metavar="DIMS", required=True, help="logical sizes, such as 1x17x5x4"
    )
    parser.add_argument(
        "--dtype", metavar="DTYPE", required=True, help="type of its elements, such as f16"
    )
    parser.add_argument(
        "--offset",
        type=int,
        default=0,
        metavar="BYTES",
        help="bytes in front of the tensor (default 0)",
    )
    parser.add_argument(
        "--ignore-rest", action="store_true", help="let the file be longer than the tensor"
    )
    parser.add_argument(
        "--to-dtype",
        metavar="DTYPE",
        help="write the values as another type that holds them all, such as f32",
    )
    add_limit(parser)


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    desc = memdesc.memory_desc(dims_of(options.dims), options.dtype, buffer_name(options.format))
    wanted = desc.dtype if options.to_dtype is None else data_type(options.to_dtype)
    if not np.can_cast(desc.dtype.numpy, wanted.numpy):
        hint = "take a wider type, such as f32 or s32"
        msg = f"--to-dtype {wanted} does not hold all values of {desc.dtype}; {hint}"
        raise MemdescError(msg)
    with Progress(3 * desc.nbytes) as progress:
        memory = Memory(desc, _read(options, desc, progress), zero_pad=False)
        padding = padding_facts(memory, options.limit, "padding_zero")
        progress.step("reordering", 0)
        plain = memdesc.memory_desc(desc.dims, desc.dtype)
        result = reorder(memory, plain)
        if wanted != desc.dtype:
            result = reorder(result.numpy().astype(wanted.numpy), plain.with_dtype(wanted))
        progress.step(f"writing {options.out}", desc.nbytes)
        save(options.out, result)
    facts = {
        "wrote": options.out,
        "descriptor": str(sidecar(options.out)),
        "dims": desc.dims,
        "dtype": str(wanted),
        **padding,
    }
    return facts, 0 if padding["padding_zero"] else 1


def _read(options: argparse.Namespace, desc: MemoryDesc, progress: Progress) -> NDArray[np.uint8]:
    """Read the bytes of the tensor; refuse a file of another size."""
    if options.offset < 0:
        msg = f"--offset {options.offset}: a tensor cannot start in front of its file"
        raise MemdescError(msg)
    try:
        with open(options.dump, "rb") as file:  # noqa: PTH123 - as it was given
            found = os.fstat(file.fileno()).st_size - options.offset
            if found < desc.nbytes or (found > desc.nbytes and not options.ignore_rest):
                rest = (
                    "it is cut short, or another layout"
                    if found < desc.nbytes
                    else "pass --ignore-rest if the rest is something else"
                )
                has = f"{max(found, 0)} bytes from byte {options.offset} on"
                needs = f"{desc!r} takes {desc.nbytes}"
                msg = f"{options.dump!r} has {has}, but {needs}; {rest}"
                raise MemdescError(msg)
            file.seek(options.offset)
            data = np.empty(desc.nbytes, np.uint8)
            for start in range(0, desc.nbytes, _CHUNK_NBYTES):
                chunk = data.data[start : start + _CHUNK_NBYTES]
                progress.step(f"reading {options.dump}")
                if file.readinto(chunk) != len(chunk):
                    msg = f"{options.dump!r} became shorter while it was read"
                    raise MemdescError(msg)
                progress.step(f"reading {options.dump}", len(chunk))
    except OSError as error:
        msg = f"{options.dump!r} cannot be read: {error.strerror}"
        raise MemdescError(msg) from None
    return data


COMMAND = Command(
    "decode",
    "Decode a raw dump into an array, and check its padding: exit code 1 if it is not zero.",
    "decode dump.bin out.npy --format b_fs_yx_fsv16 --dims 1x17x5x4 --dtype f16",
    _add_arguments,
    _answer,
)
