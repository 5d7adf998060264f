"""The files of compiled code: one for each kernel, checked before it is used.

A file holds the SHA-256 of what follows it, the length of the key, the key, and the content. The
key says in full what the content was made from. A file that is damaged, or has another key, counts
as missing; what replaces it is written under another name first, so that processes that write the
same file at the same time leave one whole file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from reorder.cpu import settings

_DIGEST_NBYTES = hashlib.sha256().digest_size
_LENGTH_NBYTES = 4
_SUFFIX = ".kernel"


def read(name: str, key: str) -> bytes | None:
    """Return the content that a kernel's file has for a key; None if there is none."""
    for folder in _folders():
        try:
            content = (folder / _file_name(name)).read_bytes()
        except OSError:
            continue
        digest, rest = content[:_DIGEST_NBYTES], content[_DIGEST_NBYTES:]
        if hashlib.sha256(rest).digest() != digest:
            continue
        start = _LENGTH_NBYTES + int.from_bytes(rest[:_LENGTH_NBYTES], "little")
        if rest[_LENGTH_NBYTES:start] == key.encode():
            return rest[start:]
    return None


def write(name: str, key: str, content: bytes) -> Path | None:
    """Keep a content in the first folder that can be written; returns that, or None."""
    words = key.encode()
    rest = len(words).to_bytes(_LENGTH_NBYTES, "little") + words + content
    for folder in _folders():
        if _write(folder / _file_name(name), hashlib.sha256(rest).digest() + rest):
            return folder
    return None


def writable_folder() -> Path | None:
    """Return the folder in which compiled code is kept; None if none can be written."""
    for folder in _folders():
        probe = folder / f".{os.urandom(8).hex()}.tmp"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
            return folder
    return None


def _write(file: Path, content: bytes) -> bool:
    """Write a file completely or not at all; returns whether it was written."""
    partial = file.with_name(f".{os.urandom(8).hex()}.tmp")
    # a full disk, a folder that is read-only, or a folder in the place of the file
    with suppress(OSError):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(content)
            partial.replace(file)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        return True
    return False


def _file_name(name: str) -> str:
    """Return the name of a kernel's file: readable, and another one for each installation."""
    words = "".join(letter if letter.isalnum() else "_" for letter in name)
    place = hashlib.sha256(f"{Path(__file__).parent}\n{name}".encode()).hexdigest()
    return f"{words[:60]}-{place[:16]}{_SUFFIX}"


def _folders() -> Iterator[Path]:
    """Yield the folders where files are looked for, in this order.

    That is the one that the user has set; or else the one beside these sources, which belongs to
    the installation, and then the one for caches of the user.
    """
    named = settings.kernel_folder()
    if named is not None:
        yield Path(named).absolute()
        return
    yield Path(__file__).parent / "__pycache__"
    import platformdirs  # slow to load, and rarely needed

    # a user without a home folder has none for caches; some versions then return a relative path
    with suppress(RuntimeError):
        users = Path(platformdirs.user_cache_dir("memdesc", appauthor=False))
        if users.is_absolute():
            yield users / "kernels"
