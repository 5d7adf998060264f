"""Field: one part of a record, as a layout of elements in one of its tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memdesc.checked import Checked
from memdesc.desc import MemoryDesc
from memdesc.dtypes import DATA_TYPES, data_type
from memdesc.errors import MemdescError, UnsupportedFormatError, short_repr
from memdesc.int64 import exact_ints
from memdesc.layout import Layout, memory_order
from memdesc.overlap import check_overlap

__all__ = ["BIT_PLANES", "Field"]

# Unsigned elements of less than 4 bits, which no data type has: the bits of each.
BIT_PLANES = {"u1": 1, "u2": 2}


@dataclass(frozen=True, slots=True)
class Field(Checked):
    """One part of a record: where its elements lie, and what shares one.

    Parameters
    ----------
    name : str
        What its system calls it, such as ``qs`` or ``scales``.
    kind : str
        The name of a data type, or ``u1`` or ``u2``: a plane of 1 or 2 bits of wider codes.
    layout : Layout
        Offsets in elements of `kind`, from the first byte of the tensor. Elements count from the
        lowest bit of a byte.
    groups : tuple of int
        How many neighbours of the record along each dim share an element of this field.
    tensor : str
        The tensor of the record that holds it.

    Raises
    ------
    MemdescError
        If there is no such kind, a group is below 1, or two elements overlap.

    Examples
    --------
    >>> import memdesc
    >>> d = memdesc.record_desc((2, 64), "q4_0").field("d")
    >>> d.kind, d.groups, d.desc
    ('f16', (1, 32), memory_desc((2, 2), 'f16', strides=(18, 9)))
    """

    name: str
    kind: str
    layout: Layout
    groups: tuple[int, ...]
    tensor: str

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name and isinstance(self.tensor, str)):
            msg = (
                f"a field needs a name and a tensor, not {short_repr(self.name)} and "
                f"{short_repr(self.tensor)}"
            )
            raise MemdescError(msg)
        if not isinstance(self.kind, str) or self.kind not in {*DATA_TYPES, *BIT_PLANES}:
            kinds = ", ".join([*BIT_PLANES, *DATA_TYPES])
            msg = f"field {self.name}: no kind {short_repr(self.kind)}; the kinds are {kinds}"
            raise MemdescError(msg)
        if not isinstance(self.layout, Layout):
            msg = f"field {self.name}: a Layout is needed, not {short_repr(self.layout)}"  # type: ignore[unreachable] # callers without types
            raise MemdescError(msg)
        object.__setattr__(self, "groups", exact_ints("groups", self.groups))
        if len(self.groups) != self.layout.ndims or min(self.groups) < 1:
            msg = (
                f"field {self.name}: groups {self.groups} must be {self.layout.ndims} numbers of "
                "1 or more, one for each dim"
            )
            raise MemdescError(msg)
        check_overlap(self.layout)

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
            For planes of 1 or 2 bits: no data type has such elements.
        """
        if self.kind in BIT_PLANES:
            msg = (
                f"field {self.name} is a plane of {self.bits} bits, which no data type has; see "
                ".layout, in elements of that width"
            )
            raise UnsupportedFormatError(msg)
        return MemoryDesc(data_type(self.kind), self.layout)

    @property
    def dense(self) -> Field:
        """The field as a tensor of its own: in the same order, with nothing between its elements.

        Examples
        --------
        >>> import memdesc
        >>> memdesc.record_desc((2, 64), "q4_0").field("d").dense.desc
        memory_desc((2, 2), 'f16', 'ab')
        """
        strides, total = {}, 1
        for block in sorted(self.layout.blocks, key=memory_order, reverse=True):
            strides[block] = total
            total *= block.extent
        blocks = tuple(block._replace(stride=strides[block]) for block in self.layout.blocks)
        layout = Layout(self.layout.dims, self.layout.axes, blocks)
        return replace(self, layout=layout, tensor=self.name)

    @property
    def min_nbytes(self) -> int:
        """Bytes that its tensor must have: to the end of the last padded element."""
        return ((self.layout.last + 1) * self.bits + 7) // 8 if self.layout.nelems else 0
