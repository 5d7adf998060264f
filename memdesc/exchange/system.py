"""System: the interface between the file of a system and the functions that read and write."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NoReturn

from memdesc.desc import MemoryDesc
from memdesc.dtypes import DATA_TYPES, ROWS, DataType
from memdesc.errors import (
    MemdescError,
    NotBlockedError,
    UnknownFormatError,
    UnsupportedFormatError,
    excerpt,
    short_repr,
)
from memdesc.immutable import value_class
from memdesc.layout import check_dims, dim_name, dim_names
from memdesc.layout_names import dense_tag, is_laid_out_by
from memdesc.tags import FormatTag
from memdesc.tuples import NamedTuple


class Given(NamedTuple):
    """A string to read, and what else the caller gives, in case the string lacks it."""

    text: str
    dims: tuple[int, ...] | None
    dtype: DataType | None
    letters: str | None
    default: DataType | None = DATA_TYPES["f32"]

    def sizes(
        self, stated: tuple[int, ...] | None = None, *, has_type: bool = False
    ) -> tuple[int, ...]:
        """Return the dims found in the string or given by the caller; both must agree.

        If there are none, the message also asks for the data type, unless the string has it.
        """
        if stated is not None:
            check_dims(stated)
        sizes = self.dims if stated is None else stated
        if sizes is None:
            if has_type or self.dtype or self.default:
                self._refuse("does not contain the sizes; give dims")
            self._refuse("does not contain the sizes and the data type; give dims and dtype")
        if self.dims not in {None, sizes}:
            self._refuse(f"has dims {stated}, not the given {self.dims}")
        return sizes

    def type(self, stated: DataType | str | None = None, types: Types | None = None) -> DataType:
        """Return the data type of the string or the caller, or the default if neither gives one.

        The string may state it by its name among some types, by default by any name.
        """
        if isinstance(stated, str):
            stated = (types or ANY_TYPES).named(stated)
        if stated is not None and self.dtype not in {None, stated}:
            self._refuse(f"has data type {stated}, not the given {self.dtype}")
        dtype = self.dtype or stated or self.default
        return dtype or self._refuse("does not contain the data type; give dtype")

    def _refuse(self, reason: str) -> NoReturn:
        raise UnknownFormatError(f"{short_repr(self.text)} {reason}")


class Unclear(MemdescError):  # noqa: N818 - it becomes an UnknownFormatError
    """Why a string is not in the notation of a system."""


class Impossible(MemdescError):  # noqa: N818 - it becomes an UnsupportedFormatError
    """Why no descriptor can describe the layout of a string, or no string that of a descriptor."""


def unclear(reason: object) -> NoReturn:
    """Refuse a string that is not in the notation of a system."""
    raise Unclear(reason)


def impossible(reason: object) -> NoReturn:
    """Refuse to describe the layout of a string, or to express a descriptor."""
    raise Impossible(reason)


@value_class
class System:
    """How a system writes and reads layouts.

    Parameters
    ----------
    name, title : str
        What callers call the system, such as ``xla``, and its name in messages.
    writer : callable, (desc, letters) -> tuple of str
        Returns every string of exactly this layout, the best one first, or with `refusal` every
        string that may be one. Refuses by calling `impossible`.
    reader : callable, (given) -> MemoryDesc
        Refuses by calling `unclear` or `impossible`.
    spelling : str
        A regular expression for strings that look like this notation, which `parse_layout` then
        tries; None for names.
    writes_xor : bool
        Whether `writer` is asked for swizzled layouts too.
    refusal : str
        The reason if no string of `writer` is read as the same layout; empty if each is.

    Examples
    --------
    >>> memdesc.exchange.SYSTEMS["xla"].write(memdesc.memory_desc((3, 4), "f32", "ba"), "ab")
    ('f32[3,4]{0,1}',)
    """

    name: str
    title: str
    writer: Callable[[MemoryDesc, str], tuple[str, ...]]
    reader: Callable[[Given], MemoryDesc]
    spelling: str | None = None
    writes_xor: bool = False
    refusal: str = ""

    def write(self, desc: MemoryDesc, letters: str) -> tuple[str, ...]:
        """Return every string of a layout; refuse one that the system cannot express."""
        try:
            if desc.extra is not None:
                impossible("it cannot describe compensation; see with_extra(None)")
            if desc.layout.xor and not self.writes_xor:
                impossible("its offsets are swizzled by XOR, which no digits describe")
            texts = self.writer(desc, letters)
            if self.refusal:
                texts = tuple(text for text in texts if self.is_of(text, desc))
            return texts or impossible(self.refusal)
        except (Impossible, NotBlockedError, UnsupportedFormatError) as reason:
            raise UnsupportedFormatError(
                f"{self.title} cannot express {short_repr(desc)}: {reason}"
            ) from None

    def is_spelled_like(self, text: str) -> bool:
        """Whether a string looks like this notation."""
        return bool(self.spelling and re.fullmatch(self.spelling, text, re.DOTALL))

    def is_of(self, text: str, desc: MemoryDesc) -> bool:
        """Whether a string is read, without letters, as a given layout."""
        try:
            return self.read(Given(text, desc.dims, desc.dtype, None)) == desc
        except MemdescError:
            return False

    def read(self, given: Given) -> MemoryDesc:
        """Read a string; refuse one that is not in this notation or no descriptor describes."""
        try:
            return self.reader(given)
        except (Unclear, RecursionError) as reason:
            why = reason if isinstance(reason, Unclear) else "it is nested too deeply"
            raise UnknownFormatError(
                f"{short_repr(given.text)} is not {self.title}'s notation: {why}"
            ) from None
        except Impossible as reason:
            raise UnsupportedFormatError(
                f"{short_repr(given.text)} cannot be described: {reason}"
            ) from None


@value_class
class Types:
    """What a system calls data types."""

    names: Mapping[str, DataType]

    def named(self, name: str) -> DataType:
        """Return the data type of a name; refuse others."""
        known = ", ".join(self.names)
        return self.names.get(name) or impossible(f"its type {short_repr(name)} is none of {known}")

    def name_of(self, dtype: DataType) -> str:
        """Return the name of a data type; refuse one that the system does not have."""
        name = next((name for name, own in self.names.items() if own == dtype), None)
        return name or impossible(f"it has no data type for elements of {dtype}")


XLA_TYPES, MLIR_TYPES, OPENVINO_TYPES = (
    Types({row[column]: DATA_TYPES[row[0]] for row in ROWS if row[column] != "-"})
    for column in range(3, 6)
)
# torch's names are numpy's; it does not pack two elements in a byte
TORCH_TYPES = Types(
    {f"torch.{row[2].strip('_')}": DATA_TYPES[row[0]] for row in ROWS if row[1] != "4"}
)
# the names of MLIR, and ours
ANY_TYPES = Types({**DATA_TYPES, **MLIR_TYPES.names})


def integers(part: str, spelling: str = "[0-9]{1,19}") -> tuple[int, ...]:
    """Return the integers in a part of a string, which commas separate."""
    if not re.fullmatch(rf"\s*({spelling}\s*(,\s*{spelling}\s*)*)?", part):
        unclear(f"expected integers and commas, found {excerpt(part)}")
    return tuple(map(int, filter(None, map(str.strip, part.split(",")))))


def tag_of(desc: MemoryDesc, no_align: str = "") -> FormatTag:
    """Return the tag of a dense layout for a system that has neither strides nor offsets.

    `no_align` says why it rounds dims up to no more than whole blocks, if it does not.
    """
    tag = dense_tag(desc.layout)
    if not is_laid_out_by(desc.layout, tag):
        if desc.offset0:
            impossible(f"it has no offset, and offset0 is {desc.offset0}")
        impossible("it describes dense layouts; these strides leave gaps or repeat elements")
    for dims, align in zip(tag.axes, tag.align, strict=True):
        if align > 1 and no_align:
            impossible(f"{dim_name(dims[0], desc.letters)} is aligned to {align}, and {no_align}")
    return tag


def strides_of(desc: MemoryDesc) -> tuple[int, ...]:
    """Return the stride of each dim in elements; refuse blocks, fused dims and padding."""
    layout = desc.layout
    for k, (axis, blocks) in enumerate(layout.parts):
        name = dim_name(axis.dims[0], desc.letters)
        if len(axis.dims) > 1:
            reason = f"dims {dim_names(axis.dims, desc.letters)} are fused"
        elif len(blocks) > 1:
            reason = f"{name} is blocked, by {' of '.join(str(b.extent) for b in blocks[1:])}"
        elif axis.padded != layout.axis_size(k):
            reason = f"{name} of size {layout.axis_size(k)} is padded to {axis.padded}"
        else:
            continue
        impossible(f"{reason}, and it has one stride for each dim")
    return layout.strides()  # refuses a swizzle
