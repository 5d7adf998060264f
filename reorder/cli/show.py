"""`memdesc show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import memdesc
from memdesc.names import is_image
from reorder.cli.command import Command, Facts, dims_of
from reorder.cli.facts import desc_facts, image_facts

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tag", help="a format name of oneDNN, OpenVINO or MACE")
    parser.add_argument("dims", help="logical sizes, such as 2x17x5x4")
    parser.add_argument("--dtype", default="f32", help="data type (default f32)")


def _run(options: argparse.Namespace) -> tuple[Facts, int]:
    dims = dims_of(options.dims)
    if is_image(options.tag):
        return image_facts(memdesc.image_desc(dims, options.dtype, options.tag)), 0
    return desc_facts(memdesc.memory_desc(dims, options.dtype, options.tag)), 0


COMMAND = Command(
    "show", "Show a layout: padding, strides, blocks, bytes, names.", "show nChw8c 2x17x5x4 --dtype f32", _add_arguments, _run
)
