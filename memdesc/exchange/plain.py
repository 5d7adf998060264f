"""Strides, `480x160x32x8:8b@16`, and the strings of oneDNN's verbose mode.

Strides are elements between whole blocks of each dim, joined by x or commas. The inner blocks,
outermost first, and the offset of element 0 follow if there are any. A tuple or list of strides, as
numpy and torch print them, is read too.
"""

from __future__ import annotations

import re
from dataclasses import replace

from memdesc.desc import MemoryDesc, memory_desc
from memdesc.errors import (
    MemdescError,
    NotBlockedError,
    UnknownFormatError,
    UnsupportedFormatError,
    short_repr,
)
from memdesc.exchange.system import Given, System, cannot, indescribable
from memdesc.tags import LETTERS
from memdesc.verbose import from_verbose, to_verbose

_NAME, _LOG = "strides", "verbose"
_INTEGER = "-?[0-9]{1,19}"
_STRIDES = (
    rf"\s*(?P<strides>{_INTEGER}(?:\s*[x,]\s*{_INTEGER})*)\s*"
    rf"(?::(?P<inner>(?:[0-9]{{1,19}}[a-l])+))?(?:@(?P<offset0>{_INTEGER}))?\s*"
)
# what Python prints; the sizes of a tensor look the same, but are not a layout
_TUPLE = rf"\s*[(\[]\s*(?P<tuple>{_INTEGER}(?:\s*,\s*{_INTEGER})*)\s*,?\s*[)\]]\s*"
# numbers joined by x or commas, whatever follows: the reader says what is wrong
_SPELLING = rf"{_STRIDES}|{_TUPLE}|\s*-?[0-9]+\s*[x,].*"
_VERBOSE = (
    r"(?:(?:src|dst|wei|bia)\w*[:_])?\w+:[apo0]*:(?:blocked|any|undef|sparse|opaque|wino)\b.*"
)


def _strides(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    try:
        strides, inner = desc.strides, zip(desc.inner_blks, desc.inner_idxs, strict=True)
    except NotBlockedError as error:
        raise cannot(_NAME, desc, str(error)) from None
    text = "x".join(map(str, strides))
    if blocks := "".join(f"{size}{LETTERS[dim]}" for size, dim in inner):
        text += f":{blocks}"
    return (f"{text}@{desc.offset0}" if desc.offset0 else text,)


def _read_strides(given: Given) -> MemoryDesc:
    found = re.fullmatch(f"{_STRIDES}|{_TUPLE}", given.text)
    if found is None:
        msg = (
            f"strides {short_repr(given.text)} are not integers joined by x or commas, such as "
            "340x20x4x1 or 480x160x32x8:8b@16"
        )
        raise UnknownFormatError(msg)
    if given.dims is None:
        # the likeliest mistake: sizes in the place of a layout
        text = short_repr(given.text)
        msg = f"{text} is read as strides, which do not contain the sizes; give dims"
        raise UnknownFormatError(msg)
    inner = re.findall("([0-9]+)([a-l])", found["inner"] or "")
    return memory_desc(
        given.sizes(),
        given.type(),
        strides=[int(each) for each in re.split("[x,]", found["strides"] or found["tuple"])],
        inner_blks=[int(size) for size, _ in inner],
        inner_idxs=[LETTERS.index(letter) for _, letter in inner],
        offset0=int(found["offset0"] or 0),
    )


def _log_string(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    try:
        return (to_verbose(desc),)
    except NotBlockedError as error:
        raise cannot(_LOG, desc, str(error)) from None


def _read_log(given: Given) -> MemoryDesc:
    try:
        desc = from_verbose(given.text.strip(), given.sizes(has_type=True))
    except UnsupportedFormatError:
        raise
    except MemdescError as error:
        raise UnknownFormatError(str(error)) from None
    if not isinstance(desc, MemoryDesc):
        raise indescribable(given.text, "it is known only at execution")
    given.type(desc.dtype)
    return desc


def _exactly(system: System) -> System:
    """Return a system that refuses to write what it would not read as the same descriptor."""

    def write(desc: MemoryDesc, letters: str) -> tuple[str, ...]:
        texts = system.write(desc, letters)
        try:
            is_same = system.read(Given(texts[0], desc.dims, desc.dtype, None)) == desc
        except MemdescError:
            is_same = False
        if not is_same:
            raise cannot(system.name, desc, "its strings do not contain this padding or offset")
        return texts

    return replace(system, write=write)


STRIDES = _exactly(
    System(_NAME, "strides, as 480x160x32x8:8b@16", _strides, _read_strides, _SPELLING)
)
VERBOSE = _exactly(System(_LOG, "strings of oneDNN's logs", _log_string, _read_log, _VERBOSE))
