"""All vocabularies, searched in order: known names, the tag of a name, the letters of its dims."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from memdesc.errors import UnknownFormatError, UnsupportedFormatError
from memdesc.immutable import immutable
from memdesc.names import cldnn, images, onednn, systems, weights

if TYPE_CHECKING:
    from memdesc.names.vocabulary import Vocabulary
    from memdesc.tags import FormatTag

# The first vocabulary that knows a name reads it. A new vocabulary is a further entry.
VOCABULARIES: tuple[Vocabulary, ...] = (
    onednn.VOCABULARY,
    cldnn.VOCABULARY,
    systems.MACE,
    weights.VOCABULARY,
    systems.TENSORRT,
    systems.ACL,
    systems.ASCEND,
    systems.NCNN,
    systems.MNN,
    systems.TFLITE_GPU,
    systems.EXECUTORCH,
    systems.KV_CACHE,
)


@immutable
class Name(NamedTuple):
    """A name of a layout.

    Parameters
    ----------
    vocabulary : str
        ``onednn``, ``cldnn``, ``mace``, ``weights`` (packings of quantised weights), ``tensorrt``,
        ``acl``, ``ascend``, ``ncnn``, ``mnn``, ``tflite_gpu``, ``executorch`` or ``kvcache``
        (orders of paged KV caches); ``memdesc`` for a tag with additions to oneDNN's notation.
        Image types of Paddle-Lite and TVM have ``paddle`` and ``tvm``.
    text : str
        The name itself.
    domain : str
        What it describes: ``data``, ``weights``, ...; ``any`` for canonical tags.

    Examples
    --------
    >>> import memdesc
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

    Examples
    --------
    >>> import memdesc
    >>> [name.vocabulary for name in memdesc.known_names() if name.text == "nChw16c"]
    ['onednn']
    """
    return tuple(
        Name(vocabulary.name, name, vocabulary.domain(name))
        for vocabulary in VOCABULARIES
        for name in vocabulary.known()
    )


@lru_cache(maxsize=64)
def names_for(ndims: int, bits: int) -> tuple[tuple[Name, ParsedName], ...]:
    """Return the known names of layouts of so many dims, for elements of a given width."""
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
    return tuple(
        linear.get(text, Name(row.system, text, "image")) for text, row in images.IMAGES.items()
    )


def parse_name(name: str, bits: int) -> ParsedName:
    """Read a name of any vocabulary, for elements of a given width.

    An unknown name is refused with the reason of the vocabulary whose spelling it follows.
    """
    for vocabulary in VOCABULARIES:
        if (tag := vocabulary.tag(name, bits)) is not None:
            return ParsedName(tag, vocabulary)
    parsed = _parse_name(name)
    if isinstance(parsed, str):
        raise UnsupportedFormatError(parsed)
    return parsed


@lru_cache(maxsize=8192)  # several times the number of known names
def _parse_name(name: str) -> ParsedName | str:
    """Read a name for elements of any width; return the reason if it is known but not a layout."""
    reasons: dict[str, UnknownFormatError] = {}
    for vocabulary in VOCABULARIES:
        try:
            return ParsedName(vocabulary.parse(vocabulary.bare(name)), vocabulary)
        except UnsupportedFormatError as error:
            return str(error)
        except UnknownFormatError as error:
            reasons[vocabulary.name] = error
    # the most specific spelling first; oneDNN's, which accepts any letters, last
    scoped = (one for one in VOCABULARIES if one.bare(name) != name)
    spelled = (one for one in reversed(VOCABULARIES) if one.is_spelled_like(name))
    likely = next(chain(scoped, spelled))
    raise UnknownFormatError(f"unknown format {reasons[likely.name]}")


def dim_letters(name: str) -> str | None:
    """Return what a name calls the logical dims, such as `nchw`; None if it does not say.

    >>> [dim_letters(name) for name in ("nhwc", "b_fs_yx_fsv16", "conv2d_filter", "aBcd16b")]
    ['nchw', 'bfyx', 'oihw', None]
    """
    if name in images.IMAGES:
        return images.IMAGES[name].letters
    # tables come first: oneDNN reads letters from the start of any string
    letters = (vocabulary.letters(vocabulary.bare(name)) for vocabulary in reversed(VOCABULARIES))
    return next(filter(None, letters), None)
