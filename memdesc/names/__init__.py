"""All vocabularies, searched in order: known names, the tag of a name, the letters of its dims.

`onednn` and `cldnn`, whose names follow rules, and `weights` are files with one vocabulary each;
`systems` has those of other systems and lists all but oneDNN's, and `images` has the types of
images. To add a vocabulary, write a table in `systems`, and add it to `VOCABULARIES` there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from itertools import chain
from types import MappingProxyType

from memdesc.errors import MemdescError, UnknownFormatError, UnsupportedFormatError
from memdesc.immutable import immutable
from memdesc.lazy import import_lock
from memdesc.names import onednn
from memdesc.names.images import IMAGES, ParsedImage, check_image_dims, parse_image
from memdesc.names.vocabulary import ANY_WIDTH, Vocabulary, refuse
from memdesc.tags import LETTERS, FormatTag
from memdesc.tuples import NamedTuple


def vocabularies() -> Iterator[Vocabulary]:
    """Yield all vocabularies; the first that knows a name reads it."""
    yield onednn.VOCABULARY
    # loaded when oneDNN has no such name, or when all names are listed
    with import_lock:
        from memdesc.names.systems import VOCABULARIES

    yield from VOCABULARIES


# Names for any number of dims. Other systems have several for a row-major layout.
_PLAIN = ("plain", "channels_first", "contiguous_format", "contiguous", "row_major")
# What Keras and torch call a layout whose innermost dim is 1, by the number of dims.
CHANNELS_LAST = MappingProxyType(
    {"channels_last": {3: "nwc", 4: "nhwc", 5: "ndhwc"}, "channels_last_3d": {5: "ndhwc"}}
)
ANY_NDIMS = (*_PLAIN, *CHANNELS_LAST)
# stands for all dims that the tag does not name
_REST = "x"


@immutable
class Name(NamedTuple):
    """A name of a layout.

    Parameters
    ----------
    vocabulary : str
        Which system's name it is, such as ``onednn``, or ``weights`` for packings of quantised
        weights, ``memdesc`` for a tag with additions to oneDNN's notation.
    text : str
        The name itself.
    domain : str
        What it describes: ``data``, ``weights``, ...; ``any`` for canonical tags.

    Examples
    --------
    >>> d = memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c")
    >>> next(name for name in d.names() if name.domain == "data")
    Name(vocabulary='onednn', text='nChw8c', domain='data')
    """

    vocabulary: str
    text: str
    domain: str


class ParsedName(NamedTuple):
    """The tag of a name, and the vocabulary that has the name."""

    tag: FormatTag
    vocabulary: Vocabulary


@cache
def known_names() -> tuple[Name, ...]:
    """Return every name of all vocabularies, except MACE's images.

    Some are not layouts and are refused with the reason when used. Well-formed names beyond
    these are read too. Sources: oneDNN 3.13 `dnnl_format_tag_t`; OpenVINO 2021 to 2025
    `format.hpp` and clDNN 2019; MACE. The module of each other vocabulary gives its own.

    >>> [name.vocabulary for name in memdesc.known_names() if name.text == "nChw16c"]
    ['onednn']
    """
    return tuple(
        Name(vocabulary.name, name, vocabulary.family(name)[0])
        for vocabulary in vocabularies()
        for name in vocabulary.known()
    )


@lru_cache(maxsize=64)
def names_for(ndims: int, bits: int) -> tuple[tuple[Name, ParsedName], ...]:
    """Return the known names of layouts with `ndims` dims, for elements of a given width."""
    names = []
    for name in known_names():
        with suppress(UnsupportedFormatError):
            parsed = parse_name(name.text, bits)
            if parsed.tag.ndims == ndims:
                names.append((name, parsed))
    return tuple(names)


@cache
def known_images() -> tuple[Name, ...]:
    """Return the names of all image types: those of OpenVINO are also among its formats."""
    linear = {name.text: name for name in known_names()}
    return tuple(linear.get(text, Name(row.system, text, "image")) for text, row in IMAGES.items())


@lru_cache(maxsize=16384)  # the size of this cache is several times the number of known names
def parse_name(name: str, bits: int) -> ParsedName:
    """Read a name of any vocabulary, for elements of a given width.

    An unknown name is refused with the reason of the vocabulary whose spelling it follows.
    """
    reasons: dict[str, UnknownFormatError] = {}
    for vocabulary in vocabularies():
        try:
            return ParsedName(vocabulary.read(name, bits), vocabulary)
        except UnknownFormatError as error:
            reasons[vocabulary.name] = error
    # the most specific spelling first; oneDNN's, which accepts any letters, last
    scoped = (system for system in vocabularies() if system.bare(name) != name)
    spelled = (system for system in reversed([*vocabularies()]) if system.is_spelled_like(name))
    likely = next(chain(scoped, spelled))
    raise UnknownFormatError(f"unknown format {reasons[likely.name]}")


def dim_letters(name: str) -> str | None:
    """Return what a name calls the logical dims, such as `nchw`; None if it does not say.

    >>> [dim_letters(name) for name in ("nhwc", "b_fs_yx_fsv16", "conv2d_filter", "aBcd16b")]
    ['nchw', 'bfyx', 'oihw', None]
    """
    if name in IMAGES:
        return IMAGES[name].letters
    try:
        known: Iterable[Vocabulary] = [parse_name(name, ANY_WIDTH).vocabulary]
    except MemdescError:
        # tables come first: oneDNN reads letters from the start of any string
        known = reversed([*vocabularies()])
    letters = (vocabulary.family(vocabulary.bare(name))[1] for vocabulary in known)
    return next(filter(None, letters), None)


def is_name(name: str, ndims: int, bits: int) -> bool:
    """Whether a vocabulary has this name, even if only to say that it is not a layout."""
    try:
        parse_name(expand_meta_tag(name, ndims), bits)
    except MemdescError as error:
        return not isinstance(error, UnknownFormatError)
    return True


def letters_for(name: str, ndims: int) -> str | None:
    """Return the letters that a name gives the dims; None unless it has one for each."""
    letters = dim_letters(expand_meta_tag(name, ndims))
    return letters if letters and len(letters) == ndims else None


def expand_meta_tag(name: str, ndims: int) -> str:
    """Return what a name for any number of dims stands for; return other names unchanged.

    `plain` is row-major. A meta-tag of benchdnn names the first dims, and `x` stands for the
    others; as there, dims that a tensor does not have are left out.

    >>> expand_meta_tag("abx", 4), expand_meta_tag("axb", 5), expand_meta_tag("aBx16b", 3)
    ('abcd', 'acdeb', 'aBc16b')
    >>> expand_meta_tag("aBx16b", 1), expand_meta_tag("channels_last", 3), expand_meta_tag("x", 1)
    ('a', 'nwc', 'x')
    """
    if name in _PLAIN:
        return LETTERS[:ndims]
    if name in CHANNELS_LAST:
        return CHANNELS_LAST[name].get(ndims, name)
    # after a number it would be the letter of a block
    if name.count(_REST) != 1 or not re.fullmatch(f"([A-La-l{_REST}]|[0-9]+[A-La-l])+", name):
        return name
    named = "".join(sorted({*name.lower()} - {*"0123456789", _REST}))
    if not named or not LETTERS.startswith(named):
        return name
    tag = name.replace(_REST, LETTERS[len(named) : ndims])
    absent = LETTERS[max(ndims, 1) :]
    return re.sub(f"[0-9]*[{absent}]", "", tag, flags=re.IGNORECASE) if absent else tag


def resolve(name: str, dims: tuple[int, ...], bits: int) -> FormatTag:
    """Find the tag of a name in any vocabulary; suggest similar names for an unknown one.

    A few names exist only for some sizes; dims of `()` skip this check. Packings of weights exist
    only for elements of some widths in bits, and a few names mean another layout for 4-bit ones.
    """
    try:
        tag, vocabulary = parse_name(name, bits)
    except UnknownFormatError as error:
        from memdesc.names.similar import did_you_mean, meanings, suggest  # only for a wrong name

        if meant := meanings(name, len(dims) or None) or meanings(name):
            spelled = " or ".join(map(_spelled, meant))
            raise UnknownFormatError(f"unknown format {name!r}: it is {spelled}") from None
        raise UnknownFormatError(
            f"{error}{did_you_mean(suggest(name, len(dims) or None))}"
        ) from None
    if len(dims) == tag.ndims:
        vocabulary.check_dims(name, dims, tag)
    return tag


def refuse_record(name: str) -> None:
    """Refuse the name of a record, which is not a layout."""
    from memdesc.record import known_records  # only for a wrong name

    if name.lower() in known_records():
        raise UnsupportedFormatError(
            f"{name!r} is a record, blocks with their own scales, and has no layout of elements; "
            f"record_desc(dims, {name!r}) describes it, and `memdesc show {name} DIMS` shows it"
        )


def _spelled(name: str) -> str:
    """Return what a layout is called here, with the order of its logical dims."""
    letters = dim_letters(name)
    return f"{name!r} here" + (f", for logical dims {', '.join(letters)}" if letters else "")


def resolve_image(name: str, dims: tuple[int, ...]) -> ParsedImage:
    """Find the tag of an image type, and how many of its digits belong to rows and columns."""
    try:
        image = parse_image(name)
    except UnknownFormatError as error:
        from memdesc.names import cldnn  # only for a wrong name
        from memdesc.names.similar import did_you_mean, nearest

        # it has the reason for images that cannot be described
        refuse(name, cldnn.VOCABULARY.refused)
        raise UnknownFormatError(
            f"{error}{did_you_mean(nearest(name, IMAGES, len(dims)))}"
        ) from None
    if len(dims) == image.tag.ndims:
        check_image_dims(name, dims)
    return image
