"""Rules: how the fields of a record make a number, with the order of operations.

All rules are one formula of which parts may be missing::

    x = scale[0] * scale[1] * ... * (code - zero) + offset[0] * offset[1] * ...

Products are taken from the left. Each operation is rounded to f32; code and zero are integers or
exact, and their difference is exact. `sign` is -1 where the offset is subtracted.
"""

from __future__ import annotations

from typing import NamedTuple

from memdesc.errors import MemdescError, short_repr

__all__ = ["Number", "Rule", "check_number", "check_rule"]

# Integers from -2**24 to 2**24 are exact in f32, and so are their sums in 32 bits.
_MAX_MINUS = 1 << 24
_MAX_SHIFT = 24
_LARGEST = 3.4028234663852886e38


class Number(NamedTuple):
    """A number for each element, or for each group of neighbours.

    Parameters
    ----------
    parts : tuple of (str, int)
        Fields of the record, each with the bit at which its bits begin; several fields are the
        low and the high bits of one integer. A field of floats stands alone.
    minus : int
        What is subtracted from the integer.
    table : tuple of float
        The value of each code, for codebooks and for scales that no data type describes; empty
        where the code is the value.

    Examples
    --------
    >>> import memdesc
    >>> memdesc.record_desc((1, 32), "q5_0").rule.code
    Number(parts=(('qs', 0), ('qh', 4)), minus=16, table=())
    """

    parts: tuple[tuple[str, int], ...]
    minus: int = 0
    table: tuple[float, ...] = ()

    def __str__(self) -> str:
        text = " | ".join(f"{name} << {shift}" if shift else name for name, shift in self.parts)
        if self.table:
            return f"table[{text}]"
        if len(self.parts) > 1:
            text = f"({text})"
        if not self.minus:
            return text
        return f"({text} {'-' if self.minus > 0 else '+'} {abs(self.minus)})"


class Rule(NamedTuple):
    """How a record makes its numbers; `str(rule)` is the formula.

    Parameters
    ----------
    code : Number
        For each element.
    scale : tuple of Number
        Multiplied from the left; at least one.
    zero : Number, optional
        Subtracted from the code, as an integer.
    offset : tuple of Number
        Multiplied from the left and added; empty for none.
    sign : int
        -1 if the offset is subtracted.

    Examples
    --------
    >>> import memdesc
    >>> print(memdesc.record_desc((1, 256), "q4_k").rule)
    d * (sc_low | sc_high << 4) * qs - dmin * (m_low | m_high << 4)
    """

    code: Number
    scale: tuple[Number, ...]
    zero: Number | None = None
    offset: tuple[Number, ...] = ()
    sign: int = 1

    @property
    def numbers(self) -> tuple[Number, ...]:
        """All numbers of the rule."""
        zero = () if self.zero is None else (self.zero,)
        return (self.code, *self.scale, *zero, *self.offset)

    @property
    def is_symmetric(self) -> bool:
        """Whether one code is 0 in all groups: neither zero points nor offsets are stored."""
        return self.zero is None and not self.offset

    def __str__(self) -> str:
        code = str(self.code) if self.zero is None else f"({self.code} - {self.zero})"
        text = " * ".join([*map(str, self.scale), code])
        if self.offset:
            text += f" {'+' if self.sign > 0 else '-'} {' * '.join(map(str, self.offset))}"
        return text


def check_rule(rule: Rule) -> None:
    """Refuse a rule whose parts are no numbers.

    Raises
    ------
    MemdescError
        With the part.
    """
    products = (rule.scale, rule.offset)
    is_typed = all(isinstance(product, tuple) for product in products) and rule.scale
    if not is_typed or not all(isinstance(number, Number) for number in rule.numbers):
        msg = (
            f"a Rule needs a Number as code and zero, and tuples of them as scale, which is not "
            f"empty, and offset; not {short_repr(tuple(rule))}"
        )
        raise MemdescError(msg)
    if not isinstance(rule.sign, int) or rule.sign not in (1, -1):
        msg = f"the sign of a Rule is 1 or -1, not {short_repr(rule.sign)}"
        raise MemdescError(msg)


def check_number(number: Number) -> None:
    """Refuse a number whose parts are no names, integers and floats.

    Raises
    ------
    MemdescError
        With the part.
    """
    parts, minus, table = number
    if not (isinstance(parts, tuple) and parts and all(map(_is_part, parts))):
        msg = (
            f"parts of a Number are a tuple of pairs, of the name of a field and a bit of 0 to "
            f"{_MAX_SHIFT - 1}, not {short_repr(parts)}"
        )
        raise MemdescError(msg)
    if type(minus) is not int or abs(minus) > _MAX_MINUS:
        msg = f"minus must be an integer of at most {_MAX_MINUS}, not {short_repr(minus)}"
        raise MemdescError(msg)
    is_table = isinstance(table, tuple) and all(type(value) in (int, float) for value in table)
    if not is_table or any(not abs(value) <= _LARGEST for value in table):
        msg = f"a table is a tuple of finite floats, not {short_repr(table)}"
        raise MemdescError(msg)


def _is_part(part: object) -> bool:
    """Whether a part is a tuple of a name and a bit."""
    match part:
        case (str(), int() as shift):
            return isinstance(part, tuple) and type(shift) is int and 0 <= shift < _MAX_SHIFT
    return False
