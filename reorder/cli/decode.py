"""`memdesc decode`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import memdesc
from memdesc import MemdescError, UnknownFormatError, data_type, from_notation
from reorder.api import reorder
from reorder.cli.command import Command, Facts, desc_of, dims_of
from reorder.cli.progress import Progress
from reorder.cli.tensors import (
    add_limit,
    add_output,
    check_output,
    open_raw,
    padding_facts,
    read_bytes,
    write_output,
)
from reorder.identification.identify import identify
from reorder.memory.memory import Memory

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memdesc import MemoryDesc

__all__ = ["COMMAND"]

_CHUNK_NBYTES = 1 << 26
# vocabulary and domain of names for packings of quantised weights
_CODES, _CODE_BITS = ("weights", "weights"), 8
# how many layouts a message lists
_LISTED = 8


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", help="a file of raw bytes")
    add_output(parser, "out")
    parser.add_argument(
        "--format",
        metavar="TAG",
        help="layout of the dump, such as b_fs_yx_fsv16, an image type (its pixels row by row), or "
        "OpenVINO's TYPE:FORMAT:DIMS, such as f16:b_fs_yx_fsv16:1x17x5x4; by default what the "
        "name of the dump says",
    )
    parser.add_argument("--dims", metavar="DIMS", help="logical sizes, such as 1x17x5x4")
    parser.add_argument("--dtype", metavar="DTYPE", help="type of its elements, such as f16")
    parser.add_argument(
        "--like",
        metavar="NAMES",
        help="instead of --format: names joined by commas, with * for any letters; the one whose "
        "size fits and whose padding is zero is used",
    )
    parser.add_argument(
        "--offset",
        type=int,
        metavar="BYTES",
        help="bytes before the tensor (default 0); with this flag, files of any kind are read as "
        "raw bytes",
    )
    parser.add_argument(
        "--ignore-rest", action="store_true", help="let the file be longer than the tensor"
    )
    parser.add_argument(
        "--to-dtype",
        metavar="DTYPE",
        help="write the values as a type that holds them all, such as f32",
    )
    add_limit(parser)


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    check_output(options.out, options.dump, is_raw=options.raw)
    desc = _desc(options)
    wanted = desc.dtype if options.to_dtype is None else data_type(options.to_dtype)
    if not np.can_cast(desc.dtype.numpy, wanted.numpy):
        hint = "use a wider type, such as f32 or s32"
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
        write_output(options.out, result, is_raw=options.raw)
    facts = {
        "wrote": options.out,
        "dims": desc.dims,
        "dtype": str(wanted),
        **padding,
    }
    packing = next((name for name in desc.tags() if name[::2] == _CODES), None)
    if packing is not None and desc.dtype.bits <= _CODE_BITS:
        facts["note"] = (
            f"{packing.text} packs codes: scales and zero points turn them into numbers, and are "
            "not applied"
        )
    return facts, 0 if padding["padding_zero"] else 1


def _desc(options: argparse.Namespace) -> MemoryDesc:
    """Return what the dump holds: by a format, a list of names, or the name of the file."""
    dims = None if options.dims is None else dims_of(options.dims)
    if options.format is None and options.like is None:
        try:
            return from_notation(Path(options.dump).name, "openvino", dims, options.dtype)
        except UnknownFormatError as error:
            msg = (
                f"the name of the dump does not say what it holds; give --format or --like: {error}"
            )
            raise MemdescError(msg) from None
    if options.like is not None:
        return _alike(options, dims)
    if ":" in options.format:
        return from_notation(options.format, "openvino", dims, options.dtype)
    if dims is None or options.dtype is None:
        msg = f"--format {options.format} says neither sizes nor type; give --dims and --dtype"
        raise MemdescError(msg)
    return desc_of(options.format, dims, options.dtype)


def _alike(options: argparse.Namespace, dims: tuple[int, ...] | None) -> MemoryDesc:
    """Return the only layout of these names with the size of the dump and zero padding."""
    if dims is None or options.format is not None:
        msg = "--like needs --dims, and replaces --format"
        raise MemdescError(msg)
    data = read_bytes(options.dump, options.offset)
    patterns = options.like.split(",")
    found = [
        (each.desc, [name.text for name in each.names if _fits(name.text, patterns)])
        for each in identify(data, dims=dims, dtype=options.dtype).candidates
    ]
    fitting = [(desc, names) for desc, names in found if names]
    if len(fitting) != 1:
        listed = "; ".join(f"{desc.dtype} {names[0]}" for desc, names in fitting[:_LISTED])
        what = f"{len(data)} bytes with zero padding may be {listed or 'none'}"
        more = f" and {len(fitting) - _LISTED} more" if fitting[_LISTED:] else ""
        msg = f"of --like {options.like}, {what}{more}; name one with --format and --dtype"
        raise MemdescError(msg)
    return fitting[0][0]


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _read(options: argparse.Namespace, desc: MemoryDesc, progress: Progress) -> NDArray[np.uint8]:
    """Read the bytes of the tensor; refuse a file of another size."""
    with open_raw(options.dump, options.offset) as (file, found):
        if found < desc.nbytes or (found > desc.nbytes and not options.ignore_rest):
            rest = (
                "it is truncated, or has another layout"
                if found < desc.nbytes
                else f"pass --offset {found - desc.nbytes} if it ends with the tensor, or "
                "--ignore-rest if something else follows"
            )
            has = f"{found} bytes from byte {options.offset or 0} on"
            needs = f"{desc!r} takes {desc.nbytes}"
            msg = f"{options.dump!r} has {has}, but {needs}; {rest}"
            raise MemdescError(msg)
        data = np.empty(desc.nbytes, np.uint8)
        for start in range(0, desc.nbytes, _CHUNK_NBYTES):
            chunk = data.data[start : start + _CHUNK_NBYTES]
            progress.step(f"reading {options.dump}")
            if file.readinto(chunk) != len(chunk):  # type: ignore[attr-defined] # binary files have it
                msg = f"{options.dump!r} became shorter while it was being read"
                raise MemdescError(msg)
            progress.step(f"reading {options.dump}", len(chunk))
    return data


COMMAND = Command(
    "decode",
    "Decode a raw dump into an array, and check its padding: exit code 1 if it is not zero.",
    "decode dump.bin out.npy --format b_fs_yx_fsv16 --dims 1x17x5x4 --dtype f16",
    _add_arguments,
    _answer,
)
