"""System: the interface between the file of a system and the functions that read and write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from memdesc.dtypes import data_type
from memdesc.errors import UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.layout import check_dims, dim_name
from memdesc.layout_names import dense_tag, is_laid_out_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from memdesc.desc import MemoryDesc
    from memdesc.dtypes import DataType
    from memdesc.tags import FormatTag

# Most characters of a string to read; no layout of 12 dims and 63 blocks needs so many.
MAX_TEXT = 8192


class Given(NamedTuple):
    """A string to read, and what the caller gives besides, in case the string lacks it."""

    text: str
    dims: tuple[int, ...] | None
    dtype: DataType | None
    letters: str | None

    def sizes(self, found: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return the dims found in the string or given by the caller; both must agree."""
        if found is None and self.dims is None:
            msg = f"{short_repr(self.text)} does not contain the sizes; give dims"
            raise UnknownFormatError(msg)
        if found is not None:
            check_dims(found)
        if found is not None and self.dims is not None and found != self.dims:
            msg = f"{short_repr(self.text)} has dims {found}, not the given {self.dims}"
            raise UnknownFormatError(msg)
        return found if self.dims is None else self.dims  # type: ignore[return-value] # one is set

    def type(self, found: DataType | None = None) -> DataType:
        """Return the data type found in the string, the caller's, or f32 if neither is given."""
        if found is not None and self.dtype is not None and found != self.dtype:
            msg = f"{short_repr(self.text)} has data type {found}, not the given {self.dtype}"
            raise UnknownFormatError(msg)
        return self.dtype or found or data_type("f32")


@dataclass(frozen=True, slots=True)
class System:
    """How a system writes and reads layouts.

    Parameters
    ----------
    name : str
        What callers call it, such as ``xla``.
    notation : str
        What its strings are, for lists and messages.
    write : callable, (desc, letters) -> tuple of str
        Every string of exactly this layout, the best one first. Raises UnsupportedFormatError
        with the reason if the system cannot express it.
    read : callable, (given) -> MemoryDesc
        Raises UnknownFormatError for a string that is not in this notation, and
        UnsupportedFormatError for one that no descriptor can describe; with the reason.

    Examples
    --------
    >>> import memdesc
    >>> from memdesc.exchange import SYSTEMS
    >>> desc = memdesc.memory_desc((3, 4), "f32", "ba")
    >>> SYSTEMS["xla"].name, SYSTEMS["xla"].write(desc, None)[0]
    ('xla', 'f32[3,4]{0,1}')
    """

    name: str
    notation: str
    write: Callable[[MemoryDesc, str], tuple[str, ...]]
    read: Callable[[Given], MemoryDesc]


def cannot(system: str, desc: MemoryDesc, reason: str) -> UnsupportedFormatError:
    """Return the error for a descriptor that a system cannot express."""
    return UnsupportedFormatError(f"{system} cannot express {short_repr(desc)}: {reason}")


def not_understood(system: str, text: str, reason: str) -> UnknownFormatError:
    """Return the error for a string that is not in the notation of a system."""
    return UnknownFormatError(f"{short_repr(text)} is not {system}'s notation: {reason}")


def tag_of(system: str, desc: MemoryDesc) -> FormatTag:
    """Return the tag of a dense layout for a system that has neither strides nor offsets."""
    tag = dense_tag(desc.layout)
    if not is_laid_out_by(desc.layout, tag):
        reason = (
            f"it has no offset, and offset0 is {desc.offset0}"
            if desc.offset0
            else "it describes dense layouts, and these strides leave gaps or repeat elements"
        )
        raise cannot(system, desc, reason)
    return tag


def strides_of(system: str, desc: MemoryDesc) -> tuple[int, ...]:
    """Return the stride of each dim in elements; refuse blocks, fused dims and padding."""
    layout = desc.layout
    for k, axis in enumerate(layout.axes):
        blocks = layout.axis_blocks(k)
        name = dim_name(axis.dims[0])
        if len(axis.dims) > 1:
            reason = f"dims {', '.join(map(dim_name, axis.dims))} are fused"
        elif len(blocks) > 1:
            sizes = " of ".join(str(block.extent) for block in blocks[1:])
            reason = f"{name} is blocked, by {sizes}"
        elif axis.padded != layout.axis_size(k):
            reason = f"{name} of size {layout.axis_size(k)} is padded to {axis.padded}"
        else:
            continue
        raise cannot(system, desc, f"{reason}, and it has one stride for each dim")
    return layout.strides()
