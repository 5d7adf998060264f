"""Known names similar to an unknown one: "did you mean ...?"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import islice

from memdesc.errors import MemdescError
from memdesc.names import ANY_NDIMS, CHANNELS_LAST, expand_meta_tag, known_names, parse_name
from memdesc.names.images import IMAGES, is_image, parse_image

# The longest name has 43 characters. Much longer strings are not compared, which would be slow.
_MAX_NAME = 100
# The most suggestions in a message.
_COUNT = 3
# The least ratio of difflib (0 to 1, ignoring case) at which names count as similar.
_MIN_RATIO = 0.5
# The same for names that are for any number of dims.
_MIN_ALIKE = 0.8
_ROW_MAJOR, _CHANNELS_FIRST = ("plain",), ("nchw", "ncw", "ncdhw")
# What torch, Keras, numpy and others call layouts -> the names that are meant.
_MEANT = {
    **dict.fromkeys(("contiguous", "row_major", "rowmajor", "c"), _ROW_MAJOR),
    **dict.fromkeys(("channels_first", "contiguous_format"), _CHANNELS_FIRST),
    "channels_last": ("nhwc", "nwc", "ndhwc"),
    "channels_last_3d": ("ndhwc",),
}
_NUMBER = re.compile("[0-9]+")
# Widths of elements in bits: packings of weights exist only for some of them.
_WIDTHS = (32, 16, 8, 4)


def suggest(text: str, ndims: int | None = None) -> tuple[str, ...]:
    """Return the known names most similar to a string, the most similar first; 3 at most.

    Names for other numbers of dims than `ndims` are returned only if none of these is similar.

    >>> suggest("oiww", 3)
    ('oiw', 'woi', 'owi')
    """
    names = list(meanings(text, ndims) or _for_any_ndims(text, ndims))
    known = _known_strings()
    if len(text) <= _MAX_NAME and text not in known:
        # two neighbours may be swapped
        swaps = (f"{text[:k]}{text[k + 1]}{text[k]}{text[k + 2 :]}" for k in range(len(text) - 1))
        swapped = (name for name in swaps if name in known or name in IMAGES)
        names += [name for name in swapped if ndims in {None, _ndims_of(name)}]
    # what stands before a name in a program is not compared, unless known names have it too
    scope = re.match(r"(.*(::|\.))?", text, re.DOTALL)[0]  # type: ignore[index] # it matches all
    is_known = scope and any(name.startswith(scope) for name in known)
    bare = text if is_known else text.removeprefix(scope)
    names += nearest(bare, (*known, *IMAGES), ndims)
    return tuple(dict.fromkeys(names))[:_COUNT]


def meanings(text: str, ndims: int | None = None) -> tuple[str, ...]:
    """Return the names for what other systems call a layout, such as `HWIO` or `channels_last`.

    If `ndims` is given, only names for that number of dims are returned.
    """
    known = _MEANT.get(text.lower().removeprefix("torch."), ())
    if not known and text.isupper() and text.lower() in _known_strings():
        known = (text.lower(),)
    # `plain` is for any number of dims, which is 0 here
    return tuple(name for name in known if ndims is None or _ndims_of(name) in {0, ndims})


def _for_any_ndims(text: str, ndims: int | None) -> tuple[str, ...]:
    import difflib  # only needed for a wrong name

    near = difflib.get_close_matches(text.lower()[:_MAX_NAME], ANY_NDIMS, cutoff=_MIN_ALIKE)
    # `channels_first` resembles `channels_last`, but means the opposite
    alike = (name for name in near if (name in CHANNELS_LAST) == (near[0] in CHANNELS_LAST))
    fitting = [name for name in alike if ndims is None or expand_meta_tag(name, ndims) != name]
    return () if text in ANY_NDIMS else tuple(fitting)


@cache
def _known_strings() -> dict[str, None]:
    """Return the known names as a set that keeps their order."""
    return dict.fromkeys(name.text for name in known_names())


def nearest(text: str, names: Iterable[str], ndims: int | None) -> tuple[str, ...]:
    """Return those of some names that are most similar to a string; see `suggest`.

    Names are first ranked ignoring case, those with more blocks than the string last. Of these,
    the best three for `ndims` dims are taken, or the best three if there are none. They are ranked
    again with case; a name that differs only in case comes first.
    """
    if len(text) > _MAX_NAME:
        return ()
    import difflib  # only needed for a wrong name

    by_lower: dict[str, list[str]] = {}
    for name in names:
        # names in capitals are short and resemble many strings; `nChw8d` does not mean one of them
        if text.isupper() or not name.isupper() or name.lower() == text.lower():
            by_lower.setdefault(name.lower(), []).append(name)

    def has_more(name: str) -> bool:
        return len(_NUMBER.findall(name)) > len(_NUMBER.findall(text))

    matches = difflib.get_close_matches(text.lower(), by_lower, n=len(by_lower), cutoff=_MIN_RATIO)
    ranked = [by_lower[match] for match in sorted(matches, key=has_more)]
    fitting = ([name for name in alike if _ndims_of(name) == ndims] for alike in ranked)
    best = [] if ndims is None else list(islice(filter(None, fitting), _COUNT))
    candidates = [name for alike in best or ranked[:_COUNT] for name in alike]
    by_case = difflib.get_close_matches(text, candidates, n=len(candidates) or 1, cutoff=0)
    by_case.sort(key=lambda name: (name.lower() != text.lower(), has_more(name)))
    return tuple(by_case[:_COUNT])


def similar_words(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return at most 3 known words that start with a word or resemble it."""
    import difflib  # only a wrong word needs it

    words = [*known]
    longer = [known for known in words if known.startswith(word)]
    near = difflib.get_close_matches(word[:_MAX_NAME], words, n=_COUNT, cutoff=_MIN_RATIO)
    return tuple(dict.fromkeys([*longer, *near]))[:_COUNT]


def did_you_mean(names: tuple[str, ...]) -> str:
    """Return the end of a message that suggests names; empty for none."""
    return f"; did you mean {' or '.join(map(repr, names))}?" if names else ""


def _ndims_of(name: str) -> int:
    """Return the number of dims of a known name; 0 if it is not a layout."""
    for bits in _WIDTHS:
        try:
            return (parse_image(name) if is_image(name) else parse_name(name, bits)).tag.ndims
        except MemdescError:
            continue
    return 0
