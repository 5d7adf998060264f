"""Checkpoints: the tensors of a container by name, mapped into memory when they are used."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from operator import getitem
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, MemoryDesc
from memdesc.checked import Checked
from memdesc.errors import about, short_repr
from memdesc.immutable import immutable
from memdesc.record import RecordDesc
from reorder.checkpoints.formats.entry import Entry, Maps
from reorder.checkpoints.formats.table import read_container
from reorder.checkpoints.save import held_in, value_of
from reorder.checkpoints.weights import Model, weight_at, weight_of
from reorder.disk import as_path
from reorder.memory.memory import Memory
from reorder.quantized import Quantized, dequantize
from reorder.records.record import Record


@immutable
class StoredTensor(Checked):
    """A tensor in a checkpoint: its description and, on request, its bytes.

    Made by `Checkpoint`.

    Parameters
    ----------
    checkpoint : Checkpoint
        The open checkpoint.
    entry : Entry
        Where the tensor is, according to the header of its file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> reorder.save(path, {"bias": np.zeros(3, np.float32)})
    >>> with reorder.open_checkpoint(path) as checkpoint:
    ...     print(checkpoint["bias"].name)
    bias
    """

    __slots__ = ("_checkpoint", "_entry")

    _checkpoint: Checkpoint
    _entry: Entry

    def __init__(self, checkpoint: Checkpoint, entry: Entry) -> None:
        if not (isinstance(checkpoint, Checkpoint) and isinstance(entry, Entry)):
            raise MemdescError(
                "a StoredTensor comes from a Checkpoint: open_checkpoint(path)[name]"
            )
        object.__setattr__(self, "_checkpoint", checkpoint)
        object.__setattr__(self, "_entry", entry)

    def __reduce__(self) -> tuple[Any, ...]:
        return getitem, (self._checkpoint, self.name)

    @property
    def name(self) -> str:
        """Its name in the checkpoint."""
        return self._entry.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in words of `dtype`, as in the file; see `desc` for the logical sizes."""
        return self._entry.shape

    @property
    def dtype(self) -> str:
        """Type of the words in the file: a data type, a record, or the format's own name."""
        return self._entry.dtype

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self._entry.nbytes

    @property
    def desc(self) -> MemoryDesc | RecordDesc:
        """What the bytes hold, according to the metadata or else to `dtype` and `shape`.

        A scalar has the dims (1,).

        Raises
        ------
        MemdescError
            If no descriptor describes such a tensor; `data` has its bytes.
        """
        return self._entry.known_desc

    @property
    def scaled_by(self) -> tuple[str, ...]:
        """Names of the tensors that turn its codes into numbers; `record` joins them with it."""
        return self._checkpoint.scaled_by(self.name)

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes as they are in the file: read-only and mapped, so only used pages are read.

        Raises
        ------
        MemdescError
            If the checkpoint is closed, or the file has changed.
        """
        return self._entry.read()

    def memory(self) -> Memory | Record:
        """Return a Memory over the mapped bytes, or a Record if the tensor is block-quantised.

        Bytes that are not aligned for their elements are copied.

        Raises
        ------
        MemdescError
            As for `desc` and `data`.
        """
        return held_in(self._entry)

    def weight(self) -> Memory | Record | Quantized:
        """Return the weight whose codes it holds, with all its tensors; else the same as `memory`.

        Raises
        ------
        MemdescError
            If nothing says what its codes mean, and as for `desc` and `data`.
        """
        return self._checkpoint.weight(self.name)

    def numpy(self) -> NDArray[Any]:
        """Return an array over the logical dims; a block-quantised tensor is decoded.

        A plain tensor is a read-only view of the file; others are copies. Codes that are scaled by
        other tensors are returned as they are stored: see `scaled_by`.

        Raises
        ------
        MemdescError
            As for `desc` and `data`.
        """
        held = self.memory()
        if isinstance(held, Record):
            return dequantize(held).numpy()
        with about(f"tensor {short_repr(self.name)}"):
            array = held.numpy()
        return array if self.shape or array.shape != (1,) else array.reshape(())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 - numpy's protocol
        return np.array(self.numpy(), dtype, copy=copy)

    def __repr__(self) -> str:
        codes = f", codes scaled by {', '.join(self.scaled_by)}" if self.scaled_by else ""
        what = self._entry.desc or self.dtype
        return f"StoredTensor({self.name!r}, {what}, {self.nbytes} bytes{codes})"


class Checkpoint(Checked, Mapping[str, StoredTensor]):
    """The tensors of a checkpoint by name. Made by `open_checkpoint`.

    Use it as a context manager, or close it; arrays taken from it keep their file mapped. It is
    pickled as its path; a process that unpickles it must see the same files, and reads their
    headers again.

    Parameters
    ----------
    path : path
        The file or folder, as `open_checkpoint` takes it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> reorder.save(path, {"bias": np.zeros(3, np.float32)})
    >>> with reorder.open_checkpoint(path) as checkpoint:
    ...     print(list(checkpoint), checkpoint.format)
    ['bias'] safetensors
    """

    def __init__(self, path: Path) -> None:
        self._path, self._maps = path, Maps(path)
        self._model = Model(path, self._maps.of(read_container(path)))

    def __reduce__(self) -> tuple[Any, ...]:
        return open_checkpoint, (self._path,)

    @property
    def format(self) -> str:
        """The format of its files, such as ``safetensors``."""
        return self._model.container.format

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata besides tensors and descriptors, in the format's own form."""
        return dict(self._model.container.metadata)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold the tensors."""
        return self._model.container.files

    def __getitem__(self, name: str) -> StoredTensor:
        entries = self._model.entries
        if name not in entries:
            near = get_close_matches(str(name), entries, 3) if isinstance(name, str) else []
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise KeyError(
                f"{str(self._path)!r} has no tensor {short_repr(name)}, of {len(entries)}{hint}"
            )
        return StoredTensor(self, entries[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._model.entries)

    def __len__(self) -> int:
        return len(self._model.entries)

    def record(self, prefix: str, name: str | None = None, **options: Any) -> Record:
        """Return quantised weights that are stored as several tensors.

        Dims, groups and the type of the scales follow from the shapes.

        Parameters
        ----------
        prefix : str
            What precedes ``.qweight``, ``.scales`` and ``.qzeros``, or the name of the codes.
        name : str, optional
            The record, such as ``awq``; by default the one that was saved, or that config.json
            beside the files declares.
        **options
            Options of `record_desc`, such as ``zeros="v2"``.

        Raises
        ------
        MemdescError
            If nothing declares the record; if the name, config.json, stored descriptors, types or
            shapes contradict each other; if a tensor is missing or not used; or if ``g_idx`` is in
            act-order.

        Examples
        --------
        >>> import os, tempfile
        >>> w = memdesc.record.record_desc((128, 16), "awq")
        >>> words = {"qweight": np.ones((128, 2), np.int32), "qzeros": np.ones((1, 2), np.int32)}
        >>> tensors = words | {"scales": np.ones((1, 16), np.float16)}
        >>> path = os.path.join(tempfile.mkdtemp(), "x.npz")
        >>> reorder.save(path, {f"fc.{name}": x for name, x in tensors.items()})
        >>> with reorder.open_checkpoint(path) as checkpoint:
        ...     checkpoint.record("fc", "awq")
        Record(record_desc((128, 16), 'awq', group=-1, scales='f16'))
        """
        if not isinstance(prefix, str):
            raise MemdescError(f"prefix must be a string, not {short_repr(prefix)}")
        claims = self._model.claims._replace(name=name, options=options)
        found = weight_at(self._model.entries, prefix, claims)
        if found.desc is None:
            raise MemdescError(found.reason)
        return Record(found.desc, {each: entry.read() for each, entry in found.tensors.items()})

    def weight(self, name: str) -> Memory | Record | Quantized:
        """Return a tensor, or the weight whose codes it holds, as `dequantize` takes it."""
        found = weight_of(self._model.entries, self[name].name)
        return value_of(self._model.decided(found) if found.names[1:] else found.codes)

    def scaled_by(self, name: str) -> tuple[str, ...]:
        """Return the names of the tensors that turn the codes of a tensor into numbers."""
        return weight_of(self._model.entries, name).names[1:]

    def close(self) -> None:
        """Forget the mapped files; the system unmaps each when no array uses it any more."""
        self._maps.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Checkpoint({str(self._path)!r}, {self.format}, {len(self)} tensors)"


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint: read the headers, and map tensors when they are used.

    Reads safetensors (one file, an index of shards, or a model's folder), GGUF, npz, npy and ONNX,
    without the packages of these formats. What headers claim is checked before memory is allocated
    for it. As for ``load(path, mmap=True)``, the files must not shrink while arrays from them live.

    *Law*: the bytes of each tensor are those that the format's own package reads.

    Parameters
    ----------
    path : path
        A file, or a folder.

    Returns
    -------
    Checkpoint
        A mapping of names to tensors, each with `desc`, `numpy()` and `memory()`.

    Raises
    ------
    MemdescError
        If it is not a checkpoint, is damaged, or names files outside its folder.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.npz")
    >>> w = reorder.reorder(np.ones((20, 3, 3, 3), np.float32), "OIhw16o4i")
    >>> reorder.save(path, {"conv.weight": w, "conv.bias": np.zeros(20, np.float32)})
    >>> with reorder.open_checkpoint(path) as checkpoint:
    ...     print(*checkpoint, checkpoint["conv.weight"].desc)
    ...     checkpoint["conv.weight"].memory(), checkpoint["conv.bias"].numpy().shape
    conv.weight conv.bias memory_desc((20, 3, 3, 3), 'f32', 'ABcd16a4b')
    (Memory(memory_desc((20, 3, 3, 3), 'f32', 'ABcd16a4b')), (20,))
    """
    return Checkpoint(as_path(path))
