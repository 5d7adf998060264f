"""`memdesc source`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memdesc.names import dim_letters
from memdesc.source import LANGUAGES
from reorder.cli.command import Command, Facts, dims_of
from reorder.cli.layouts import LAYOUT, add_dtype, desc_of

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tag", metavar="TAG", help=LAYOUT)
    parser.add_argument("dims", metavar="DIMS", help="logical sizes, such as 2x17x5x4")
    parser.add_argument("--lang", default="c", help=f"{', '.join(LANGUAGES)} (default c)")
    add_dtype(parser)
    parser.add_argument(
        "--name", help="what names of functions start with (default: the format name, or tensor)"
    )
    parser.add_argument(
        "--letters", help="what to call the dims, such as nchw (default: as the name does)"
    )


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    desc = desc_of(options.tag, dims_of(options.dims), options.dtype)
    letters = options.letters or dim_letters(options.tag)
    name = options.name
    if name is None:
        name = options.tag if re.fullmatch("[A-Za-z]\\w{0,99}", options.tag, re.ASCII) else "tensor"
    return {"source": desc.source(options.lang, name, letters)}, 0


COMMAND = Command(
    "source",
    "Write the source code of a layout: offsets, their inverse, loops that fill it.",
    "source nChw16c 2x17x5x4 --lang c",
    _add_arguments,
    _answer,
    lambda facts: facts["source"].splitlines(),
)
