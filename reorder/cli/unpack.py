"""`memdesc unpack`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import memdesc
from memdesc import MemdescError
from reorder.api import reorder
from reorder.cli.command import Command, Facts, buffer_name, desc_facts, dims_of
from reorder.cli.tensors import (
    add_limit,
    add_output,
    check_output,
    load_file,
    may_be_raw,
    padding_facts,
    read_bytes,
    write_output,
)
from reorder.memory.inputs import from_pixels
from reorder.memory.memory import Memory

if TYPE_CHECKING:
    import argparse

    from numpy.typing import NDArray

    from memdesc import ImageDesc

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "src",
        help="pixels as pack writes them, an array of shape (height, width, channels), or a file "
        "of raw pixels, row by row",
    )
    add_output(parser, "dst")
    parser.add_argument(
        "--as",
        dest="image",
        metavar="TYPE",
        help="image type, such as conv2d_filter; by default what the descriptor in the file says",
    )
    parser.add_argument("--dims", metavar="DIMS", help="logical sizes, such as 1x17x5x4")
    parser.add_argument("--dtype", metavar="DTYPE", help="type of the lanes of raw pixels")
    parser.add_argument(
        "--row-pitch",
        type=int,
        metavar="BYTES",
        help="bytes from one row of raw pixels to the next, as in a mapped image (default: no gap)",
    )
    parser.add_argument(
        "--to", metavar="TAG", help="layout to write (default: row-major over the logical dims)"
    )
    parser.add_argument(
        "--to-dtype",
        metavar="DTYPE",
        help="type to convert to, such as f32; by default nothing is converted",
    )
    add_limit(parser)


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    check_output(options.dst, options.src, is_raw=options.raw)
    memory = _load(options)
    plain = memdesc.memory_desc(memory.desc.dims, memory.desc.dtype)
    dst = plain if options.to is None else buffer_name(options.to)
    result = reorder(memory, dst, dtype=options.to_dtype)
    padding = padding_facts(memory, options.limit, "padding_zero")
    write_output(options.dst, result, is_raw=options.raw)
    return {
        "wrote": options.dst,
        **desc_facts(result.desc),
        **padding,
    }, 0 if padding["padding_zero"] else 1


def _load(options: argparse.Namespace) -> Memory:
    """Return the pixels as memory of the image that the options or the file describe."""
    is_raw = may_be_raw(options.src)
    if options.row_pitch is not None and not is_raw:
        msg = f"--row-pitch is for raw pixels; {options.src!r} gives the shape of its rows"
        raise MemdescError(msg)
    found = read_bytes(options.src) if is_raw else load_file(options.src, options.dtype)
    if isinstance(found, Memory):
        if options.image is not None or options.dims is not None:
            msg = f"{options.src!r} has a descriptor; leave --as and --dims out"
            raise MemdescError(msg)
        return found
    missing = [
        flag for flag, value in (("--as", options.image), ("--dims", options.dims)) if value is None
    ]
    if is_raw and options.dtype is None:
        missing.append("--dtype")
    if missing:
        msg = f"nothing says which image {options.src!r} holds; give {' and '.join(missing)}"
        raise MemdescError(msg)
    dtype = options.dtype if is_raw else found.dtype
    image = memdesc.image_desc(dims_of(options.dims), dtype, options.image)
    if is_raw:
        return Memory(image.desc, _rows(options, found, image), zero_pad=False)
    memory = from_pixels(found, image)
    others = found[image.height :], found[: image.height, image.width :]
    if any(np.ascontiguousarray(part).view(np.uint8).any() for part in others):
        msg = (
            f"{options.src!r} has {found.shape[0]} rows of {found.shape[1]} pixels, and {image!r} "
            f"{image.height} of {image.width}; the other pixels are not zero: they belong to an "
            "image of other dims, or must be cut off"
        )
        raise MemdescError(msg)
    return memory


def _rows(
    options: argparse.Namespace, data: NDArray[np.uint8], image: ImageDesc
) -> NDArray[np.uint8]:
    """Return the bytes of raw pixels without the gaps between rows."""
    row = image.nbytes // image.height if image.height else 0
    pitch = row if options.row_pitch is None else options.row_pitch
    if pitch < row:
        msg = f"--row-pitch {pitch} is less than a row of {image!r}, which has {row} bytes"
        raise MemdescError(msg)
    # the last row may end with its pixels, or with the gap after them
    nbytes = max(pitch * (image.height - 1) + row, 0)
    if data.nbytes not in {nbytes, pitch * image.height}:
        msg = (
            f"{options.src!r} has {data.nbytes} bytes, but {image!r} takes {nbytes}: "
            f"{image.height} rows of {image.width} pixels, {pitch} bytes apart"
        )
        raise MemdescError(msg)
    whole = np.zeros(pitch * image.height, np.uint8)
    whole[: data.nbytes] = data
    return np.ascontiguousarray(whole.reshape(image.height, pitch)[:, :row]).reshape(-1)


COMMAND = Command(
    "unpack",
    "Unpack the pixels of an OpenCL image, of a file or a raw dump, into an array, and check their "
    "padding: exit code 1 if it is not zero.",
    "unpack image.safetensors weights.npy",
    _add_arguments,
    _answer,
)
