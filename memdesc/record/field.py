"""Field: one part of a record, a layout of elements in one of its buffers."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from memdesc.checked import Checked, check_types
from memdesc.desc import MemoryDesc, desc_of
from memdesc.dtypes import DATA_TYPES, data_type
from memdesc.errors import MemdescError, UnsupportedFormatError, short_repr
from memdesc.immutable import value_class
from memdesc.int64 import checked_int, checked_ints
from memdesc.layout import Layout, without_gaps
from memdesc.overlap import check_overlap

# Bits of the unsigned elements that are narrower than any data type.
BIT_PLANES = MappingProxyType({"u1": 1, "u2": 2})


def bits_of(element: str) -> int:
    """Return the width of elements of a type, or of a plane."""
    return BIT_PLANES.get(element) or DATA_TYPES[element].bits


def is_integer(element: str) -> bool:
    """Whether elements of a type, or of a plane, are integers."""
    return element in {*BIT_PLANES, "s4", "u4"} or DATA_TYPES[element].numpy.kind in "iu"


def is_word(element: str) -> bool:
    """Whether a string names a type of integers of whole bytes."""
    return element in DATA_TYPES and not DATA_TYPES[element].is_packed and is_integer(element)


@value_class
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
        object.__setattr__(self, "groups", checked_ints("groups", self.groups))
        object.__setattr__(self, "index", checked_ints("index", self.index))
        check_types(self)
        if not self.name:
            raise MemdescError(f"a field of {short_repr(self.tensor)} needs a name, not ''")
        if self.kind not in {*DATA_TYPES, *BIT_PLANES}:
            raise MemdescError(
                f"field {self.name}: there is no kind {short_repr(self.kind)}; the kinds are "
                f"{', '.join([*BIT_PLANES, *DATA_TYPES])}"
            )
        if len(self.groups) != self.layout.ndims or min(self.groups) < 1:
            raise MemdescError(
                f"field {self.name}: groups {self.groups} must be {self.layout.ndims} numbers of "
                "1 or more, one for each dim"
            )
        if self.index and (len(self.index) != self.groups[-1] or min(self.index) < 0):
            raise MemdescError(
                f"field {self.name}: an index has a number of 0 or more for each of the "
                f"{self.groups[-1]} elements of a group, not {short_repr(self.index)}"
            )
        self.layout.inner()  # refuses swizzles
        check_overlap(self.layout)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many elements of the field belong to a group along each dim: 1 without an index."""
        last = max(self.index) + 1 if self.index else 1
        return (*(1,) * (len(self.groups) - 1), last)

    def along_last(self, size: int) -> NDArray[np.int64]:
        """Return which element of the field each of `size` elements along the last dim uses.

        >>> memdesc.record.record_desc((1, 64), "q4_0").field("d").along_last(64)[30:34].tolist()
        [0, 0, 1, 1]
        """
        elements = np.arange(checked_int("size", size))
        if not self.index:
            return elements // self.groups[-1]
        group, place = np.divmod(elements, self.groups[-1])
        along: NDArray[np.int64] = group * self.counts[-1] + np.array(self.index)[place]
        return along

    @property
    def bits(self) -> int:
        """Width of an element in bits."""
        return bits_of(self.kind)

    @property
    def desc(self) -> MemoryDesc:
        """The field as a descriptor over its tensor, unless its elements have 1 or 2 bits."""
        if self.kind in BIT_PLANES:
            raise UnsupportedFormatError(
                f"field {self.name} is a plane of {self.bits} bits, which no data type has; see "
                ".layout, in elements of that width"
            )
        return desc_of(data_type(self.kind), self.layout)

    @property
    def dense(self) -> Field:
        """The field as a tensor of its own, in the same order without gaps.

        >>> memdesc.record.record_desc((2, 64), "q4_0").field("d").dense.desc
        memory_desc((2, 2), 'f16', 'ab')
        """
        layout = Layout(self.layout.dims, self.layout.axes, without_gaps(self.layout.blocks))
        return replace(self, layout=layout, tensor=self.name)

    @property
    def min_nbytes(self) -> int:
        """Bytes that its tensor must have: up to the end of the last padded element."""
        return ((self.layout.last + 1) * self.bits + 7) // 8 if self.layout.nelems else 0
