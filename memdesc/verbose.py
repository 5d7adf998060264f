"""Write descriptors as oneDNN's verbose mode prints them, and read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from memdesc.desc import MemoryDesc, checked_desc, memory_desc
from memdesc.errors import MemdescError, UnsupportedFormatError, short_repr
from memdesc.extra import Extra
from memdesc.int64 import RUNTIME, checked_int, checked_ints
from memdesc.layout import Block, dim_name
from memdesc.names.onednn import VOCABULARY
from memdesc.runtime_dims import UNKNOWN, RuntimeDesc, runtime_desc
from memdesc.tags import LETTERS, Digit, parse_tag

# [src:]dtype:flags:blocked:tag:strides:extra. The flags are letters in this order: a (format kind
# any), p (padded dims), o (padded offsets), 0 (offset0). The tag is * if a stride is known only at
# execution. Strides are joined by x, and left out if they are dense; oneDNN 2 also leaves out the
# colon after them.
_VERBOSE = (
    r"(?:(?:src|dst|wei|bia)[0-9]*[:_])?"
    r"(?P<dtype>\w+):(?P<flags>a?p?o?0?):blocked:(?P<tag>\*|[A-Za-z0-9]+):"
    r"(?:(?P<strides>-?[0-9]{1,19}(?:x-?[0-9]{1,19})*)?:)?"
    r"f(?P<extra>0|[1-9][0-9]*(?::\S*)?)"
)
# the other format kinds: f32:a:any:any::f0, undef::undef:::, f32::sparse:csr::f0, f32::opaque:::f0
_OTHER_KIND = (
    r"(?:(?:src|dst|wei|bia)[0-9]*[:_])?"
    r"\w+:a?p?o?0?:(?P<kind>any|undef|sparse|opaque|rnn_packed|wino):"
    r"[^:\s]*:(?:[^:\s]*:)?(?:f\S*)?"
)
# sizes joined by x; a star stands for one that is known only at execution
DIMS = r"(?:[0-9]{1,19}|\*)(?:x(?:[0-9]{1,19}|\*))*"


def to_verbose(desc: MemoryDesc | RuntimeDesc) -> str:
    """Write a descriptor as oneDNN's verbose mode prints it, without dims.

    Data types that oneDNN lacks (s16, u64, ...) are written with their name in `DATA_TYPES`. The
    tag is ``*`` if a stride is known only at execution. Source: oneDNN 3.13, `verbose.cpp`.

    Parameters
    ----------
    desc : MemoryDesc or RuntimeDesc
        The descriptor to write.

    Raises
    ------
    NotBlockedError
        If oneDNN's fields cannot describe the layout.

    Examples
    --------
    >>> memdesc.verbose.to_verbose(memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c"))
    'f32:p:blocked:aBcd8b::f0'
    """
    if isinstance(desc, RuntimeDesc):
        tag, sizes, text = desc.tag, desc.padded_dims, UNKNOWN
        if tag is not None and RUNTIME not in desc.strides:
            # as in oneDNN, a runtime dim has the least extent
            whole = zip(sizes, tag.block_sizes, strict=True)
            outer = [(size if size == RUNTIME else size // block, block) for size, block in whole]
            text = _tag(desc.strides, outer, [digit for digit in tag.digits if digit.extent])
        padded = "p" if tag is not None and desc.dims != sizes else ""
        return f"{desc.dtype}:{padded}:blocked:{text}::f0"
    checked_desc("desc", desc)
    flags = ("p" if desc.dims != desc.padded_dims else "") + ("0" if desc.offset0 else "")
    outer = [(blocks[0].extent, blocks[0].step) for _, blocks in desc.layout.parts]
    text = _tag(desc.strides, outer, desc.layout.tile(desc.letters))
    # compensation starts at a multiple of 4 bytes; oneDNN treats the bytes before it as a gap
    is_dense = desc.is_dense and not (desc.compensation_spans and desc.padded_nelems % 4)
    strides = "" if is_dense else "x".join(map(str, desc.strides))
    extra = "f0" if desc.extra is None else desc.extra.to_verbose()
    return f"{desc.dtype}:{flags}:blocked:{text}:{strides}:{extra}"


def _tag(
    strides: Sequence[int], outer: Sequence[tuple[int, int]], inner: Sequence[Block | Digit]
) -> str:
    """Return a tag, given the strides, the extent and step of outer blocks, and inner blocks."""
    # oneDNN compares strides minus 1 as unsigned numbers: a stride of 0 is the largest
    order = sorted(
        range(len(strides)), key=lambda dim: (-((strides[dim] - 1) % 2**64), -outer[dim][0], dim)
    )
    letters = (LETTERS[dim].upper() if outer[dim][1] > 1 else LETTERS[dim] for dim in order)
    return "".join([*letters, *(f"{block.extent}{LETTERS[block.axis]}" for block in inner)])


def from_verbose(
    text: str, dims: Iterable[int] | str, *, offset0: int = 0
) -> MemoryDesc | RuntimeDesc:
    """Read a descriptor from oneDNN's verbose output.

    *Law*: `from_verbose` undoes `to_verbose` for layouts made from a tag, and for strides with
    gaps if all dims or none are padded to whole blocks. The string does not contain other
    padding, the value of `offset0`, or the strides of unit dims.

    Parameters
    ----------
    text : str
        Such as ``"f32:p:blocked:aBcd8b::f0"``; a leading ``src:`` is ignored.
    dims : iterable of int, or str
        The sizes, with `RUNTIME` for those that are not known, or the string that verbose lines
        have for them: ``"2x17x5x4"``, ``"2x*x4"``.
    offset0 : int
        The offset of a view; the string only says whether it is 0 (flag ``0``).

    Returns
    -------
    MemoryDesc or RuntimeDesc
        The latter if a size or a stride is known only at execution.

    Raises
    ------
    UnsupportedFormatError
        If the string does not describe strided memory (format kinds any, undef, sparse, opaque),
        or describes compensation that an `Extra` cannot.

    Examples
    --------
    >>> memdesc.verbose.from_verbose("src:s8::blocked:acdb::f0", (1, 3, 2, 2))
    memory_desc((1, 3, 2, 2), 's8', 'acdb')
    >>> memdesc.verbose.from_verbose("src:f32:p:blocked:aBc8b::f0", "*x20x4")
    runtime_desc((memdesc.RUNTIME, 20, 4), 'f32', 'aBc8b')
    """
    text = text.strip() if isinstance(text, str) else text
    match = re.fullmatch(_VERBOSE, text) if isinstance(text, str) else None
    if match is None:
        if isinstance(text, str) and (other := re.fullmatch(_OTHER_KIND, text)):
            raise UnsupportedFormatError(
                f"{short_repr(text)} does not describe strided memory: "
                f"{VOCABULARY.refused[other['kind']]}"
            )
        raise MemdescError(
            f"{short_repr(text)} does not have the form dtype:flags:blocked:tag:strides:f0, "
            "such as 'f32:p:blocked:aBcd8b::f0'"
        )
    extra = Extra.from_verbose(f"f{match['extra']}")
    if isinstance(dims, str) and re.fullmatch(DIMS, dims):
        dims = read_dims(dims)
    sizes = checked_ints("dims", dims, least=RUNTIME)  # type: ignore[arg-type] # letters are refused there
    start, flags = checked_int("offset0", offset0), match["flags"]
    if "o" in flags:
        raise MemdescError(f"{short_repr(text)}: padded offsets (flag 'o') are not in the string")
    if ("0" in flags) != bool(start):
        raise MemdescError(
            f"{short_repr(text)}: flag '0' says whether offset0 is other than 0, "
            f"but offset0 is {start}; the string does not contain its value"
        )
    if RUNTIME in sizes or match["tag"] == "*":
        if start or extra or match["strides"]:
            raise MemdescError(
                f"{short_repr(text)} over dims {_shown(sizes)}: runtime dims are described by a "
                "tag alone, without offset0, strides or compensation"
            )
        return _runtime_from_verbose(match, sizes)
    tag = parse_tag(match["tag"])
    dense = memory_desc(sizes, match["dtype"], tag)
    inner = [digit for digit in tag.digits if digit.extent]
    is_padded = "p" in flags
    desc = memory_desc(
        sizes,
        match["dtype"],
        strides=map(int, match["strides"].split("x")) if match["strides"] else dense.strides,
        inner_blks=[digit.extent for digit in inner],
        inner_idxs=[digit.axis for digit in inner],
        padded_dims=None if is_padded else sizes,
        offset0=start,
    )
    if not is_padded:
        _check_whole_blocks(text, sizes, tag.block_sizes, has_strides=bool(match["strides"]))
    elif desc.padded_dims == sizes:
        raise MemdescError(
            f"{short_repr(text)}: flag 'p' says that dims are padded, "
            f"but no block pads {sizes}, and the string does not contain padded dims"
        )
    return desc.with_extra(extra)


def read_dims(text: str) -> tuple[int, ...]:
    """Return the sizes in a string of the form `DIMS`."""
    return tuple(RUNTIME if size == "*" else int(size) for size in text.split("x"))


def _shown(sizes: tuple[int, ...]) -> str:
    return short_repr("x".join("*" if size == RUNTIME else str(size) for size in sizes))


def _runtime_from_verbose(match: re.Match[str], sizes: tuple[int, ...]) -> RuntimeDesc:
    """Return the descriptor of a matched string with a size or a stride that is not known."""
    tag = None if match["tag"] == "*" else parse_tag(match["tag"])
    desc = runtime_desc(sizes, match["dtype"], UNKNOWN if tag is None else tag)
    if tag is not None and ("p" in match["flags"]) != (desc.padded_dims != sizes):
        raise MemdescError(
            f"{short_repr(match[0])}: flag 'p' says whether dims are padded, which "
            f"'{tag}' over {_shown(sizes)} contradicts"
        )
    if tag is not None and RUNTIME in desc.strides:
        # oneDNN prints a tag only if all strides are known, so the runtime dim is outermost, and
        # the dims printed before it have a single block with the same stride
        letters = re.match("[A-Za-z]+", match["tag"])
        assert letters is not None  # noqa: S101 - for the type checker: it is a tag
        first = "".join(
            sorted(letters[0], key=lambda c: sizes[LETTERS.index(c.lower())] != RUNTIME)
        )
        moved = runtime_desc(sizes, match["dtype"], parse_tag(first + match["tag"][len(first) :]))
        return moved if f":{match['tag']}:" in to_verbose(moved) else desc
    return desc


def _check_whole_blocks(
    text: str, sizes: tuple[int, ...], blocks: tuple[int, ...], *, has_strides: bool
) -> None:
    """Refuse sizes that end inside a block unless flag 'p' says that they are padded."""
    for dim, (size, block) in enumerate(zip(sizes, blocks, strict=True)):
        # only a view, which has gaps, can end inside its first block
        if size % block and (size > block or not has_strides):
            as_padded = re.sub(":(a?)(o?0?):blocked:", r":\1p\2:blocked:", text, count=1)
            raise MemdescError(
                f"{short_repr(text)}: without flag 'p' nothing is padded, "
                f"but {dim_name(dim)} of size {size} does not fill blocks of {block}; if it is "
                f"padded, write {short_repr(as_padded)}"
            )
