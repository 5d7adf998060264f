"""Records in checkpoints: several tensors with one prefix, such as q_proj.qweight and .scales."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memdesc import (
    DATA_TYPES,
    MemdescError,
    MemoryDesc,
    RecordDesc,
    data_type,
    known_records,
    record_desc,
)
from memdesc.layout import memory_order
from memdesc.record.names import read_name
from reorder.storage.containers.plan import Tensor
from reorder.storage.convert.stored import stored_layout, stored_record
from reorder.storage.quantization import optional_tensors, record_at
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memdesc import Field
    from reorder.storage.containers.entry import Entry
    from reorder.storage.convert.rules import Format, Rule

__all__ = ["Group", "find_groups", "is_record", "record_of", "tensors_of", "written_tensors"]

# words of the tensors of packed codes: AutoGPTQ, AutoAWQ, vLLM; others are bytes
_WORDS = {"gptq": "s32", "awq": "s32", "marlin": "s32"}
# dims of the records whose shapes `record_at` reads
_MATRIX = "io"
# which group an input belongs to, of GPTQ
_ORDER = "g_idx"
# what stands for the tensor of a record of one tensor
_ONE = "data"
_WEIGHT = ".weight"


class Group(NamedTuple):
    """The tensors of a record: the prefix of their names, and each by its name in the record."""

    prefix: str
    entries: Mapping[str, Entry]
    order: Entry | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(entry.nbytes for entry in self.entries.values())


def is_record(given: Format | None) -> bool:
    """Whether a rule names a record; a few names are of layouts as well."""
    return given is not None and given.name.lower() in known_records()


@lru_cache(maxsize=64)
def tensors_of(name: str) -> tuple[str, ...]:
    """Return the names of the tensors of a record."""
    return tuple(record_desc((4096, 4096), name).tensors)


def find_groups(rule: Rule, entries: Mapping[str, Entry]) -> list[Group]:
    """Return the records of several tensors that a rule may be about, whatever its pattern.

    Raises
    ------
    MemdescError
        If a record misses a tensor.
    """
    if rule.src is None or len(names := tensors_of(rule.src.name)) == 1:
        return []
    ending = f".{names[0]}"
    groups = []
    for name in entries:
        prefix = name.removesuffix(ending)
        found = {each: f"{prefix}.{each}" for each in names}
        if name.endswith(ending) and all(each in entries for each in found.values()):
            more = {each: f"{prefix}.{each}" for each in optional_tensors(rule.src.name)}
            found |= {each: full for each, full in more.items() if full in entries}
            held = {each: entries[full] for each, full in found.items()}
            groups.append(Group(prefix, held, entries.get(f"{prefix}.{_ORDER}")))
    return groups


def record_of(group: Group, rule: Rule) -> RecordDesc:
    """Return what a record holds: its dims and its group from the shapes of its tensors.

    Raises
    ------
    MemdescError
        If the shapes are not those of such a record.
    """
    if rule.src is None:
        (entry,) = group.entries.values()
        if isinstance(entry.desc, RecordDesc):
            return entry.desc
        rule.fail(f"{entry.name} holds {entry.desc!r}, which is no record; name it: SRC ->")
    name, given = rule.src.name, dict(rule.src.options)
    try:
        record_desc((4096, 4096), name, **given)  # refuses options that it does not have
        if len(group.entries) == 1:
            return _single(group, name, given)
        desc = _several(group, name, given)
    except MemdescError as error:
        rule.fail(f"{group.prefix}: {error}")
    for each, tensor in written_tensors(group.prefix, desc, "").items():
        entry = group.entries[each]
        has_words = entry.dtype == tensor.dtype
        if entry.nbytes != tensor.nbytes or (has_words and entry.shape != tensor.shape):
            rule.fail(
                f"{entry.name} of {entry.dtype} has the shape {entry.shape} and {entry.nbytes} "
                f"bytes, but {desc!r} is stored as {tensor.dtype} of {tensor.shape}, "
                f"{tensor.nbytes} bytes; it may be another record"
            )
    return desc


def _single(group: Group, name: str, options: Mapping[str, Any]) -> RecordDesc:
    (entry,) = group.entries.values()
    if isinstance(entry.desc, RecordDesc):
        if entry.desc.name != name.lower():
            msg = f"it holds {entry.desc!r}, not {name}"
            raise MemdescError(msg)
        return entry.desc
    rows, blocks = entry.shape[:-1], entry.shape[-1:]
    bits = record_desc((8, 256), name, **options).bits_per_element
    dims = (*rows, *(int(size * 8 / bits) for size in blocks))
    desc = record_desc(dims, name, **options)
    if desc.nbytes != entry.nbytes:
        msg = f"{entry.nbytes} bytes of shape {entry.shape} are no {desc!r}"
        raise MemdescError(msg)
    return desc


def _several(group: Group, name: str, options: Mapping[str, Any]) -> RecordDesc:
    letters, legal = read_name(name)[1:]
    if letters == _MATRIX:
        named = {f"{group.prefix}.{each}": entry for each, entry in group.entries.items()}
        return record_at(named, group.prefix, name, options)[0]
    codes, *_, scales = group.entries.values()
    code = record_desc((4096, 4096), name, **options).fields[0]
    words = data_type(codes.dtype).bits
    if len(codes.shape) != len(letters) or words < code.bits:
        msg = f"{codes.name} of {codes.dtype} and shape {codes.shape} are no codes of {name}"
        raise MemdescError(msg)
    dims = codes.shape[0], codes.shape[1] * (words // code.bits)
    chosen = dict(options)
    if "group" in legal:
        rows = scales.shape[0] if scales.shape else 0
        if not rows or dims[1] % rows:
            msg = f"{scales.name} has {rows} groups for {dims[1]} inputs, which they do not divide"
            raise MemdescError(msg)
        chosen.setdefault("group", dims[1] // rows if rows > 1 else -1)
        # archives have bf16 as words of 16 bits, with a descriptor
        held = scales.desc.dtype.name if isinstance(scales.desc, MemoryDesc) else scales.dtype
        chosen.setdefault("scales", held)
    return record_desc(dims, name, **chosen)


def check_order(group: Group, desc: RecordDesc, rule: Rule) -> None:
    """Refuse an order of inputs that is data: it is a gather.

    Raises
    ------
    MemdescError
        If ``g_idx`` is not that of groups of neighbours.
    """
    if group.order is None:
        return
    entry = group.order
    size = dict(desc.options)["group"]
    inputs = desc.dims[desc.letters.index("i")]
    data = entry.read()
    kind = np.dtype(DATA_TYPES[entry.dtype].numpy) if entry.dtype in DATA_TYPES else np.uint8
    held = data.view(kind) if data.nbytes == inputs * np.dtype(kind).itemsize else None
    wanted = np.arange(inputs) // (inputs if size == -1 else int(str(size)))
    if held is None or not np.array_equal(held, wanted):
        rule.fail(
            f"{entry.name} assigns inputs to groups in an order that is data (act-order), which is "
            "a gather and no layout; sort the inputs by group first"
        )


def written_tensors(prefix: str, desc: RecordDesc, format_name: str) -> dict[str, Tensor]:
    """Return how an output stores a record, by the names of its tensors."""
    names = list(desc.tensors)
    if names == [_ONE]:
        name = prefix if prefix.endswith(_WEIGHT) else f"{prefix}{_WEIGHT}"
        return {_ONE: stored_record(name, desc, format_name)}
    stem = prefix.removesuffix(_WEIGHT)
    words = _WORDS.get(desc.name)
    found = {}
    for name in names:
        parts = [part for part in desc.fields if part.tensor == name]
        full = f"{stem}.{name}"
        if len(parts) == 1:
            found[name] = _alone(full, parts[0], words)
        else:
            found[name] = _joined(full, parts, desc.tensors[name])
    return found


def _alone(name: str, part: Field, words: str | None) -> Tensor:
    """Return how a field is stored: codes as words, scales over their dims in whatever order.

    So loaders allocate them: (groups, out) for Marlin, the padded dims of the scales of cuBLAS.
    Source: vLLM 0.10, `marlin_permute_scales` and `swizzle_blockscale`.
    """
    desc = part.desc
    is_code = desc.dtype.is_packed or part.kind in INTEGERS
    if is_code or prod(desc.padded_dims) * part.bits != 8 * desc.nbytes:
        return stored_layout(name, desc, words if part.kind in INTEGERS else None)
    return Tensor(name, part.kind, desc.padded_dims, desc.nbytes, desc)


def _joined(name: str, parts: list[Field], nbytes: int) -> Tensor:
    """Return how fields of one type that take turns are stored: they are the last axis."""
    first = parts[0]
    blocks = sorted(first.layout.blocks, key=memory_order)
    shape = (*(block.extent for block in blocks), len(parts))
    if prod(shape) * first.bits == nbytes * 8 and len({part.kind for part in parts}) == 1:
        return Tensor(name, first.kind, shape, nbytes)
    return Tensor(name, "u8", (nbytes,), nbytes)
