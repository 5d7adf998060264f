"""Files that are planned before they are written: every offset is known from names and sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from memdesc import MemoryDesc, RecordDesc

__all__ = ["PlannedFile", "Span", "Tensor"]


class Tensor(NamedTuple):
    """A tensor to be written: what a header says of it.

    `dtype` and `shape` are those of the words that are stored, as of an `Entry`; `desc` is what
    they hold, and is written where dtype and shape do not say it. `origin` is the tensor of the
    input that it is a copy of, byte for byte; empty if it is not a copy. `value` is what it is the
    first tensor of, in the values of JSON.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    desc: MemoryDesc | RecordDesc | None = None
    origin: str = ""
    value: Mapping[str, Any] | None = None


class Span(NamedTuple):
    """Where the bytes of a tensor lie in a file."""

    offset: int
    nbytes: int


class PlannedFile(NamedTuple):
    """A file of an output: its size, where its tensors go, and the bytes of all else."""

    # its name in the folder of the output
    name: str
    nbytes: int
    # offset and bytes: headers, indices
    pieces: tuple[tuple[int, bytes], ...]
    spans: Mapping[str, Span]
    # called with the complete file before it gets its name: writes what depends on the data
    seal: Callable[[Path], None] | None = None
