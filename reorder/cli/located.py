"""Where a tensor that a command reads lies in its file, for commands that read it in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memdesc import MemdescError, MemoryDesc, array_desc, data_type, memory_desc
from reorder.cli.layouts import buffer_name, desc_of
from reorder.cli.tensors import is_archive, split_name
from reorder.memory.inputs import as_memory
from reorder.memory.memory import Memory
from reorder.storage.containers.table import read_container
from reorder.storage.files import load

if TYPE_CHECKING:
    from reorder.storage.containers.entry import Entry

__all__ = ["locate"]


def locate(path: str, dtype: str | None, tag: str | None) -> tuple[MemoryDesc, Entry] | None:
    """Return what a file holds, as `load_tensor` reads it, and where; None where it must be read.

    Refusals are left to `load_tensor`.
    """
    file, name = split_name(path)
    try:
        entries = read_container(file).entries
        entry = entries[name] if name is not None else next(iter(entries.values()))
        if len(entries) > 1 and name is None:
            return None
        desc = _located(file, entry, dtype, tag)
    except (MemdescError, KeyError, StopIteration):
        return None
    is_whole = desc is not None and desc.min_nbytes <= entry.nbytes
    return (desc, entry) if desc is not None and is_whole else None


def _located(file: str, entry: Entry, dtype: str | None, tag: str | None) -> MemoryDesc | None:
    if entry.is_described or is_archive(file):
        desc = entry.desc
        if not isinstance(desc, MemoryDesc) or (dtype and data_type(dtype) != desc.dtype):
            return None
        is_told = tag is None or desc_of(tag, desc.dims, str(desc.dtype)) == desc
        return desc if is_told else None
    array = load(file, dtype, mmap=True)
    if isinstance(array, Memory) or array.dtype.kind == "V":
        return None
    if tag is None:
        return array_desc(array)
    # one element that is repeated has the dims, and is not copied
    dims = as_memory(
        np.broadcast_to(np.zeros((), array.dtype), array.shape), buffer_name(tag)
    ).desc.dims
    return memory_desc(dims, array.dtype, tag) if array.flags.c_contiguous else None
