"""An output that is whole already, from an earlier run: whether it is the one that is planned.

Its mark is an extended attribute, which changes no byte, comes with the output and goes with it.
Without the mark, as in a copy or on a file system that has no attributes, the output is compared in
full.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from memdesc import MemdescError
from memdesc.disk import open_file
from reorder.storage.containers.descriptors import stored_desc
from reorder.storage.containers.table import FORMATS, read_container
from reorder.storage.convert.tasks import DifferentError
from reorder.storage.pieces.files import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from reorder.storage.containers.plan import Tensor
    from reorder.storage.convert.outputs import Output

__all__ = ["Finished"]

_ATTRIBUTE = "user.memdesc.conversion"


class Finished(NamedTuple):
    """An output under its name, and which conversion it should be of.

    Attributes
    ----------
    target : Path
        The output.
    output : Output
        What is planned.
    facts : str
        What differs between conversions that write other bytes.
    """

    target: Path
    output: Output
    facts: str

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return self.target if self.output.is_folder else self.target.parent

    @property
    def is_marked(self) -> bool:
        """Whether this conversion wrote the files that are there."""
        with suppress(OSError, AttributeError):
            found = os.getxattr(self._marked_in(self.folder), _ATTRIBUTE, follow_symlinks=False)
            return found == self._mark_of(self.folder)
        return False

    def mark(self, folder: Path) -> None:
        """Mark complete files in a folder, which have their names or are about to get them."""
        with suppress(OSError, AttributeError):  # not every system and file system can
            mark = self._mark_of(folder)
            os.setxattr(self._marked_in(folder), _ATTRIBUTE, mark, follow_symlinks=False)

    def _marked_in(self, folder: Path) -> Path:
        return folder if self.output.is_folder else folder / self.output.files[-1].name

    def _mark_of(self, folder: Path) -> bytes:
        found = [os.lstat(folder / file.name) for file in self.output.files]
        states = [(status.st_size, status.st_mtime_ns) for status in found]
        return hashlib.sha256(json.dumps([self.facts, states]).encode()).hexdigest().encode()

    def places(self) -> dict[str, Place]:
        """Return where each tensor, and each file that is copied, lies."""
        return {
            name: Place(self.folder / file.name, span.offset, span.nbytes)
            for file in self.output.files
            for name, span in file.spans.items()
        }

    def check(self, tensors: Iterable[Tensor]) -> None:
        """Refuse an output that another conversion has written, as far as its headers tell.

        Raises
        ------
        MemdescError
            With the file or the tensor that differs.
        """
        for file in self.output.files:
            path = self.folder / file.name
            nbytes = path.stat().st_size if path.is_file() else None
            if nbytes != file.nbytes:
                has = "is missing" if nbytes is None else f"has {nbytes} bytes"
                self._refuse(f"{str(path)!r} {has}, and this one writes {file.nbytes}")
        found = read_container(self.target)
        places = self.places()
        for tensor in tensors:
            name = tensor.name if FORMATS[found.format].has_names else next(iter(found.entries))
            entry, place = found.entries.get(name), places[tensor.name]
            if entry is None or (entry.file, entry.nbytes) != (place.path, tensor.nbytes):
                self._refuse(f"it has no {tensor.name} of {tensor.nbytes} bytes in its place")
            wanted = tensor.desc or stored_desc(tensor.dtype, tensor.shape)[0]
            if entry.desc != wanted or (entry.offset != place.start and tensor.nbytes):
                self._refuse(f"{tensor.name} is {entry.desc!r}, and this one writes {wanted!r}")

    def check_pieces(self) -> None:
        """Compare what is not of tensors, such as headers and config.json.

        Raises
        ------
        MemdescError
            If the bytes of a file differ.
        """
        for file in self.output.files:
            # what depends on the data is not known before
            for offset, wanted in file.pieces if file.seal is None else ():
                with open_file(self.folder / file.name) as opened:
                    opened.seek(offset)
                    found = opened.read(len(wanted))
                if found != wanted:
                    msg = f"{str(self.folder / file.name)!r} has other headers or settings"
                    raise DifferentError(msg)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Say of what differs in a comparison that it is another conversion's."""
        try:
            yield
        except DifferentError as error:
            self._refuse(str(error))

    def _refuse(self, problem: str) -> NoReturn:
        msg = (
            f"{str(self.target)!r} exists, but another conversion has written it: {problem}; "
            "--overwrite replaces it"
        )
        raise MemdescError(msg) from None
