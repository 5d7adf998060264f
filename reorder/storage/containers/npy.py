"""A .npy: one tensor, called as the file without its ending, and the descriptor beside it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError
from memdesc.disk import open_file
from reorder.storage.containers.entry import Container, FileState, check_entries
from reorder.storage.containers.npy_form import array_form, entry_of
from reorder.storage.containers.plan import PlannedFile, Span
from reorder.storage.npy import NpyError, check_end, read_header
from reorder.storage.pair import desc_of_file, write_sidecar
from reorder.storage.sidecar import sidecar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from reorder.storage.containers.plan import Tensor

__all__ = ["is_format", "plan", "read"]

_ENDING = ".npy"


def is_format(start: bytes) -> bool:
    """Whether the first bytes of a file are those of this format."""
    return start.startswith(b"\x93NUMPY")


def read(path: Path) -> Container:
    """Read the header of a file, and the descriptor beside it.

    Raises
    ------
    MemdescError
        If one is damaged, or they do not fit.
    """
    try:
        with open_file(path) as file:
            state = FileState.of(file.fileno())
            header = read_header(file)
            check_end(header, state.nbytes)
    except NpyError as error:
        msg = f"{str(path)!r} is not a .npy file, or a damaged one: {error}"
        raise MemdescError(msg) from None
    entry = entry_of(path.name.removesuffix(_ENDING), header, (path, len(header.raw), state))
    desc = desc_of_file(path)
    if desc is not None:
        entry = replace(entry, desc=desc, reason="", is_described=True)
    return Container("npy", check_entries([entry]), {}, (path,))


def plan(
    name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]
) -> tuple[PlannedFile, ...]:
    """Plan a file of one tensor; its descriptor gets its name with it.

    Raises
    ------
    MemdescError
        If there are several tensors, or no array holds what it is.
    """
    del metadata  # there is no place for it
    if len(tensors) != 1:
        msg = f"{name!r}: a .npy holds one tensor, not {len(tensors)}; write a .npz or .safetensors"
        raise MemdescError(msg)
    (tensor,) = tensors
    header, desc = array_form(tensor)
    start = len(header.raw)
    seal = partial(write_sidecar, desc=desc)
    spans = {tensor.name: Span(start, tensor.nbytes)}
    beside = (sidecar(name).name,)
    return (PlannedFile(name, start + tensor.nbytes, ((0, header.raw),), spans, seal, beside),)
