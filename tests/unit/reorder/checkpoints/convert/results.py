"""Conversions by rules as lines: the tensors that come out, or the line that refuses them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from reorder.checkpoints import ConvertProgress

SMALL = reorder.checkpoints.ConvertOptions(threads=1, max_bytes=1 << 20, verify=True)


def convert(
    source: Path,
    target: Path,
    *rules: str,
    to: str | None = None,
    settings: reorder.checkpoints.ConvertOptions = SMALL,
    **options: Any,
) -> reorder.checkpoints.ConvertReport:
    """Convert by rules as lines, with some other options."""
    return reorder.convert(source, target, to, map=rules, options=settings._replace(**options))


def converted(source: Path, target: Path, *rules: str, **options: Any) -> dict[str, NDArray[Any]]:
    """Convert, and return the words of each tensor of the output, by its name."""
    convert(source, target, *rules, **options)
    return words_of(target)


def words_of(target: Path) -> dict[str, NDArray[Any]]:
    """Return the words of each tensor of a checkpoint, by its name."""
    with reorder.open_checkpoint(target) as found:
        return {
            name: tensor.data.copy().view(DATA_TYPES[tensor.dtype].numpy).reshape(tensor.shape)
            for name, tensor in found.items()
        }


def contents(path: Path) -> dict[str, bytes]:
    """Return the bytes of a file, or of all files below a folder, by their names."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return {str(each.relative_to(path)): each.read_bytes() for each in files}


class _EndedError(Exception):
    """Ends a conversion, as a signal would."""


@contextmanager
def ended_after(tasks: int = 1) -> Iterator[Callable[[ConvertProgress], None]]:
    """Give a callback that ends a conversion after some tasks."""
    done: list[int] = []

    def end(now: ConvertProgress) -> None:
        done.append(now.done)
        if now.done and len(done) >= tasks:
            raise _EndedError

    with pytest.raises(_EndedError):
        yield end


def refused(source: Path, target: Path, *rules: str, **options: Any) -> str:
    """Return the line that refuses a conversion; nothing was written."""
    before = sorted(target.parent.rglob("*"))
    with pytest.raises(MemdescError) as caught:
        convert(source, target, *rules, **options)
    assert sorted(target.parent.rglob("*")) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)
