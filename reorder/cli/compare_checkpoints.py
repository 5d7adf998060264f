"""Two checkpoints compared: records by the numbers that they stand for, other tensors by values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError, RecordDesc
from memdesc.disk import as_path
from reorder.comparison import compare_values
from reorder.memory.memory import Memory
from reorder.quantize import dequantize
from reorder.records.record import Record
from reorder.storage.checkpoint import Checkpoint
from reorder.storage.containers.table import FORMATS, read_container
from reorder.storage.groups import find_groups

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from memdesc import MemoryDesc
    from reorder.cli.command import Facts
    from reorder.storage.checkpoint import StoredTensor
    from reorder.storage.groups import Group

__all__ = ["compare_checkpoints", "is_checkpoint"]

_WEIGHT = ".weight"
_INDEX = ".index.json"


class _Item(NamedTuple):
    """What is compared under one name: a record, or a tensor."""

    checkpoint: Checkpoint
    group: Group | None
    tensor: StoredTensor
    # what would turn it into numbers, of codes without a known record
    others: tuple[str, ...] = ()


def is_checkpoint(path: str) -> bool:
    """Whether a path is a checkpoint of several tensors, or of a format for them."""
    given = as_path(path)
    endings = (_INDEX, *(row.ending for row in FORMATS.values() if row.has_metadata))
    if given.is_dir() or (given.is_file() and given.name.endswith(endings)):
        return True
    try:
        return given.name.endswith(FORMATS["npz"].ending) and len(read_container(given).entries) > 1
    except MemdescError:  # who reads it says what is wrong
        return False


def compare_checkpoints(options: argparse.Namespace) -> tuple[Facts, int]:
    """Compare what two checkpoints have under the same names."""
    paths = options.a, options.b
    groups = [_groups(path) for path in paths]
    # words of the same names are compared as codes if only one side says what they are
    unknown = {name for each in groups for name, group in each.items() if group.desc is None}
    left, right = (_items(*each, unknown) for each in zip(paths, groups, strict=True))
    names = [name for name in left if name in right]
    rows = [{"name": name, **_compared(left[name], right[name], options)} for name in names]
    apart = [row for row in rows if row.pop("is_equal") is False]
    facts: Facts = {
        "a": options.a,
        "b": options.b,
        "compared": len(rows),
        "differing": apart,
        "only_in_a": [name for name in left if name not in right],
        "only_in_b": [name for name in right if name not in left],
        "raw_codes": [name for name in names if left[name].others or right[name].others],
    }
    is_equal = not (apart or facts["only_in_a"] or facts["only_in_b"])
    return facts, 0 if is_equal and rows else 1


def _groups(path: str) -> dict[str, Group]:
    """Return the quantised weight of each tensor that belongs to one."""
    found = find_groups(as_path(path), read_container(path))
    return {name: group for group in found for name in group.found.names}


def _items(path: str, groups: Mapping[str, Group], unknown: AbstractSet[str]) -> dict[str, _Item]:
    """Return what a checkpoint has; a record is called as the tensor that it decodes to."""
    checkpoint = Checkpoint(as_path(path))
    found: dict[str, _Item] = {}
    for name, tensor in checkpoint.items():
        group = groups.get(name)
        if group is not None and unknown.isdisjoint(group.found.names):
            found[f"{group.prefix}{_WEIGHT}".removeprefix(".")] = _Item(checkpoint, group, tensor)
        else:
            others = group.found.names if group else ()
            found[name] = _Item(
                checkpoint, None, tensor, tuple(each for each in others if each != name)
            )
    return found


def _compared(a: _Item, b: _Item, options: argparse.Namespace) -> dict[str, Any]:
    """Return what one name has in both."""
    whats = {"a": _what(a), "b": _what(b)}
    try:
        one, other = _memory(a), _memory(b)
        if {_letters(a), _letters(b)} == {"io", "oi"}:
            other = Memory(other.desc.permute_axes((1, 0)), other.data, zero_pad=False)
        found = compare_values(
            one, other, tolerance=options.tolerance, relative=options.relative, limit=0
        )
    except MemdescError as error:
        return {**whats, "problem": str(error), "is_equal": False}
    worst = found.worst
    return {
        **whats,
        "elements": one.desc.nelems,
        "differing": found.differing,
        "worst": None if worst is None else (worst.at, str(worst.a), str(worst.b)),
        "is_equal": found.is_equal,
    }


def _desc(item: _Item) -> MemoryDesc | RecordDesc:
    return item.tensor.desc if item.group is None else item.group.desc or item.tensor.desc


def _letters(item: _Item) -> str:
    desc = _desc(item)
    return desc.letters if isinstance(desc, RecordDesc) else ""


def _what(item: _Item) -> str:
    codes = f", raw codes without {', '.join(item.others)}" if item.others else ""
    return f"{item.tensor.dtype if item.group is None else _desc(item)!r}{codes}"


def _memory(item: _Item) -> Memory:
    """Return the numbers of a record, or a tensor."""
    desc = _desc(item)
    if item.group is not None and isinstance(desc, RecordDesc):
        tensors = item.group.tensors.items()
        return dequantize(Record(desc, {name: item.checkpoint.map(each) for name, each in tensors}))
    held = item.tensor.memory()
    return held if isinstance(held, Memory) else dequantize(held)
