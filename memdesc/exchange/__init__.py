"""Write layouts in the notations of other systems, and read them.

There is a file for each system, listed in `SYSTEMS`. A system either writes a layout exactly or
refuses it with the reason, and it reads what it writes. To add a system, write a file with a
`SYSTEM` and add it to the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from memdesc.desc import (
    MemoryDesc,
    checked_desc,
    desc_by_name,
    desc_of,
    letters_of,
    memory_desc,
)
from memdesc.dtypes import data_type
from memdesc.errors import (
    MemdescError,
    UnknownFormatError,
    UnsupportedFormatError,
    excerpt,
    short_repr,
)
from memdesc.exchange import cute, cutlass, mlir, openvino, plain, pytorch, triton, tvm, xla
from memdesc.exchange.system import Given, System, impossible, tag_of
from memdesc.image import ImageDesc, image_desc
from memdesc.int64 import checked_ints
from memdesc.layout import check_dims, layout_by_tag
from memdesc.names import Name, is_name, onednn, refuse_record, resolve
from memdesc.names.images import is_image
from memdesc.names.onednn import CANONICAL
from memdesc.names.similar import did_you_mean, similar_words
from memdesc.names.systems import VOCABULARIES
from memdesc.names.vocabulary import Vocabulary
from memdesc.tags import LETTERS, check_letters

__all__ = ["SYSTEMS", "System", "parse_layout", "written"]


# The most characters of a string to read; no layout of 12 dims and 63 blocks needs as many.
_MAX_TEXT = 8192
_PREFIX = r"(\w+):(?!:)"  # two colons belong to C++


def _system_of(vocabulary: Vocabulary) -> System:
    """Return a vocabulary as a system: it writes its names of a layout, canonical tags first."""

    def write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
        names = [name for name in desc.names() if name.vocabulary == vocabulary.name]
        if not names:
            impossible(f"it has no name for {tag_of(desc)} of {desc.dtype}")
        names.sort(key=lambda name: name.domain != CANONICAL)
        return tuple(name.text for name in names)

    def read(given: Given) -> MemoryDesc:
        dims, dtype = given.sizes(), given.type()
        tag = vocabulary.read(given.text, dtype.bits)
        layout = layout_by_tag(tag, dims, given.text)
        vocabulary.check_dims(given.text, dims, tag)
        letters = vocabulary.family(vocabulary.bare(given.text))[1]
        return desc_of(dtype, layout, letters=letters if len(letters) == len(dims) else None)

    return System(vocabulary.name, vocabulary.name, write, read)


# reads what `memory_desc` reads, and writes str(FormatTag)
_NOTATION = System(
    "memdesc",
    "memdesc",
    lambda desc, _: (str(tag_of(desc)),),
    lambda given: memory_desc(given.sizes(), given.type(), given.text),
)


# A new system is a further entry; vocabularies come from `names`.
SYSTEMS: Mapping[str, System] = MappingProxyType(
    {
        system.name: system
        for system in (
            _NOTATION,
            # not by `vocabularies`, whose lock another thread may hold while it imports this module
            *map(_system_of, (onednn.VOCABULARY, *VOCABULARIES)),
            *(plain.STRIDES, plain.VERBOSE),
            *(file.SYSTEM for file in (cute, cutlass, xla, pytorch, triton, tvm, mlir, openvino)),
        )
    }
)


def swizzle_names(desc: MemoryDesc) -> tuple[Name, ...]:
    """Return what the systems that have swizzles call a layout, the shortest names first."""
    names = []
    for system in (cutlass.SYSTEM, triton.SYSTEM, cute.SYSTEM):
        with suppress(MemdescError):
            names += [Name(system.name, text, "tile") for text in system.write(desc, LETTERS)]
    return tuple(names)


def written(desc: MemoryDesc, system: str, *, letters: str | None = None) -> tuple[str, ...]:
    """Return every string of a layout in the notation of a system, the best one first.

    `MemoryDesc.to_notation` returns the first of them, and raises the same errors.

    Parameters
    ----------
    desc : MemoryDesc
        The layout.
    system : str
        One of `SYSTEMS`.
    letters : str, optional
        What the dims are called; by default as for `to_notation`.

    Examples
    --------
    >>> d = memdesc.memory_desc((2, 17, 5, 4), "f32", "b_fs_yx_fsv16")
    >>> memdesc.exchange.written(d, "onednn")
    ('aBcd16b', 'nChw16c', 'gOiw16o')
    """
    if not isinstance(system, str) or system not in SYSTEMS:
        raise MemdescError(no_system(system))
    notation = SYSTEMS[system]
    checked_desc("desc", desc)
    alphabet = LETTERS[: desc.ndims]
    texts = notation.write(desc, _checked_letters(letters_of(desc, letters), desc.ndims))
    # without letters a string is read with those of a family, which may be other dims
    is_read = letters is not None or notation.is_of(texts[0], desc)
    return texts if is_read else notation.write(desc, alphabet)


def no_system(name: object) -> str:
    """Return what to say about a name that is not one of `SYSTEMS`."""
    near = similar_words(name.lower(), SYSTEMS) if isinstance(name, str) else ()
    return (
        f"there is no system {short_repr(name)}; the systems are {', '.join(SYSTEMS)}"
        f"{did_you_mean(near)}"
    )


def parse_layout(
    text: str,
    dims: Iterable[int] | None = None,
    dtype: object = None,
    *,
    letters: str | None = None,
    default: object = "f32",
) -> MemoryDesc | ImageDesc:
    """Read a layout in any notation that memdesc knows.

    A name of a vocabulary or an image type wins. Other strings are tried in each notation that they
    look like: strides (``340x20x4x1``, with inner blocks and an offset ``480x160x32x8:8b@16``),
    CuTe, XLA, PyTorch, TVM, MLIR, OpenVINO's ``f16:b_fs_yx_fsv16:1x17x5x4``, and the strings of
    oneDNN's logs. A prefix such as ``cute:`` chooses one of `SYSTEMS`.

    Parameters
    ----------
    text : str
        The layout.
    dims : iterable of int, optional
        The logical sizes, in elements; needed if the string does not contain them.
    dtype : DataType, str or numpy dtype, optional
        By default the one in the string.
    letters : str, optional
        What to call the logical dims, in order, such as ``nchw``; needed for notations that name
        dims by letters but do not give their order. By default what the string calls them.
    default : DataType, str, numpy dtype or None
        The data type if neither the string nor `dtype` gives one; with None that is an error.

    Returns
    -------
    MemoryDesc or ImageDesc
        The latter for an image type.

    Raises
    ------
    UnknownFormatError
        If no notation reads the string, two read it as different layouts, or it contradicts the
        dims or the data type; for a misspelt name with similar names.
    UnsupportedFormatError
        If no descriptor can describe the layout; with the reason.

    Examples
    --------
    >>> memdesc.parse_layout("nChw16c", (2, 17, 5, 4), "f16")
    memory_desc((2, 17, 5, 4), 'f16', 'aBcd16b')
    >>> memdesc.parse_layout("bf16[64,32]{1,0:T(8,128)(2,1)}")
    memory_desc((64, 32), 'bf16', 'AB4a128b2a')
    >>> memdesc.parse_layout("(8,4):(1,8)", (32,))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    memdesc.errors.UnknownFormatError: '(8,4):(1,8)' is read as different layouts: ...
    """
    if not isinstance(text, str):
        raise MemdescError(f"a notation is a string, not {short_repr(text)}")
    if len(text) > _MAX_TEXT:
        raise UnknownFormatError(
            f"{short_repr(text)}: a notation has at most {_MAX_TEXT} characters"
        )
    sizes = None if dims is None else checked_ints("dims", dims)
    if sizes is not None:
        check_dims(sizes)
    types = [None if given is None else data_type(given) for given in (dtype, default)]
    ndims = None if sizes is None else len(sizes)
    called = None if letters is None else _checked_letters(letters, ndims)
    desc = _read(Given(text, sizes, types[0], called, types[1]))
    if called is None:
        return desc
    if isinstance(desc, ImageDesc):
        return replace(desc, desc=desc.desc.with_letters(called))
    return desc.with_letters(called)


def _checked_letters(letters: object, ndims: int | None) -> str:
    """Return letters for the dims in lower case; refuse invalid ones."""
    return check_letters(check_letters(letters, ndims).lower(), ndims)


def _read(given: Given) -> MemoryDesc | ImageDesc:
    name = given.text.strip()
    system, _, rest = name.partition(":")
    if system in SYSTEMS and not rest.startswith(":"):
        return SYSTEMS[system].read(given._replace(text=rest.strip()))
    given = given._replace(text=name)
    if is_image(name):
        return image_desc(given.sizes(), given.type(), name)
    # some names exist only for some widths; it does not matter which width is the default
    bits = given.dtype.bits if given.dtype else 32
    # the number of dims does not matter here, so any will do where none are given
    if not is_name(name, len(given.dims or ()) or 1, bits):
        # if it looks like a name, or like no notation, the error is that of a name
        refused = ""
        try:
            if desc := _readings(given):
                return desc
        except UnknownFormatError as error:
            if not name.isalnum() or name[0].isdigit():  # names start with letters
                raise
            refused = str(error)
        refuse_record(name)
        if prefix := re.match(_PREFIX, name):
            raise UnknownFormatError(f"unknown format {short_repr(name)}: {no_system(prefix[1])}")
        try:
            if given.dims is None:
                resolve(name, (), bits)
            else:
                desc_by_name(given.dims, given.dtype or data_type("f32"), name)
        except UnknownFormatError as error:
            if refused:
                error.args = (f"{error}{' ' if str(error)[-1] == '?' else '; '}{refused}",)
            raise
    return desc_by_name(given.sizes(), given.type(), name)


def _readings(given: Given) -> MemoryDesc | None:
    """Return what the notations that a string resembles read; None if it resembles none.

    If none of them reads it, the error is that of the first, or one with a reason.
    """
    readers: dict[MemoryDesc, list[System]] = {}
    refused: list[MemdescError] = []
    for system in SYSTEMS.values():
        if system.is_spelled_like(given.text):
            try:
                readers.setdefault(system.read(given), []).append(system)
            except MemdescError as error:
                refused.append(error)
    if len(readers) > 1:
        readings = "; ".join(
            f"with the prefix {' or '.join(f'{system.name}:' for system in systems)} {desc!r}"
            for desc, systems in readers.items()
        )
        first = next(iter(readers.values()))[0].name
        raise UnknownFormatError(
            f"{short_repr(given.text)} is read as different layouts: {readings}; write one, such "
            f"as {first}:{excerpt(given.text)[1:-1]}"
        )
    if refused and not readers:
        raise min(refused, key=lambda error: not isinstance(error, UnsupportedFormatError))
    return next(iter(readers), None)
