"""`memdesc pack`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import memdesc
from memdesc.errors import short_repr
from reorder.api import reorder
from reorder.cli.command import Command, Facts, add_conversion, image_facts
from reorder.cli.tensors import SOURCE, add_output, check_output, load_tensor, write_output
from reorder.memory.memory import Memory

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("src", help=SOURCE)
    add_output(parser, "dst")
    parser.add_argument(
        "--as",
        dest="image",
        required=True,
        metavar="TYPE",
        help="image type, such as conv2d_filter",
    )
    add_conversion(parser)
    parser.add_argument(
        "--max-size",
        metavar="WxH",
        help="largest image of the device, such as 16384x16384; larger ones are refused",
    )


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    check_output(options.dst, options.src, is_raw=options.raw)
    memory = load_tensor(options.src, options.dtype, options.tag)
    image = memdesc.image_desc(
        memory.desc.dims, options.to_dtype or memory.desc.dtype, options.image
    )
    if options.max_size is not None:
        image.check_size(*_size_of(options.max_size))
    pixels = Memory(image.desc, reorder(memory, image), zero_pad=False)
    write_output(options.dst, pixels, is_raw=options.raw)
    return {"wrote": options.dst, **image_facts(image)}, 0


def _size_of(text: str) -> tuple[int, int]:
    found = re.fullmatch("([0-9]{1,19})x([0-9]{1,19})", text)
    if found is None:
        msg = f"--max-size {short_repr(text)} is not a width and height, such as 16384x16384"
        raise memdesc.MemdescError(msg)
    return int(found[1]), int(found[2])


COMMAND = Command(
    "pack",
    "Pack a tensor into the pixels of an OpenCL image.",
    "pack weights.npy image.safetensors --as conv2d_filter",
    _add_arguments,
    _answer,
)
