"""Which records of a scheme stored tensors can be: all dims and options that fit them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memdesc.desc import MemoryDesc
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError, about
from memdesc.record.desc import RecordDesc
from memdesc.record.field import is_word
from memdesc.record.rows import record_desc
from memdesc.record.scheme import ALL, Axis, Part, Scheme, Words, axis_of, check_names
from memdesc.tuples import NamedTuple

# how many records a message lists, and how many are tried
SHOWN, _MOST = 3, 64
# what was bound, by all facts but names, which only messages need: a model has many alike weights
_known: dict[object, Bound] = {}
_MAX_KNOWN = 1024


class Stored(NamedTuple):
    """A tensor in a file."""

    name: str
    # the type and the shape of its words
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    # what they hold, as the file says or else as the type and the shape do
    desc: MemoryDesc | RecordDesc | None
    # whether that is more than the type and the shape say
    is_described: bool
    read: Callable[[], bytes | NDArray[np.uint8]]

    @property
    def element(self) -> str:
        """The type of its elements: a file may hold one that its container does not have."""
        return self.desc.dtype.name if isinstance(self.desc, MemoryDesc) else self.dtype

    def is_flat(self, ndims: int) -> bool:
        """Whether it has bytes in one dim, which say nothing about several."""
        return self.element == "u8" and len(self.shape) == 1 and ndims > 1

    def __str__(self) -> str:
        return f"{self.name!r} of {self.dtype} and shape {self.shape}"


class Bound(NamedTuple):
    """The records that tensors can be, and why others do not fit."""

    descs: tuple[RecordDesc, ...]
    tried: tuple[str, ...]


def bind(scheme: Scheme, stored: Mapping[str, Stored], said: Mapping[str, Any]) -> Bound:
    """Return the records of a scheme that tensors can be; at most a few more than messages list.

    `said` has the options that are known. The others are derived from the tensors. An option that
    no tensor shows gets its default, as in `record_desc`.
    """
    check_names(scheme.name, scheme.options, said)
    options = {**scheme.shown(stored), **said}
    checked = {
        name: option.checked(scheme.name, options[name])
        for name, option in scheme.options.items()
        if name in options
    }
    names = scheme.tensors(**checked)
    missing = [name for name in names if name not in stored]
    if missing:
        msg = f"no tensor {missing[0]!r}; {scheme.name} has the tensors {', '.join(names)}"
        return Bound((), (msg,))
    held = tuple((role, *tensor[1:-1]) for role, tensor in stored.items())
    key = scheme.name, tuple(checked.items()), held
    if (bound := _known.get(key)) is not None:  # other threads may clear it
        return bound
    records: dict[str, RecordDesc] = {}
    tried: dict[str, None] = {}
    # flags that no name shows, because the tensors have the same names either way
    flags = {name for name, value in scheme.defaults.items() if isinstance(value, bool)}
    others: dict[str, None] = {}
    for letters, set_flags in product(scheme.forms, _choices(scheme, flags - checked.keys())):
        search = _Search(scheme, letters, stored, checked | set_flags, tried)
        try:
            for made in search.records():
                records[repr(made)] = made
                if len(records) > SHOWN:
                    break
        except _OtherDimsError as error:
            others[str(error)] = None
    bound = Bound(tuple(records.values()), tuple(tried or others))
    values = {part.tensor for part in scheme.parts if part.shows or part.values}
    if len(records) == 1 and values <= scheme.tables:  # no tensor was read
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        _known[key] = bound
    return bound


def difference(descs: Sequence[RecordDesc]) -> tuple[str, tuple[str, ...]]:
    """Return what several records of a scheme differ in, and the options that tell them apart."""
    options = [dict(desc.options) | {"dims": desc.dims} for desc in descs]
    names = [key for key in options[0] if len({repr(values[key]) for values in options}) > 1]
    listed = [", ".join(f"{key}={values[key]}" for key in names) for values in options]
    more = " or more" if len(listed) > SHOWN else ""
    fits = f"{descs[0].name} fits with {'; or '.join(listed[:SHOWN])}{more}"
    return fits, tuple(name for name in names if name != "dims")


class _OtherDimsError(MemdescError):
    """A tensor has a different number of axes than the scheme gives it."""


# an axis, its size in words of the scheme, and the tensor, for messages
_Equation = tuple[Axis, Fraction, Stored]


class _Search(NamedTuple):
    """A search: the tensors of a weight, read as a scheme whose dims have these letters."""

    scheme: Scheme
    letters: str
    stored: Mapping[str, Stored]
    said: Mapping[str, Any]
    # gets the reasons why something does not fit
    tried: dict[str, None]

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.scheme.parts_of(self.letters, self.scheme.defaults | dict(self.said))

    def read(self) -> dict[str, Any]:
        """Return what is known: what the caller says, types, and values that tensors hold.

        Fails if a tensor does not hold such values.
        """
        known = {name: value for name, value in self.said.items() if value != ALL}
        for part in self.parts:
            stored, name = self.stored[part.tensor], (part.words or part.element)[1:-1]
            if name in self.scheme.options and name not in known:
                is_legal = stored.element in self.scheme.options[name].legal
                known[name] = stored.element if is_legal else stored.dtype
            if callable(part.shows):
                with about(str(stored)):
                    known |= part.shows(bytes(stored.read()))
            elif part.shows:
                known |= dict(zip(part.shows, _numbers(stored, len(part.shows)), strict=True))
        return known

    def equations(self) -> Iterator[_Equation]:
        """Yield an equation for each axis. Fails if a tensor has too few or too many axes."""
        for part in self.parts:
            stored, is_code = self.stored[part.tensor], part is self.parts[0]
            axes = part.axes
            if part.values is not None or stored.is_flat(len(axes)):
                continue
            if stored.is_described:
                if isinstance(stored.desc, MemoryDesc) and not part.is_bare:
                    yield from self.of_elements(stored, stored.desc.dims, axes, is_code=is_code)
                continue
            shape = stored.shape if is_code else shape_like(stored.shape, len(axes))
            if len(shape) != len(axes):
                listed = ", ".join(axis.text for axis in axes)
                raise _OtherDimsError(f"{stored} does not have the dims ({listed})")
            sizes = [Fraction(size) for size in shape]
            words = DATA_TYPES.get(part.words)
            if words is not None and stored.dtype in DATA_TYPES:
                # the same words as integers of another width
                sizes[-1] *= Fraction(DATA_TYPES[stored.dtype].bits, words.bits)
            yield from zip(axes, sizes, [stored] * len(axes), strict=True)

    def of_elements(
        self, stored: Stored, dims: tuple[int, ...], axes: Iterable[Axis], *, is_code: bool
    ) -> Iterator[_Equation]:
        """Yield equations for the dims of a descriptor, which count elements, not words."""
        if len(dims) != len(self.letters):
            return  # `_misfit` compares the descriptors
        for letter, size in zip(self.letters, dims, strict=True):
            for axis in axes:
                if letter in axis.powers:
                    is_packed = is_code or axis.factors[0].width
                    text = letter if is_packed else axis.text.partition("~")[0]
                    yield axis_of(text), Fraction(size), stored

    def assignments(self) -> Iterator[dict[str, Any]]:
        """Yield the values of names that the tensors may have."""
        equations = [*self.equations()]
        try:
            known = self.read()
        except MemdescError as error:
            self.tried[str(error)] = None
            return
        widths = {factor.width for axis, *_ in equations for factor in axis.factors}
        for values in _choices(self.scheme, widths - known.keys()):
            try:
                yield from _solved(equations, known | values)
            except MemdescError as error:
                self.tried[str(error)] = None

    def records(self) -> Iterator[RecordDesc]:
        """Yield the records that fit."""
        # blocks of one range fit all, or none does because of another tensor
        for values in islice(self.assignments(), _MOST):
            try:
                yield self.record(values)
            except MemdescError as error:
                self.tried[str(error)] = None

    def record(self, values: Mapping[str, Any]) -> RecordDesc:
        """Return the record with these values. Fails if there is none, or a tensor differs."""
        missing = [letter for letter in self.letters if letter not in values]
        if missing:
            raise MemdescError(f"the shapes do not show {', '.join(missing)}")
        dims = tuple(values[letter] for letter in self.letters)
        options = {name: values[name] for name in self.scheme.options if name in values}
        desc = record_desc(dims, self.scheme.name, **{**options, **self.said})
        for name, words in self.scheme.words(desc).items():
            if problem := _misfit(self.stored[name], words):
                who = self.stored[name].name
                raise MemdescError(f"{who!r} {problem}, so it does not fit {desc!r}")
        for constant in desc.constants:
            held = self.stored[constant.tensor]
            if constant.tensor not in self.scheme.tables and bytes(held.read()) != constant.data:
                raise MemdescError(
                    f"{held.name!r} does not hold what {desc!r} has in {constant.tensor}"
                )
        return desc


def _choices(scheme: Scheme, names: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield all legal values of some options."""
    free = {name: sorted(o.legal) for name, o in scheme.options.items() if name in names}
    return (dict(zip(free, values, strict=True)) for values in product(*free.values()))


def _solved(equations: Sequence[_Equation], known: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the values that equations allow. Fails if no integer solves one.

    Each equation with one unknown gives its value, or for blocks that may be cut off, their range.
    """
    values, spans = dict(known), dict[str, range]()
    for axis, size, stored in equations:
        unknown = [name for name in axis.powers if name not in values]
        if len(unknown) != 1:
            continue
        name, factor = unknown[0], axis.factors[0]
        if factor.is_cut:
            if name == factor.divisor:
                spans[factor.name] = _spans(int(size), values[factor.name])
            continue
        solution = _solution(axis, size, name, values)
        if solution is None:
            shown = ", ".join(f"{n}={values[n]}" for n in axis.powers if n in values)
            raise MemdescError(f"{stored} does not have {axis.text}{shown and f' with {shown}'}")
        is_whole = axis.powers[name] < 0 and size == 1
        values[name] = ALL if is_whole and (solution > 1 or name == "group") else solution
    if not spans:
        yield values
        return
    rows, columns = (spans.get(letter, range(1)) for letter in "oi")
    # `product` would make lists of ranges, which may be long
    for row, column in ((row, column) for row in rows for column in columns):
        yield values | {"block": row if row == column else f"{row}x{column}"}


def _solution(axis: Axis, size: Fraction, name: str, values: Mapping[str, Any]) -> int | None:
    """Return the value of the only unknown in an axis; None if no integer solves it."""
    powers = dict(axis.powers)
    own = powers.pop(name)
    if not size or not all(int(values[word]) for word in powers):
        return None
    solution = size / axis.number
    for word, power in powers.items():
        solution /= Fraction(int(values[word])) ** power
    solution **= own
    return int(solution) if solution.denominator == 1 else None


def _spans(count: int, size: int) -> range:
    """Return the block sizes that divide `size` elements into `count` blocks."""
    low = -(-size // max(count, 1))
    high = -(-size // (count - 1)) - 1 if count > 1 else low
    return range(max(low, 1), high + 1)


def _numbers(stored: Stored, count: int) -> list[int]:
    """Return the integers that a tensor holds. Fails if it does not hold this many."""
    if not is_word(stored.dtype) or stored.nbytes != DATA_TYPES[stored.dtype].nbytes(count):
        what = "an integer" if count == 1 else f"{count} integers"
        raise MemdescError(f"{stored} does not hold {what}")
    numbers: list[int] = np.frombuffer(stored.read(), DATA_TYPES[stored.dtype].numpy).tolist()
    return numbers


def shape_like(shape: tuple[int, ...], ndims: int) -> tuple[int, ...]:
    """Return a shape with this many dims if only axes of size 1 are missing or must go.

    A scalar is also written as (1,) or (1, 1), and scales of blocks with an axis after each.
    """
    if len(shape) == 2 * ndims and shape[1::2] == (1,) * ndims:
        return shape[::2]
    while len(shape) > ndims and shape[-1] == 1:
        shape = shape[:-1]
    return shape + (1,) * (ndims - len(shape))


def _misfit(held: Stored, words: Words) -> str:
    """Return how a stored tensor differs from one of a record; empty if it does not."""
    if words.desc is not None and held.desc == words.desc:
        return ""
    if held.is_described:
        wanted = words.desc or f"{words.dtype} of {words.shape}"
        return f"holds {_named(held.desc)}, as the descriptor stored with it says, not {wanted!r}"
    if held.nbytes == words.nbytes:
        # bytes in wider words, which bitsandbytes calls quant_storage
        are_bytes = words.dtype == "u8" and all(
            len(shape_like(shape, 1)) == 1 for shape in (held.shape, words.shape)
        )
        # the bits of a type that the container lacks
        is_alike = held.element == f"u{DATA_TYPES[words.dtype].bits}"
        if is_word(words.dtype):
            # words of integers of another width; integers that are not words mean other numbers
            holds_words = words.desc is None or words.desc.dtype.name != words.dtype
            is_alike = is_word(held.element) and holds_words
        if held.is_flat(2) or are_bytes or (is_alike and held.shape[:-1] == words.shape[:-1]):
            return ""
    shape = shape_like(held.shape, len(words.shape))
    if (held.element, shape) == (words.dtype, words.shape):
        return ""
    return (
        f"of {held.element} has the shape {held.shape} and {held.nbytes} bytes, not {words.shape} "
        f"of {words.dtype} and {words.nbytes} bytes"
    )


def _named(desc: MemoryDesc | RecordDesc | None) -> str:
    names = desc.names() if isinstance(desc, MemoryDesc) else ()
    packing = next((name.text for name in names if name.vocabulary == "weights"), None)
    return f"{desc!r} ({packing})" if packing else repr(desc)
