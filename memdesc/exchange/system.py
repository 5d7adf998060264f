"""System: the interface between the file of a system and the functions that read and write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from memdesc.dtypes import DATA_TYPES, DataType, data_type
from memdesc.errors import MemdescError, UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.immutable import immutable
from memdesc.int64 import checked_ints
from memdesc.layout import check_dims, dim_name, dim_names
from memdesc.layout_names import dense_tag, is_laid_out_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from memdesc.desc import MemoryDesc
    from memdesc.tags import FormatTag

# The most characters of a string to read; no layout of 12 dims and 63 blocks needs as many.
MAX_TEXT = 8192


class Given(NamedTuple):
    """A string to read, and what else the caller gives, in case the string lacks it."""

    text: str
    dims: tuple[int, ...] | None
    dtype: DataType | None
    letters: str | None
    default: DataType | None = DATA_TYPES["f32"]

    def sizes(
        self, found: tuple[int, ...] | None = None, *, has_type: bool = False
    ) -> tuple[int, ...]:
        """Return the dims found in the string or given by the caller; both must agree.

        If there are none, the message also asks for the data type, unless the string has it.
        """
        if found is None and self.dims is None:
            lacks, give = "the sizes", "dims"
            if not has_type and self.dtype is None and self.default is None:
                lacks, give = f"{lacks} and the data type", f"{give} and dtype"
            msg = f"{short_repr(self.text)} does not contain {lacks}; give {give}"
            raise UnknownFormatError(msg)
        if found is not None:
            check_dims(found)
        if found is not None and self.dims is not None and found != self.dims:
            msg = f"{short_repr(self.text)} has dims {found}, not the given {self.dims}"
            raise UnknownFormatError(msg)
        return found if self.dims is None else self.dims  # type: ignore[return-value] # one is set

    def type(self, found: DataType | None = None) -> DataType:
        """Return the data type of the string or the caller, or the default if neither gives one."""
        if found is not None and self.dtype is not None and found != self.dtype:
            msg = f"{short_repr(self.text)} has data type {found}, not the given {self.dtype}"
            raise UnknownFormatError(msg)
        if (dtype := self.dtype or found or self.default) is None:
            msg = f"{short_repr(self.text)} does not contain the data type; give dtype"
            raise UnknownFormatError(msg)
        return dtype


def given_of(
    text: str,
    dims: Iterable[int] | None,
    dtype: object,
    letters: str | None,
    default: object = "f32",
) -> Given:
    """Return what a caller gives, checked."""
    if not isinstance(text, str):
        msg = f"a notation is a string, not {short_repr(text)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    if len(text) > MAX_TEXT:
        msg = f"{short_repr(text)}: a notation has at most {MAX_TEXT} characters"
        raise UnknownFormatError(msg)
    sizes = None if dims is None else checked_ints("dims", dims)
    if sizes is not None:
        check_dims(sizes)
    types = [None if each is None else data_type(each) for each in (dtype, default)]
    called = checked_letters(letters, None if sizes is None else len(sizes))
    return Given(text, sizes, types[0], called, types[1])


def checked_letters(letters: str | None, ndims: int | None) -> str | None:
    """Return letters for the dims in lower case; refuse invalid ones."""
    if letters is None:
        return None
    if not isinstance(letters, str) or not (letters.isascii() and letters.isalpha()):
        msg = f"letters are a string such as 'nchw', not {short_repr(letters)}"
        raise MemdescError(msg)
    found = letters.lower()
    if len(set(found)) < len(found) or (ndims is not None and len(found) != ndims):
        count = "" if ndims is None else f" {ndims}"
        msg = f"letters {short_repr(letters)} must be{count} different ones, one for each dim"
        raise MemdescError(msg)
    return found


@immutable
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
    spelling : str
        A regular expression for strings that look like this notation, which `parse_layout` then
        tries; None for names.
    writes_xor : bool
        Whether `write` is asked for swizzled layouts too.

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
    spelling: str | None = None
    writes_xor: bool = False


def cannot(system: str, desc: MemoryDesc, reason: str) -> UnsupportedFormatError:
    """Return the error for a descriptor that a system cannot express."""
    return UnsupportedFormatError(f"{system} cannot express {short_repr(desc)}: {reason}")


def not_understood(system: str, text: str, reason: str) -> UnknownFormatError:
    """Return the error for a string that is not in the notation of a system."""
    return UnknownFormatError(f"{short_repr(text)} is not {system}'s notation: {reason}")


def indescribable(text: str, reason: str) -> UnsupportedFormatError:
    """Return the error for a string whose layout no descriptor can describe."""
    return UnsupportedFormatError(f"{short_repr(text)} cannot be described: {reason}")


def type_named(name: str, types: Mapping[str, DataType], text: str) -> DataType:
    """Return the data type that a system gives a name; refuse names in a string that it lacks."""
    if name not in types:
        msg = (
            f"{short_repr(text)} has the type {short_repr(name)}; the types that can be described "
            f"are {', '.join(types)}"
        )
        raise UnsupportedFormatError(msg)
    return types[name]


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
        name = dim_name(axis.dims[0], desc.letters)
        if len(axis.dims) > 1:
            reason = f"dims {dim_names(axis.dims, desc.letters)} are fused"
        elif len(blocks) > 1:
            sizes = " of ".join(str(block.extent) for block in blocks[1:])
            reason = f"{name} is blocked, by {sizes}"
        elif axis.padded != layout.axis_size(k):
            reason = f"{name} of size {layout.axis_size(k)} is padded to {axis.padded}"
        else:
            continue
        raise cannot(system, desc, f"{reason}, and it has one stride for each dim")
    return layout.strides()
