"""`memdesc match`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import memdesc
from memdesc import MemdescError
from memdesc.errors import short_repr
from reorder.cli.command import Command, Facts, add_dtype, dims_of, numbers_of

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dims", metavar="DIMS", required=True, help="logical sizes, such as 2x17x5x4"
    )
    parser.add_argument(
        "--strides",
        required=True,
        help="elements between neighbours along each dim (or between its whole blocks), such as "
        "480x160x32x8; write --strides=-4x1 if the first one is negative",
    )
    parser.add_argument(
        "--inner",
        default="",
        help="inner blocks, outermost first, each a size and the letter of a dim, such as 4b16a4b",
    )
    parser.add_argument(
        "--padded", metavar="DIMS", help="padded sizes (default: rounded up to whole blocks)"
    )
    parser.add_argument("--offset0", type=int, default=0, help="offset of element 0")
    add_dtype(parser)


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    if not re.fullmatch("([0-9]{1,19}[a-l])*", options.inner):
        msg = f"--inner {short_repr(options.inner)} is not sizes and letters, such as 8b or 4b16a4b"
        raise MemdescError(msg)
    inner = [
        (int(size), "abcdefghijkl".index(letter))
        for size, letter in re.findall("([0-9]+)([a-l])", options.inner)
    ]
    desc = memdesc.memory_desc(
        dims_of(options.dims),
        options.dtype,
        strides=numbers_of(options.strides, "strides"),
        inner_blks=[size for size, _ in inner],
        inner_idxs=[dim for _, dim in inner],
        padded_dims=None if options.padded is None else dims_of(options.padded),
        offset0=options.offset0,
    )
    names = desc.tags()
    facts: Facts = {
        "layout": repr(desc),
        "is_dense": desc.is_dense,
        "bytes": desc.nbytes,
        "names": [name._asdict() for name in names],
    }
    if not names:
        facts["why"] = (
            "it does not start at element 0"
            if desc.offset0
            else "names describe dense layouts, but these strides leave gaps or overlap"
        )
    return facts, 0 if names else 1


COMMAND = Command(
    "match",
    "Find every name of a layout given by strides; exit code 1 if it has none.",
    "match --dims 2x17x5x4 --strides 480x160x32x8 --inner 8b",
    _add_arguments,
    _answer,
)
