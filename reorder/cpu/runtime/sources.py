"""The sources that a kernel's code depends on: those that its module imports, directly or not."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

# The folder of the packages, and their names: other modules do not change with this library.
_ROOT = str(Path(__file__).parents[3])
_PACKAGES = ("memdesc.", "reorder.")

# An import at any depth, with its names: in parentheses, or on the line.
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ ]+([\w.]+)[ ]+import[ ]+(?:\(([^)]*)\)|([^\n(]+))|import[ ]+([\w.]+))",
    re.MULTILINE,
)
# Imports that only type checkers see.
_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t]+.*\n|\n)+", re.MULTILINE)


@cache
def digest_of(module: str, root: str = _ROOT) -> str:
    """Return a hash of the sources of a module and of the modules in `root` that it imports.

    One whose source is missing counts by its name.
    """
    digests = (_read(file, root).digest for file in files_of(module, root))
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def files_of(module: str, root: str) -> list[str]:
    """Return the files of a module and of all modules of the packages in `root` that it imports.

    The `__init__` of a package counts where names are imported from it, not where modules are.
    """
    start = _file(module, root) or str(getattr(sys.modules.get(module), "__file__", module))
    found, waiting = {start}, [start]
    while waiting:
        new = _read(waiting.pop(), root).imports - found
        found |= new
        waiting += new
    return sorted(found)


class _Source(NamedTuple):
    """What is known of a source: a hash of its name and content, and the files that it imports."""

    digest: str
    imports: frozenset[str]


@cache
def _read(file: str, root: str) -> _Source:
    content = ""
    with suppress(OSError), open(file, encoding="utf-8") as opened:  # noqa: PTH123 - pathlib is slower
        content = opened.read()
    name = os.path.basename(file)  # noqa: PTH119 - pathlib is slower
    digest = hashlib.sha256(f"{name}\n{content}".encode()).hexdigest()
    return _Source(digest, frozenset(_imported(content, root)))


def _imported(source: str, root: str) -> Iterator[str]:
    """Yield the files of the modules that a source imports, at any depth."""
    for package, listed, names, module in _IMPORT.findall(_TYPES.sub("", source)):
        if not f"{package or module}.".startswith(_PACKAGES):
            continue
        words = [name.split()[0] for name in (listed or names).split(",") if name.strip()]
        # each is a module of a package, or else a name in the package
        modules = [_file(f"{package}.{word}", root) for word in words]
        yield from filter(None, modules)
        if not all(modules) or not words:
            file = _file(package or module, root)
            if file is not None:
                yield file


@cache
def _file(module: str, root: str) -> str | None:
    """Return the file of a module of the packages."""
    if not f"{module}.".startswith(_PACKAGES):
        return None
    place = os.path.join(root, *module.split("."))  # noqa: PTH118 - pathlib is slower
    for file in (f"{place}.py", f"{place}/__init__.py"):
        if os.path.isfile(file):  # noqa: PTH113 - likewise
            return file
    return None
