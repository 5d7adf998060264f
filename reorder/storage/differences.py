"""Where the values of two checkpoints differ, whatever their layouts and packings, and why.

Records are compared tensor by tensor in the format of the model, plain tensors in its layout, and
a record is compared with floats by the numbers that it decodes to.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError, MemoryDesc, RecordDesc, memory_desc
from reorder.api import reorder
from reorder.comparison import compare_values
from reorder.records.record import Record
from reorder.records.repack import repack
from reorder.storage.containers.entry import NOT_BYTES
from reorder.storage.convert.rules import FormatName
from reorder.storage.diagnosis import Compared, find_causes, is_equal_bytes, parts_of_record
from reorder.storage.groups import Group
from reorder.storage.items import Item
from reorder.storage.stored import ONE, are_as_in_models, in_order_of
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from reorder.memory.memory import Memory
    from reorder.storage.items import Model

# how many bytes of a tensor are used to find another one with the same bytes
_START = 4096
# what a tensor of the reference may be if its file does not say it
PACKED, PLAIN = "packed", "plain"


class Finding(NamedTuple):
    """How something that was compared differs, in words, and what explains every byte of it.

    `is_unclear` if it is equal in one of two readings of the reference, and differs in the other.
    """

    problem: str
    causes: tuple[str, ...] = ()
    is_unclear: bool = False


class _How(NamedTuple):
    """What is known about all items of two checkpoints."""

    # what an item of the reference may be if its file does not say it
    kinds: tuple[str, ...]
    # whether floats beside records have the dims of models; None if unknown
    as_in_models: bool | None


def differences(
    model: Model,
    reference: Model,
    given: Mapping[str, FormatName | MemoryDesc],
    reference_is: str | None = None,
) -> Iterator[tuple[str, Finding | None]]:
    """Yield what was compared, and how it differs from the reference if it does.

    `given` says what tensors and records of the model hold, by name; and those of the reference, if
    its files do not say it. `reference_is` says what these are: packed like that, or plain.
    """
    unknown = {name for name, group in reference.groups.items() if group.desc is None}
    unknown |= {name for name, entry in reference.entries.items() if not entry.is_described}
    records = {
        name: each
        for name, each in given.items()
        if name in unknown and isinstance(each, FormatName)
    }
    items, others = _items(model, given), _items(reference, records)
    pairs = ((items[name].desc, theirs.desc) for name, theirs in others.items() if name in items)
    kinds = (reference_is,) if reference_is else (PACKED, PLAIN)
    how = _How(kinds, are_as_in_models(pairs))
    places = _ByBytes([*others.values()])
    done: set[str] = set()
    for name, theirs in others.items():
        ours = items.get(name) or _by_names_of(theirs, model)
        done.add(name)
        if ours is None:
            yield theirs.name, Finding(f"are in the reference only{_as_floats(theirs, name)}")
            continue
        done |= {*ours.group.found.names}
        try:
            found = _difference(ours, theirs, how, is_given=ours.name in given)
        except MemdescError as error:
            found = Finding(f"cannot be compared: {error}")
        is_explained = found is None or found.causes or found.is_unclear
        if found is not None and not is_explained and (place := places.find(ours, theirs)):
            found = found._replace(causes=(f"it holds {place}",))
        yield ours.name, found
    for name, item in items.items():
        if name not in done:
            yield item.name, Finding(f"are not in the reference{_as_floats(item, name)}")
    for name in sorted({*model.container.left_out, *reference.container.left_out}):
        yield name, Finding(f"cannot be compared: {NOT_BYTES}")


def _as_floats(item: Item, name: str) -> str:
    """Return what a message adds about a record whose floats have another name."""
    return "" if item.name == name else f" (a record, which is called {name!r} as floats)"


def _items(model: Model, given: Mapping[str, FormatName | MemoryDesc]) -> dict[str, Item]:
    """Return what a checkpoint holds: a record has the name of the tensor that it decodes to."""
    found: dict[str, Item] = {}
    taken: set[str] = set()
    for prefix in model.groups:
        wanted = given.get(prefix)
        item = model.record(prefix, wanted if isinstance(wanted, FormatName) else None)
        if item.desc is None and not isinstance(wanted, FormatName):
            continue
        taken |= {each.name for each in item.tensors.values()}
        found[model.name_of(item.group)] = item
    for name in model.entries:
        if name in taken:
            continue
        wanted = given.get(name)
        desc = model.record(name, wanted).desc if isinstance(wanted, FormatName) else wanted
        found[name] = model.tensor(name, desc)
    return found


def _by_names_of(theirs: Item, model: Model) -> Item | None:
    """Return the model's tensors with the names of a reference record's; None unless all exist."""
    if theirs.entry is not None:
        return None
    found = theirs.group.found
    if not {*found.names} <= model.entries.keys():
        return None
    here = {role: model.entries[each.name] for role, each in found.entries.items()}
    return Item(theirs.name, model, Group(found._replace(entries=here), None), None)


class _ByBytes:
    """The tensors of the reference by their bytes, to find moved or renamed ones."""

    def __init__(self, items: list[Item]) -> None:
        self._items = items

    @cached_property
    def _by_start(self) -> dict[object, list[tuple[str, NDArray[np.uint8]]]]:
        found: dict[object, list[tuple[str, NDArray[np.uint8]]]] = {}
        for item in self._items:
            for role, data in item.data.items():
                place = item.tensors[role].name, data
                found.setdefault(_key(item, role, data), []).append(place)
        return found

    def find(self, ours: Item, theirs: Item) -> str:
        """Return which tensors have the bytes of those that differ; empty if not of all."""
        names, others = [], 0
        wanted = theirs.data
        for role, data in ours.data.items():
            if role in wanted and is_equal_bytes(data, wanted[role]):
                continue
            alike = self._by_start.get(_key(ours, role, data), ())
            equal = [name for name, other in alike if is_equal_bytes(data, other)]
            if not equal:
                return ""
            names.append(equal[0])
            others += len(equal) - 1
        more = f" (others with the same bytes: {others})" if others else ""
        return f"{', '.join(names)} of the reference{more}" if names else ""


def _key(item: Item, role: str, data: NDArray[np.uint8]) -> object:
    """Return a key that a tensor shares with all equal ones, and with few others."""
    return item.desc, role, len(data), data[:_START].tobytes()


def _difference(ours: Item, theirs: Item, how: _How, *, is_given: bool) -> Finding | None:
    """Return how the values of two items differ, and why if that is known.

    `is_given` if a rule says what ours holds.
    """
    if isinstance(theirs.desc, RecordDesc):
        return _record_difference(ours, theirs, theirs.desc, how)
    if ours.entry is None or theirs.entry is None:
        return _number_difference(ours, theirs, how)
    found, data = ours.model.map(ours.entry), theirs.model.map(theirs.entry)
    if ours.desc is theirs.desc is None:  # their type is unknown
        own, other = (f"{each.dtype} of {each.shape}" for each in (ours.entry, theirs.entry))
        said = "" if own == other else f"are {own}, and those of the reference {other}"
        return _explained([Compared(ours.name, found, data)], said)
    readings = _readings(ours, theirs, is_given=is_given)
    by_kind = {
        kind: _layout_difference(ours, each, how)
        for kind, each in readings.items()
        if kind in how.kinds or len(readings) == 1
    }
    equal = [kind for kind, each in by_kind.items() if each is None]
    # where all readings differ, the one that is explained
    differing = sorted(filter(None, by_kind.values()), key=lambda each: not each.causes)
    if not differing or not equal:
        return differing[0] if differing else None
    ((other, unlike),) = ((kind, each) for kind, each in by_kind.items() if each is not None)
    problem = (
        "does not say whether it is packed or plain, so say it with --reference-is: values are "
        f"equal if it is {equal[0]}; if it is {other}, they {unlike.problem}"
    )
    return Finding(problem, unlike.causes, is_unclear=True)


def _layout_difference(ours: Item, theirs: Item, how: _How) -> Finding | None:
    """Compare two tensors of numbers through both layouts."""
    entry, wanted = ours.tensors[ONE], theirs.memory()
    found = ours.model.map(entry)
    if ours.desc == wanted.desc and is_equal_bytes(found, wanted.data):
        return None
    desc = ours.desc if isinstance(ours.desc, MemoryDesc) else wanted.desc
    said = ""
    if (desc.dims, desc.dtype) != (wanted.desc.dims, wanted.desc.dtype):
        if desc.dims == wanted.desc.dims:
            numbers = _number_difference(ours, theirs, how)
            if numbers is None or desc.dtype.bits != wanted.desc.dtype.bits:
                return numbers
        said = f"are {desc!r}, and those of the reference {wanted.desc!r}"
        desc = wanted.desc
    if wanted.desc != desc:
        wanted = reorder(wanted, desc.with_extra(None))
    return _explained([_part(ours.name, found, wanted)], said)


def _part(name: str, found: NDArray[np.uint8], wanted: Memory) -> Compared:
    domains = [each.domain for each in wanted.desc.tags() if each.vocabulary == "weights"]
    is_scale = any("scales" in domain for domain in domains)
    groups = (1,) * wanted.desc.ndims
    return Compared(name, found, wanted.data, wanted.desc, groups, is_scale=is_scale)


def _readings(ours: Item, theirs: Item, *, is_given: bool) -> dict[str, Item]:
    """Return what a tensor of the reference may be: packed as ours should be, plain, or either.

    It is what its file says if that has a descriptor. Without one, programs store packed elements
    in the shape of plain ones, in the shape of words, or flat.
    """
    desc, other = ours.desc, theirs.tensors[ONE]
    if (
        not isinstance(desc, MemoryDesc)
        or other.is_described
        or desc.nbytes != other.nbytes
        or not can_hold(other.dtype, desc)
    ):
        return {PLAIN: theirs}
    rows = memory_desc(desc.dims, desc.dtype)
    has_dims = theirs.desc is not None and theirs.desc.dims == desc.dims
    is_alike = ours.tensors[ONE].dtype == other.dtype or not has_dims
    plain = rows if is_alike and rows.nbytes == other.nbytes else theirs.desc
    if has_dims and not is_given:
        return {PLAIN: theirs}
    found = {PACKED: desc, PLAIN: plain}
    if plain == desc or (plain is theirs.desc and not has_dims):
        del found[PLAIN]
    return {kind: theirs._replace(desc=each) for kind, each in found.items()}


def can_hold(dtype: str, desc: MemoryDesc) -> bool:
    """Whether a tensor of this type may hold the elements of a layout, or words of them."""
    return dtype in {desc.dtype.name, "u8"} or (
        dtype in INTEGERS and INTEGERS[dtype].bits > desc.dtype.bits
    )


def _explained(parts: list[Compared], said: str = "") -> Finding | None:
    """Return how tensors differ, with the causes; None if their values do not.

    `said` is what is already known to differ, such as their types; it is returned in any case.
    """
    wrong = [part for part in parts if not part.is_equal]
    if not wrong:
        return Finding(said) if said else None
    found = [(part.elements, part.expected) for part in wrong]
    known = [(x, y) for x, y in found if x is not None and y is not None]
    problem = said or "differ in bytes"
    if not said and len(known) == len(wrong):
        differing = sum(int((x != y).sum()) for x, y in known)
        # bytes may differ only in padding, which does not hold values
        if not differing and all(len(part.found) >= len(part.wanted) for part in wrong):
            return None
        problem = f"differ in {differing} of {sum(y.size for _, y in known)} elements"
    if len(parts) > 1:
        problem += f", in {', '.join(part.name for part in wrong)}"
    return Finding(problem, find_causes(parts))


def _record_difference(ours: Item, theirs: Item, desc: RecordDesc, how: _How) -> Finding | None:
    """Compare with a record, tensor by tensor, in the format of the model."""
    wanted = Record(desc, theirs.data)
    own, said = ours.desc, ""
    if isinstance(own, MemoryDesc) and (len(desc.tensors) > 1 or own.nelems == prod(desc.dims)):
        # floats that the record was decoded to, rather than its bytes as a plain tensor
        return _number_difference(ours, theirs, how)
    if not isinstance(own, RecordDesc):
        said = f"are not those of {desc!r}"
    elif own.name == desc.name and own.dims != desc.dims:
        said = f"are those of {own!r}, and in the reference of {desc!r}"
    elif own != desc:
        try:
            wanted = repack(wanted, own)
        except MemdescError:
            return _number_difference(ours, theirs, how)
    data = ours.data
    if missing := [role for role in wanted.tensors if role not in data]:
        return Finding(f"have no {', '.join(missing)}, as {desc!r} has")
    return _explained(parts_of_record(data, wanted.tensors, wanted.desc), said)


def _number_difference(ours: Item, theirs: Item, how: _How) -> Finding | None:
    """Compare the numbers that two items stand for."""
    one, other = ours.numbers(), theirs.numbers()
    turned = in_order_of(other, theirs.desc, one, ours.desc, as_in_models=how.as_in_models)
    differing = min(compare_values(one, each).differing for each in turned)
    return Finding(f"differ in {differing} of {one.desc.nelems} elements") if differing else None
