"""Rule: how the fields of a record make a number.

All rules are one formula, parts of which may be missing::

    x = scale[0] * scale[1] * ... * (code - zero) + offset[0] * offset[1] * ...

Products are evaluated from left to right. Each operation is rounded to f32, or to the narrower
`kind`. Code and zero are integers, whose difference is exact; or zero is a float, which is
subtracted first. `sign` is -1 if the offset is subtracted. A factor with `divides` is a divisor
instead, because division rounds differently from a product with the reciprocal. The integer that
fields store stands for itself, for a number in a table, for a float, or for several numbers, one
for each of several elements: see `Number`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from memdesc.checked import check_types
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError, short_repr
from memdesc.immutable import immutable
from memdesc.record.field import Field, is_integer, is_word
from memdesc.tuples import NamedTuple


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
# the most numbers of a vector, and the most bits of a code that selects one
_MAX_VECTOR, _MAX_VECTOR_BITS = 16, 12
# the most bits that f32 holds exactly, and the most bits of a code whose table is in compiled code
_MAX_WIDTH, _MAX_TABLE = 24, 8
# the floats whose bits joined integers may be
_JOINED = ("f16", "bf16")


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
    >>> signs = memdesc.record.record_desc((1, 256), "iq2_xs").rule.scale[-1].codebook
    >>> signs.size, signs.lanes, list(signs.values[:8]), list(signs.values[8:16])
    (8, (0, 1, 2, 3, 4, 5, 6, 7), [1, 1, 1, 1, 1, 1, 1, 1], [255, 1, 1, 1, 1, 1, 1, 255])
    """

    size: int
    values: bytes
    lanes: tuple[int, ...]


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
    codebook : Codebook, optional
        What each code stands for, if it stands for several numbers.
    kind : str
        ``f16`` or ``bf16`` if the joined integer is the bits of a float; empty otherwise. Then
        there is no `minus`, no table and no codebook.

    Examples
    --------
    >>> code = memdesc.record.record_desc((1, 32), "q5_0").rule.code
    >>> code.parts, code.minus
    ((('qs', 0), ('qh', 4)), 16)
    """

    parts: tuple[tuple[str, int], ...]
    minus: int = 0
    table: tuple[float, ...] = ()
    divides: bool = False
    codebook: Codebook | None = None
    kind: str = ""

    @property
    def is_looked_up(self) -> bool:
        """Whether the stored integer stands for something else, or for several numbers."""
        return bool(self.table or self.codebook or self.kind)

    def __str__(self) -> str:
        text = " | ".join(f"{name} << {shift}" if shift else name for name, shift in self.parts)
        if self.table:
            return f"table[{text}]"
        if self.codebook:
            return f"codebook[{text}]"
        if self.kind:
            return f"{self.kind}({text})"
        if len(self.parts) > 1:
            text = f"({text})"
        if not self.minus:
            return text
        return f"({text} {'-' if self.minus > 0 else '+'} {abs(self.minus)})"


# the types that operations are rounded to
_WIDEST = "f32"
_ROUNDED_TO = (_WIDEST, "bf16", "f16")


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


def check_rule(rule: Rule, field: Callable[[str], Field]) -> None:
    """Refuse a rule with parts of the wrong types or values, or that the fields do not allow."""
    check_types(rule)
    if not rule.scale:
        raise MemdescError(f"a Rule needs at least one scale, not {short_repr(tuple(rule))}")
    first = [rule.code, rule.zero, rule.scale[0], *rule.offset[:1]]
    alone = next((x for x in first if x is not None and x.divides is True), None)
    if alone is not None:
        raise MemdescError(
            f"only a factor after the first one divides a product, but {alone} is the first"
        )
    if rule.sign not in (1, -1):
        raise MemdescError(f"the sign of a Rule is 1 or -1, not {rule.sign}")
    if rule.kind not in _ROUNDED_TO:
        raise MemdescError(
            f"a Rule is computed in {', '.join(_ROUNDED_TO)}, not {short_repr(rule.kind)}"
        )
    for number in rule.numbers:
        _check_parts(number)
        _check_fields(number, [field(name) for name, _ in number.parts])
    code = rule.code
    is_float = code.table or code.kind or not is_integer(field(code.parts[0][0]).kind)
    if rule.zero is not None and is_float:
        raise MemdescError(
            f"zero points are subtracted from integers, and {code} is not one; subtract from "
            "floats as an offset, with sign=-1"
        )


def _check_parts(number: Number) -> None:
    """Refuse a number with parts of the wrong types or values."""
    check_types(number)
    parts, minus, table, _, codebook, joined = number
    if not parts or not all(0 <= shift < _MAX_SHIFT for _, shift in parts):
        raise MemdescError(
            f"parts of a Number are at least one field and a bit of 0 to {_MAX_SHIFT - 1}, not "
            f"{short_repr(parts)}"
        )
    if abs(minus) > _MAX_MINUS:
        raise MemdescError(f"minus must be an integer of at most {_MAX_MINUS}, not {minus}")
    if any(not abs(value) <= _LARGEST for value in table):
        raise MemdescError(f"a table is a tuple of finite floats, not {short_repr(table)}")
    if codebook is not None:
        check_types(codebook)
        count = codebook.size if codebook.size <= _MAX_VECTOR and codebook.values else 0
        if not codebook.lanes or not all(0 <= lane < count for lane in codebook.lanes):
            raise MemdescError(
                f"a codebook has vectors of at most {_MAX_VECTOR} numbers, with lanes that they "
                f"have, not {short_repr(codebook)}"
            )
    if joined not in ("", *_JOINED):
        raise MemdescError(f"an integer holds the bits of f16 or bf16, not of {short_repr(joined)}")
    ways = [name for name in ("minus", "table", "codebook", "kind") if getattr(number, name)]
    if len(ways) > 1:
        raise MemdescError(
            f"a Number has one of minus, table, codebook and kind, not {' and '.join(ways)}"
        )


def _check_fields(number: Number, fields: list[Field]) -> None:
    """Refuse a number whose fields are not integers with the number of bits that it needs."""
    parts, minus, table, _, codebook, joined = number
    is_changed = len(fields) > 1 or minus or number.is_looked_up or parts[0][1]
    if is_changed and not all(is_integer(field.kind) for field in fields):
        raise MemdescError(
            f"{number}: only integers are joined, shifted and looked up; floats stand alone"
        )
    if len({(field.groups, field.index) for field in fields}) > 1:
        raise MemdescError(f"{number}: the fields of one number must have the same groups")
    width = max(shift + field.bits for field, (_, shift) in zip(fields, parts, strict=True))
    if width > _MAX_WIDTH and is_integer(fields[0].kind):
        raise MemdescError(
            f"{number}: integers of {width} bits are not exact in f32; at most {_MAX_WIDTH}"
        )
    what, held, size, most = "table", len(table), 1, _MAX_TABLE
    if codebook:
        what, held, size, most = "codebook", len(codebook.values), codebook.size, _MAX_VECTOR_BITS
    if held and (width > most or held != size << width):
        raise MemdescError(
            f"{number}: the {what} has {held} numbers, but codes of {width} bits need "
            f"{size << width}; at most {most} bits are looked up"
        )
    if joined and width != (bits := DATA_TYPES[joined].bits):
        raise MemdescError(f"{number}: {joined} has {bits} bits, not {width}")


def check_constant(constant: Constant) -> None:
    """Refuse a constant with parts of the wrong types, or values that its type does not hold."""
    check_types(constant)
    tensor, dtype, values = constant
    if not tensor:
        raise MemdescError("a Constant needs the name of its tensor, not ''")
    if not (is_word(dtype) or dtype == _WIDEST):
        raise MemdescError(
            f"{tensor} must have type f32 or a whole-byte integer type, such as s64, not "
            f"{short_repr(dtype)}"
        )
    stored = DATA_TYPES[dtype].numpy
    wanted, limits = (int, np.iinfo(stored)) if is_word(dtype) else (float, np.finfo(stored))
    if not all(type(value) is wanted and limits.min <= value <= limits.max for value in values):
        raise MemdescError(
            f"the values of {tensor} are {wanted.__name__}s of {dtype}, not {short_repr(values)}"
        )
