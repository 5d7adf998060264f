"""What an earlier run left: a complete output, or part of one.

The mark that says which conversion wrote a complete output is an extended attribute. It does not
change a byte, and disappears with the output. Without the mark, as in a copy or on a file system
without attributes, all bytes of the output are compared.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from memdesc import MemdescError
from memdesc.disk import open_file
from memdesc.errors import first_of
from reorder.storage.containers.entry import Place, Tensor, places_of, stored_desc
from reorder.storage.containers.partial import FILES, is_in_use, partial_folder
from reorder.storage.containers.table import FORMATS, read_container
from reorder.storage.convert.journal import facts_left
from reorder.storage.pieces.pieces import Bound
from reorder.storage.pieces.tasks import DifferentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from reorder.storage.convert.conversion import Conversion
    from reorder.storage.convert.outputs import Output

_ATTRIBUTE = "user.memdesc.conversion"
# for each fact that may differ between two conversions, what has changed
_CHANGES = {
    "version": "it ran with another version of memdesc",
    "source": "the input has changed since: {}",
    "rules": "its rules differ",
    "files": "its files differ (--shard-size, or files beside the tensors)",
    "pieces": "its pieces take more memory than they may now{}",
}
# how many files a message names
_SHOWN = 3


class Finished(NamedTuple):
    """An output that has its name, and the facts of the conversion that should have written it."""

    target: Path
    # what is planned
    output: Output
    # those of the conversion, as JSON, without the pieces
    facts: str

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return self.target if self.output.is_folder else self.target.parent

    @property
    def is_marked(self) -> bool:
        """Whether this conversion wrote the files that are there."""
        with suppress(OSError, AttributeError):
            found = os.getxattr(self._marked_path(self.folder), _ATTRIBUTE, follow_symlinks=False)
            return found == self._mark_of(self.folder)
        return False

    def mark(self, folder: Path) -> None:
        """Mark complete files in a folder, whether or not they have been renamed into place yet."""
        with suppress(OSError, AttributeError):  # not every system and file system can
            mark = self._mark_of(folder)
            os.setxattr(self._marked_path(folder), _ATTRIBUTE, mark, follow_symlinks=False)

    def _marked_path(self, folder: Path) -> Path:
        return folder if self.output.is_folder else folder / self.output.files[-1].name

    def _mark_of(self, folder: Path) -> bytes:
        found = [os.lstat(folder / file.name) for file in self.output.files]
        states = [(status.st_size, status.st_mtime_ns) for status in found]
        return hashlib.sha256(json.dumps([self.facts, states]).encode()).hexdigest().encode()

    def places(self) -> dict[str, Place]:
        """Return the place of each tensor, and of each file that is copied."""
        return places_of(self.output.files, self.folder)

    def check(self, tensors: Iterable[Tensor]) -> None:
        """Refuse an output that another conversion has written, judging by its headers."""
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

    def check_headers(self) -> None:
        """Compare everything except the tensors, such as headers and config.json.

        Fails if the bytes of a file differ.
        """
        for file in self.output.files:
            # headers that depend on the data are not known beforehand
            for offset, wanted in file.headers if file.seal is None else ():
                with open_file(self.folder / file.name) as opened:
                    opened.seek(offset)
                    found = opened.read(len(wanted))
                if found != wanted:
                    msg = f"{str(self.folder / file.name)!r} has other headers or settings"
                    raise DifferentError(msg)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Explain a difference in what was compared: damage, a change, or another conversion."""
        try:
            yield
        except DifferentError as error:
            by = "it is damaged, has changed, or comes from another conversion"
            self._refuse(str(error), by=by)

    def _refuse(self, problem: str, *, by: str = "another conversion has written it") -> NoReturn:
        msg = f"{str(self.target)!r} exists, but {by}: {problem}; --overwrite replaces it"
        raise MemdescError(msg) from None


def has_grown(target: Path) -> bool:
    """Whether part of an output is there: it is being written, or was when its process ended."""
    folder = partial_folder(target)
    files = folder / FILES
    if folder.is_symlink() or files.is_symlink():  # not ours, and never followed
        return False
    with suppress(OSError):  # a folder of another user may not be readable
        return files.is_dir() and any(files.iterdir())
    return False


def check_left(made: Conversion) -> list[str]:
    """Refuse to resume another conversion; return warnings about what is discarded or slow."""
    target, options = made.target, made.options
    if made.is_finished:
        if options.verify or not made.passes:
            return []
        msg = (
            f"nothing shows that {str(target)!r}, which is complete, was written by this "
            "conversion of the input as it is now, so all of it is compared"
        )
        return [msg]
    if not has_grown(target) or is_in_use(partial_folder(target)):
        return []
    left = str(partial_folder(target))
    if not options.resume:
        return [f"what an interrupted conversion left in {left!r} is discarded"]
    found = facts_left(target)
    changes = _changes(found, made.facts) if isinstance(found, dict) else []
    if changes:
        msg = (
            f"{left!r} is what another conversion left, which cannot be resumed: "
            f"{'; '.join(changes)}. Without --resume it is discarded"
        )
        raise MemdescError(msg)
    return []


def _changes(left: dict[str, Any], facts: dict[str, Any]) -> list[str]:
    """Return how the planned conversion differs from the one that was left."""
    old, new = left.get("source"), facts["source"]
    known = old if isinstance(old, dict) else {}
    names = sorted(name for name in {*known, *new} if known.get(name) != new.get(name))
    named = first_of(names, _SHOWN)
    told = {"source": named, "pieces": _allowing(left.get("pieces"), facts["pieces"])}
    return [
        text.format(told.get(key, ""))
        for key, text in _CHANGES.items()
        if left.get(key) != facts[key]
    ]


def _allowing(left: Any, now: Sequence[int]) -> str:
    """Return which options allow the pieces that were left."""
    found = _bound_in(left)
    if found is None:
        return ""
    threads = max(now[1] // now[0], 1) if not now[2] else 1  # those of a worker
    if found.wide and not now[2]:
        return ", which is that of a worker: leave out --dask"
    return f": --max-bytes {max(found.most, found.wanted * threads)} allows them"


def _bound_in(left: Any) -> Bound | None:
    """Return the bound of pieces that a journal has; None if it has none."""
    match left:
        case [int(wanted), int(most), int(wide)] if 0 < wanted <= most and wide >= 0:
            return Bound(wanted, most, wide)
    return None


def bound_left(target: Path, within: Bound) -> Bound | None:
    """Return the bound by which an interrupted conversion to this target cut its pieces.

    None if there is none, or if one of its numbers exceeds that of `within`.
    """
    left = facts_left(target)
    found = _bound_in(left.get("pieces")) if isinstance(left, dict) else None
    if found is None or any(size > most for size, most in zip(found, within, strict=True)):
        return None
    return found
