"""`memdesc check`: descriptors and zero padding of saved tensors."""

from __future__ import annotations

from memdesc import MemdescError
from reorder.cli.command import Command, Facts, Options, lines
from reorder.cli.tensors import Operand, padding_facts
from reorder.disk import as_path


def _answer(options: Options) -> tuple[Facts, int]:
    if as_path(options.file).is_dir():
        raise MemdescError(
            f"{options.file!r} is a folder; padding is checked in one .safetensors or .npz, and "
            "`memdesc compare` compares a model with another one"
        )
    operand = Operand(options.file)
    tensors = operand.tensors()
    if operand.is_npy:
        raise MemdescError(
            f"{options.file!r} is a .npy, which has no place for a descriptor, so nothing says "
            "what is padding; save the tensor as a .safetensors or a .npz"
        )
    if not tensors:
        raise MemdescError(f"{options.file!r} has no tensors, so there is no padding to check")
    checked = [
        {"name": name, **padding_facts(memory, options.limit)} for name, memory in tensors.items()
    ]
    is_zero = all(facts["padding_zero"] for facts in checked)
    return {"file": options.file, "padding_zero": is_zero, "tensors": checked}, 0 if is_zero else 1


def _lay_out(facts: Facts) -> list[str]:
    """Return facts as lines; an empty line precedes each of several tensors."""
    tensors = facts["tensors"]
    if len(tensors) == 1:
        return lines({"file": facts["file"], **tensors[0]})
    whole = {key: value for key, value in facts.items() if key != "tensors"}
    return lines(whole) + [line for tensor in tensors for line in ("", *lines(tensor))]


COMMAND = Command(_answer, _lay_out)
