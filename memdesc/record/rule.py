"""Rules: how the fields of a record make a number, with the order of operations.

All rules are one formula of which parts may be missing::

    x = scale[0] * scale[1] * ... * (code - zero) + offset[0] * offset[1] * ...

Products are taken from the left. Each operation is rounded to f32; code and zero are integers or
exact, and their difference is exact. `sign` is -1 where the offset is subtracted.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Number", "Rule"]


class Number(NamedTuple):
    """A number for each element, or for each group of neighbours.

    Attributes
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
        joined = f"({text})" if len(self.parts) > 1 and self.minus else text
        if not self.minus:
            return f"({text})" if len(self.parts) > 1 else text
        return f"({joined} {'-' if self.minus > 0 else '+'} {abs(self.minus)})"


class Rule(NamedTuple):
    """How a record makes its numbers; `str(rule)` is the formula.

    Attributes
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

    def __str__(self) -> str:
        code = str(self.code) if self.zero is None else f"({self.code} - {self.zero})"
        text = " * ".join([*map(str, self.scale), code])
        if self.offset:
            text += f" {'+' if self.sign > 0 else '-'} {' * '.join(map(str, self.offset))}"
        return text
