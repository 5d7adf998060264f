"""`memdesc unpack`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import memdesc
from memdesc import MemdescError
from reorder.api import reorder
from reorder.cli.command import Command, Facts, dims_of
from reorder.cli.facts import desc_facts
from reorder.cli.layouts import buffer_name
from reorder.cli.tensors import load_file, may_be_raw, read_bytes
from reorder.memory.inputs import from_pixels
from reorder.memory.memory import Memory
from reorder.storage.files import save, sidecar

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "src",
        help="a .npy of pixels, as pack writes it or of shape (height, width, channels); or a file "
        "of raw pixels, row by row",
    )
    parser.add_argument("dst", help="the .npy to write, with its descriptor beside it")
    parser.add_argument(
        "--as",
        dest="image",
        metavar="TYPE",
        help="image type, such as conv2d_filter; by default what the descriptor beside it says",
    )
    parser.add_argument("--dims", metavar="DIMS", help="logical sizes, such as 1x17x5x4")
    parser.add_argument("--dtype", metavar="DTYPE", help="type of the lanes of raw pixels")
    parser.add_argument(
        "--to", metavar="TAG", help="layout to write (default: row-major over the logical dims)"
    )
    parser.add_argument(
        "--to-dtype",
        metavar="DTYPE",
        help="type to convert to, such as f32; by default nothing is converted",
    )


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    memory = _load(options)
    plain = memdesc.memory_desc(memory.desc.dims, memory.desc.dtype)
    dst = plain if options.to is None else buffer_name(options.to)
    result = reorder(memory, dst, dtype=options.to_dtype)
    save(options.dst, result)
    return {
        "wrote": options.dst,
        "descriptor": str(sidecar(options.dst)),
        **desc_facts(result.desc),
    }, 0


def _load(options: argparse.Namespace) -> Memory:
    """Return the pixels as memory, of the image that the options or the file say."""
    is_raw = may_be_raw(options.src)
    found = read_bytes(options.src) if is_raw else load_file(options.src, options.dtype)
    if isinstance(found, Memory):
        if options.image is not None or options.dims is not None:
            msg = f"a descriptor lies beside {options.src!r}; leave --as and --dims out"
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
    if not is_raw:
        return from_pixels(found, image)
    if found.nbytes != image.nbytes:
        msg = (
            f"{options.src!r} has {found.nbytes} bytes, but {image!r} takes {image.nbytes}: "
            f"{image.height} rows of {image.width} pixels"
        )
        raise MemdescError(msg)
    return Memory(image.desc, found.view(np.uint8), zero_pad=False)


COMMAND = Command(
    "unpack",
    "Unpack the pixels of an OpenCL image, of a .npy or a raw dump, into a .npy.",
    "unpack image.npy weights.npy",
    _add_arguments,
    _answer,
)
