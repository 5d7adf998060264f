"""The descriptor beside a .npy: JSON that says which file it describes.

Besides the keys of `to_json`, and ``image`` for pixels, it has ``array``, the fingerprint of the
.npy that it describes. Where `save` wrote over a .npy it also has ``before``: what described that
one, with its fingerprint, or the fingerprint alone where it had no descriptor. So it is right
beside either file. Descriptors of earlier versions have none of these keys.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError, from_json
from memdesc.disk import as_path, read_if_exists
from reorder.storage.arrays import form_of, form_of_image
from reorder.storage.fingerprint import Fingerprint

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from memdesc import MemoryDesc
    from reorder.storage.arrays import Form
    from reorder.storage.npy import Header

__all__ = ["MAX_DESCRIPTOR", "Record", "Sidecar", "read_sidecar", "sidecar"]

# bytes; the longest that `save` writes has a few thousand
MAX_DESCRIPTOR = 2**20


def sidecar(path: str | os.PathLike[str]) -> Path:
    """Return where the descriptor of a .npy lies."""
    return Path(f"{as_path(path)}.json")


class Record(NamedTuple):
    """What a descriptor says of one array, and of which, if it says so."""

    fields: Mapping[str, Any]
    array: Fingerprint | None
    # False for an array that had no descriptor before another was written over it
    is_described: bool = True

    def describe(self, path: Path) -> tuple[MemoryDesc, Form]:
        """Return the descriptor, and which array stands for it.

        Raises
        ------
        MemdescError
            If it is none.
        """
        try:
            desc, image = from_json(json.dumps(self.fields)), self.fields.get("image")
            return desc, form_of(desc) if image is None else form_of_image(desc, image)
        except ValueError as error:
            msg = f"{str(path)!r}: {error}"
            raise MemdescError(msg) from None


class Sidecar(NamedTuple):
    """The JSON beside a .npy: what it describes, and what the file before it was."""

    path: Path
    text: bytes
    records: tuple[Record, ...]

    def record_for(self, header: Header, nbytes: int) -> Record | None:
        """Return the first record of a .npy of this size and generation."""
        for record in self.records:
            array = record.array
            if array is None or (array.nbytes, array.generation) == (nbytes, header.generation):
                return record
        return None


def read_sidecar(path: Path) -> Sidecar | None:
    """Read the descriptor beside a .npy, or None if there is none.

    Raises
    ------
    MemdescError
        If it cannot be read or is damaged.
    """
    text = read_if_exists(path, MAX_DESCRIPTOR)
    if text is None:
        return None
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict):
            from_json(text.decode())  # says what a descriptor is
        records = [_record(fields)]
        if "before" in fields:
            before = _record(fields["before"])
            records.append(before._replace(is_described=before.fields.keys() != {"array"}))
    except (ValueError, RecursionError) as error:
        reason = error if isinstance(error, MemdescError) else f"no descriptor: {error}"
        msg = f"{str(path)!r}: {reason}"
        raise MemdescError(msg) from None
    return Sidecar(path, text, tuple(records))


def _record(fields: Any) -> Record:
    if not isinstance(fields, dict):
        msg = "'before' must be a JSON object; save the tensor again"
        raise MemdescError(msg)
    array = Fingerprint.from_json(fields["array"]) if "array" in fields else None
    return Record({key: value for key, value in fields.items() if key != "before"}, array)
