"""Layouts as the command line names them: a format name, or strides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import memdesc
from memdesc import MemdescError
from memdesc.names import is_image
from reorder.cli.command import dims_of, numbers_of

if TYPE_CHECKING:
    import argparse

    from memdesc import ImageDesc, MemoryDesc

__all__ = [
    "HELD",
    "LAYOUT",
    "add_dtype",
    "add_layouts",
    "buffer_name",
    "buffer_of",
    "desc_of",
    "layout_of",
    "pair_of",
]

HELD = "type of the elements that are read, where .npy cannot say it, such as bf16"
LAYOUT = (
    "a format name of oneDNN, OpenVINO, MACE, TensorRT, ..., a packing of weights, "
    "or strides such as 340x20x4x1 (with @N: from element N on)"
)


def buffer_name(text: str) -> str:
    """Return the name of a buffer layout; refuse image types, and name the commands for them."""
    if is_image(text):
        msg = (
            f"{text!r} is an image type, not a linear buffer; "
            f"memdesc pack IN.npy OUT.npy --as {text} makes its pixels, "
            f"and memdesc show {text} DIMS describes it"
        )
        raise MemdescError(msg)
    return text


def layout_of(text: str, dims: tuple[int, ...], dtype: str) -> MemoryDesc | ImageDesc:
    """Return the descriptor of a name, also of an image type, or of strides."""
    if is_image(text):
        return memdesc.image_desc(dims, dtype, text)
    strides, _, offset0 = text.partition("@")
    if not re.fullmatch("-?[0-9]+([x,]-?[0-9]+)*", strides):
        return memdesc.memory_desc(dims, dtype, text)
    start = numbers_of(offset0, "the element behind @")[0] if offset0 else 0
    return memdesc.memory_desc(dims, dtype, strides=numbers_of(strides, "strides"), offset0=start)


def desc_of(text: str, dims: tuple[int, ...], dtype: str) -> MemoryDesc:
    """Return the descriptor of a name or of strides; of an image type, that of its pixels."""
    return buffer_of(layout_of(text, dims, dtype))


def buffer_of(layout: MemoryDesc | ImageDesc) -> MemoryDesc:
    """Return a descriptor itself; of an image, the linear buffer of its pixels, row by row."""
    return layout.desc if isinstance(layout, memdesc.ImageDesc) else layout


def pair_of(
    options: argparse.Namespace,
) -> tuple[MemoryDesc | ImageDesc, MemoryDesc | ImageDesc]:
    """Return the descriptors that `add_layouts` asked for."""
    dims = dims_of(options.dims)
    return layout_of(options.src, dims, options.dtype), layout_of(
        options.dst, dims, options.to_dtype or options.dtype
    )


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the type of elements that are described."""
    parser.add_argument(
        "--dtype", metavar="DTYPE", default="f32", help="type of the elements (default f32)"
    )


def add_layouts(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of two layouts: their names, the common dims, the data types."""
    parser.add_argument("src", metavar="A", help=f"{LAYOUT}, or an image type")
    parser.add_argument("dst", metavar="B", help="likewise")
    parser.add_argument("dims", metavar="DIMS", help="logical sizes, such as 2x17x5x4")
    add_dtype(parser)
    parser.add_argument("--to-dtype", metavar="DTYPE", help="type in B, where it is another one")
