"""RecordDesc: a block-quantised tensor as fields and a rule."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from memdesc.checked import Checked, check_types
from memdesc.errors import MemdescError, OverlapError, short_repr
from memdesc.immutable import field, value_class
from memdesc.int64 import checked_ints
from memdesc.layout import check_dims, dim_name
from memdesc.overlap import are_apart
from memdesc.record.field import Field
from memdesc.record.rule import Constant, Number, Rule, check_constant, check_rule
from memdesc.tags import LETTERS

if TYPE_CHECKING:
    from memdesc.picture import Picture


@value_class
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
        object.__setattr__(self, "dims", checked_ints("dims", self.dims))
        check_dims(self.dims)
        check_types(self, "; see record_desc")
        for name, count in Counter(part.name for part in self.fields).items():
            if count > 1:
                raise MemdescError(
                    f"{count} fields are called {name!r}; each needs a name of its own"
                )
        for part in self.fields:
            self._check_size(part)
        check_rule(self.rule, self.field)
        for left, right in combinations(self.fields, 2):
            sides = (left.layout, left.bits), (right.layout, right.bits)
            if left.tensor == right.tensor and left.layout.nelems and not are_apart(*sides, 0, 1):
                raise OverlapError(
                    f"fields {left.name} and {right.name} of tensor {left.tensor!r} overlap"
                )
        taken = {part.tensor for part in self.fields}
        for fixed in self.constants:
            check_constant(fixed)
            if fixed.tensor in taken:
                raise MemdescError(f"tensor {fixed.tensor!r} holds a constant and something else")
            taken.add(fixed.tensor)
        tables = tuple(np.array(number.table, "f8").tobytes() for number in self.rule.numbers)
        stored = tuple(fixed.data for fixed in self.constants)
        key = self.dims, self.fields, self.rule, self.constants, tables, stored
        object.__setattr__(self, "_key", key)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return self._key == other._key if isinstance(other, RecordDesc) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def _check_size(self, part: Field) -> None:
        if part.layout.ndims != len(self.dims):
            raise MemdescError(
                f"field {part.name} has dims {part.layout.dims}, and the record {self.dims}; "
                "it needs as many, with 1 for a dim along which all elements share one"
            )
        sizes = zip(self.dims, part.groups, part.layout.dims, strict=True)
        for dim, (size, group, actual) in enumerate(sizes):
            wanted = -(-size // group) * part.counts[dim]
            if actual != wanted:
                many = f" with {part.counts[dim]} each" if part.counts[dim] > 1 else ""
                name = dim_name(dim, self.letters)
                raise MemdescError(
                    f"field {part.name} has {actual} along {name}, but {size} elements in "
                    f"groups of {group}{many} are {wanted}"
                )

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options)
        return f"record_desc({self.dims}, {self.name!r}{options})"

    def field(self, name: str) -> Field:
        """Return the field of a name."""
        for part in self.fields:
            if isinstance(name, str) and part.name == name:
                return part
        names = ", ".join(part.name for part in self.fields)
        raise MemdescError(f"no field {short_repr(name)}; the fields are {names}")

    def field_of(self, number: Number) -> Field:
        """Return the field with the lowest bits of a number of the rule."""
        return self.field(number.parts[0][0])

    @property
    def codes(self) -> Field:
        """The field of the codes; the first plane if there are several."""
        return self.field_of(self.rule.code)

    @property
    def scales(self) -> Field:
        """The field of the first scale."""
        return self.field_of(self.rule.scale[0])

    def show(self) -> Picture:
        """Draw the first bytes of each tensor: the fields and elements that they contain.

        >>> print(memdesc.record.record_desc((1, 32), "q4_0").show().text.splitlines()[-1])
            16  qs 14 30 qs 15 31
        """
        from memdesc.picture.draw import draw_fields  # only pictures need it

        bits = self.bits_per_element
        head = [
            repr(self),
            f"{prod(self.dims)} elements in {self.nbytes} bytes, {bits:.4g} bits each: {self.rule}",
            *(
                f"{part.name}: {part.kind}, dims {part.layout.dims}, groups {part.groups}"
                + (f" with {part.counts[-1]} each" if part.index else "")
                for part in self.fields
            ),
            *(f"{fixed.tensor}: {fixed.kind}, {fixed.values}" for fixed in self.constants),
        ]
        return draw_fields(head, self.fields, self.bare.tensors)

    def _repr_html_(self) -> str:
        return self.show().fragment

    @property
    def tensors(self) -> dict[str, int]:
        """The tensors of the record, each with the bytes it needs."""
        sizes: dict[str, int] = {}
        for part in self.fields:
            sizes[part.tensor] = max(sizes.get(part.tensor, 0), part.min_nbytes)
        return sizes | {fixed.tensor: len(fixed.data) for fixed in self.constants}

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
