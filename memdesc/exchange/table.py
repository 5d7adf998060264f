"""The table of systems, and the functions that write and read with one of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType

from memdesc.desc import MemoryDesc, checked_desc, desc_of, memory_desc
from memdesc.errors import MemdescError, short_repr
from memdesc.exchange import cute, cutlass, mlir, openvino, plain, pytorch, triton, tvm, xla
from memdesc.exchange.system import Given, System, checked_letters, inexpressible, tag_of
from memdesc.layout import layout_by_tag
from memdesc.names import Name
from memdesc.names.onednn import CANONICAL
from memdesc.names.registry import VOCABULARIES
from memdesc.names.suggest import did_you_mean, similar_words
from memdesc.names.vocabulary import Vocabulary
from memdesc.tags import LETTERS


def _system_of(vocabulary: Vocabulary) -> System:
    """Return a vocabulary as a system: it writes its names of a layout, canonical tags first."""
    return System(
        vocabulary.name,
        vocabulary.name,
        f"names of {vocabulary.name}",
        partial(_write, vocabulary),
        partial(_read, vocabulary),
    )


def _write(vocabulary: Vocabulary, desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    names = [name for name in desc.names() if name.vocabulary == vocabulary.name]
    if not names:
        inexpressible(f"it has no name for {tag_of(desc)} of {desc.dtype}")
    names.sort(key=lambda name: name.domain != CANONICAL)
    return tuple(name.text for name in names)


def _read(vocabulary: Vocabulary, given: Given) -> MemoryDesc:
    dims, dtype = given.sizes(), given.type()
    tag = vocabulary.tag(given.text, dtype.bits) or vocabulary.parse(given.text)
    vocabulary.check_dims(given.text, dims, tag)
    return desc_of(dtype, layout_by_tag(tag, dims, given.text))


# reads what `memory_desc` reads, and writes str(FormatTag)
_NOTATION = System(
    "memdesc",
    "memdesc",
    "any name, and the notation of FormatTag",
    lambda desc, _: (str(tag_of(desc)),),
    lambda given: memory_desc(given.sizes(), given.type(), given.text),
)


# A new system is a further entry; vocabularies come from VOCABULARIES.
SYSTEMS: Mapping[str, System] = MappingProxyType(
    {
        system.name: system
        for system in (
            _NOTATION,
            *map(_system_of, VOCABULARIES),
            plain.STRIDES,
            plain.VERBOSE,
            cute.SYSTEM,
            cutlass.SYSTEM,
            xla.SYSTEM,
            pytorch.SYSTEM,
            triton.SYSTEM,
            tvm.SYSTEM,
            mlir.SYSTEM,
            openvino.SYSTEM,
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
    >>> from memdesc.exchange import written
    >>> written(memdesc.memory_desc((2, 17, 5, 4), "f32", "b_fs_yx_fsv16"), "onednn")
    ('aBcd16b', 'nChw16c', 'gOiw16o')
    """
    if not isinstance(system, str) or system not in SYSTEMS:
        raise MemdescError(no_system(system))
    notation = SYSTEMS[system]
    checked_desc("desc", desc)
    alphabet = LETTERS[: desc.ndims]
    if letters is not None:
        return notation.write(desc, checked_letters(letters, desc.ndims) or alphabet)
    texts = notation.write(desc, checked_letters(desc.letters, desc.ndims) or alphabet)
    # without letters a string is read with those of a family, which may be other dims
    try:
        is_same = notation.read(Given(texts[0], desc.dims, desc.dtype, None)) == desc
    except MemdescError:
        is_same = False
    return texts if is_same else notation.write(desc, alphabet)


def no_system(name: object) -> str:
    """Return what to say about a name that is not one of `SYSTEMS`."""
    near = similar_words(name.lower(), SYSTEMS) if isinstance(name, str) else ()
    return (
        f"there is no system {short_repr(name)}; the systems are {', '.join(SYSTEMS)}"
        f"{did_you_mean(near)}"
    )
