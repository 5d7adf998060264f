"""Bytes of tensors in an output that is being written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reorder.storage.containers.partial import FILES

if TYPE_CHECKING:
    from reorder.storage.containers.writer import Writer

__all__ = ["write_part"]


def write_part(writer: Writer, name: str, offset: int, data: Any) -> None:
    """Write bytes of a tensor, from an offset in it on."""
    path, start, _ = writer.where(name)
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    writer.open.write_at(f"{FILES}/{path.name}", start + offset, flat)
