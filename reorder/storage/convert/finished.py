"""An output that is whole already, from an earlier run: whether it is the one that is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from memdesc import MemdescError
from reorder.storage.containers.descriptors import stored_desc
from reorder.storage.containers.table import read_container
from reorder.storage.pieces.files import Place

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from reorder.storage.containers.plan import Tensor
    from reorder.storage.convert.outputs import Output

__all__ = ["check_finished", "finished_places"]


def finished_places(target: Path, output: Output) -> dict[str, Place]:
    """Return where each tensor, and each file that is copied, lies in an output that is whole."""
    folder = target if output.is_folder else target.parent
    return {
        name: Place(folder / file.name, span.offset, span.nbytes)
        for file in output.files
        for name, span in file.spans.items()
    }


def check_finished(target: Path, output: Output, tensors: Iterable[Tensor]) -> None:
    """Refuse an output that another conversion has written; its headers tell.

    Raises
    ------
    MemdescError
        With the file or the tensor that differs.
    """
    folder = target if output.is_folder else target.parent
    for file in output.files:
        path = folder / file.name
        nbytes = path.stat().st_size if path.is_file() else None
        if nbytes != file.nbytes:
            has = "is missing" if nbytes is None else f"has {nbytes} bytes"
            _refuse(target, f"{str(path)!r} {has}, and this one writes {file.nbytes}")
    entries = read_container(target).entries
    places = finished_places(target, output)
    for tensor in tensors:
        entry, place = entries.get(tensor.name), places[tensor.name]
        if entry is None or (entry.file, entry.nbytes) != (place.path, tensor.nbytes):
            _refuse(target, f"it has no {tensor.name} of {tensor.nbytes} bytes in its place")
        wanted = tensor.desc or stored_desc(tensor.dtype, tensor.shape)[0]
        if entry.desc != wanted or (entry.offset != place.start and tensor.nbytes):
            _refuse(target, f"{tensor.name} is {entry.desc!r}, and this one writes {wanted!r}")


def _refuse(target: Path, problem: str) -> NoReturn:
    msg = (
        f"{str(target)!r} exists, but another conversion has written it: {problem}; --overwrite "
        "replaces it"
    )
    raise MemdescError(msg)
