"""Known names that resemble an unknown one: "did you mean ...?"."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from memdesc.errors import MemdescError, short_repr
from memdesc.int64 import checked_int
from memdesc.names.images import IMAGES, is_image, parse_image
from memdesc.names.registry import known_names, parse_name
from memdesc.names.weights import EXPERTS

if TYPE_CHECKING:
    from collections.abc import Iterable

# The longest name has 43 characters. Much longer strings are not compared, since that takes long.
_MAX_NAME = 100
# Suggestions in one message.
_COUNT = 3
# A name resembles another from this ratio of difflib on (0 to 1), whatever the case of letters.
_RESEMBLES = 0.5
# What torch, Keras, numpy and others call layouts, each with the names that are meant.
_MEANT = {
    "channels_last": ("nhwc", "nwc", "ndhwc"),
    "channels_last_3d": ("ndhwc",),
    "channels_first": ("nchw", "ncw", "ncdhw"),
    "contiguous_format": ("nchw", "ncw", "ncdhw"),
    "row_major": ("plain",),
    "rowmajor": ("plain",),
    "c": ("plain",),
}
_NUMBER = re.compile("[0-9]+")
# Widths of elements in bits: packings of weights have names for some of them only.
_WIDTHS = (32, 16, 8, 4)
# Spatial dims of names for other numbers of dims, of oneDNN and of OpenVINO.
_SPATIAL = (("hw", "dhw"), ("dhw", "hw"), ("hw", "w"), ("yx", "zyx"), ("zyx", "yx"))


def suggest(text: str, ndims: int | None = None) -> tuple[str, ...]:
    """Return the known names nearest to a string, the nearest first, 3 at most.

    Parameters
    ----------
    text : str
        The unknown name.
    ndims : int, optional
        Prefer names for this number of dims: others are returned only where none of
        these resembles the string.

    Examples
    --------
    >>> import memdesc
    >>> memdesc.suggest("oiww", 3)
    ('oiw', 'woi', 'owi')
    """
    if not isinstance(text, str):
        msg = f"a name is a string, not {short_repr(text)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    if ndims is not None:
        ndims = checked_int("ndims", ndims)
    meant = meanings(text, ndims)
    alike = nearest(text, (*(name.text for name in known_names()), *IMAGES), ndims)
    return (*meant, *alike)[:_COUNT]


def meanings(text: str, ndims: int | None = None) -> tuple[str, ...]:
    """Return the names for what other systems call a layout, such as `HWIO` or `channels_last`.

    They are for `ndims` dims, if that is given.

    >>> meanings("HWIO"), meanings("torch.channels_last", 3), meanings("nChw16x")
    (('hwio',), ('nwc',), ())
    """
    known = _MEANT.get(text.lower().removeprefix("torch."), ())
    if not known and text.isupper() and text.lower() in _known_strings():
        known = (text.lower(),)
    # 0: `plain`, for any number of dims
    return tuple(name for name in known if ndims is None or _ndims_of(name) in {0, ndims})


def siblings(text: str, ndims: int) -> tuple[str, ...]:
    """Return the known names for `ndims` dims that a name for another number may be meant as.

    They differ in groups or experts, or in depth and height. No name is compared with all others
    here, since callers try names for a number of dims in loops.
    """
    text = text.lower() if text.isupper() else text  # of MACE, whose names have 4 dims
    variants = [f"g{text}", text.removeprefix("g")]
    variants += [f"{text}{EXPERTS}", text.removesuffix(EXPERTS)]
    variants += [text.replace(old, new) for old, new in _SPATIAL]
    known = _known_strings()
    return tuple(
        name for name in dict.fromkeys(variants) if name in known and _ndims_of(name) == ndims
    )


@cache
def _known_strings() -> frozenset[str]:
    return frozenset(name.text for name in known_names())


def nearest(text: str, names: Iterable[str], ndims: int | None) -> tuple[str, ...]:
    """Return which of some names are nearest to a string; as `suggest`.

    First the names are ranked without regard to case, those with more blocks than the string
    last; then those for `ndims` dims are taken, the best three of each rank, and last these are
    ranked by case too; a name that differs in case alone comes first.
    """
    if len(text) > _MAX_NAME:
        return ()
    by_lower: dict[str, list[str]] = {}
    for name in names:
        by_lower.setdefault(name.lower(), []).append(name)
    import difflib  # only a wrong name needs it

    matches = difflib.get_close_matches(text.lower(), by_lower, n=len(by_lower), cutoff=_RESEMBLES)
    count = len(_NUMBER.findall(text))

    def has_more(name: str) -> bool:
        return len(_NUMBER.findall(name)) > count

    ranked = [by_lower[match] for match in sorted(matches, key=has_more)]
    fitting = (
        same_dims
        for alike in ranked
        if (same_dims := [name for name in alike if _ndims_of(name) == ndims])
    )
    best = [] if ndims is None else list(islice(fitting, _COUNT))
    candidates = [name for alike in best or ranked[:_COUNT] for name in alike]
    by_case = difflib.get_close_matches(text, candidates, n=len(candidates) or 1, cutoff=0)
    by_case.sort(key=lambda name: (name.lower() != text.lower(), has_more(name)))
    return tuple(by_case[:_COUNT])


def did_you_mean(names: tuple[str, ...]) -> str:
    """Return the end of a message that suggests names; empty for none."""
    return f"; did you mean {' or '.join(map(repr, names))}?" if names else ""


def _ndims_of(name: str) -> int:
    """Return the number of dims of a known name; 0 for one that is no layout."""
    for bits in _WIDTHS:
        try:
            return (parse_image(name) if is_image(name) else parse_name(name, bits)).tag.ndims
        except MemdescError:
            continue
    return 0
