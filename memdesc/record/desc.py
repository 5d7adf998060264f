"""RecordDesc: a block-quantised tensor as fields and a rule.

A field is a layout of elements in one of the buffers. All rules are one formula, parts of which
may be missing::

    x = scale[0] * scale[1] * ... * (code - zero) + offset[0] * offset[1] * ...

Products are evaluated from left to right. Each operation is rounded to f32, or to the narrower
`kind`. Code and zero are integers, whose difference is exact; or zero is a float, which is
subtracted first. `sign` is -1 if the offset is subtracted. A factor with `divides` is a divisor
instead, because division rounds differently from a product with the reciprocal. The integer that
fields store stands for itself, for a number of a table, for a float, or for several numbers, one
for each of several elements: see `Number`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memdesc.checked import Checked
from memdesc.desc import MemoryDesc, desc_of
from memdesc.diophantine import SearchLimitError, Term, solve
from memdesc.dtypes import DATA_TYPES, data_type
from memdesc.errors import MemdescError, OverlapError, UnsupportedFormatError, short_repr
from memdesc.immutable import immutable
from memdesc.int64 import exact_ints
from memdesc.layout import Layout, check_dims, dim_name, without_gaps
from memdesc.overlap import check_overlap
from memdesc.tags import LETTERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc.picture import Picture
    from memdesc.picture.grid import Limits

# Bits of the unsigned elements that are narrower than any data type.
BIT_PLANES = MappingProxyType({"u1": 1, "u2": 2})


@immutable
@dataclass(frozen=True, slots=True)
class Field(Checked):
    """One part of a record: where its elements are stored, and what shares an element.

    Parameters
    ----------
    name : str
        Its name in the system that defines the format, such as ``qs`` or ``scales``.
    kind : str
        The name of a data type, or ``u1`` or ``u2``: a plane of 1 or 2 bits of wider codes.
    layout : Layout
        Offsets in elements of `kind` from the first byte of the tensor; within a byte, elements
        count from the lowest bit.
    groups : tuple of int
        How many adjacent elements of the record, along each dim, share an element of this field.
    tensor : str
        The tensor of the record in which it is stored.
    index : tuple of int
        For fields with several elements for a group along the last dim: which of them each element
        of the group uses. Empty if a group shares one.

    Raises
    ------
    MemdescError
        If there is no such kind, a group is below 1, two elements overlap, or the index does not
        fit the group.

    Examples
    --------
    >>> import memdesc
    >>> d = memdesc.record.record_desc((2, 64), "q4_0").field("d")
    >>> d.kind, d.groups, d.desc
    ('f16', (1, 32), memory_desc((2, 2), 'f16', strides=(18, 9)))
    """

    name: str
    kind: str
    layout: Layout
    groups: tuple[int, ...]
    tensor: str
    index: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name and isinstance(self.tensor, str)):
            msg = (
                f"a field needs a name and a tensor, not {short_repr(self.name)} and "
                f"{short_repr(self.tensor)}"
            )
            raise MemdescError(msg)
        if not isinstance(self.kind, str) or self.kind not in {*DATA_TYPES, *BIT_PLANES}:
            kinds = ", ".join([*BIT_PLANES, *DATA_TYPES])
            kind = short_repr(self.kind)
            msg = f"field {self.name}: there is no kind {kind}; the kinds are {kinds}"
            raise MemdescError(msg)
        if not isinstance(self.layout, Layout):
            msg = f"field {self.name}: a Layout is needed, not {short_repr(self.layout)}"  # type: ignore[unreachable] # callers without types
            raise MemdescError(msg)
        self.layout.inner()  # refuses swizzles
        object.__setattr__(self, "groups", exact_ints("groups", self.groups))
        if len(self.groups) != self.layout.ndims or min(self.groups) < 1:
            msg = (
                f"field {self.name}: groups {self.groups} must be {self.layout.ndims} numbers of "
                "1 or more, one for each dim"
            )
            raise MemdescError(msg)
        object.__setattr__(self, "index", exact_ints("index", self.index))
        if self.index and (len(self.index) != self.groups[-1] or min(self.index) < 0):
            msg = (
                f"field {self.name}: an index has a number of 0 or more for each of the "
                f"{self.groups[-1]} elements of a group, not {short_repr(self.index)}"
            )
            raise MemdescError(msg)
        check_overlap(self.layout)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many elements of the field belong to a group along each dim: 1 without an index."""
        last = max(self.index) + 1 if self.index else 1
        return (*(1,) * (len(self.groups) - 1), last)

    def along_last(self, size: int) -> NDArray[np.int64]:
        """Return which element of the field each of `size` elements along the last dim uses.

        Examples
        --------
        >>> import memdesc
        >>> from memdesc.record import record_desc
        >>> record_desc((1, 64), "q4_0").field("d").along_last(64)[30:34].tolist()
        [0, 0, 1, 1]
        >>> record_desc((1, 256), "tq1_0").field("qs").along_last(256)[30:34].tolist()
        [30, 31, 0, 1]
        """
        elements = np.arange(size)
        if not self.index:
            return elements // self.groups[-1]
        group, place = np.divmod(elements, self.groups[-1])
        found: NDArray[np.int64] = group * self.counts[-1] + np.array(self.index)[place]
        return found

    @property
    def bits(self) -> int:
        """Width of an element in bits."""
        return BIT_PLANES.get(self.kind) or DATA_TYPES[self.kind].bits

    @property
    def desc(self) -> MemoryDesc:
        """The field as a descriptor over its tensor.

        Raises
        ------
        UnsupportedFormatError
            For planes of 1 or 2 bits, since no data type has such elements.
        """
        if self.kind in BIT_PLANES:
            msg = (
                f"field {self.name} is a plane of {self.bits} bits, which no data type has; see "
                ".layout, in elements of that width"
            )
            raise UnsupportedFormatError(msg)
        return desc_of(data_type(self.kind), self.layout)

    @property
    def dense(self) -> Field:
        """The field as a tensor of its own, in the same order without gaps.

        Examples
        --------
        >>> import memdesc
        >>> memdesc.record.record_desc((2, 64), "q4_0").field("d").dense.desc
        memory_desc((2, 2), 'f16', 'ab')
        """
        layout = Layout(self.layout.dims, self.layout.axes, without_gaps(self.layout.blocks))
        return replace(self, layout=layout, tensor=self.name)

    @property
    def min_nbytes(self) -> int:
        """Bytes that its tensor must have: up to the end of the last padded element."""
        return ((self.layout.last + 1) * self.bits + 7) // 8 if self.layout.nelems else 0


@immutable
class Constant(NamedTuple):
    """A tensor of a record whose values follow from the descriptor, such as the dims.

    Parameters
    ----------
    tensor : str
        Its name in the record. No field is stored in it.
    kind : str
        The name of an integer type of whole bytes, or f32.
    values : tuple of int or float
        Its elements.

    Examples
    --------
    >>> import memdesc
    >>> memdesc.record.Constant("weight_shape", "s32", (1, 2)).data.hex()
    '0100000002000000'
    """

    tensor: str
    kind: str
    values: tuple[float, ...]

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return np.array(self.values, DATA_TYPES[self.kind].numpy).tobytes()


# f32 holds the integers from -2**24 to 2**24 exactly, and 32 bits hold their sums. This
# limits `minus`, and the lowest bit of a part.
_MAX_MINUS = 1 << 24
_MAX_SHIFT = 24
_LARGEST = float(np.finfo(np.float32).max)
# a code of digits is a fraction of this; how many digits 32 bits compute exactly, by base
_FRACTION = 256
_MAX_DIGITS = {3: 5, 5: 3, 6: 3, 7: 2}
# the most numbers of a vector, and the most bits of a code that selects one
_MAX_VECTOR, _MAX_VECTOR_BITS = 16, 12
# the floats whose bits joined integers may be, each with its width
_JOINED_KINDS = {"f16": 16, "bf16": 16}


@immutable
class Codebook(NamedTuple):
    """A vector of small integers for each code; each element takes one number of it.

    Parameters
    ----------
    size : int
        Numbers of a vector.
    values : bytes
        The vectors one after the other, as s8.
    lanes : tuple of int
        Which number of the vector each element takes, for elements along the last dim that repeat
        with this period.

    Examples
    --------
    >>> import memdesc
    >>> signs = memdesc.record.record_desc((1, 256), "iq2_xs").rule.scale[-1].codebook
    >>> signs.size, signs.lanes, list(signs.values[:8]), list(signs.values[8:16])
    (8, (0, 1, 2, 3, 4, 5, 6, 7), [1, 1, 1, 1, 1, 1, 1, 1], [255, 1, 1, 1, 1, 1, 1, 255])
    """

    size: int
    values: bytes
    lanes: tuple[int, ...]


@immutable
class Digits(NamedTuple):
    """The digits after the point of the fraction code / 256; each element takes one of them.

    Parameters
    ----------
    base : int
        The base of the digits.
    lanes : tuple of int
        Which digit each element takes, counted from 0 after the point, for elements along the last
        dim that repeat with this period.

    Examples
    --------
    >>> import memdesc
    >>> digits = memdesc.record.record_desc((1, 256), "tq1_0").rule.code.codebook
    >>> digits.base, digits.lanes[::32]
    (3, (0, 1, 2, 3, 4, 0, 2, 4))
    """

    base: int
    lanes: tuple[int, ...]

    def of(self, codes: NDArray[np.int64], lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a digit of each code."""
        rest: NDArray[np.int64] = codes * self.base**lanes % _FRACTION
        return rest * self.base // _FRACTION


@immutable
class Number(NamedTuple):
    """A number for each element, or for each group of elements.

    Parameters
    ----------
    parts : tuple of (str, int)
        Fields of the record, each with the position of its lowest bit; several fields are joined
        into one integer. A field of floats must be the only part.
    minus : int
        Subtracted from the integer.
    table : tuple of float
        The value of each code, for codebooks and for scales that no data type describes; empty
        if the code is the value.
    divides : bool
        Whether the product is divided by it; only for a factor after the first one.
    codebook : Codebook or Digits, optional
        What each code stands for, if it stands for several numbers.
    kind : str
        ``f16`` or ``bf16`` if the joined integer is the bits of a float; empty otherwise. Then
        there is no `minus`, no table and no codebook.

    Examples
    --------
    >>> import memdesc
    >>> code = memdesc.record.record_desc((1, 32), "q5_0").rule.code
    >>> code.parts, code.minus
    ((('qs', 0), ('qh', 4)), 16)
    """

    parts: tuple[tuple[str, int], ...]
    minus: int = 0
    table: tuple[float, ...] = ()
    divides: bool = False
    codebook: Codebook | Digits | None = None
    kind: str = ""

    @property
    def is_looked_up(self) -> bool:
        """Whether the stored integer stands for something else, or for several numbers."""
        return bool(self.table or self.codebook or self.kind)

    def __str__(self) -> str:
        text = " | ".join(f"{name} << {shift}" if shift else name for name, shift in self.parts)
        if self.table:
            return f"table[{text}]"
        if isinstance(self.codebook, Codebook):
            return f"codebook[{text}]"
        if self.kind:
            return f"{self.kind}({text})"
        if isinstance(self.codebook, Digits):
            text = f"digit{self.codebook.base}({text})"
        elif len(self.parts) > 1:
            text = f"({text})"
        if not self.minus:
            return text
        return f"({text} {'-' if self.minus > 0 else '+'} {abs(self.minus)})"


# the types that operations are rounded to
_WIDEST = "f32"
_RULE_KINDS = (_WIDEST, "bf16", "f16")


@immutable
class Rule(NamedTuple):
    """How the fields of a record make a number; `str(rule)` is the formula.

    Parameters
    ----------
    code : Number
        The code of each element.
    scale : tuple of Number
        At least one; multiplied from the left.
    zero : Number, optional
        Subtracted from the code: an integer or a float.
    offset : tuple of Number
        Multiplied from the left and added; empty for none.
    sign : int
        -1 if the offset is subtracted.
    kind : str
        The type that the result of each operation is rounded to: f32, bf16 or f16.

    Examples
    --------
    >>> import memdesc
    >>> print(memdesc.record.record_desc((1, 256), "q4_k").rule)
    d * (sc_low | sc_high << 4) * qs - dmin * (m_low | m_high << 4)
    """

    code: Number
    scale: tuple[Number, ...]
    zero: Number | None = None
    offset: tuple[Number, ...] = ()
    sign: int = 1
    kind: str = _WIDEST

    @property
    def numbers(self) -> tuple[Number, ...]:
        """All numbers of the rule."""
        zero = () if self.zero is None else (self.zero,)
        return (self.code, *self.scale, *zero, *self.offset)

    @property
    def is_symmetric(self) -> bool:
        """Whether one code means 0 in all groups: there are no zero points and no offsets."""
        return self.zero is None and not self.offset

    def __str__(self) -> str:
        code = str(self.code) if self.zero is None else f"({self.code} - {self.zero})"
        text = f"{_product(self.scale)} * {code}"
        if self.offset:
            text += f" {'+' if self.sign > 0 else '-'} {_product(self.offset)}"
        return text if self.kind == _WIDEST else f"{text} in {self.kind}"


def _product(numbers: tuple[Number, ...]) -> str:
    return str(numbers[0]) + "".join(f" {'/' if n.divides else '*'} {n}" for n in numbers[1:])


def check_rule(rule: Rule) -> None:
    """Refuse a rule with parts of the wrong types."""
    products = (rule.scale, rule.offset)
    is_typed = all(isinstance(product, tuple) for product in products) and rule.scale
    if not is_typed or not all(isinstance(number, Number) for number in rule.numbers):
        msg = (
            f"a Rule needs a Number as code and zero, a tuple of at least one as scale, and a "
            f"tuple as offset; not {short_repr(tuple(rule))}"
        )
        raise MemdescError(msg)
    first = [rule.code, rule.zero, *(product[0] for product in products if product)]
    alone = next((each for each in first if each is not None and each.divides is True), None)
    if alone is not None:
        msg = f"only a factor after the first one divides a product, but {alone} is the first"
        raise MemdescError(msg)
    if not isinstance(rule.sign, int) or rule.sign not in (1, -1):
        msg = f"the sign of a Rule is 1 or -1, not {short_repr(rule.sign)}"
        raise MemdescError(msg)
    if not isinstance(rule.kind, str) or rule.kind not in _RULE_KINDS:
        msg = f"a Rule is computed in {', '.join(_RULE_KINDS)}, not {short_repr(rule.kind)}"
        raise MemdescError(msg)


def check_number(number: Number) -> None:
    """Refuse a number with parts of the wrong types."""
    parts, minus, table, divides, codebook, kind = number
    if not (isinstance(parts, tuple) and parts and all(map(_is_part, parts))):
        msg = (
            f"parts of a Number are a tuple of pairs of a field name and a bit of 0 to "
            f"{_MAX_SHIFT - 1}, not {short_repr(parts)}"
        )
        raise MemdescError(msg)
    if type(minus) is not int or abs(minus) > _MAX_MINUS:
        msg = f"minus must be an integer of at most {_MAX_MINUS}, not {short_repr(minus)}"
        raise MemdescError(msg)
    if not isinstance(divides, bool):
        msg = f"divides must be True or False, not {short_repr(divides)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    is_table = isinstance(table, tuple) and all(type(value) in (int, float) for value in table)
    if not is_table or any(not abs(value) <= _LARGEST for value in table):
        msg = f"a table is a tuple of finite floats, not {short_repr(table)}"
        raise MemdescError(msg)
    if codebook is not None:
        _check_codebook(codebook)
    if not isinstance(kind, str) or kind not in ("", *_JOINED_KINDS):
        msg = f"an integer holds the bits of f16 or bf16, not of {short_repr(kind)}"
        raise MemdescError(msg)
    one_of = [name for name in ("table", "codebook", "kind") if getattr(number, name)]
    if len(one_of) > 1 or (minus and one_of and not isinstance(codebook, Digits)):
        what = [*(["minus"] if minus else []), *one_of]
        msg = f"a Number has one of table, codebook and kind, not {' and '.join(what)}"
        raise MemdescError(msg)


def _check_codebook(codebook: Codebook | Digits) -> None:
    """Refuse a codebook with parts of the wrong types or numbers."""
    count = 0
    lanes: tuple[int, ...] = ()
    match codebook:
        case Codebook(int() as size, bytes() as values, tuple() as lanes) if values:
            count = size if size <= _MAX_VECTOR else 0
        case Digits(int() as base, tuple() as lanes):
            count = _MAX_DIGITS.get(base, 0)
    if not lanes or not all(type(lane) is int and 0 <= lane < count for lane in lanes):
        msg = (
            f"a codebook is a Codebook of vectors of at most {_MAX_VECTOR} numbers or Digits of "
            f"base {', '.join(map(str, _MAX_DIGITS))}, with lanes that they have; not "
            f"{short_repr(codebook)}"
        )
        raise MemdescError(msg)


def check_constant(constant: Constant) -> None:
    """Refuse a constant with parts of the wrong types, or values that its type does not hold."""
    tensor, kind, values = constant
    if not (isinstance(tensor, str) and tensor):
        msg = f"a Constant needs the name of its tensor, not {short_repr(tensor)}"
        raise MemdescError(msg)
    known = DATA_TYPES.get(kind) if isinstance(kind, str) else None
    is_integer = known is not None and not known.is_packed and known.numpy.kind in "iu"
    if known is None or not (is_integer or kind == _WIDEST):
        msg = (
            f"{tensor} must have type f32 or a whole-byte integer type, such as s64, not "
            f"{short_repr(kind)}"
        )
        raise MemdescError(msg)
    is_typed = isinstance(values, tuple) and all(
        type(value) is (int if is_integer else float) for value in values
    )
    limits = np.iinfo(known.numpy) if is_integer else np.finfo(known.numpy)
    if not is_typed or not all(limits.min <= value <= limits.max for value in values):
        what = "integers" if is_integer else "floats"
        msg = f"the values of {tensor} are a tuple of {what} of {kind}, not {short_repr(values)}"
        raise MemdescError(msg)


def _is_part(part: object) -> bool:
    """Whether a part is a pair of a name and a bit."""
    match part:
        case (str(), int() as shift):
            return isinstance(part, tuple) and type(shift) is int and 0 <= shift < _MAX_SHIFT
    return False


# the most bits that f32 holds exactly, and those of a code whose table is part of compiled code
_MAX_WIDTH, _MAX_TABLE = 24, 8


@immutable
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordDesc(Checked):
    """A tensor that is stored as several fields, in one buffer or in several tensors.

    Make one with `record_desc`.

    Parameters
    ----------
    dims : tuple of int
        Logical sizes.
    fields : tuple of Field
        Its parts, which do not overlap.
    rule : Rule
        How the fields make a number.
    name : str
        The format, such as ``q4_k``; equality ignores it, `letters` and `options`. Tables of
        numbers are equal if their bits are: 0.0 is not -0.0.
    letters : str
        What the dims are called, such as ``oi``.
    options : tuple of (str, object)
        The options given to `record_desc`.
    constants : tuple of Constant
        Tensors whose values follow from the other fields.

    Raises
    ------
    MemdescError
        If the rule names a field that is missing, or a field does not fit the dims.
    OverlapError
        If two fields share a bit.

    Examples
    --------
    >>> import memdesc
    >>> r = memdesc.record.record_desc((4096, 4096), "q4_0")
    >>> r.tensors, r.bits_per_element
    ({'data': 9437184}, 4.5)
    >>> print(r.rule)
    d * (qs - 8)
    """

    dims: tuple[int, ...]
    fields: tuple[Field, ...]
    rule: Rule
    name: str = ""
    letters: str = LETTERS
    options: tuple[tuple[str, object], ...] = ()
    constants: tuple[Constant, ...] = ()
    _key: tuple[object, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", exact_ints("dims", self.dims))
        check_dims(self.dims)
        is_typed = isinstance(self.fields, tuple) and isinstance(self.rule, Rule)
        if not is_typed or not all(isinstance(part, Field) for part in self.fields):
            msg = (
                f"a RecordDesc needs a tuple of Field and a Rule, not {short_repr(self.fields)} "
                f"and {short_repr(self.rule)}; see record_desc"
            )
            raise MemdescError(msg)
        for name, count in Counter(part.name for part in self.fields).items():
            if count > 1:
                msg = f"{count} fields are called {name!r}; each needs a name of its own"
                raise MemdescError(msg)
        for part in self.fields:
            self._check_size(part)
        check_rule(self.rule)
        for number in self.rule.numbers:
            self._check_number(number)
        self._check_zero()
        for one, other in combinations(self.fields, 2):
            if one.tensor == other.tensor:
                _check_apart(one, other)
        self._check_constants()
        tables = tuple(np.array(number.table, "f8").tobytes() for number in self.rule.numbers)
        stored = tuple(each.data for each in self.constants)
        key = self.dims, self.fields, self.rule, self.constants, tables, stored
        object.__setattr__(self, "_key", key)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return self._key == other._key if isinstance(other, RecordDesc) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def _check_constants(self) -> None:
        is_typed = isinstance(self.constants, tuple)
        if not is_typed or not all(isinstance(each, Constant) for each in self.constants):
            msg = f"constants are a tuple of Constant, not {short_repr(self.constants)}"
            raise MemdescError(msg)
        taken = {part.tensor for part in self.fields}
        for each in self.constants:
            check_constant(each)
            if each.tensor in taken:
                msg = f"tensor {each.tensor!r} holds a constant and something else"
                raise MemdescError(msg)
            taken.add(each.tensor)

    def _check_size(self, part: Field) -> None:
        if part.layout.ndims != len(self.dims):
            msg = (
                f"field {part.name} has dims {part.layout.dims}, and the record {self.dims}; "
                "it needs as many, with 1 for a dim along which all elements share one"
            )
            raise MemdescError(msg)
        sizes = zip(self.dims, part.groups, part.layout.dims, strict=True)
        for dim, (size, group, given) in enumerate(sizes):
            wanted = -(-size // group) * part.counts[dim]
            if given != wanted:
                each = f" with {part.counts[dim]} each" if part.counts[dim] > 1 else ""
                name = dim_name(dim, self.letters)
                msg = (
                    f"field {part.name} has {given} along {name}, but {size} elements in "
                    f"groups of {group}{each} are {wanted}"
                )
                raise MemdescError(msg)

    def _check_number(self, number: Number) -> None:
        check_number(number)
        parts = [self.field(name) for name, _ in number.parts]
        joined = len(parts) > 1 or number.minus or number.is_looked_up or number.parts[0][1]
        if joined and not all(_is_integer(part.kind) for part in parts):
            msg = f"{number}: only integers are joined, shifted and looked up; floats stand alone"
            raise MemdescError(msg)
        if len({(part.groups, part.index) for part in parts}) > 1:
            msg = f"{number}: the fields of one number must have the same groups"
            raise MemdescError(msg)
        width = max(shift + self.field(name).bits for name, shift in number.parts)
        if width > _MAX_WIDTH and _is_integer(parts[0].kind):
            msg = f"{number}: integers of {width} bits are not exact in f32; at most {_MAX_WIDTH}"
            raise MemdescError(msg)
        if number.table and (width > _MAX_TABLE or len(number.table) != 1 << width):
            msg = (
                f"{number}: the table has {len(number.table)} values, but codes of {width} bits "
                f"need {1 << width}; at most {_MAX_TABLE} bits are looked up"
            )
            raise MemdescError(msg)
        self._check_vectors(number, width)

    def _check_vectors(self, number: Number, width: int) -> None:
        """Refuse a codebook, or a float of joined bits, that does not fit the bits of the codes."""
        book = number.codebook
        if isinstance(book, Codebook):
            wanted = book.size << width
            if width > _MAX_VECTOR_BITS or len(book.values) != wanted:
                msg = (
                    f"{number}: the codebook has {len(book.values)} numbers, but codes of {width} "
                    f"bits need {wanted}; at most {_MAX_VECTOR_BITS} bits are looked up"
                )
                raise MemdescError(msg)
        elif book is not None and 1 << width != _FRACTION:
            msg = f"{number}: a code with digits has 8 bits, not {width}"
            raise MemdescError(msg)
        if number.kind and width != _JOINED_KINDS[number.kind]:
            msg = f"{number}: {number.kind} has {_JOINED_KINDS[number.kind]} bits, not {width}"
            raise MemdescError(msg)

    def _check_zero(self) -> None:
        """Refuse a zero point of codes that are not integers."""
        if self.rule.zero is None:
            return
        code = self.rule.code
        if code.table or code.kind or not _is_integer(self.field(code.parts[0][0]).kind):
            msg = (
                f"zero points are subtracted from integers, and {code} is not one; subtract from "
                "floats as an offset, with sign=-1"
            )
            raise MemdescError(msg)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options)
        return f"record_desc({self.dims}, {self.name!r}{options})"

    def field(self, name: str) -> Field:
        """Return the field of a name.

        Raises
        ------
        MemdescError
            If there is none; with the names that exist.
        """
        for part in self.fields:
            if isinstance(name, str) and part.name == name:
                return part
        names = ", ".join(part.name for part in self.fields)
        msg = f"no field {short_repr(name)}; the fields are {names}"
        raise MemdescError(msg)

    def show(self) -> Picture:
        """Draw the first bytes of each tensor: the fields and elements that they contain.

        Examples
        --------
        >>> import memdesc
        >>> print(memdesc.record.record_desc((1, 32), "q4_0").show())
        record_desc((1, 32), 'q4_0')
        32 elements in 18 bytes, 4.5 bits each: d * (qs - 8)
        d: f16, dims (1, 1), groups (1, 32)
        qs: u4, dims (1, 32), groups (1, 1)
        <BLANKLINE>
        data, 18 bytes: in each the field and its elements
             0 |     d 0      d 0  qs 0 16  qs 1 17  qs 2 18  qs 3 19  qs 4 20  qs 5 21
             8   qs 6 22  qs 7 23  qs 8 24  qs 9 25 qs 10 26 qs 11 27 qs 12 28 qs 13 29
            16  qs 14 30 qs 15 31
        """
        from memdesc.picture.grid import FULL  # only pictures need it

        return self._drawn(FULL)

    def _repr_html_(self) -> str:
        from memdesc.picture.grid import COMPACT  # only pictures need it

        return self._drawn(COMPACT).fragment

    def _drawn(self, limits: Limits) -> Picture:
        from memdesc.picture.fields import DrawnField, draw_fields  # only pictures need it

        bits = self.bits_per_element
        head = [
            repr(self),
            f"{prod(self.dims)} elements in {self.nbytes} bytes, {bits:.4g} bits each: {self.rule}",
            *(
                f"{part.name}: {part.kind}, dims {part.layout.dims}, groups {part.groups}"
                + (f" with {part.counts[-1]} each" if part.index else "")
                for part in self.fields
            ),
            *(f"{each.tensor}: {each.kind}, {each.values}" for each in self.constants),
        ]
        drawn = [DrawnField(part.name, part.tensor, part.bits, part.layout) for part in self.fields]
        return draw_fields(head, drawn, self.bare.tensors, limits)

    @property
    def tensors(self) -> dict[str, int]:
        """The tensors of the record, each with the bytes it needs."""
        sizes: dict[str, int] = {}
        for part in self.fields:
            sizes[part.tensor] = max(sizes.get(part.tensor, 0), part.min_nbytes)
        return sizes | {each.tensor: len(each.data) for each in self.constants}

    @property
    def bare(self) -> RecordDesc:
        """The record without its constants, which its numbers do not need."""
        return replace(self, constants=()) if self.constants else self

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(self.tensors.values())

    @property
    def bits_per_element(self) -> float:
        """Bits of all tensors together for each element."""
        return 8 * self.nbytes / max(prod(self.dims), 1)


def _is_integer(kind: str) -> bool:
    return kind in BIT_PLANES or DATA_TYPES[kind].numpy.kind in "iu" or kind in {"s4", "u4"}


def _check_apart(one: Field, other: Field) -> None:
    """Refuse two fields of one tensor that share a bit; strides here are in bits."""
    if not one.layout.nelems:
        return
    lows: Counter[int] = Counter()
    highs: Counter[int] = Counter()
    for part, sign in ((one, 1), (other, -1)):
        for block in part.layout.blocks:
            stride = sign * block.stride * part.bits
            # loops with equal strides in both fields are one loop over their difference
            end = (block.extent - 1) * (1 if stride > 0 else -1)
            if stride:
                lows[abs(stride)] += min(end, 0)
                highs[abs(stride)] += max(end, 0)
    lows[1] -= other.bits - 1
    highs[1] += one.bits - 1
    terms = [Term(stride, lows[stride], highs[stride]) for stride in lows]
    target = other.layout.offset0 * other.bits - one.layout.offset0 * one.bits
    try:
        is_apart = solve(terms, target) is None
    except SearchLimitError:
        is_apart = False
    if not is_apart:
        msg = f"fields {one.name} and {other.name} of tensor {one.tensor!r} overlap"
        raise OverlapError(msg)
