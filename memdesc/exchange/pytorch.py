"""PyTorch's layouts: memory formats, dim orders, sizes and strides, Inductor's `FixedLayout`.

Source: PyTorch 2.13, `c10/core/MemoryFormat.h`, `torch/_inductor/ir.py`. A memory format
determines strides for given sizes; if a size is 1, strides may fit several, and all are written.
"""

from __future__ import annotations

import ast
import re

from memdesc.desc import MemoryDesc, memory_desc
from memdesc.exchange.expressions import arguments, integer, integers, keywords, parse
from memdesc.exchange.system import (
    TORCH_TYPES,
    Given,
    System,
    indescribable,
    inexpressible,
    name_of_type,
    strides_of,
    type_named,
    unclear,
)
from memdesc.layout_names import is_laid_out_by
from memdesc.tags import LETTERS, parse_tag

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
    type_name = name_of_type(desc.dtype, TORCH_TYPES)
    strides = strides_of(desc)
    if any(stride < 0 for stride in strides):
        inexpressible(f"strides {strides} must not be negative; torch.flip() copies")
    texts = [
        name
        for name, tags in _FORMATS.items()
        if desc.ndims in tags
        and (name == _OF_ANY_SIZE or 0 not in desc.dims)
        and is_laid_out_by(desc.layout, parse_tag(tags[desc.ndims]))
    ]
    # from outermost to innermost; equal strides are ordered by size
    order = tuple(sorted(range(desc.ndims), key=lambda dim: (-strides[dim], -desc.dims[dim], dim)))
    if is_laid_out_by(desc.layout, parse_tag("".join(LETTERS[dim] for dim in order))):
        texts.append(f"dim_order={order}")
    offset = f"offset={desc.offset0}" if desc.offset0 else ""
    texts.append(f"size={desc.dims}, stride={strides}{offset and f', storage_{offset}'}")
    sizes = f"size={list(desc.dims)}, stride={list(strides)}{offset and f', {offset}'}"
    texts.append(f"FixedLayout('cpu', {type_name}, {sizes})")
    return tuple(texts)


def _read(given: Given) -> MemoryDesc:
    text = given.text.strip()
    name = text if text.startswith("torch.") else f"torch.{text}"
    if name in _FORMATS:
        dims = given.sizes()
        if len(dims) not in _FORMATS[name]:
            counts = " or ".join(map(str, _FORMATS[name]))
            unclear(f"it is for {counts} dims, not {len(dims)}")
        return memory_desc(dims, given.type(), _FORMATS[name][len(dims)])
    if text == "torch.preserve_format":
        indescribable("it stands for the layout of some other tensor")
    if re.fullmatch(_FIXED, text):
        return _fixed(given)
    # tensor.dim_order() prints the order alone
    return _strided(given, f"dim_order={text}" if re.fullmatch(_ORDER, text) else text)


def _strided(given: Given, text: str) -> MemoryDesc:
    """Read `size=.., stride=..`, or `dim_order=..`."""
    reason = (
        f"it is one of {', '.join(_FORMATS)}, or dim_order=(0, 2, 3, 1), "
        "or size=(2, 3), stride=(1, 2), or a FixedLayout(..)"
    )
    nodes = arguments(text, ("size", "stride", "storage_offset", "dim_order"), reason)
    offset = nodes.pop("storage_offset", None)
    values = {key: integers(node) for key, node in nodes.items()}
    dims = given.sizes(values.get("size"))
    order = values.get("dim_order")
    if order is None:
        offset0 = 0 if offset is None else integer(offset)
        return memory_desc(dims, given.type(), strides=values.get("stride"), offset0=offset0)
    if sorted(order) != list(range(len(dims))) or "stride" in values or offset is not None:
        unclear(f"dim_order is every dim of 0 to {len(dims) - 1} once, without strides")
    return memory_desc(dims, given.type(), "".join(LETTERS[dim] for dim in order))


def _fixed(given: Given) -> MemoryDesc:
    """Read Inductor's FixedLayout as it is printed."""
    call = parse(given.text)
    values = keywords(call, ("size", "stride", "offset", "is_pinned"))
    if (
        not isinstance(call, ast.Call)
        or ast.unparse(call.func) != "FixedLayout"
        or len(call.args) != 2  # noqa: PLR2004 - device and data type
        or not {"size", "stride"} <= {*values}
    ):
        unclear("a layout with known strides is FixedLayout(device, dtype, size=[..], stride=[..])")
    return memory_desc(
        given.sizes(integers(values["size"])),
        given.type(type_named(ast.unparse(call.args[1]), TORCH_TYPES)),
        strides=integers(values["stride"]),
        offset0=integer(values["offset"]) if "offset" in values else 0,
    )


_SPELLING = (
    rf"{_ORDER}|"
    r"\s*(?:torch\.\w+|(?:contiguous|preserve)_format|channels_last(?:_3d)?|"
    r"(?:size|stride|dim_order|storage_offset)\s*=.*|(?!Tile|Compose|\w*Shared|\w*Linear|Blocked|Slice|DotOp)\w+Layout\s*\(.*)\s*"
)

SYSTEM = System(
    "pytorch",
    "PyTorch",
    "PyTorch's memory formats, strides and FixedLayout",
    _write,
    _read,
    _SPELLING,
)
