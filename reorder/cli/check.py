"""`memdesc check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc import MemdescError
from reorder.cli.command import Command, Facts, lines
from reorder.cli.tensors import add_limit, load_file, padding_facts, tensors_in
from reorder.memory.memory import Memory
from reorder.storage.files import sidecar

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", help="a .npy with its descriptor beside it, a .npz, or FILE.npz:NAME"
    )
    add_limit(parser)


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    tensors = tensors_in(options.file)
    if tensors is not None:
        checked = [
            {"name": name, **padding_facts(memory, options.limit, "zero")}
            for name, memory in tensors.items()
        ]
        is_zero = all(facts["zero"] for facts in checked)
        return {"file": options.file, "zero": is_zero, "tensors": checked}, 0 if is_zero else 1
    memory = load_file(options.file)
    if not isinstance(memory, Memory):
        missing = f"has no descriptor beside it ({str(sidecar(options.file))!r})"
        msg = f"{options.file!r} {missing}, so nothing says what is padding"
        raise MemdescError(msg)
    facts = padding_facts(memory, options.limit, "zero")
    return {"file": options.file, **facts}, 0 if facts["zero"] else 1


def _lay_out(facts: Facts) -> list[str]:
    """Return facts as lines; those of each tensor of a .npz behind an empty line."""
    tensors = facts.get("tensors", [])
    whole = {key: value for key, value in facts.items() if key != "tensors"}
    return lines(whole) + [line for one in tensors for line in ("", *lines(one))]


COMMAND = Command(
    "check",
    "Check that the padding of saved tensors is zero; exit code 1 if it is not.",
    "check out.npy",
    _add_arguments,
    _answer,
    _lay_out,
)
