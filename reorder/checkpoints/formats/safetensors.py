"""safetensors: the length of the header, the header as JSON, and the tensors without gaps.

The package `safetensors` gives numpy neither offsets nor tensors of f8 and 4-bit types, so the file
is read directly. A model may have several: an index names them, or they are all in a folder.
Sources: `safetensors/src/tensor.rs` of safetensors 0.7; `save_pretrained` of transformers 4 (the
index, names of shards), `utils/constants.py` of diffusers 0.32.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

from memdesc.desc import MemoryDesc
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError, about, short_repr
from reorder.checkpoints.formats.entry import (
    Container,
    Entry,
    PlannedFile,
    Tensor,
    Unread,
    check_planned,
    checked_shape,
    container_of,
    descriptors_of,
    joined,
    open_container,
    read_json,
    safe_path,
)
from reorder.disk import cannot, naming, read_if_exists, read_small
from reorder.messages import first_of

_LENGTH = 8
# the limit of the package
_MAX_HEADER = 100_000_000
_METADATA = "__metadata__"
# types that the format spells in capitals, with I for s, and those that it spells otherwise
_SPELLED = "u8 s8 u16 s16 u32 s32 u64 s64 f8_e5m2 f8_e4m3 f8_e4m3fnuz f8_e5m2fnuz f16 bf16 f32 f64"
_NAMES = {name: name.upper().replace("S", "I") for name in _SPELLED.split()} | {
    "boolean": "BOOL",
    "f4_e2m1": "F4",
    "e8m0": "F8_E8M0",
}
_TYPES = {theirs: ours for ours, theirs in _NAMES.items()}
# bits of each type, also of those that have no name here
_BITS = {theirs: DATA_TYPES[ours].bits for ours, theirs in _NAMES.items()}
_BITS |= {"F6_E2M3": 6, "F6_E3M2": 6, "C64": 64}
# data starts at a multiple of this, so that mapped tensors are aligned for any element
_ALIGNMENT = 64
_ENTRY_KEYS = ("data_offsets", "dtype", "shape")


def read(path: Path) -> Container:
    """Read the header of a file."""
    with open_container(path, "a safetensors file") as (file, state):
        length = int.from_bytes(file.read(_LENGTH), "little")
        if state.nbytes < _LENGTH or length > min(state.nbytes - _LENGTH, _MAX_HEADER):
            sizes = f"{length} bytes, and the file has {state.nbytes}"
            raise MemdescError(f"its header would have {sizes}; at most {_MAX_HEADER} are read")
        header, metadata = _parse(file.read(length))
        end = start = _LENGTH + length
        entries = []
        for name, fields in header.items():
            with about(f"tensor {short_repr(name)}"):
                dtype, shape, at, nbytes = _checked(fields)
            entries.append(Entry(name, dtype, shape, path, start + at, nbytes, state))
            end += nbytes
        container = container_of("safetensors", path, entries, metadata)
        if end != state.nbytes:
            where = f"byte {end} of {state.nbytes}, by the sizes in the header"
            raise MemdescError(f"its tensors end at {where}; a safetensors file has no gaps")
        return container


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        double, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise MemdescError(f"its header has the key {short_repr(double)} twice")
    return fields


def _parse(text: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of each tensor, and the metadata."""
    header = read_json(text, "its header is not JSON", object_pairs_hook=_without_doubles)
    if not isinstance(header, dict):
        raise MemdescError(f"its header is not an object of JSON, but {short_repr(header)}")
    metadata = header.pop(_METADATA, None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(x, str) for x in metadata.values()):
        raise MemdescError(f"{_METADATA} is not an object of strings, but {short_repr(metadata)}")
    return header, metadata


def _checked(fields: Any) -> tuple[str, tuple[int, ...], int, int]:
    if not isinstance(fields, dict) or fields.keys() != {*_ENTRY_KEYS}:
        keys = ", ".join(_ENTRY_KEYS)
        raise MemdescError(f"it has other fields than {keys}: {short_repr(fields)}")
    dtype: Any = fields["dtype"]
    shape, span = checked_shape(fields["shape"]), fields["data_offsets"]
    bits = _BITS.get(dtype) if isinstance(dtype, str) else None
    if not bits:
        raise MemdescError(f"{short_repr(dtype)} is not a data type of safetensors")
    is_list = isinstance(span, list) and [type(limit) for limit in span] == [int, int]
    if not is_list or not 0 <= span[0] <= span[1]:
        raise MemdescError(f"data_offsets are not a range, but {short_repr(span)}")
    nbytes = span[1] - span[0]
    if bits * prod(shape) != 8 * nbytes:
        need = f"{dtype} of shape {short_repr(shape)} takes {short_repr(bits * prod(shape))} bits"
        raise MemdescError(f"{need}, but its data_offsets span {nbytes} bytes")
    return _TYPES.get(dtype, dtype), shape, span[0], nbytes


def plan(name: str, tensors: Sequence[Tensor], metadata: Mapping[str, Any]) -> PlannedFile:
    """Plan a file; its order keeps elements aligned, and most tensors at multiples of 64 bytes."""
    texts = {**metadata, **descriptors_of(tensors)}
    header: dict[str, Any] = {_METADATA: texts} if texts else {}
    at, places = 0, dict[str, int]()
    for tensor in sorted(tensors, key=_sort_key):
        if tensor.name == _METADATA:
            raise MemdescError(f"a tensor cannot be called {_METADATA!r} here; give another name")
        dtype, end = _NAMES.get(tensor.dtype, tensor.dtype), at + tensor.nbytes
        header[tensor.name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": (at, end)}
        places[tensor.name], at = at, end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH + len(text)) % _ALIGNMENT)
    if len(text) > _MAX_HEADER:
        most = f"at most {_MAX_HEADER} are read"
        raise MemdescError(f"the header of {name!r} would have {len(text)} bytes; {most}")
    head = len(text).to_bytes(_LENGTH, "little") + text
    spans = {tensor.name: (len(head) + places[tensor.name], tensor.nbytes) for tensor in tensors}
    return PlannedFile(name, len(head) + at, ((0, head),), spans)


def _sort_key(tensor: Tensor) -> tuple[bool, int]:
    """Return the sort key: multiples of the alignment first, then wider elements first."""
    bits = _BITS.get(_NAMES.get(tensor.dtype, tensor.dtype))
    if not bits:
        raise MemdescError(
            f"tensor {short_repr(tensor.name)}: safetensors has no type {tensor.dtype!r}; an "
            "output in the format of the input keeps it, a .npz has all types of memdesc, and a "
            "rule such as 'NAME: plain, holds=bf16' says what elements without a type are"
        )
    width = tensor.desc.dtype.bits if isinstance(tensor.desc, MemoryDesc) else bits
    return tensor.nbytes % _ALIGNMENT != 0, -width


# --- several files: an index of names, or all files of a folder ---

INDEX_ENDING = ".safetensors.index.json"
_ENDING = ".safetensors"
_MAX_INDEX = 100_000_000
# as `save_pretrained` numbers shards, with at least five digits; the most that are looked for
_NUMBERED = re.compile(rf"(?s)(.*)-[0-9]{{5,}}-of-([0-9]{{5,}}){re.escape(_ENDING)}")
_MAX_SHARDS = 10_000
# what transformers and diffusers call the files of a model
_STEM = "model"
_STEMS = (_STEM, "diffusion_pytorch_model")


def read_folder(folder: Path) -> Container:
    """Read the checkpoint in a folder: the shards of its index, or else all its files.

    Beside a model in one file or in numbered ones, others such as adapters are not part of it.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise cannot(folder, "read", error) from None
    who, indices = repr(str(folder)), find_indices(names)
    if len(indices) > 1:
        raise MemdescError(f"{who} has {len(indices)} indices, {', '.join(indices)}; name one")
    if indices:
        return read_index(folder / indices[0])
    shards = [name for name in names if name.endswith(_ENDING)]
    if not shards:
        msg = f"{who} has neither a file *{_ENDING} nor an index *{INDEX_ENDING}"
        if others := [name for name in names if name.endswith((".gguf", ".onnx", ".npz"))]:
            msg += f"; name a file, such as {others[0]!r}"
        if pickles := [x for x in names if x.endswith((".bin", ".pt", ".pth", ".ckpt"))]:
            msg += f"; {pickles[0]!r} may be a pickle, which is not read, as it may run code"
        raise MemdescError(msg)
    numbered = [name for name in shards if _NUMBERED.fullmatch(name)]
    whole = _own(shards)[:1]
    if whole and whole == [x for x in shards if is_file_of(whole[0].removesuffix(_ENDING), x)]:
        shards = whole
    elif numbered:
        shards = numbered
    containers, unread = _read_shards(folder, shards)
    if absent := _absent(shards):
        is_are = "is" if len(absent) == 1 else "are"
        why = (
            f"{who} has {len(shards)} files {_ENDING}, and the numbers in their names show that "
            f"{first_of(absent)} {is_are} missing; fetch what is missing, or name one file "
            f"to read only that one: {str(folder / shards[0])!r}"
        )
        # one of them speaks for all
        unread = dict.fromkeys(absent, Unread("it is missing too")) | unread
        unread[absent[0]] = Unread(why)
    return joined(folder, [*containers.values()])._replace(unread=unread)


def _own(names: Collection[str], ending: str = _ENDING) -> list[str]:
    """Return which of the names that loaders look for, with an ending, a folder has."""
    return [name for stem in _STEMS if (name := f"{stem}{ending}") in names]


def find_indices(names: Sequence[str]) -> list[str]:
    """Return the names of a folder's indices: that of its loader, without Mistral's, or all."""
    others = () if _own(names) else (name for name in names if name.endswith(INDEX_ENDING))
    return _own(names, INDEX_ENDING)[:1] or [*others]


def _absent(shards: Sequence[str]) -> list[str]:
    """Return the names of shards that are missing according to the numbers in other names."""
    expected = []
    for stem, count in {(m[1], m[2]) for m in map(_NUMBERED.fullmatch, shards) if m}:
        numbers = range(1, min(int(count), _MAX_SHARDS) + 1)
        expected += [f"{stem}-{k:0{len(count)}}-of-{count}{_ENDING}" for k in numbers]
    return sorted({*expected} - {*shards})


def _read_shards(
    folder: Path, names: Iterable[str]
) -> tuple[dict[str, Container], dict[str, Unread]]:
    """Return the shards that can be read, at least one, and why others cannot."""
    shards: dict[str, Container] = {}
    unread: dict[str, Unread] = {}
    for name in names:
        try:
            shards[name] = read(safe_path(folder, name, "the shard"))
        except MemdescError as error:
            unread[name] = Unread(str(error))
    if not shards:
        raise MemdescError(next(iter(unread.values())).reason)
    return shards, unread


def read_index(path: Path) -> Container:
    """Read the shards that an index names; each must hold exactly what the index says."""
    text = read_small(path, _MAX_INDEX)
    with naming(path):
        names = _weight_map(text)
        shards, unread = _read_shards(path.parent, sorted({*names.values()}))
    container = joined(path, [*shards.values()])
    with naming(path):
        for name, shard in names.items():
            if shard in shards and name not in shards[shard].entries:
                msg = f"{short_repr(name)} should be in {shard!r}, which does not have it"
                raise MemdescError(f"{msg}; get both again, or correct the index")
        if unknown := container.entries.keys() - names.keys():
            msg = f"it does not name {short_repr(min(unknown))}, which a shard holds"
            raise MemdescError(f"{msg}; get both again, or correct the index")
    held = {
        file: Unread(f"{str(path)!r}: {why}", tuple(name for name in names if names[name] == file))
        for file, (why, _) in unread.items()
    }
    return container._replace(unread=held)


def index_of(path: Path) -> Path | None:
    """Return the index that names a file and others beside it; None if there is none."""
    for index in path.parent.glob(f"*{INDEX_ENDING}") if path.name.endswith(_ENDING) else ():
        with suppress(MemdescError):  # otherwise the index says nothing about this file
            homes = {*_weight_map(read_if_exists(index, _MAX_INDEX) or b"").values()}
            if path.name in homes and len(homes) > 1:
                return index
    return None


def _weight_map(text: bytes) -> dict[str, str]:
    fields = read_json(text, "it is not JSON", "utf-8-sig")
    names = fields.get("weight_map") if isinstance(fields, dict) else None
    if isinstance(names, dict) and names and all(isinstance(name, str) for name in names.values()):
        return names
    raise MemdescError("it has no 'weight_map' from names of tensors to files")


def is_file_of(stem: str, name: str) -> bool:
    """Whether a file has the name of a whole model, of a shard, or of an index with this stem."""
    if numbered := _NUMBERED.fullmatch(name):
        return numbered[1] == stem
    return name in (f"{stem}{_ENDING}", f"{stem}{INDEX_ENDING}")


def stem_of(names: Iterable[str]) -> str:
    """Return what the names of a model's files start with, without variants such as ``.fp16``.

    Programs look for their own: diffusers, PEFT (``adapter_model``), Mistral (``consolidated``). It
    is ``model`` if they start differently.
    """
    stems = {re.sub(_NUMBERED, r"\1", x).removesuffix(_ENDING) for x in names if _ENDING in x}
    stem = stems.pop() if len(stems) == 1 else _STEM
    known = stem.partition(".")[0]
    return known if known in _STEMS else stem


def plan_shards(
    tensors: Sequence[Tensor],
    metadata: Mapping[str, Any],
    max_nbytes: int,
    *,
    stem: str = _STEM,
) -> tuple[PlannedFile, ...]:
    """Plan shards of at most `max_nbytes` of tensors each, in the order given, and their index.

    A larger tensor gets a shard of its own. What fits into one file is written as one, without an
    index. The names of all files start with `stem`.
    """
    check_planned(stem, tensors)
    shards: list[list[Tensor]] = [[]]
    filled = 0
    for tensor in tensors:
        if shards[-1] and filled + tensor.nbytes > max_nbytes:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += tensor.nbytes
    count, names = len(shards), [f"{stem}{_ENDING}"]
    if count > 1:
        names = [f"{stem}-{k:05}-of-{count:05}{_ENDING}" for k in range(1, count + 1)]
    contents = [*zip(names, shards, strict=True)]
    files = [plan(name, tensors, metadata) for name, tensors in contents]
    if count == 1:
        return (*files,)
    homes = {tensor.name: name for name, tensors in contents for tensor in tensors}
    total = {"total_size": sum(tensor.nbytes for tensor in tensors)}
    text = json.dumps({"metadata": total, "weight_map": homes}, indent=2).encode() + b"\n"
    return (*files, PlannedFile(f"{stem}{INDEX_ENDING}", len(text), ((0, text),), {}))
