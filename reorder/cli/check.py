"""`memdesc check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc import MemdescError, PaddingError
from reorder.cli.command import Command, Facts
from reorder.memory.memory import Memory
from reorder.storage.files import load, sidecar

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="a .npy with its descriptor beside it")


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    memory = load(options.file)
    if not isinstance(memory, Memory):
        missing = f"has no descriptor beside it ({str(sidecar(options.file))!r})"
        msg = f"{options.file!r} {missing}, so nothing says what is padding"
        raise MemdescError(msg)
    padding = memory.desc.padded_nelems - memory.desc.nelems
    try:
        memory.check_padding()
    except PaddingError as error:
        return {
            "file": options.file,
            "padding_elements": padding,
            "zero": False,
            "first": str(error),
        }, 1
    return {"file": options.file, "padding_elements": padding, "zero": True}, 0


COMMAND = Command(
    "check",
    "Check that the padding of a saved tensor is zero.",
    "check out.npy",
    _add_arguments,
    _answer,
)
