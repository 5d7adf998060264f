"""Strides, `480x160x32x8:8b@16`, and the strings of oneDNN's verbose mode.

Strides are elements between whole blocks of each dim, joined by x or commas. The inner blocks,
outermost first, and the offset of element 0 follow if there are any. A tuple or list of strides, as
numpy and torch print them, is read too.
"""

from __future__ import annotations

import re

from memdesc.desc import MemoryDesc, memory_desc
from memdesc.errors import MemdescError, UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.exchange.system import Given, System, impossible
from memdesc.tags import LETTERS
from memdesc.verbose import from_verbose, to_verbose

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
    text = "x".join(map(str, desc.strides))
    inner = zip(desc.inner_blks, desc.inner_idxs, strict=True)
    if blocks := "".join(f"{size}{LETTERS[dim]}" for size, dim in inner):
        text += f":{blocks}"
    return (f"{text}@{desc.offset0}" if desc.offset0 else text,)


def _read_strides(given: Given) -> MemoryDesc:
    match = re.fullmatch(f"{_STRIDES}|{_TUPLE}", given.text)
    if match is None:
        raise UnknownFormatError(
            f"strides {short_repr(given.text)} are not integers joined by x or commas, such as "
            "340x20x4x1 or 480x160x32x8:8b@16"
        )
    if given.dims is None:
        # the likeliest mistake: sizes in place of a layout
        what = "is read as strides, which do not contain the sizes; give dims"
        raise UnknownFormatError(f"{short_repr(given.text)} {what}")
    inner = re.findall("([0-9]+)([a-l])", match["inner"] or "")
    return memory_desc(
        given.sizes(),
        given.type(),
        strides=map(int, re.split("[x,]", match["strides"] or match["tuple"])),
        inner_blks=[int(size) for size, _ in inner],
        inner_idxs=[LETTERS.index(letter) for _, letter in inner],
        offset0=int(match["offset0"] or 0),
    )


def _read_log(given: Given) -> MemoryDesc:
    try:
        desc = from_verbose(given.text, given.sizes(has_type=True))
    except UnsupportedFormatError:
        raise
    except MemdescError as error:
        raise UnknownFormatError(str(error)) from None
    if not isinstance(desc, MemoryDesc):
        impossible("it is known only at execution")
    given.type(desc.dtype)
    return desc


_REFUSAL = "its strings do not contain this padding or offset"


STRIDES = System("strides", "strides", _strides, _read_strides, _SPELLING, refusal=_REFUSAL)
VERBOSE = System(
    "verbose",
    "verbose",
    lambda desc, _: (to_verbose(desc),),
    _read_log,
    _VERBOSE,
    refusal=_REFUSAL,
)
