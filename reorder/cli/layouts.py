"""Layouts as the command line names them: a format name, or strides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import memdesc
from memdesc import MemdescError
from reorder.cli.command import dims_of

if TYPE_CHECKING:
    import argparse

    from memdesc import MemoryDesc

__all__ = ["LAYOUT", "add_layouts", "desc_of", "numbers_of", "pair_of"]

LAYOUT = "a format name of oneDNN, OpenVINO or MACE, or strides such as 340x20x4x1 (with @N: from element N on)"


def numbers_of(text: str, what: str) -> tuple[int, ...]:
    """Return integers joined by x or by commas."""
    try:
        return tuple(int(number) for number in re.split("[x,]", text))
    except ValueError:
        msg = f"{what} {text!r} are not integers joined by x, such as 340x20x4x1"
        raise MemdescError(msg) from None


def desc_of(text: str, dims: tuple[int, ...], dtype: str) -> MemoryDesc:
    """Return the descriptor of a name, or of strides."""
    strides, _, offset0 = text.partition("@")
    if not re.fullmatch("-?[0-9]+(x-?[0-9]+)*", strides):
        return memdesc.memory_desc(dims, dtype, text)
    start = numbers_of(offset0, "the element behind @")[0] if offset0 else 0
    return memdesc.memory_desc(dims, dtype, strides=numbers_of(strides, "strides"), offset0=start)


def pair_of(options: argparse.Namespace) -> tuple[MemoryDesc, MemoryDesc]:
    """Return the descriptors that `add_layouts` asked for."""
    dims = dims_of(options.dims)
    return desc_of(options.src, dims, options.dtype), desc_of(options.dst, dims, options.to_dtype or options.dtype)


def add_layouts(parser: argparse.ArgumentParser) -> None:
    """Add two layouts of the same dims; these and the data types go with them."""
    parser.add_argument("src", metavar="A", help=LAYOUT)
    parser.add_argument("dst", metavar="B", help="likewise")
    parser.add_argument("dims", help="logical sizes, such as 2x17x5x4")
    parser.add_argument("--dtype", default="f32", help="data type (default f32)")
    parser.add_argument("--to-dtype", help="data type of B, where it is another one")
