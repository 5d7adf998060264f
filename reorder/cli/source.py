"""`memdesc source`: a layout or a reorder as code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memdesc import MemdescError
from memdesc.source import LANGUAGES
from reorder.cli.command import (
    DIMS,
    DTYPE,
    LAYOUT,
    LETTERS,
    TO_DTYPE,
    Command,
    Facts,
    buffer_of,
    layout_of,
    option,
    pair_of,
    value,
)
from reorder.plan.planner import plan_reorder

if TYPE_CHECKING:
    import argparse


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    name = options.name
    if name is None:
        is_word = re.fullmatch("[A-Za-z]\\w{0,99}", options.layout, re.ASCII)
        name = options.layout if is_word else "tensor"
    if options.to is None:
        if options.to_dtype is not None:
            raise MemdescError("--to-dtype is for a reorder; add --to, or leave --to-dtype out")
        return {"source": layout_of(options).source(options.lang, name)}, 0
    if options.letters is not None:
        raise MemdescError(
            "--letters are for the dims of a layout; the loops of a reorder have none"
        )
    src, dst = map(buffer_of, pair_of(options, options.to))
    return {"source": plan_reorder(src, dst).source(options.lang, name)}, 0


COMMAND = Command(
    "source",
    "Write code: the offsets of a layout, their inverse, loops that fill it; or a whole reorder.",
    "source nChw16c 2x17x5x4 --lang c",
    (
        value("layout LAYOUT", LAYOUT),
        DIMS,
        option("--to", ": print the reorder from LAYOUT to it instead"),
        DTYPE,
        TO_DTYPE,
        value("--lang LANG", f"{', '.join(LANGUAGES)} (default c)", default="c"),
        value("--name NAME", "prefix of the functions (default: the format name, or tensor)"),
        LETTERS,
    ),
    _answer,
    lambda facts: facts["source"].splitlines(),
)
