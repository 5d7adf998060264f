"""Where the values of two checkpoints differ, whatever their layouts and packings, and why.

Records are compared tensor by tensor in the format of the model, plain tensors in its layout, and
a record is compared with floats by the numbers that it decodes to.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError, MemoryDesc
from memdesc.immutable import immutable
from memdesc.record import RecordDesc
from reorder.api import reorder
from reorder.checkpoints.diagnosis import Compared, find_causes, is_equal_bytes, parts_of_record
from reorder.checkpoints.formats.entry import NOT_BYTES
from reorder.checkpoints.groups import Group
from reorder.checkpoints.items import Item, Model
from reorder.checkpoints.stored import ONE, are_as_in_models, in_order_of
from reorder.comparison import compare_values
from reorder.records.record import Record
from reorder.records.repacking import repack

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from reorder.memory.memory import Memory

# how many bytes of a tensor are used to find another one with the same bytes
_START = 4096


@immutable
class Differing(NamedTuple):
    """How a tensor or a quantised weight differs from the one with its name in a reference.

    Attributes
    ----------
    problem : str
        How it differs, in words.
    causes : tuple of str
        What explains every byte that differs; several causes may predict the same.

    Examples
    --------
    >>> import numpy as np, pathlib, reorder, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> x = np.arange(6, dtype=np.int8).reshape(2, 3)
    >>> reorder.save(folder / "a.npz", {"w": x})
    >>> reorder.save(folder / "b.npz", {"w": x[::-1]})
    >>> found = reorder.checkpoints.differences(folder / "b.npz", folder / "a.npz")["w"]
    >>> found.problem, found.causes
    ('differ in 6 of 6 elements', ('the halves of dim 0 are swapped',))
    """

    problem: str
    causes: tuple[str, ...] = ()


def differences(
    model: str | os.PathLike[str],
    reference: str | os.PathLike[str],
    names: Collection[str] | None = None,
) -> dict[str, Differing]:
    """Return where the values of a checkpoint differ from those of a reference, and why.

    Values are compared bit for bit, whatever the layouts and packings. Each known cause predicts
    every byte: packed twice, not packed, halves swapped, rows interleaved, nibbles or bytes
    reversed, scales plain instead of swizzled, transposed, another tensor of the reference. One
    that predicts all of them is named.

    *Law*: a model differs nowhere from itself.

    Parameters
    ----------
    model : path
        A checkpoint, as for `open_checkpoint`.
    reference : path
        A checkpoint that is known to be right, with the same tensors in any layouts.
    names : collection of str, optional
        What to compare; everything by default.

    Returns
    -------
    dict of str to Differing
        By the names of tensors, and of the tensors that quantised weights decode to.

    Raises
    ------
    MemdescError
        If a checkpoint cannot be read.

    Notes
    -----
    Files are mapped. Equal layouts are compared in pieces of 16 MiB; other tensors one by one, with
    two copies of their elements in memory, and twice that to find the cause of a difference.

    Examples
    --------
    >>> import os, tempfile, numpy as np, reorder
    >>> folder = tempfile.mkdtemp()
    >>> good, bad = os.path.join(folder, "good.npz"), os.path.join(folder, "bad.npz")
    >>> x = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
    >>> reorder.save(good, {"w": reorder.reorder(x, "AB8b8a")})
    >>> reorder.save(bad, {"w": reorder.reorder(np.roll(x, 8, axis=0), "AB8b8a")})
    >>> reorder.checkpoints.differences(bad, good)["w"].causes
    ('the halves of dim 0 are swapped',)
    """
    one, other = Model(model), Model(reference)
    found = _differences(one, other, lambda name: names is None or name in names)
    return {name: each for name, each in found if each is not None}


def _differences(
    model: Model, reference: Model, is_wanted: Callable[[str], bool]
) -> Iterator[tuple[str, Differing | None]]:
    """Yield what was compared, and how it differs from the reference if it does."""
    items, others = _items(model), _items(reference)
    pairs = ((items[name].desc, theirs.desc) for name, theirs in others.items() if name in items)
    as_in_models = are_as_in_models(pairs)
    places = _ByBytes([*others.values()])
    done: set[str] = set()
    for name, theirs in others.items():
        ours = items.get(name) or _by_names_of(theirs, model)
        done.add(name)
        done |= {*ours.group.found.names} if ours is not None else set()
        called = name.rstrip("\0") if ours is None else ours.name
        if not is_wanted(called):
            continue
        if ours is None:
            yield called, Differing("are in the reference only")
            continue
        try:
            found = _difference(ours, theirs, as_in_models=as_in_models)
        except MemdescError as error:
            found = Differing(f"cannot be compared: {error}")
        if found is not None and not found.causes and (place := places.find(ours, theirs)):
            found = found._replace(causes=(f"it holds {place}",))
        yield ours.name, found
    for name in items:
        called = name.rstrip("\0")
        if name not in done and is_wanted(called):
            yield called, Differing("are not in the reference")
    for name in sorted({*model.container.left_out, *reference.container.left_out}):
        if is_wanted(name):
            yield name, Differing(f"cannot be compared: {NOT_BYTES}")


def _items(model: Model) -> dict[str, Item]:
    """Return what a checkpoint holds: a record has the name of the tensor that it decodes to."""
    found: dict[str, Item] = {}
    taken: set[str] = set()
    for prefix in model.groups:
        item = model.record(prefix)
        if item.desc is not None:
            taken |= {each.name for each in item.tensors.values()}
            found[model.name_of(item.group)] = item
    return found | {name: model.tensor(name) for name in model.entries if name not in taken}


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


def _difference(ours: Item, theirs: Item, *, as_in_models: bool | None) -> Differing | None:
    """Return how the values of two items differ, and why if that is known.

    `as_in_models` says whether floats beside records have the dims of models; None if unknown.
    """

    def by_numbers() -> Differing | None:
        one, other = ours.numbers(), theirs.numbers()
        turned = in_order_of(other, theirs.desc, one, ours.desc, as_in_models=as_in_models)
        count = min(compare_values(one, each).differing for each in turned)
        return Differing(f"differ in {count} of {one.desc.nelems} elements") if count else None

    if isinstance(theirs.desc, RecordDesc):
        return _record_difference(ours, theirs, theirs.desc, by_numbers)
    if ours.entry is None or theirs.entry is None:
        return by_numbers()
    found, data = ours.model.map(ours.entry), theirs.model.map(theirs.entry)
    if ours.desc is theirs.desc is None:  # their type is unknown
        own, other = (f"{each.dtype} of {each.shape}" for each in (ours.entry, theirs.entry))
        said = "" if own == other else f"are {own}, and those of the reference {other}"
        return _explained([Compared(ours.name, found, data)], said)
    return _layout_difference(ours, theirs, by_numbers)


def _layout_difference(
    ours: Item, theirs: Item, by_numbers: Callable[[], Differing | None]
) -> Differing | None:
    """Compare two tensors of numbers through both layouts."""
    entry, wanted = ours.tensors[ONE], theirs.memory()
    found = ours.model.map(entry)
    if ours.desc == wanted.desc and is_equal_bytes(found, wanted.data):
        return None
    desc = ours.desc if isinstance(ours.desc, MemoryDesc) else wanted.desc
    said = ""
    if (desc.dims, desc.dtype) != (wanted.desc.dims, wanted.desc.dtype):
        if desc.dims == wanted.desc.dims:
            numbers = by_numbers()
            if numbers is None or desc.dtype.bits != wanted.desc.dtype.bits:
                return numbers
        said = f"are {desc!r}, and those of the reference {wanted.desc!r}"
        desc = wanted.desc
    if wanted.desc != desc:
        wanted = reorder(wanted, desc.with_extra(None))
    return _explained([_part(ours.name, found, wanted)], said)


def _part(name: str, found: NDArray[np.uint8], wanted: Memory) -> Compared:
    domains = [each.domain for each in wanted.desc.names() if each.vocabulary == "weights"]
    is_scale = any("scales" in domain for domain in domains)
    groups = (1,) * wanted.desc.ndims
    return Compared(name, found, wanted.data, wanted.desc, groups, is_scale=is_scale)


def _explained(parts: list[Compared], said: str = "") -> Differing | None:
    """Return how tensors differ, with the causes; None if their values do not.

    `said` is what is already known to differ, such as their types; it is returned in any case.
    """
    wrong = [part for part in parts if not part.is_equal]
    if not wrong:
        return Differing(said) if said else None
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
    return Differing(problem, find_causes(parts))


def _record_difference(
    ours: Item, theirs: Item, desc: RecordDesc, by_numbers: Callable[[], Differing | None]
) -> Differing | None:
    """Compare with a record, tensor by tensor, in the format of the model."""
    wanted = Record(desc, theirs.data)
    own, said = ours.desc, ""
    if isinstance(own, MemoryDesc) and (len(desc.tensors) > 1 or own.nelems == prod(desc.dims)):
        # floats that the record was decoded to, rather than its bytes as a plain tensor
        return by_numbers()
    if not isinstance(own, RecordDesc):
        said = f"are not those of {desc!r}"
    elif own.name == desc.name and own.dims != desc.dims:
        said = f"are those of {own!r}, and in the reference of {desc!r}"
    elif own != desc:
        try:
            wanted = repack(wanted, own)
        except MemdescError:
            return by_numbers()
    data = ours.data
    if missing := [role for role in wanted.tensors if role not in data]:
        return Differing(f"have no {', '.join(missing)}, as {desc!r} has")
    return _explained(parts_of_record(data, wanted.tensors, wanted.desc), said)
