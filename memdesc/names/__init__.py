"""The vocabularies: each file knows one, this one knows all of them."""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from itertools import islice
from pkgutil import get_data
from typing import TYPE_CHECKING, NamedTuple

from memdesc.errors import MemdescError, UnknownFormatError, short_repr
from memdesc.names import cldnn, mace, onednn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memdesc.tags import FormatTag

__all__ = ["Name", "dim_letters", "is_image", "known_names", "resolve", "resolve_image", "suggest"]

# The longest name has 43 characters; what is far longer resembles none.
_MAX_NAME = 100


class Name(NamedTuple):
    """A name of a layout.

    `vocabulary` is ``onednn``, ``cldnn`` or ``mace``; `domain` says what the name
    speaks of (``data``, ``weights``, ...), ``any`` for oneDNN's canonical tags.
    """

    vocabulary: str
    text: str
    domain: str


def resolve(text: str, dims: tuple[int, ...], bits: int) -> FormatTag:
    """Find the tag of a name in any vocabulary.

    Parameters
    ----------
    text : str
        A name of oneDNN, clDNN / OpenVINO or MACE, or the canonical notation.
    dims : tuple of int
        Logical sizes; a few names exist for some sizes only.
    bits : int
        Width of an element; a few names pack 4-bit elements differently.

    Raises
    ------
    UnknownFormatError
        If no vocabulary has the name; with the nearest names.
    UnsupportedFormatError
        If the name is known, but no layout of elements; with the reason.
    """
    if not isinstance(text, str):
        msg = f"a tag is a name or a FormatTag, not {short_repr(text)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    try:
        tag = _parse(text, packed=bits == 4)  # noqa: PLR2004 - two elements share a byte
    except UnknownFormatError as error:
        msg = f"{error}{_hint(suggest(text, len(dims) or None))}"
        raise UnknownFormatError(msg) from None
    if "_" in text and len(dims) == tag.ndims:
        cldnn.check_dims(text, dims)
    return tag


def resolve_image(text: str, dims: tuple[int, ...]) -> tuple[FormatTag, int, int]:
    """Find the tag of an image type, and how many digits make its row and column.

    Raises
    ------
    UnknownFormatError, UnsupportedFormatError, MemdescError
        As `resolve`; and where the image type does not have these dims.
    """
    try:
        tag, rows, columns = mace.parse_image(text)
    except UnknownFormatError as error:
        cldnn.refuse(text)
        msg = f"{error}{_hint(_nearest(text, mace.IMAGES, len(dims)))}"
        raise UnknownFormatError(msg) from None
    if len(dims) == tag.ndims:
        mace.check_image_dims(text, dims)
    return tag, rows, columns


def dim_letters(text: str) -> str | None:
    """Return what a name calls the logical dims, such as `nchw`; None where it has no words for them.

    >>> dim_letters("nhwc"), dim_letters("b_fs_yx_fsv16"), dim_letters("conv2d_filter"), dim_letters("aBcd16b")
    ('nchw', 'bfyx', 'oihw', None)
    """
    return mace.letters(text) or onednn.letters(text) or cldnn.letters(text) or None


def is_image(text: str) -> bool:
    """Whether a name is one of an image type, not of a linear buffer."""
    return text in mace.IMAGES or "|" in text


@lru_cache(maxsize=8192)  # all known names twice, and then some
def _parse(text: str, *, packed: bool) -> FormatTag:
    errors: dict[str, MemdescError] = {}
    for module in (onednn, cldnn, mace):
        try:
            return cldnn.parse(text, packed=packed) if module is cldnn else module.parse(text)
        except UnknownFormatError as error:
            errors[module.VOCABULARY] = error
    msg = f"unknown format {errors[_spelled_like(text)]}"
    raise UnknownFormatError(msg)


def _spelled_like(text: str) -> str:
    """Return the vocabulary whose spelling a text follows."""
    if text.isupper() and text.isalpha():
        return mace.VOCABULARY
    # fs_yx, or ab__ai8, or bfyxx; but ab__b8 is the canonical notation
    if re.search(r"[^_]_[^_]|__a[a-z]", text) or cldnn.is_plain(text):
        return cldnn.VOCABULARY
    return onednn.VOCABULARY


def _hint(near: tuple[str, ...]) -> str:
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


@cache
def known_names() -> tuple[Name, ...]:
    """Return every name that the three systems define, but for MACE's images.

    A few of clDNN's are refused when used, with the reason. Well-formed names
    beyond these are read too. Sources: oneDNN 3.13
    `dnnl_format_tag_t`; OpenVINO 2021 to 2025 `format.hpp` and clDNN 2019; MACE.
    """
    table = json.loads(get_data(__name__, "known.json") or b"")
    names = [Name(onednn.VOCABULARY, text, onednn.domain(text)) for text in table["onednn"]]
    names += [Name(cldnn.VOCABULARY, text, cldnn.domain(text)) for text in table["cldnn"]]
    names += [Name(mace.VOCABULARY, text, mace.domain(text)) for text in mace.BUFFERS]
    return tuple(names)


def suggest(text: str, ndims: int | None = None) -> tuple[str, ...]:
    """Return the known names nearest to a text, the nearest first, 3 at most.

    Parameters
    ----------
    text : str
        What is no name.
    ndims : int, optional
        Prefer names for so many dims: others come only where none of these resembles the text.

    Examples
    --------
    >>> import memdesc
    >>> memdesc.suggest("oiww", 3)
    ('oiw', 'Oiw8o', 'Oiw4o')
    """
    if not isinstance(text, str):
        msg = f"a name is a text, not {short_repr(text)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    return _nearest(text, (*(name.text for name in known_names()), *mace.IMAGES), ndims)


def _nearest(text: str, names: Iterable[str], ndims: int | None) -> tuple[str, ...]:
    if len(text) > _MAX_NAME:
        return ()
    lower: dict[str, list[str]] = {}
    for name in names:
        lower.setdefault(name.lower(), []).append(name)
    import difflib  # noqa: PLC0415 - only a wrong name needs it

    found = [
        lower[match]
        for match in difflib.get_close_matches(text.lower(), lower, n=len(lower), cutoff=0.5)
    ]
    fitting = (
        own for alike in found if (own := [name for name in alike if _ndims_of(name) == ndims])
    )
    groups = [] if ndims is None else list(islice(fitting, 3))
    near = [name for alike in groups or found[:3] for name in alike]
    return tuple(difflib.get_close_matches(text, near, n=3, cutoff=0))


def _ndims_of(name: str) -> int:
    """Return how many dims a known name speaks of; 0 for one that is no layout."""
    try:
        return (
            mace.parse_image(name)[0].ndims if is_image(name) else _parse(name, packed=False).ndims
        )
    except MemdescError:
        return 0
