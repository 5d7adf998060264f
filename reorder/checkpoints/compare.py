"""Compare the values of two checkpoints, whatever their layouts, packings and types, and say why.

Weights are compared by the numbers that they stand for. If these differ, the bytes of one side are
compared with what the other side would have in its format, to find what happened to them. Each
known cause predicts every byte: nothing is guessed from statistics.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import combinations
from math import isqrt, prod
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.immutable import immutable
from memdesc.lazy import cached_property
from memdesc.record import BIT_PLANES, Field, RecordDesc, record_desc
from memdesc.record.gguf import GGUF_TYPES
from memdesc.tuples import NamedTuple
from reorder.api import reorder
from reorder.checkpoints.files import read_model, value_of
from reorder.checkpoints.formats.entry import NOT_BYTES, ONE, Desc, Entry, model_axes
from reorder.checkpoints.formats.safetensors import index_of
from reorder.checkpoints.weights import Model, Weight, holds_codes
from reorder.comparison import ValueComparison, compare_values
from reorder.disk import as_path
from reorder.memory.arrays import bits_of, logical_array
from reorder.memory.memory import Memory
from reorder.quantized import dequantize
from reorder.records.record import Record
from reorder.records.repacking import dim_order, dims_in, repack

Bytes = NDArray[np.uint8]
Order = Callable[[NDArray[np.int64]], NDArray[np.int64]]

_Places = dict[object, list[tuple[str, Bytes]]]
# how many bytes are compared at a time, and how many of the first bytes are used to refute a cause
_PIECE, _FIRST = 1 << 24, 4096
# sizes of the words whose bytes some machine may store in reverse
_WORDS = (1, 2, 4, 8)
# what may happen to elements along a dim, and their order then; groups are only swapped
_SWAPPED = "the halves of {} are swapped"
_ORDERS: dict[str, Order] = {
    _SWAPPED: lambda at: np.roll(at, len(at) // 2),
    "the rows of the halves of {} are interleaved": lambda at: at.reshape(2, -1).T.reshape(-1),
    "the even and the odd rows of {} are in halves": lambda at: at.reshape(-1, 2).T.reshape(-1),
}


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
    model: str | os.PathLike[str], reference: str | os.PathLike[str]
) -> dict[str, Differing]:
    """Return where the values of a checkpoint differ from those of a reference, and why.

    Values are compared as `compare_values` does, whatever the layouts and packings. Each known
    cause predicts every byte: packed twice, not packed, halves swapped, rows interleaved, nibbles
    or bytes reversed, scales plain instead of swizzled, transposed, another tensor of the
    reference. A cause is named if it predicts every byte.

    *Law*: a model differs nowhere from itself.

    Parameters
    ----------
    model : path
        A checkpoint, as for `open_checkpoint`.
    reference : path
        A checkpoint that is known to be right, with the same tensors in any layouts.

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
    pairs = (pair for pair in compare_contents(left, right) if not pair.is_equal)
    differing = {pair.name: Differing(pair.said, pair.causes) for pair in pairs}
    for side, opposite, problem in (
        (right, left, "are in the reference only"),
        (left, right, "are not in the reference"),
    ):
        alone = (side[name].name for name in side if name not in opposite)
        differing |= dict.fromkeys(alone, Differing(problem))
    whys = {name: Differing(f"cannot be compared: {why}") for name, why in unread.items()}
    return differing | whys


class Content(NamedTuple):
    """What one side has under a name: a file, a tensor, or a quantised weight."""

    name: str
    # what messages call it: a file, a record, or the type of its words
    what: str
    # returns the numbers that it stands for; a record is decoded
    numbers: Callable[[], Memory]
    # the layout in which it was stored, if that is known
    desc: Desc | None = None
    # its tensors in a checkpoint by role
    tensors: Mapping[str, Entry] = MappingProxyType({})
    # the other tensors of a weight, without which these codes are not numbers
    missing: tuple[str, ...] = ()
    # the record of that weight and the role of this tensor in it, if they are known
    part_of: tuple[RecordDesc, str] | None = None

    @property
    def data(self) -> dict[str, Bytes]:
        """The bytes of its tensors."""
        return {role: entry.read() for role, entry in self.tensors.items()}


class Pair(NamedTuple):
    """How what two sides have under one name differs."""

    name: str
    a: Content
    b: Content
    is_equal: bool
    # None if the bytes are equal, or there are no numbers to compare, for the reason `problem`
    comparison: ValueComparison | None = None
    problem: str = ""
    causes: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """How it differs, in words."""
        if self.comparison is None:
            return f"cannot be compared: {self.problem}"
        return f"differ in {self.comparison.differing} of {prod(self.comparison.dims)} elements"


Contents = Mapping[str, Content]


def contents_of(
    model: str | os.PathLike[str], reference: str | os.PathLike[str]
) -> tuple[Contents, Contents, dict[str, str]]:
    """Return what two checkpoints have by name, and why some tensors cannot be compared."""
    models = [read_model(as_path(path), mmap=True) for path in (model, reference)]
    # if only one side says what words mean, words of the same name are compared as codes
    weights = (weight for model in models for weight in model.weights if not weight.tensors)
    unknown = {name for weight in weights for name in weight.names}
    # other files of a model may have the scales of codes that are alone in a shard
    for shard in (model for model in models if index_of(model.path)):
        alone = shard.entries.keys() - {name for weight in shard.weights for name in weight.names}
        unknown |= {name for name in alone if holds_codes(shard.entries[name])}
    left, right = (dict(_contents(model, unknown)) for model in models)
    unread = sorted({name for model in models for name in model.container.left_out})
    return left, right, dict.fromkeys(unread, NOT_BYTES)


def _contents(model: Model, unknown: set[str]) -> Iterator[tuple[str, Content]]:
    """Yield weights by the names that they decode to, then plain tensors and `unknown` ones."""
    entries = model.entries
    weights = {name: weight for weight in model.weights for name in weight.names}
    for name, entry in entries.items():
        weight = weights.get(name)
        if weight is None or not unknown.isdisjoint(weight.names):
            missing = tuple(tensor for tensor in weight.names if tensor != name) if weight else ()
            codes = f", raw codes without {', '.join(missing)}" if missing else ""
            what, numbers = entry.dtype + codes, partial(numbers_of, entry)
            desc, known = (weight.desc, weight.tensors) if weight else (None, {})
            roles = [role for role, tensor in known.items() if tensor is entry]
            part_of = (desc, roles[0]) if desc and roles else None
            yield name, Content(name, what, numbers, entry.desc, {ONE: entry}, missing, part_of)
            continue
        what = repr(weight.desc) if weight.desc else weight.codes.dtype
        called = weight.prefix if weight.quantized else weight.decoded_name(weight.prefix)
        key, numbers = called, partial(numbers_of, weight)
        if called in entries and called not in weight.names:
            # another tensor has that name; none has one with a zero byte
            called, key = weight.prefix, f"{called}\0"
        yield key, Content(called, what, numbers, weight.desc, weight.tensors)


def numbers_of(item: Weight | Entry) -> Memory:
    """Return the numbers that a tensor or a weight stands for."""
    value = value_of(item)
    return value if isinstance(value, Memory) else dequantize(value)


def compare_contents(left: Contents, right: Contents, **tolerance: Any) -> Iterator[Pair]:
    """Yield how the contents of both sides under each name differ; `right` is the reference.

    `tolerance` has what `compare_values` takes.
    """
    names = [name for name in left if name in right]
    as_in_models = _are_as_in_models((left[name].desc, right[name].desc) for name in names)
    places = cache(partial(_by_bytes, right.values()))
    for name in names:
        a, b, causes = left[name], right[name], tuple[str, ...]()
        pair = _compared(a, b, as_in_models=as_in_models, **tolerance)
        if not pair.is_equal and a.tensors and b.tensors:
            with suppress(MemdescError):  # one of them may have no numbers
                causes = _find_causes(_parts(a, b))
            causes = causes or _places_of(a, b, places())
        yield pair._replace(causes=causes)


def _compared(a: Content, b: Content, *, as_in_models: bool | None, **tolerance: Any) -> Pair:
    """Compare two contents by their bytes, then by their numbers."""
    words = [{role: (x.dtype, x.shape) for role, x in side.tensors.items()} for side in (a, b)]
    is_same = bool(a.tensors) and words[0] == words[1]
    is_same = is_same and all(
        _is_equal_bytes(x.read(), b.tensors[role].read()) for role, x in a.tensors.items()
    )
    if is_same and a.desc is not None and a.desc == b.desc:
        return Pair(a.name, a, b, is_equal=True)
    try:
        ours, theirs = a.numbers(), b.numbers()
        turned = _in_order_of(ours, a.desc, theirs, b.desc)
        if as_in_models is not None and len(turned) > 1:
            turned = [turned[as_in_models]]
        compared = (compare_values(ours, view, limit=0, **tolerance) for view in turned)
        closest = min(compared, key=lambda comparison: comparison.differing)
    except MemdescError as error:
        return Pair(a.name, a, b, is_equal=is_same, problem=str(error))
    return Pair(a.name, a, b, closest.is_equal, closest)


def _are_as_in_models(pairs: Iterable[tuple[Desc | None, Desc | None]]) -> bool | None:
    """Whether floats have the dims of models, judged by pairs with equal names; None if unclear."""
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
    return [view for view in turned if view.desc.dims == wanted.desc.dims] or turned[:1]


def _parts(ours: Content, theirs: Content) -> list[_Part]:
    """Return the bytes found and those expected, in our format; none if that is unknown."""
    found, wanted, own, desc = ours.data, theirs.data, ours.desc, theirs.desc
    is_single = found.keys() == wanted.keys() == {ONE}
    if theirs.part_of is not None:  # part of a weight that only the reference knows
        whole, role = theirs.part_of
        return _parts_of_record({role: found[ONE]}, {role: wanted[ONE]}, whole) if is_single else []
    if isinstance(desc, RecordDesc):
        record, is_whole = Record(desc, wanted), True
        if isinstance(own, MemoryDesc):  # floats, unless a single tensor has other elements
            is_whole = len(wanted) == 1 and own.nelems != prod(desc.dims)
        if isinstance(own, RecordDesc) and (own.name, own.dims) != (desc.name, desc.dims):
            record = repack(record, own)
        is_whole = is_whole and record.tensors.keys() <= found.keys()
        return _parts_of_record(found, record.tensors, record.desc) if is_whole else []
    if isinstance(own, RecordDesc) or not is_single:
        return []
    if own is desc is None:  # their type is unknown
        return [_Part(found[ONE], wanted[ONE])]
    memory = theirs.numbers()
    own, held = own or memory.desc, memory.desc
    if (own.dims, own.dtype) != (held.dims, held.dtype):
        if own.dims == held.dims and own.dtype.bits != held.dtype.bits:
            return []
        own = held
    if held != own:
        memory = reorder(memory, own.with_extra(None))
    domains = [name.domain for name in memory.desc.names() if name.vocabulary == "weights"]
    is_scale = any("scales" in domain for domain in domains)
    groups = (1,) * memory.desc.ndims
    return [_Part(found[ONE], memory.data, memory.desc, groups, is_scale=is_scale)]


def _by_bytes(items: Iterable[Content]) -> _Places:
    """Return the tensors of the reference by their first bytes, to find moved or renamed ones."""
    places: _Places = {}
    for item in items:
        for role, data in item.data.items():
            places.setdefault(_key(item, role, data), []).append((item.tensors[role].name, data))
    return places


def _places_of(ours: Content, theirs: Content, places: _Places) -> tuple[str, ...]:
    """Return which tensors have the bytes of those that differ; empty unless each has one."""
    names, others, wanted = [], 0, theirs.data
    for role, data in ours.data.items():
        if role in wanted and _is_equal_bytes(data, wanted[role]):
            continue
        alike = places.get(_key(ours, role, data), ())
        equal = [name for name, other in alike if _is_equal_bytes(data, other)]
        if not equal:
            return ()
        names.append(equal[0])
        others += len(equal) - 1
    more = f" (others with the same bytes: {others})" if others else ""
    return (f"it holds {', '.join(names)} of the reference{more}",) if names else ()


def _key(item: Content, role: str, data: Bytes) -> object:
    """Return a key that a tensor shares with all equal ones, and with few others."""
    return item.desc, role, len(data), data[:4096].tobytes()


# --- causes: what explains every byte that differs ---


@dataclass(eq=False)
class _Part:
    """A tensor of a weight: the bytes found, and those expected."""

    found: Bytes
    wanted: Bytes
    # what they should hold, if that is one field; bytes over the dims, an axis more, for rows of
    # several fields, and for blocks of GGUF
    desc: MemoryDesc | None = None
    # how many adjacent elements of the whole weight along each dim share an element of this part
    groups: tuple[int, ...] = ()
    # whether the elements are scales
    is_scale: bool = False
    # which bytes of a block hold codes
    codes: NDArray[np.bool_] | None = None

    @cached_property
    def expected(self) -> NDArray[Any] | None:
        """The expected elements over the dims, as integers of their bits."""
        return None if self.desc is None else _elements(self.wanted, self.desc)

    @cached_property
    def elements(self) -> NDArray[Any] | None:
        """The elements found, over the dims; None if there are too few bytes for them."""
        if self.desc is None or len(self.found) < self.desc.min_nbytes:
            return None
        return _elements(self.found, self.desc)


def _is_equal_bytes(left: Bytes, right: Bytes) -> bool:
    """Whether two buffers hold the same bytes; compared piece by piece."""
    return len(left) == len(right) and all(
        np.array_equal(left[at : at + _PIECE], right[at : at + _PIECE])
        for at in range(0, len(left), _PIECE)
    )


def _parts_of_record(
    found: Mapping[str, Bytes], wanted: Mapping[str, Bytes], desc: RecordDesc
) -> list[_Part]:
    scales = {name for number in desc.rule.scale for name, _ in number.parts}
    parts = []
    for role, data in wanted.items():
        fields = [field for field in desc.fields if field.tensor == role]
        part = _Part(found[role], data)
        if len(fields) == 1 and fields[0].kind not in BIT_PLANES:
            part.desc, part.groups = fields[0].desc, fields[0].groups
            part.is_scale = fields[0].name in scales
        elif len(found[role]) == len(data):
            _set_rows(part, desc, fields)
        parts.append(part)
    return parts


def _set_rows(part: _Part, desc: RecordDesc, fields: list[Field]) -> None:
    """Describe a part as rows of bytes, or of blocks of bytes, if all of its fields are in rows."""
    *outer, last = desc.dims
    nbytes, rest = divmod(len(part.wanted), prod(outer) or 1)
    if rest or not nbytes or not all(_is_in_rows(field, outer, nbytes) for field in fields):
        return
    row = GGUF_TYPES.get(desc.name)
    block, size = (last, nbytes) if row is None else (row.block, row.nbytes)
    part.desc = memory_desc((*outer, nbytes // size, size), "u8")
    part.groups = (*(1 for _ in outer), block)
    if row is not None:
        part.codes = np.zeros(size, np.bool_)
        of_block = record_desc((block,), desc.name)
        for name, _ in desc.rule.code.parts:
            field = of_block.field(name)
            part.codes[(field.layout.offsets() * field.bits >> 3).reshape(-1)] = True


def _is_in_rows(field: Field, outer: list[int], nbytes: int) -> bool:
    """Whether each index of the outer dims has its own bytes, one index after another."""
    for dim, size in enumerate(outer):
        blocks = [block for block in field.layout.blocks if block.axis == dim]
        pitch = 8 * nbytes * prod(outer[dim + 1 :])
        is_one = len(blocks) == 1 and blocks[0].stride * field.bits == pitch
        if field.groups[dim] > 1 or not (is_one or size == 1):
            return False
    return True


def _find_causes(parts: list[_Part]) -> tuple[str, ...]:
    """Return the causes that explain every byte; several may predict the same bytes."""
    wrong = [part for part in parts if not _is_equal_bytes(part.found, part.wanted)]
    if not wrong:
        return ()
    return tuple(text for text, explains in _causes(wrong) if all(map(explains, wrong)))


def _causes(parts: list[_Part]) -> Iterator[tuple[str, Callable[[_Part], bool]]]:
    """Yield the causes that the parts may have, and whether each predicts all bytes of a part."""
    is_scales = all(part.is_scale for part in parts)
    plain = "the scales are plain instead of swizzled" if is_scales else "it is not packed"
    yield plain, _is_unpacked
    yield "it is packed twice", _is_packed_twice
    extents: dict[int, int] = {}
    for part in parts:
        shape = () if part.expected is None else part.expected.shape
        for dim, (size, group) in enumerate(zip(shape, part.groups, strict=False)):
            extents[dim] = max(extents.get(dim, 0), size * group)
    for pair in combinations(extents, 2):
        yield f"dims {pair[0]} and {pair[1]} are transposed", partial(_is_transposed, pair)
    for dim, extent in extents.items():
        divisors = (k for k in range(1, isqrt(extent) + 1) if not extent % k)
        sizes = {size for k in divisors for size in (k, extent // k) if not size % 2}
        for size in sorted(sizes, reverse=True):
            of = f"dim {dim}" if size == extent else f"each {size} along dim {dim}"
            # two rows are in one order only
            for text in [*_ORDERS][: None if size > 2 else 1]:  # noqa: PLR2004
                yield text.format(of), partial(_is_in_order, dim, size, text)
    for word in _WORDS:
        if word > 1:
            yield f"the bytes of each {word} are reversed", partial(_is_reversed, word, 0)
        unit = f"{word} bytes" if word > 1 else "byte"
        yield f"the nibbles of each {unit} are reversed", partial(_is_reversed, word, 4)


def _pieces(count: int, nbytes: int, first: int = _FIRST) -> Iterator[slice]:
    """Yield slices of rows, the smallest first: most causes already fail on those."""
    start, step = 0, max(1, first // nbytes)
    while start < count:
        yield slice(start, start + step)
        start, step = start + step, min(2 * step, max(1, _PIECE // nbytes))


def _is_in_order(dim: int, size: int, text: str, part: _Part) -> bool:
    """Whether the elements are the expected ones in another order along a dim."""
    if part.elements is None or part.expected is None or dim >= len(part.groups):
        return False
    group, extent = part.groups[dim], part.expected.shape[dim]
    count = size // group
    # a single element cannot be halved
    if count < 2 or extent % count or (group > 1 and (text != _SWAPPED or size % (2 * group))):  # noqa: PLR2004
        return False
    at = (np.arange(0, extent, count)[:, None] + _ORDERS[text](np.arange(count))).reshape(-1)
    found, wanted = (np.moveaxis(array, dim, 0) for array in (part.elements, part.expected))
    pieces = _pieces(extent, max(1, found[:1].nbytes), 1)
    return all(np.array_equal(found[rows], wanted[at[rows]]) for rows in pieces)


def _is_reversed(word: int, shift: int, part: _Part) -> bool:
    """Whether the bytes of each word, and with a shift the nibbles, are reversed."""
    if len(part.found) != len(part.wanted):
        return False
    masks = [np.ones(word, np.bool_)]
    if part.codes is not None and not np.count_nonzero(part.codes) % word:
        masks.append(part.codes)

    def predicted(rows: Bytes, mask: NDArray[np.bool_]) -> Bytes:
        made = rows.copy()
        turned = rows[:, mask].reshape(-1, word)[:, ::-1]
        if shift:
            turned = (turned << shift | turned >> shift).astype(np.uint8)
        made[:, mask] = turned.reshape(len(rows), -1)
        return made

    for mask in masks:
        width = len(mask)
        if len(part.found) % width == 0:
            found, wanted = (data.reshape(-1, width) for data in (part.found, part.wanted))
            pieces = _pieces(len(found), width)
            if all(np.array_equal(found[at], predicted(wanted[at], mask)) for at in pieces):
                return True
    return False


# --- causes in packings ---


def _elements(data: Bytes, desc: MemoryDesc) -> NDArray[Any]:
    """Return the elements over the dims, as unsigned integers of their bits."""
    array = logical_array(data, desc.with_extra(None).with_dtype(_bits(desc)))
    return array.view(np.uint8) if desc.dtype.is_packed else array


def _packed(elements: NDArray[Any], desc: MemoryDesc) -> Bytes:
    return reorder(elements, desc.with_extra(None).with_dtype(_bits(desc))).data


def _bits(desc: MemoryDesc) -> str:
    return "u4" if desc.dtype.is_packed else f"u{desc.dtype.bits_dtype.itemsize * 8}"


def _is_row_major(desc: MemoryDesc) -> bool:
    return desc.with_extra(None) == memory_desc(desc.dims, desc.dtype)


def _is_unpacked(part: _Part) -> bool:
    """Whether the elements are row by row, or codes of 4 bits one per byte."""
    desc, expected = part.desc, part.expected
    if desc is None or expected is None:
        return False
    if desc.dtype.is_packed:
        codes = np.ascontiguousarray(expected).reshape(-1)
        # unsigned ones, or those of pack_to_int32 before it makes them unsigned
        if any(_is_equal_bytes(part.found, codes - np.uint8(low)) for low in (0, 8)):
            return True
    if _is_row_major(desc):
        return False
    rows = _packed(expected, memory_desc(desc.dims, desc.dtype))
    found, rest = part.found[: len(rows)], part.found[len(rows) :]
    return _is_equal_bytes(found, rows) and not rest.any()


def _is_packed_twice(part: _Part) -> bool:
    """Whether the packed bytes were taken to be rows and packed again."""
    desc = part.desc
    if desc is None or _is_row_major(desc) or len(part.found) != len(part.wanted):
        return False
    again = _like(desc, desc.padded_dims, len(part.found), desc.spelling)
    if again is None or desc.offset0:
        return False
    flat = bits_of(part.wanted, desc)[: again.nelems]
    return flat.size == again.nelems and _is_equal_bytes(
        part.found, _packed(flat.reshape(again.dims), again)
    )


def _is_transposed(pair: tuple[int, int], part: _Part) -> bool:
    """Whether two dims were swapped before the packing."""
    if max(pair) >= len(part.groups) or part.expected is None or part.desc is None:
        return False
    elements = part.expected.swapaxes(*pair)
    desc = _like(part.desc, elements.shape, len(part.found), part.desc.spelling)
    return desc is not None and _is_equal_bytes(part.found, _packed(elements, desc))


@lru_cache(maxsize=64)
def _like(
    desc: MemoryDesc, dims: tuple[int, ...], nbytes: int, _spelling: str
) -> MemoryDesc | None:
    """Return the layout of the same name for other dims; None if none or several take `nbytes`."""
    if desc.dims == dims:
        layouts = {desc}
    elif _is_row_major(desc):
        layouts = {memory_desc(dims, desc.dtype)}
    else:
        layouts = set()
        for name in desc.names():
            with suppress(MemdescError):
                layouts.add(memory_desc(dims, desc.dtype, name.text))
    # a dim of size 1 can be anywhere in memory: names that differ there say nothing about others
    fitting = [layout for layout in layouts if layout.nbytes == nbytes]
    return fitting[0] if len(fitting) == 1 else None
