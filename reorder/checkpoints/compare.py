"""Compare the values of two checkpoints, whatever their layouts, packings and types, and say why.

Weights are compared by the numbers that they stand for. If these differ, the bytes of one side are
compared with what the other side would have in its format, to find what happened to them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, MemoryDesc
from memdesc.immutable import immutable
from memdesc.record import RecordDesc
from memdesc.tuples import NamedTuple
from reorder.api import reorder
from reorder.checkpoints.causes import Part, find_causes, is_equal_bytes, parts_of_record
from reorder.checkpoints.files import read_model, value_of
from reorder.checkpoints.formats.entry import NOT_BYTES, ONE, Desc, Entry, model_axes
from reorder.checkpoints.weights import Model, Weight
from reorder.comparison import ValueComparison, compare_values
from reorder.disk import as_path
from reorder.memory.memory import Memory
from reorder.quantized import dequantize
from reorder.records.record import Record
from reorder.records.repacking import dim_order, dims_in, repack

# how many bytes of a tensor are used to find another one with the same bytes
_START = 4096
_Places = dict[object, list[tuple[str, NDArray[np.uint8]]]]


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
    >>> reorder.checkpoints.Differing("differ in 6 of 6 elements").causes
    ()
    """

    problem: str
    causes: tuple[str, ...] = ()


def differences(
    model: str | os.PathLike[str],
    reference: str | os.PathLike[str],
    names: Collection[str] | None = None,
) -> dict[str, Differing]:
    """Return where the values of a checkpoint differ from those of a reference, and why.

    Values are compared as `compare_values` does, whatever the layouts and packings. Each known
    cause predicts every byte: packed twice, not packed, halves swapped, rows interleaved, nibbles
    or bytes reversed, scales plain instead of swizzled, transposed, another tensor of the
    reference. One that predicts all of them is named.

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
    Files are mapped. Equal bytes are compared in pieces of 16 MiB; other tensors one by one, with
    two copies of their elements in memory, and twice that to find the cause of a difference.

    Examples
    --------
    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> good, bad = os.path.join(folder, "good.npz"), os.path.join(folder, "bad.npz")
    >>> x = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
    >>> reorder.save(good, {"w": reorder.reorder(x, "AB8b8a")})
    >>> reorder.save(bad, {"w": reorder.reorder(np.roll(x, 8, axis=0), "AB8b8a")})
    >>> reorder.checkpoints.differences(bad, good)["w"].causes
    ('the halves of dim 0 are swapped',)
    """
    left, right, unread = contents_of(model, reference)
    found: dict[str, Differing] = {}

    def is_wanted(content: Content) -> bool:
        return names is None or content.name in names

    for pair in compare_contents(left, right, is_wanted=is_wanted):
        if not pair.is_equal:
            found[pair.name] = Differing(pair.said, pair.causes)
    for one, other, problem in (
        (right, left, "are in the reference only"),
        (left, right, "are not in the reference"),
    ):
        alone = (one[name] for name in one if name not in other)
        found |= {each.name: Differing(problem) for each in alone if is_wanted(each)}
    for name, why in unread.items():
        if names is None or name in names:
            found[name] = Differing(f"cannot be compared: {why}")
    return found


class Content(NamedTuple):
    """What one side has under a name: a file, a tensor, or a quantised weight."""

    name: str
    # what messages call it: a file, a record, or the type of its words
    what: str
    # returns the numbers that it stands for; those of a record are decoded
    numbers: Callable[[], Memory]
    # what it was stored with, if that is known
    desc: Desc | None = None
    # its tensors in a checkpoint by role
    tensors: Mapping[str, Entry] = MappingProxyType({})
    # the other tensors of a weight, without which these codes are not numbers
    missing: tuple[str, ...] = ()
    # the record of that weight and the role of this tensor in it, if they are known
    part_of: tuple[RecordDesc, str] | None = None

    @property
    def data(self) -> dict[str, NDArray[np.uint8]]:
        """The bytes of its tensors."""
        return {role: entry.read() for role, entry in self.tensors.items()}


class Pair(NamedTuple):
    """How what two sides have under one name differs."""

    name: str
    a: Content
    b: Content
    is_equal: bool
    # None if the bytes are equal, or there are no numbers to compare, for the reason `problem`
    found: ValueComparison | None = None
    problem: str = ""
    causes: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """How it differs, in words."""
        if self.found is None:
            return f"cannot be compared: {self.problem}"
        return f"differ in {self.found.differing} of {prod(self.found.dims)} elements"


Contents = Mapping[str, Content]


def contents_of(
    model: str | os.PathLike[str], reference: str | os.PathLike[str]
) -> tuple[Contents, Contents, dict[str, str]]:
    """Return what two checkpoints have by name, and why some tensors cannot be compared."""
    models = [read_model(as_path(path), mmap=True) for path in (model, reference)]
    # if only one side says what words mean, words of the same name are compared as codes
    unknown = {
        name
        for found in models
        for each in found.weights
        if not each.is_known
        for name in each.names
    }
    left, right = (dict(_contents(each, unknown)) for each in models)
    unread = sorted({name for each in models for name in each.container.left_out})
    return left, right, dict.fromkeys(unread, NOT_BYTES)


def _contents(model: Model, unknown: set[str]) -> Iterator[tuple[str, Content]]:
    """Yield weights by the names that they decode to, then plain tensors and `unknown` ones."""
    entries = model.entries
    weights = {name: weight for weight in model.weights for name in weight.names}
    for name, entry in entries.items():
        weight = weights.get(name)
        if weight is None or not unknown.isdisjoint(weight.names):
            missing = tuple(each for each in weight.names if each != name) if weight else ()
            codes = f", raw codes without {', '.join(missing)}" if missing else ""
            what, numbers = entry.dtype + codes, partial(_numbers_of, entry)
            desc, known = (weight.desc, weight.tensors) if weight else (None, {})
            roles = [role for role, each in known.items() if each is entry]
            part = (desc, roles[0]) if desc and roles else None
            yield name, Content(name, what, numbers, entry.desc, {ONE: entry}, missing, part)
            continue
        tensors = weight.tensors or dict(weight.entries)
        what = repr(weight.desc) if weight.desc else next(iter(tensors.values())).dtype
        called = weight.prefix if weight.quantized else weight.decoded_name(weight.prefix)
        key = called
        if called in entries.keys() - {*weight.names}:
            # another tensor has that name; none has one with a zero byte
            called, key = weight.prefix, f"{called}\0"
        yield key, Content(called, what, partial(_numbers_of, weight), weight.desc, tensors)


def _numbers_of(item: Weight | Entry) -> Memory:
    value = value_of(item)
    return value if isinstance(value, Memory) else dequantize(value)


def compare_contents(
    left: Contents,
    right: Contents,
    is_wanted: Callable[[Content], bool] = lambda _: True,
    **tolerance: Any,
) -> Iterator[Pair]:
    """Yield how what both sides have under a name differs; `right` is the reference.

    `tolerance` has what `compare_values` takes.
    """
    names = [name for name in left if name in right]
    as_in_models = _are_as_in_models((left[name].desc, right[name].desc) for name in names)
    places = cache(partial(_by_bytes, right.values()))
    for name in names:
        a, b = left[name], right[name]
        if is_wanted(a):
            pair = _compared(a, b, as_in_models=as_in_models, **tolerance)
            causes: tuple[str, ...] = ()
            if not pair.is_equal and a.tensors and b.tensors:
                with suppress(MemdescError):  # one of them may have no numbers
                    causes = find_causes(_parts(a, b))
                causes = causes or _places_of(a, b, places())
            yield pair._replace(causes=causes)


def _compared(a: Content, b: Content, *, as_in_models: bool | None, **tolerance: Any) -> Pair:
    """Compare two contents by their bytes, then by their numbers."""
    words = [{role: (x.dtype, x.shape) for role, x in each.tensors.items()} for each in (a, b)]
    is_same = bool(a.tensors) and words[0] == words[1]
    is_same = is_same and all(
        is_equal_bytes(x.read(), b.tensors[role].read()) for role, x in a.tensors.items()
    )
    if is_same and a.desc is not None and a.desc == b.desc:
        return Pair(a.name, a, b, is_equal=True)
    try:
        one, other = a.numbers(), b.numbers()
        turned = _in_order_of(one, a.desc, other, b.desc)
        if as_in_models is not None and len(turned) > 1:
            turned = [turned[as_in_models]]
        compared = (compare_values(one, each, limit=0, **tolerance) for each in turned)
        found = min(compared, key=lambda each: each.differing)
    except MemdescError as error:
        return Pair(a.name, a, b, is_equal=is_same, problem=str(error))
    return Pair(a.name, a, b, found.is_equal, found)


def _are_as_in_models(pairs: Iterable[tuple[Desc | None, Desc | None]]) -> bool | None:
    """Whether floats have the dims of models, by pairs of what has one name; None if unclear."""
    shown = set()
    for pair in pairs:
        for desc, floats in (pair, pair[::-1]):
            if isinstance(desc, RecordDesc) and isinstance(floats, MemoryDesc):
                own, model = (
                    dims_in(desc, letters) == floats.dims
                    for letters in (desc.letters, model_axes(desc))
                )
                shown |= {model} if own != model else set()
    return shown.pop() if len(shown) == 1 else None


def _in_order_of(
    wanted: Memory, wanted_as: Desc | None, memory: Memory, held_as: Desc | None
) -> list[Memory]:
    """Return memory with its dims in the order of another, given what they are stored as.

    Floats may have the order of the record, or that of models; a square matrix is returned in both.
    """
    same = tuple(range(memory.desc.ndims))
    orders = [same]
    if isinstance(held_as, RecordDesc) and isinstance(wanted_as, RecordDesc):
        orders = [dim_order(held_as, wanted_as.letters)]
    elif isinstance(held_as, RecordDesc):
        orders.append(dim_order(held_as, model_axes(held_as)))
    elif isinstance(wanted_as, RecordDesc) and len(wanted_as.dims) == len(same):
        order = dim_order(wanted_as, model_axes(wanted_as))
        orders.append(tuple(order.index(dim) for dim in same))
    turned = [
        Memory(memory.desc.permute_axes(order), memory.data, zero_pad=False)
        for order in dict.fromkeys(orders)
    ]
    return [each for each in turned if each.desc.dims == wanted.desc.dims] or turned[:1]


def _parts(ours: Content, theirs: Content) -> list[Part]:
    """Return the bytes found and those expected, in the format that is ours; none if unknown."""
    found, wanted, own, desc = ours.data, theirs.data, ours.desc, theirs.desc
    is_single = found.keys() == wanted.keys() == {ONE}
    if theirs.part_of is not None:  # of a weight that only the reference knows
        whole, role = theirs.part_of
        return parts_of_record({role: found[ONE]}, {role: wanted[ONE]}, whole) if is_single else []
    if isinstance(desc, RecordDesc):
        record, is_whole = Record(desc, wanted), True
        if isinstance(own, MemoryDesc):  # floats, unless a single tensor has other elements
            is_whole = len(wanted) == 1 and own.nelems != prod(desc.dims)
        if isinstance(own, RecordDesc) and (own.name, own.dims) != (desc.name, desc.dims):
            record = repack(record, own)
        is_whole = is_whole and record.tensors.keys() <= found.keys()
        return parts_of_record(found, record.tensors, record.desc) if is_whole else []
    if isinstance(own, RecordDesc) or not is_single:
        return []
    if own is desc is None:  # their type is unknown
        return [Part(found[ONE], wanted[ONE])]
    memory = theirs.numbers()
    own, held = own or memory.desc, memory.desc
    if (own.dims, own.dtype) != (held.dims, held.dtype):
        if own.dims == held.dims and own.dtype.bits != held.dtype.bits:
            return []
        own = held
    if held != own:
        memory = reorder(memory, own.with_extra(None))
    domains = [each.domain for each in memory.desc.names() if each.vocabulary == "weights"]
    is_scale = any("scales" in domain for domain in domains)
    groups = (1,) * memory.desc.ndims
    return [Part(found[ONE], memory.data, memory.desc, groups, is_scale=is_scale)]


def _by_bytes(items: Iterable[Content]) -> _Places:
    """Return the tensors of the reference by their first bytes, to find moved or renamed ones."""
    found: _Places = {}
    for item in items:
        for role, data in item.data.items():
            found.setdefault(_key(item, role, data), []).append((item.tensors[role].name, data))
    return found


def _places_of(ours: Content, theirs: Content, places: _Places) -> tuple[str, ...]:
    """Return which tensors have the bytes of those that differ; empty if not of all."""
    names, others, wanted = [], 0, theirs.data
    for role, data in ours.data.items():
        if role in wanted and is_equal_bytes(data, wanted[role]):
            continue
        alike = places.get(_key(ours, role, data), ())
        equal = [name for name, other in alike if is_equal_bytes(data, other)]
        if not equal:
            return ()
        names.append(equal[0])
        others += len(equal) - 1
    more = f" (others with the same bytes: {others})" if others else ""
    return (f"it holds {', '.join(names)} of the reference{more}",) if names else ()


def _key(item: Content, role: str, data: NDArray[np.uint8]) -> object:
    """Return a key that a tensor shares with all equal ones, and with few others."""
    return item.desc, role, len(data), data[:_START].tobytes()
