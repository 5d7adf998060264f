"""The files of compiled code: one for each kernel, checked before it is used.

A file holds a hash of what follows it, the length of the key, the key, and the content. The key
says in full what the content was made from. A file that is damaged or has another key counts as
missing. Its replacement is first written under another name, so that processes that write the same
file at the same time leave one whole file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import source_hash
from typing import TYPE_CHECKING

from reorder.cpu import settings
from reorder.system import user_cache_folder

if TYPE_CHECKING:
    from pathlib import Path

# Python's hash of sources, of 64 bits: hashlib takes longer to load than a kernel
_DIGEST_NBYTES = len(source_hash(b""))
_LENGTH_NBYTES = 4
_SUFFIX = ".kernel"
_HERE = os.path.dirname(__file__)


def read(name: str, key: str) -> bytes | None:
    """Return the content that a kernel's file has for a key; None if there is none."""
    for folder in _folders():
        try:
            with open(f"{folder}/{_file_name(name)}", "rb") as file:
                content = file.read()
        except OSError:
            continue
        digest, rest = content[:_DIGEST_NBYTES], content[_DIGEST_NBYTES:]
        if source_hash(rest) != digest:
            continue
        start = _LENGTH_NBYTES + int.from_bytes(rest[:_LENGTH_NBYTES], "little")
        if rest[_LENGTH_NBYTES:start] == key.encode():
            return rest[start:]
    return None


def write(name: str, key: str, content: bytes) -> str | None:
    """Keep a content in the first folder that can be written; returns that, or None."""
    words = key.encode()
    rest = len(words).to_bytes(_LENGTH_NBYTES, "little") + words + content
    for folder in _folders():
        if _write(folder, _file_name(name), source_hash(rest) + rest):
            return folder
    return None


def writable_folder() -> Path | None:
    """Return the folder in which compiled code is kept; None if none can be written."""
    from pathlib import Path

    for folder in _folders():
        name = f".{os.urandom(8).hex()}.tmp"
        if _write(folder, name, b""):
            os.unlink(f"{folder}/{name}")
            return Path(folder)
    return None


def _write(folder: str, name: str, content: bytes) -> bool:
    """Write a file completely or not at all; returns whether it was written."""
    partial = f"{folder}/.{os.urandom(8).hex()}.tmp"
    try:
        os.makedirs(folder, exist_ok=True)
        with open(partial, "xb") as file:
            file.write(content)
        os.replace(partial, f"{folder}/{name}")
    except OSError:  # a full disk, a folder that is read-only, or one in the place of the file
        with suppress(OSError):
            os.unlink(partial)
        return False
    return True


def _file_name(name: str) -> str:
    """Return the name of a kernel's file: readable, and different for each installation."""
    words = "".join(letter if letter.isalnum() else "_" for letter in name)
    place = source_hash(f"{_HERE}\n{name}".encode()).hex()
    return f"{words[:60]}-{place}{_SUFFIX}"


def _folders() -> Iterator[str]:
    """Yield the folder that the user has set; else the one beside these sources and the user's."""
    named = settings.kernel_folder()
    if named is not None:
        yield named
        return
    yield f"{_HERE}/__pycache__"
    users = user_cache_folder()
    if users is not None:
        yield f"{users}/kernels"
