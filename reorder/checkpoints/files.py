"""Tensors in files: `save`, `load`, and `open_checkpoint`, which maps them when they are used.

A `Quantized`, or a `Record` of several tensors, is stored tensor by tensor; a note with the first
one says what they are together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from operator import getitem
from pathlib import Path
from typing import Any, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from memdesc import DataType, MemdescError, MemoryDesc, data_type, memory_desc
from memdesc.checked import Checked
from memdesc.errors import about, allocates, short_repr
from memdesc.immutable import immutable
from memdesc.int64 import checked_flag
from memdesc.record import RecordDesc
from reorder.api import reorder
from reorder.checkpoints.formats.entry import (
    QUANTIZED,
    Entry,
    Maps,
    Tensor,
    joined_tensors,
    record_fields,
    record_of,
    record_tensors,
    stored_layout,
)
from reorder.checkpoints.formats.numpy_files import unpack_npz
from reorder.checkpoints.formats.table import FORMATS, plan_file, read_container, sniff
from reorder.checkpoints.moves.changes import padded
from reorder.checkpoints.weights import Model, Weight, weight_of
from reorder.disk import as_path, naming, write_file
from reorder.memory.buffers import address_of
from reorder.memory.dlpack import Exporter
from reorder.memory.memory import Memory
from reorder.messages import first_of
from reorder.quantized import Quantized, dequantize
from reorder.records.record import Record

Savable = Memory | Quantized | Record | NDArray[Any] | Exporter
Parts = list[tuple[Tensor, NDArray[np.uint8]]]
_T = TypeVar("_T", Memory, Record, Quantized)

# what files hold, and where users find it
_KINDS: Mapping[type[Any], str] = {
    Memory: "reorder.Memory",
    Quantized: "reorder.Quantized",
    Record: "reorder.records.Record",
}
# the name of a tensor that is saved without a name
DEFAULT_NAME = "tensor"
_FORMATS = ("safetensors", "npz", "npy")


def save(path: str | os.PathLike[str], tensors: Savable | Mapping[str, Savable]) -> None:
    """Write one or many tensors into one file, with their descriptors; whole or not at all.

    *Law*: `load` and `load_all` return what `save` was given, bit for bit.

    Parameters
    ----------
    path : path
        A `.safetensors` or a `.npz`, which keep every layout and data type; or a `.npy`, which
        holds one row-major or column-major array of numpy's own types, and nothing else.
    tensors : Memory, Quantized, Record, ndarray, tensor with DLPack, or a mapping of str to these
        What to write: a tensor, or several by name, such as a `state_dict` of torch. Arrays and
        tensors of other libraries are written as row-major ones of their data type.

    Raises
    ------
    MemdescError
        If the file cannot hold a tensor (the message names formats that can) or be written.

    Examples
    --------
    >>> import os, tempfile, ml_dtypes
    >>> path = os.path.join(tempfile.mkdtemp(), "conv.safetensors")
    >>> w = reorder.reorder(np.ones((16, 3, 3, 3), ml_dtypes.bfloat16), "OIhw16o4i")
    >>> reorder.save(path, w)
    >>> reorder.load(path)
    Memory(memory_desc((16, 3, 3, 3), 'bf16', 'ABcd16a4b'))
    >>> reorder.save(path, {"weight": w, "bias": np.zeros(16, np.float32)})
    >>> {name: str(m.dtype) for name, m in reorder.load_all(path).items()}
    {'bias': 'f32', 'weight': 'bf16'}
    """
    given = as_path(path)
    row = FORMATS[saving_format(given)]
    if isinstance(tensors, Mapping):
        if row.is_array:
            raise MemdescError(f"{str(given)!r} holds one tensor without a name; write a .npz")
        named = tensors
    else:
        named = {DEFAULT_NAME: tensors}
    parts = [part for name, value in named.items() for part in _parts_of(name, value)]
    file = plan_file(given, [tensor for tensor, _ in parts], {})
    write_file(given, file.with_data({tensor.name: data.data for tensor, data in parts}).write)


def save_raw(path: str | os.PathLike[str], memory: Memory) -> None:
    """Write the bytes of a tensor and nothing else, as a C kernel expects them.

    `memdesc.source` writes the code that finds an element in them.

    Parameters
    ----------
    path : path
        The file, such as a `.bin`; not one whose ending promises a descriptor or a header.
    memory : Memory
        What to write: `memory.desc.nbytes` bytes, padding included.

    Raises
    ------
    MemdescError
        If it is not a Memory, or the file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.bin")
    >>> m = reorder.reorder(np.ones((1, 3, 2, 2), np.float32), "nChw8c")
    >>> reorder.checkpoints.save_raw(path, m)
    >>> os.path.getsize(path)
    128
    """
    given = as_path(path)
    if not isinstance(memory, Memory):
        raise MemdescError(
            f"save_raw takes a Memory, not {type(memory).__name__}; reorder(x) makes one"
        )
    check_raw_name(given)
    write_file(given, lambda out: out.write(padded(memory.data, memory.desc.nbytes).data))


def check_raw_name(path: Path) -> None:
    """Refuse raw bytes in a file whose ending promises a header."""
    if path.suffix in {row.ending for row in FORMATS.values()}:
        raise MemdescError(
            f"{str(path)!r} would hold raw bytes, not a {path.suffix} file; call it a .bin"
        )


def saving_format(path: Path) -> str:
    """Return the format that `save` writes for a name."""
    name = next((name for name in _FORMATS if path.name.endswith(FORMATS[name].ending)), None)
    if name is None:
        raise MemdescError(
            f"{str(path)!r} cannot be saved: its name ends neither in .safetensors nor in .npz, "
            "which keep a tensor with its descriptor, nor in .npy; --raw or "
            "reorder.checkpoints.save_raw writes its bytes alone"
        )
    return name


def _parts_of(name: str, value: Any) -> Parts:
    """Return how a value is stored: its tensors, and the bytes of each."""
    if isinstance(value, Quantized):
        arrays = {"scales": value.scales, "zero_points": value.zero_points}
        (codes,) = _parts_of(name, value.memory)
        return quantized_parts(name, codes, arrays, axis=value.axis, groups=value.groups)
    if isinstance(value, Record):
        held, desc = value.tensors, record_of(record_fields(value.desc))
        if desc != value.desc:
            raise MemdescError(
                f"{short_repr(name)}, {value.desc!r}, is not the record of that name and these "
                "options, so a file cannot name it; save its tensors"
            )
        tensors = record_tensors(name, name, desc, "safetensors", is_bare=len(held) == 1)
        return [(tensor, held[role]) for role, tensor in tensors.items()]
    is_scalar, who = False, short_repr(name)
    if not isinstance(value, Memory):
        # a scalar, as in a state_dict of torch, has dims (1,) here
        with suppress(RuntimeError):  # nested tensors of torch raise here: they have no shape
            is_scalar = getattr(value, "shape", None) == () and hasattr(value, "reshape")
        with about(f"{who} cannot be saved"):
            value = reorder(value.reshape(1) if is_scalar else value, "plain")
        if not isinstance(value, Memory):
            raise MemdescError(f"the memory of {who} is on a device; copy it with .get()")
    if value.desc.has_broadcast:
        said = "repeats elements, which a stored tensor does not; reorder it to 'plain'"
        raise MemdescError(f"{who}, {value.desc!r}, {said}")
    tensor = stored_layout(name, value.desc)
    tensor = tensor._replace(shape=()) if is_scalar else tensor
    return [(tensor, padded(value.data, tensor.nbytes))]


def quantized_parts(
    name: str,
    codes: tuple[Tensor, NDArray[np.uint8]],
    arrays: Mapping[str, Any],
    *,
    axis: tuple[int, ...],
    groups: tuple[int, ...] = (),
) -> Parts:
    """Return how codes are stored with their scales and zero points, which `arrays` has by role."""
    parts = {"memory": codes}
    for role, array in arrays.items():
        (parts[role],) = _parts_of(f"{name}{QUANTIZED[role]}", array)
    facts = {"quantized": {"axis": axis, "groups": groups}}
    tensors = joined_tensors(name, facts, {role: tensor for role, (tensor, _) in parts.items()})
    return [(tensor, parts[role][1]) for role, tensor in tensors.items()]


@overload
def load(
    path: str | os.PathLike[str], *, dtype: str | None = None, mmap: bool = False
) -> Memory: ...


@overload
def load(
    path: str | os.PathLike[str], kind: type[_T], *, dtype: str | None = None, mmap: bool = False
) -> _T: ...


@allocates
def load(
    path: str | os.PathLike[str],
    kind: type[Any] = Memory,
    *,
    dtype: str | None = None,
    mmap: bool = False,
) -> Any:
    """Read the tensor of a file that holds one.

    Parameters
    ----------
    path : path
        A file of `save`, of numpy, or of any other format that `open_checkpoint` reads. The axes
        of an array without a descriptor are its logical dims.
    kind : type
        What the tensor is and what is returned: `Memory`, `Quantized` or `Record`.
    dtype : str, optional
        What an array holds if its file cannot say so, such as bf16, which numpy saves as void
        elements (``V2``). Nothing is converted, and a file that says another type is refused.
    mmap : bool
        Whether to map the file instead of reading it: the memory is then read-only, and the system
        reads the pages that are used. The file must not shrink while the memory lives, and large
        members of a .npz are not compared with their checksums.

    Raises
    ------
    MemdescError
        If the file is missing or damaged, holds several tensors, or one of another kind.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "w.safetensors")
    >>> reorder.save(path, reorder.quantize(np.ones((4, 8), np.float32), "s8", axis=0))
    >>> reorder.load(path, reorder.Quantized).scales.shape
    (4,)
    >>> reorder.load(path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    memdesc.errors.MemdescError: '...w.safetensors': it holds a Quantized, not a Memory; read it ...
    """
    model, items = _items(path, kind, kind, mmap)
    only = name_of_only(model.path, items)
    with naming(model.path):
        value = value_of(items[only], dtype)
        if not isinstance(value, kind):
            held, way = type(value).__name__, f"read it with load(path, {_KINDS[type(value)]})"
            raise MemdescError(f"it holds a {held}, not a {kind.__name__}; {way}")
    return value


@overload
def load_all(
    path: str | os.PathLike[str], kind: None = None, *, mmap: bool = False
) -> dict[str, Memory]: ...


@overload
def load_all(
    path: str | os.PathLike[str], kind: type[_T], *, mmap: bool = False
) -> dict[str, _T]: ...


@allocates
def load_all(
    path: str | os.PathLike[str], kind: type[Any] | None = None, *, mmap: bool = False
) -> dict[str, Any]:
    """Read all tensors of a file by name, in its order.

    The members of a `.npz` may unpack to 64 times the size of the file, or to 1 GiB if that is
    more.

    Parameters
    ----------
    path : path
        As for `load`.
    kind : type, optional
        `Memory`, `Quantized` or `Record`: return those only. By default each tensor must be a
        Memory. The tensors of a record that a model's config.json declares are returned as that
        record; `open_checkpoint` also has each of them as it is stored.
    mmap : bool
        As for `load`.

    Raises
    ------
    MemdescError
        If the file is missing or damaged, unpacks to more than that, has a tensor of an unknown
        type, or without `kind` one that is not a Memory; if it is declared to hold records that it
        does not hold, unless `kind` is Memory.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.npz")
    >>> np.savez_compressed(path, x=np.zeros(1000))
    >>> reorder.load_all(path)
    {'x': Memory(memory_desc((1000,), 'f64', 'a'))}
    """
    wanted = Memory if kind is None else kind
    model, items = _items(path, kind, wanted, mmap)
    with naming(model.path):
        values = {name: value_of(item) for name, item in items.items()}
        for name, value in values.items():
            if kind is None and not isinstance(value, Memory):
                raise MemdescError(
                    f"{short_repr(name)} is a {type(value).__name__}, not a Memory; load_all(path, "
                    f"{_KINDS[type(value)]}) reads those, and load_all(path, reorder.Memory) the "
                    "others"
                )
    return {name: value for name, value in values.items() if isinstance(value, wanted)}


def _items(
    path: Any, asked: object, kind: object, mmap: object
) -> tuple[Model, dict[str, Weight | Entry]]:
    """Return what `load` and `load_all` read, before any value is made."""
    if not any(kind is known for known in _KINDS):
        *others, last = _KINDS.values()
        kinds = f"{', '.join(others)} or {last}"
        raise MemdescError(f"kind must be {kinds}, not {short_repr(kind)}")
    model = read_model(as_path(path), mmap=checked_flag("mmap", mmap))
    with naming(model.path):
        return model, model.items(is_strict=asked is not Memory)


def name_of_only(path: Path, names: Mapping[str, Any]) -> str:
    """Return the name of the only tensor of a file."""
    if len(names) == 1:
        return next(iter(names))
    way = "reorder.load_all reads them, and commands take one as FILE:NAME"
    said = f"{len(names)} tensors: {first_of(names, 8)}; {way}" if names else "no tensors"
    raise MemdescError(f"{str(path)!r} has {said}")


def read_model(path: Path, *, mmap: bool = False, name: str | None = None) -> Model:
    """Return the tensors of whatever `open_checkpoint` takes; `name` is the only one needed."""
    if mmap:
        return Model(path, Maps(path).of(read_container(path)))
    is_file = not os.path.isdir(path)  # noqa: PTH112 - names of any length
    is_npz = is_file and sniff(path) is FORMATS["npz"]  # members may be compressed
    return Model(path, unpack_npz(path, name) if is_npz else read_container(path))


def value_of(item: Weight | Entry, dtype: str | None = None) -> Memory | Record | Quantized:
    """Return what a stored tensor holds, or what the tensors of a weight represent together."""
    if isinstance(item, Entry):
        return held_in(item, dtype)
    if item.desc is not None:
        return Record(item.desc, {role: entry.read() for role, entry in item.tensors.items()})
    if item.quantized is None:
        raise MemdescError(item.reason)
    codes, *arrays = item.tensors.values()
    scales, *given = map(_array_of, arrays)
    points = given[0] if given else np.zeros(scales.shape, np.int32)
    if not item.quantized["axis"]:  # some containers have no scalars
        scales, points = scales.reshape(()), points.reshape(())
    return Quantized(memory_of(codes), scales, points, **item.quantized)


def held_in(entry: Entry, dtype: str | None = None) -> Memory | Record:
    """Return what a stored tensor holds; `dtype` is that of `load`."""
    desc = entry.desc
    return Record(desc, entry.read()) if isinstance(desc, RecordDesc) else memory_of(entry, dtype)


def _array_of(entry: Entry) -> NDArray[Any]:
    """Return a stored tensor as the array that was saved, which may have no dims."""
    memory = memory_of(entry)
    # a descriptor of a scalar has dims (1,)
    if memory.desc != memory_desc(entry.shape or (1,), memory.desc.dtype):
        wanted = f"a row-major array of shape {entry.shape}, as scales are stored"
        raise MemdescError(f"{short_repr(entry.name)}, {memory.desc!r}, is not {wanted}")
    return memory.numpy().reshape(entry.shape)


def memory_of(entry: Entry, dtype: str | None = None) -> Memory:
    """Return a stored tensor as memory over its bytes, which are copied if they are not aligned."""
    desc, data = desc_of_entry(entry, dtype), entry.read()
    if address_of(data) % desc.dtype.bits_dtype.itemsize:
        data = data.copy()
    return Memory(desc, data, zero_pad=False)


def desc_of_entry(entry: Entry, dtype: str | None) -> MemoryDesc:
    """Return what a stored tensor holds; void elements have the type that the caller gives."""
    name = short_repr(entry.name)
    if entry.desc is None and entry.dtype.startswith("|V"):
        nbytes = np.dtype(entry.dtype).itemsize
        if dtype is None:
            way = "say which: dtype='bf16', or on the command line --dtype bf16"
            raise MemdescError(f"{name} holds elements of {nbytes} bytes without a type; {way}")
        wanted = data_type(dtype)
        if wanted.is_packed or wanted.numpy.itemsize != nbytes:
            why = f"its elements have {8 * nbytes} bits"
            raise MemdescError(f"{name} of {entry.dtype} cannot be read as {wanted}: {why}")
        return memory_desc(entry.shape or (1,), wanted)
    desc = entry.known_desc
    if not isinstance(desc, MemoryDesc):
        raise MemdescError(
            f"{name} is {desc!r}, not a tensor of numbers; reorder.dequantize decodes it, and "
            "`memdesc convert` does by a rule such as 'NAME: plain, f32'"
        )
    if dtype is not None and data_type(dtype) != desc.dtype:
        who = f"the descriptor of {name} says" if entry.is_described else f"{name} holds"
        raise other_type(f"{who} {desc.dtype}", data_type(dtype))
    return desc


def other_type(said: str, wanted: DataType, way_out: str | None = None) -> MemdescError:
    """Return the error for a type other than the one that a file gives its elements."""
    scalar = wanted.numpy.type
    converted = (
        f"`memdesc reorder --to-dtype {wanted}` or reorder(x, layout, dtype={wanted.name!r}) "
        "converts its values"
    )
    return MemdescError(
        f"{said}, not {wanted}; a file says its own type: {way_out or converted}. If its elements "
        f"are the bits of {wanted}, save x.view({scalar.__module__}.{scalar.__name__})"
    )


# --- open checkpoints ---


@immutable
class StoredTensor(Checked):
    """A tensor in a checkpoint, which makes it: its description and, on request, its bytes.

    Reading bytes fails if the checkpoint is closed or the file has changed.

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

        A scalar has the dims (1,). Fails if no descriptor describes such a tensor; `data` has its
        bytes.
        """
        return self._entry.known_desc

    @property
    def scaled_by(self) -> tuple[str, ...]:
        """Names of the tensors that turn its codes into numbers; `record` joins them with it."""
        return self._checkpoint.scaled_by(self.name)

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes as they are in the file: read-only and mapped, so only used pages are read."""
        return self._entry.read()

    def memory(self) -> Memory | Record:
        """Return a Memory over the mapped bytes, or a Record if the tensor is block-quantised.

        Bytes that are not aligned for their elements are copied. Fails as `desc` and `data` do.
        """
        return held_in(self._entry)

    def weight(self) -> Memory | Record | Quantized:
        """Return the weight whose codes it holds, with all its tensors; else the same as `memory`.

        Fails if nothing says what its codes mean.
        """
        return self._checkpoint.weight(self.name)

    def numpy(self) -> NDArray[Any]:
        """Return an array over the logical dims; a block-quantised tensor is decoded.

        A plain tensor is a read-only view of the file; others are copies. Codes that are scaled by
        other tensors are returned as they are stored: see `scaled_by`. Fails as `memory` does.
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
        weight = self._model.weight_at(prefix, claims)
        if weight.desc is None:
            raise MemdescError(weight.reason)
        return Record(weight.desc, {role: entry.read() for role, entry in weight.tensors.items()})

    def weight(self, name: str) -> Memory | Record | Quantized:
        """Return a tensor, or the weight whose codes it holds, as `dequantize` takes it."""
        weight = weight_of(self._model.entries, self[name].name)
        return value_of(self._model.decided(weight) if weight.names[1:] else weight.codes)

    def scaled_by(self, name: str) -> tuple[str, ...]:
        """Return the names of the tensors that turn the codes of a tensor into numbers."""
        return weight_of(self._model.entries, name).names[1:]

    def close(self) -> None:
        """Forget the mapped files; the system unmaps each one when no array uses it any more."""
        self._maps.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Checkpoint({str(self._path)!r}, {self.format}, {len(self)} tensors)"


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint, a mapping of names: read headers, and map tensors when they are used.

    Reads safetensors (one file, an index of shards, or a model's folder), GGUF, npz, npy and ONNX,
    without the packages of these formats. What headers claim is checked before memory is allocated
    for it. As for ``load(path, mmap=True)``, the files must not shrink while arrays from them live,
    and the bytes of a .npz are not compared with its checksums.

    *Law*: the bytes of each tensor are those that the format's own package reads.

    Parameters
    ----------
    path : path
        A file, or a folder.

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
