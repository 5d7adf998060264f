"""PyTorch's layouts: memory formats, dim orders, sizes and strides, Inductor's `FixedLayout`.

Source: PyTorch 2.13, `c10/core/MemoryFormat.h`, `torch/_inductor/ir.py`. A memory format
determines strides for given sizes; if a size is 1, strides may fit several, and all are written.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from memdesc.desc import memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.exchange.expressions import arguments, integer, integers, keywords, parse
from memdesc.exchange.system import (
    Given,
    System,
    cannot,
    indescribable,
    not_understood,
    strides_of,
    type_named,
)
from memdesc.layout_names import is_laid_out_by
from memdesc.tags import LETTERS, parse_tag

if TYPE_CHECKING:
    from memdesc.desc import MemoryDesc

_NAME = "PyTorch"

# torch's name -> data type; torch stores 4-bit elements in pairs or in bytes
_TYPES = {
    f"torch.{dtype.numpy.name}": dtype for dtype in DATA_TYPES.values() if not dtype.is_packed
}
# memory format -> number of dims -> the order of dims in memory
_FORMATS = {
    "torch.contiguous_format": {ndims: LETTERS[:ndims] for ndims in range(1, len(LETTERS) + 1)},
    "torch.channels_last": {4: "acdb"},
    "torch.channels_last_3d": {5: "acdeb"},
}
# fits tensors without elements, too; in channels_last torch gives them other strides
_OF_ANY_SIZE = "torch.contiguous_format"
# an order has dim 0; strides may have a 0 too
_ORDER = r"\s*[(\[][0-9, ]*\b0\b[0-9, ]*[)\]]\s*"
_FIXED = r"\s*(\w+Layout)\s*\(.*\)\s*"


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    if desc.dtype.is_packed:
        raise cannot(_NAME, desc, f"it has no tensors of {desc.dtype} with two elements in a byte")
    strides = strides_of(_NAME, desc)
    if any(stride < 0 for stride in strides):
        raise cannot(_NAME, desc, f"strides {strides} must not be negative; torch.flip() copies")
    found = [
        name
        for name, tags in _FORMATS.items()
        if desc.ndims in tags
        and (name == _OF_ANY_SIZE or 0 not in desc.dims)
        and is_laid_out_by(desc.layout, parse_tag(tags[desc.ndims]))
    ]
    order = _order_of(desc, strides)
    if is_laid_out_by(desc.layout, parse_tag("".join(LETTERS[dim] for dim in order))):
        found.append(f"dim_order={order}")
    offset = desc.offset0
    found.append(
        f"size={desc.dims}, stride={strides}" + (f", storage_offset={offset}" if offset else "")
    )
    found.append(
        f"FixedLayout('cpu', torch.{desc.dtype.numpy.name}, size={list(desc.dims)}, "
        f"stride={list(strides)}" + (f", offset={offset})" if offset else ")")
    )
    return tuple(found)


def _read(given: Given) -> MemoryDesc:
    text = given.text.strip()
    name = text if text.startswith("torch.") else f"torch.{text}"
    if name in _FORMATS:
        dims = given.sizes()
        if len(dims) not in _FORMATS[name]:
            counts = " or ".join(map(str, _FORMATS[name]))
            raise not_understood(_NAME, text, f"it is for {counts} dims, not {len(dims)}")
        return memory_desc(dims, given.type(), _FORMATS[name][len(dims)])
    if text == "torch.preserve_format":
        raise indescribable(text, "it stands for the layout of some other tensor")
    if re.fullmatch(_FIXED, text):
        return _fixed(given)
    # tensor.dim_order() prints the order alone
    order = re.fullmatch(_ORDER, text)
    return _strided(given._replace(text=f"dim_order={text}") if order else given)


def _strided(given: Given) -> MemoryDesc:
    """Read `size=.., stride=..`, or `dim_order=..`."""
    text = given.text
    reason = (
        f"it is one of {', '.join(_FORMATS)}, or dim_order=(0, 2, 3, 1), "
        "or size=(2, 3), stride=(1, 2), or a FixedLayout(..)"
    )
    found = arguments(_NAME, text, ("size", "stride", "storage_offset", "dim_order"), reason)
    values = {key: integers(_NAME, text, found[key]) for key in found if key != "storage_offset"}
    dims = given.sizes(values.get("size"))
    if "dim_order" in values:
        order = values["dim_order"]
        if (
            sorted(order) != list(range(len(dims)))
            or "stride" in found
            or "storage_offset" in found
        ):
            reason = f"dim_order is every dim of 0 to {len(dims) - 1} once, without strides"
            raise not_understood(_NAME, text, reason)
        return memory_desc(dims, given.type(), "".join(LETTERS[dim] for dim in order))
    offset = found.get("storage_offset")
    return memory_desc(
        dims,
        given.type(),
        strides=values.get("stride"),
        offset0=0 if offset is None else integer(_NAME, text, offset),
    )


def _fixed(given: Given) -> MemoryDesc:
    """Read Inductor's FixedLayout as it is printed."""
    text = given.text
    call = parse(_NAME, text)
    found = keywords(_NAME, text, call, ("size", "stride", "offset", "is_pinned"))
    if (
        not isinstance(call, ast.Call)
        or ast.unparse(call.func) != "FixedLayout"
        or len(call.args) != 2  # noqa: PLR2004 - device and data type
        or not {"size", "stride"} <= {*found}
    ):
        reason = "a layout with known strides is FixedLayout(device, dtype, size=[..], stride=[..])"
        raise not_understood(_NAME, text, reason)
    kind = type_named(ast.unparse(call.args[1]), _TYPES, text)
    return memory_desc(
        given.sizes(integers(_NAME, text, found["size"])),
        given.type(kind),
        strides=integers(_NAME, text, found["stride"]),
        offset0=integer(_NAME, text, found["offset"]) if "offset" in found else 0,
    )


def _order_of(desc: MemoryDesc, strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dims from outermost to innermost; equal strides are ordered by size."""
    return tuple(sorted(range(desc.ndims), key=lambda dim: (-strides[dim], -desc.dims[dim], dim)))


_SPELLING = (
    rf"{_ORDER}|"
    r"\s*(?:torch\.\w+|(?:contiguous|preserve)_format|channels_last(?:_3d)?|"
    r"(?:size|stride|dim_order|storage_offset)\s*=.*|(?!Tile|Compose|\w*Shared|\w*Linear|Blocked|Slice|DotOp)\w+Layout\s*\(.*)\s*"
)

SYSTEM = System(
    "pytorch", "PyTorch's memory formats, strides and FixedLayout", _write, _read, _SPELLING
)
