"""`memdesc source`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memdesc import MemdescError
from memdesc.names import dim_letters
from memdesc.source import LANGUAGES
from reorder.cli.command import LAYOUT, Command, Facts, add_dims, add_dtype, desc_of, dims_of
from reorder.plan.plan import plan_reorder

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tag", metavar="TAG", help=LAYOUT)
    add_dims(parser)
    parser.add_argument("--to", metavar="B", help="write the reorder to this layout instead")
    parser.add_argument("--to-dtype", metavar="DTYPE", help="data type of B, if it differs")
    parser.add_argument("--lang", default="c", help=f"{', '.join(LANGUAGES)} (default c)")
    add_dtype(parser)
    parser.add_argument(
        "--name", help="prefix of the functions (default: the format name, or tensor)"
    )
    parser.add_argument(
        "--letters", help="what to call the dims, such as nchw (default: as the name does)"
    )


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    dims = dims_of(options.dims)
    desc = desc_of(options.tag, dims, options.dtype)
    letters = options.letters or dim_letters(options.tag)
    name = options.name
    if name is None:
        name = options.tag if re.fullmatch("[A-Za-z]\\w{0,99}", options.tag, re.ASCII) else "tensor"
    if options.to is not None:
        if options.letters is not None:
            msg = "--letters are for the dims of a layout; the loops of a reorder have none"
            raise MemdescError(msg)
        dst = desc_of(options.to, dims, options.to_dtype or options.dtype)
        return {"source": plan_reorder(desc, dst).source(options.lang, name)}, 0
    return {"source": desc.source(options.lang, name, letters)}, 0


COMMAND = Command(
    "source",
    "Write code: the offsets of a layout, their inverse, loops that fill it; or a whole reorder.",
    "source nChw16c 2x17x5x4 --lang c",
    _add_arguments,
    _answer,
    lambda facts: facts["source"].splitlines(),
)
