"""`memdesc diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reorder.cli.command import Command, Facts, add_layouts, add_picture, buffer_of, pair_of
from reorder.plan.compare import NO_OP, compare

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]

_MAX_COMPARED = 1 << 22


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_layouts(parser)
    add_picture(parser, "draw both memories side by side")


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    pair = pair_of(options)
    src, dst = map(buffer_of, pair)
    relation = compare(src, dst)
    facts: Facts = {"a": repr(pair[0]), "b": repr(pair[1])}
    for key in ("padded_dims", "nbytes", "is_dense", "offset0"):
        values = getattr(src, key), getattr(dst, key)
        facts[key] = values[0] if values[0] == values[1] else {"a": values[0], "b": values[1]}
    facts |= {"equal": src == dst, "reorder": relation.kind, "why": relation.why}
    if relation.kind != NO_OP and src.nelems <= _MAX_COMPARED:
        moved = np.argwhere(src.layout.offsets() != dst.layout.offsets())
        index = tuple(map(int, moved[0])) if len(moved) else None
        facts["first_moved"] = (
            None
            if index is None
            else {"index": index, "a": src.offset(index), "b": dst.offset(index)}
        )
    if options.svg is not None:
        src.show(beside=dst).save(options.svg)
        facts["wrote"] = options.svg
    return facts, 0


COMMAND = Command(
    "diff",
    "Show how two layouts differ, and whether a reorder from A to B is a no-op, a view or a copy.",
    "diff nchw nhwc 8x1x5x4 --svg diff.svg",
    _add_arguments,
    _answer,
)
