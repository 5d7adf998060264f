"""PyTorch's layouts: memory formats, dim orders, sizes and strides, Inductor's `FixedLayout`.

Source: PyTorch 2.13, `c10/core/MemoryFormat.h`, `torch/_inductor/ir.py`. A memory format determines
strides for given sizes; if a size is 1, strides may fit several formats, and all are written.
"""

from __future__ import annotations

import re

from memdesc.desc import MemoryDesc, memory_desc
from memdesc.errors import MemdescError
from memdesc.exchange.expressions import values_of_call
from memdesc.exchange.system import TORCH_TYPES, Given, System, impossible, strides_of, unclear
from memdesc.int64 import checked_int, checked_ints
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
_FIXED = r"(\w+Layout)\s*\((.*)\)"
# a string, or a word that is not the name of an argument, such as torch.float32
_WORD = r"'[^']*'|\b([A-Za-z_][\w.]*)\b(?!\s*=)"
# what is given by name: in a FixedLayout, after a device and a data type, and without one
_FIXED_KEYS = {"size", "stride", "offset", "is_pinned"}
_KEYS = {"size", "stride", "storage_offset", "dim_order"}


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    type_name = TORCH_TYPES.name_of(desc.dtype)
    strides = strides_of(desc)
    if any(stride < 0 for stride in strides):
        impossible(f"strides {strides} must not be negative; torch.flip() copies")
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
    text = given.text
    name = text if text.startswith("torch.") else f"torch.{text}"
    if name in _FORMATS:
        dims = given.sizes()
        if len(dims) not in _FORMATS[name]:
            counts = " or ".join(map(str, _FORMATS[name]))
            unclear(f"it is for {counts} dims, not {len(dims)}")
        return memory_desc(dims, given.type(), _FORMATS[name][len(dims)])
    if text == "torch.preserve_format":
        impossible("it stands for the layout of some other tensor")
    if re.fullmatch(_ORDER, text):  # tensor.dim_order() prints the order alone
        text = f"dim_order={text}"
    fixed = re.fullmatch(_FIXED, text, re.DOTALL)
    arguments = fixed[2] if fixed else text
    args, values = values_of_call(
        re.sub(_WORD, lambda word: repr(word[1]) if word[1] else word[0], arguments)
    )
    if fixed:  # a device and a data type come first
        is_known = {"size", "stride"} <= {*values} <= _FIXED_KEYS and len(args) == 2  # noqa: PLR2004
        is_known = is_known and fixed[1] == "FixedLayout"
    else:
        is_known = not args and bool(values) and {*values} <= _KEYS
    if not is_known:
        unclear(
            f"it is one of {', '.join(_FORMATS)}, or dim_order=(0, 2, 3, 1), or size=(2, 3), "
            "stride=(1, 2), or FixedLayout(device, dtype, size=[..], stride=[..])"
        )
    try:
        size, strides, order = (
            None if key not in values else checked_ints(key, values[key])
            for key in ("size", "stride", "dim_order")
        )
        offset = values.get("offset", values.get("storage_offset"))
        offset0 = 0 if offset is None else checked_int("the offset", offset)
    except MemdescError as error:
        unclear(error)
    dims = given.sizes(size)
    dtype = given.type(str(args[1]) if args else None, TORCH_TYPES)
    if order is None:
        return memory_desc(dims, dtype, strides=strides, offset0=offset0)
    if sorted(order) != list(range(len(dims))) or strides is not None or offset is not None:
        unclear(f"dim_order is every dim of 0 to {len(dims) - 1} once, without strides")
    return memory_desc(dims, dtype, "".join(LETTERS[dim] for dim in order))


_SPELLING = (
    rf"{_ORDER}|"
    r"\s*(?:torch\.\w+|(?:contiguous|preserve)_format|channels_last(?:_3d)?|"
    r"(?:size|strides?|dim_order|storage_offset)\s*=.*|(?!Tile|Compose|\w*Shared|\w*Linear|Blocked|Slice|DotOp)\w+Layout\s*\(.*)\s*"
)

SYSTEM = System("pytorch", "PyTorch", _write, _read, _SPELLING)
