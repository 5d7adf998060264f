"""Outputs that are being written, and bytes of their tensors."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.table import plan_file
from reorder.checkpoints.writer import Writer


def one_tensor(target: Path, *, resume: bool = False, overwrite: bool = False) -> Writer:
    """Begin to write a file with a tensor "a" of 100 bytes."""
    files = [plan_file(target, [Tensor("a", "u8", (100,), 100)], {})]
    facts = {target.name: "the only ones"}
    return Writer(target, files, resume=resume, overwrite=overwrite, facts=facts).begin()


def write_part(writer: Writer, name: str, offset: int, data: Any) -> None:
    """Write bytes of a tensor, from an offset in it on."""
    path, start, *_ = writer.where(name)
    with path.open("r+b") as file:
        file.seek(start + offset)
        file.write(np.ascontiguousarray(data).tobytes())


def write_tensors(
    path: Path,
    tensors: Iterable[Tensor],
    data: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Write a file in the format that its name says; tensors without data hold zeros."""
    with Writer(path, [plan_file(path, [*tensors], metadata or {})]) as writer:
        for name, each in (data or {}).items():
            write_part(writer, name, 0, each)
        writer.finish()
    return path
