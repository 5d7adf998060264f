"""Descriptors as strings: oneDNN's verbose form and JSON, written and read."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memdesc.create import memory_desc
from memdesc.desc import MemoryDesc, checked_desc
from memdesc.dtypes import DataType, data_type
from memdesc.errors import MemdescError, short_repr
from memdesc.extra import Extra
from memdesc.int64 import checked_int, checked_ints
from memdesc.layout import Axis, Block, Layout, dim_name
from memdesc.notation import parse_tag
from memdesc.tags import LETTERS

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SCHEMA", "from_json", "from_verbose", "to_json", "to_verbose"]

# version of the JSON form; another form gets another number
SCHEMA = 1

# [src:]dtype:flags:blocked:tag:strides:extra. Flags are a letter each, in this order: a (format
# kind any), p (padded dims), o (padded offsets), 0 (offset0). Strides are joined by x, and absent
# where they are dense; the colon behind them is absent in the form of oneDNN 2.
_VERBOSE = (
    r"(?:(?:src|dst|wei|bia)[0-9]*[:_])?"
    r"(?P<dtype>\w+):(?P<flags>a?p?o?0?):blocked:(?P<tag>[A-Za-z0-9]+):"
    r"(?:(?P<strides>-?[0-9]{1,19}(?:x-?[0-9]{1,19})*)?:)?"
    r"f(?P<extra>0|[1-9][0-9]*(?::\S*)?)"
)


def to_verbose(desc: MemoryDesc) -> str:
    """Write a descriptor as oneDNN's verbose mode prints it, without dims.

    Data types that oneDNN does not have (s16, u64, ...) are written by their name in `DATA_TYPES`.

    Source: oneDNN 3.13, `verbose.cpp`.

    Raises
    ------
    NotBlockedError
        If the layout is outside oneDNN's fields.

    Examples
    --------
    >>> import memdesc
    >>> memdesc.to_verbose(memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c"))
    'f32:p:blocked:aBcd8b::f0'
    """
    checked_desc("desc", desc)
    flags = ("p" if desc.dims != desc.padded_dims else "") + ("0" if desc.offset0 else "")
    tile = desc.layout.tile()
    # strides minus 1 as unsigned numbers, as oneDNN compares: a stride of 0 is the largest
    order = sorted(
        range(desc.ndims),
        key=lambda d: (-((desc.strides[d] - 1) % 2**64), -desc.layout.outer(d).extent, d),
    )
    tag = "".join(
        LETTERS[d].upper() if desc.layout.outer(d).step > 1 else LETTERS[d] for d in order
    )
    tag += "".join(f"{block.extent}{LETTERS[block.axis]}" for block in tile)
    # compensation starts at a multiple of 4 bytes; oneDNN counts the bytes before it as a gap
    is_dense = desc.is_dense and not (desc.compensation_spans and desc.padded_nelems % 4)
    strides = "" if is_dense else "x".join(map(str, desc.strides))
    extra = "f0" if desc.extra is None else desc.extra.to_verbose()
    return f"{desc.dtype}:{flags}:blocked:{tag}:{strides}:{extra}"


def from_verbose(text: str, dims: Iterable[int], *, offset0: int = 0) -> MemoryDesc:
    """Read a descriptor from oneDNN's verbose output.

    *Law*: for layouts by tag, and for strides with gaps where all dims or none are
    padded to whole blocks, `from_verbose` undoes `to_verbose`. The string does not hold
    other padding, the value of `offset0`, or the strides of unit dims.

    Parameters
    ----------
    text : str
        Such as ``"f32:p:blocked:aBcd8b::f0"``; a leading ``src:`` is skipped.
    dims : iterable of int
        The sizes, which verbose lines print elsewhere.
    offset0 : int
        The offset of a view; the string says only whether there is one (flag ``0``).

    Raises
    ------
    MemdescError
        If the string has another form, compensation that `Extra` does not describe, or does
        not fit the dims.

    Examples
    --------
    >>> import memdesc
    >>> memdesc.from_verbose("src:s8::blocked:acdb::f0", (1, 3, 2, 2))
    memory_desc((1, 3, 2, 2), 's8', 'acdb')
    """
    match = re.fullmatch(_VERBOSE, text) if isinstance(text, str) else None
    if match is None:
        msg = (
            f"{short_repr(text)} has not the form dtype:flags:blocked:tag:strides:f0, "
            "such as 'f32:p:blocked:aBcd8b::f0'"
        )
        raise MemdescError(msg)
    extra = Extra.from_verbose(f"f{match['extra']}")
    sizes, start = checked_ints("dims", dims), checked_int("offset0", offset0)
    _check_offset_flags(text, match["flags"], start)
    tag = parse_tag(match["tag"])
    dense = memory_desc(sizes, match["dtype"], tag)
    inner = [(digit.extent, digit.axis) for digit in tag.digits if digit.extent]
    is_padded = "p" in match["flags"]
    desc = memory_desc(
        sizes,
        match["dtype"],
        strides=map(int, match["strides"].split("x")) if match["strides"] else dense.strides,
        inner_blks=[extent for extent, _ in inner],
        inner_idxs=[dim for _, dim in inner],
        padded_dims=None if is_padded else sizes,
        offset0=start,
    )
    if not is_padded:
        _check_whole_blocks(text, sizes, tag.block_sizes, has_strides=bool(match["strides"]))
    elif desc.padded_dims == sizes:
        msg = (
            f"{short_repr(text)}: flag 'p' says that dims are padded, "
            f"but no block pads {sizes}, and the string does not hold padded dims"
        )
        raise MemdescError(msg)
    return desc.with_extra(extra)


def _check_offset_flags(text: str, flags: str, offset0: int) -> None:
    """Refuse padded offsets, and an offset0 that contradicts the flag; neither value is held."""
    if "o" in flags:
        msg = f"{short_repr(text)}: padded offsets (flag 'o') are not in the string"
        raise MemdescError(msg)
    if ("0" in flags) != bool(offset0):
        msg = (
            f"{short_repr(text)}: flag '0' says whether offset0 is other than 0, "
            f"but offset0 is {offset0}; the string does not hold its value"
        )
        raise MemdescError(msg)


def _check_whole_blocks(
    text: str, sizes: tuple[int, ...], blocks: tuple[int, ...], *, has_strides: bool
) -> None:
    """Refuse sizes that end inside a block where flag 'p' does not say that they are padded."""
    for dim, (size, block) in enumerate(zip(sizes, blocks, strict=True)):
        # only a view, which has gaps, ends inside its first block
        if size % block and (size > block or not has_strides):
            msg = (
                f"{short_repr(text)}: without flag 'p' nothing is padded, "
                f"but {dim_name(dim)} of size {size} does not fill blocks of {block}"
            )
            raise MemdescError(msg)


def to_json(desc: MemoryDesc) -> str:
    """Write a descriptor as JSON that other programs can read.

    The keys are oneDNN's fields. A layout outside them has ``axes`` and ``blocks``
    in place of ``padded_dims``, ``strides`` and the inner blocks. ``schema`` is 1.

    Examples
    --------
    >>> import memdesc
    >>> print(memdesc.to_json(memdesc.memory_desc((2, 17), "f32", "aB8b")))
    {"schema": 1, "dtype": "f32", "dims": [2, 17], "offset0": 0, \
"padded_offsets": [0, 0], "extra": null, \
"padded_dims": [2, 24], "strides": [24, 8], "inner_blks": [8], "inner_idxs": [1]}
    """
    layout = checked_desc("desc", desc).layout
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "dtype": desc.dtype.name,
        "dims": desc.dims,
        "offset0": desc.offset0,
        "padded_offsets": desc.padded_offsets,
        "extra": None if desc.extra is None else asdict(desc.extra),
    }
    try:
        fields |= {
            "padded_dims": desc.padded_dims,
            "strides": desc.strides,
            "inner_blks": desc.inner_blks,
            "inner_idxs": desc.inner_idxs,
        }
    except MemdescError:
        fields |= {
            "axes": [[axis.dims, axis.padded] for axis in layout.axes],
            "blocks": layout.blocks,
        }
    return json.dumps(fields)


def from_json(text: str) -> MemoryDesc:
    """Read a descriptor that `to_json` wrote.

    *Law*: `from_json(to_json(d)) == d`.

    Raises
    ------
    MemdescError
        If the string is no JSON object of this schema, or describes no legal layout.
    """
    try:
        fields = json.loads(text)
        _check_schema(fields)
        # this order decides which of several missing keys the message names
        dims, dtype = checked_ints("dims", fields["dims"]), data_type(fields["dtype"])
        offset0 = checked_int("offset0", fields["offset0"])
        padded_offsets = checked_ints("padded_offsets", fields["padded_offsets"])
        layout = _layout_of(fields, dims, dtype, offset0)
        extra = fields["extra"]
        extra = Extra(**extra) if isinstance(extra, dict) else extra
        return MemoryDesc(dtype, layout, padded_offsets, extra)
    except MemdescError:
        raise
    except KeyError as error:
        msg = f"no descriptor: the key {error} is missing; to_json() shows the form"
        raise MemdescError(msg) from error
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"no descriptor: {error}; to_json() shows the form"
        raise MemdescError(msg) from error


def _layout_of(
    fields: dict[str, Any], dims: tuple[int, ...], dtype: DataType, offset0: int
) -> Layout:
    """Read the layout: axes and blocks, or oneDNN's fields."""
    if "axes" in fields:
        axes = tuple(
            Axis(checked_ints("axes", axis_dims), checked_int("axes", padded))
            for axis_dims, padded in fields["axes"]
        )
        blocks = tuple(Block(*checked_ints("blocks", block)) for block in fields["blocks"])
        return Layout(dims, axes, blocks, offset0)
    return memory_desc(
        dims,
        dtype,
        strides=checked_ints("strides", fields["strides"]),
        inner_blks=fields["inner_blks"],
        inner_idxs=fields["inner_idxs"],
        padded_dims=checked_ints("padded_dims", fields["padded_dims"]),
        offset0=offset0,
    ).layout


def _check_schema(fields: object) -> None:
    if not isinstance(fields, dict):
        msg = f"a descriptor is a JSON object, not {short_repr(fields)}; to_json() shows the form"
        raise MemdescError(msg)
    schema = fields["schema"]
    if schema != SCHEMA or not isinstance(schema, int) or isinstance(schema, bool):
        msg = f"descriptor of schema {short_repr(schema)}; this version reads schema {SCHEMA}"
        raise MemdescError(msg)
