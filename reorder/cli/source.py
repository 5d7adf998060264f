"""`memdesc source`: a layout or a reorder as code."""

from __future__ import annotations

import re

from memdesc import MemdescError
from memdesc.source import LANGUAGES
from reorder.cli.command import Command, Facts, Options
from reorder.cli.layouts import buffer_of, layout_of, pair_of
from reorder.plan.plan import plan_reorder


def _answer(options: Options) -> tuple[Facts, int]:
    name = options.name
    if name is None:
        is_word = re.fullmatch("[A-Za-z]\\w{0,99}", options.layout, re.ASCII)
        name = options.layout if is_word else "tensor"
    if options.to is None:
        if options.to_dtype is not None:
            raise MemdescError("--to-dtype is for a reorder; add --to, or leave --to-dtype out")
        return {"source": layout_of(options).source(options.lang, name)}, 0
    src, dst = map(buffer_of, pair_of(options, options.to))
    return {"source": plan_reorder(src, dst).source(options.lang, name)}, 0


COMMAND = Command(
    _answer,
    lambda facts: facts["source"].splitlines(),
    {"languages": ", ".join(LANGUAGES)},
)
