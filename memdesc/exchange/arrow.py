"""Arrow's `fixed_shape_tensor`: the metadata of the type of one tensor in a column.

`shape` is that of the physical array, which is row-major; dim k of the tensor is dim
`permutation[k]` of it. pyarrow 26 gives its tensors these strides only where the permutation is its
own inverse. Source: Arrow 26, `docs/source/format/CanonicalExtensions.rst`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from memdesc.create import memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError, UnsupportedFormatError, short_repr
from memdesc.exchange.strided import order_of, strides_of
from memdesc.exchange.system import System, cannot, not_understood, tag_of
from memdesc.int64 import exact_ints
from memdesc.tags import LETTERS

if TYPE_CHECKING:
    from memdesc.desc import MemoryDesc
    from memdesc.dtypes import DataType
    from memdesc.exchange.system import Given

__all__ = ["ARROW_TYPES", "SYSTEM"]

_NAME = "Arrow"

# data type -> Arrow's name, where it is another one; its booleans are single bits
ARROW_TYPES = {
    "f64": "double",
    "f32": "float",
    "f16": "halffloat",
    **{
        f"{kind}{bits}": f"{name}{bits}"
        for kind, name in (("s", "int"), ("u", "uint"))
        for bits in (8, 16, 32, 64)
    },
}
_NAMES = {arrow: DATA_TYPES[name] for name, arrow in ARROW_TYPES.items()}
_PRINTED = r"extension<arrow\.fixed_shape_tensor\[value_type=(?P<type>\w+), (?P<rest>.*)\]>"


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    if desc.dtype.name not in ARROW_TYPES:
        raise cannot(_NAME, desc, f"a tensor of {desc.dtype} has no value type there")
    strides = strides_of(_NAME, desc)
    tag_of(_NAME, desc)
    order = order_of(desc, strides)
    fields: dict[str, Any] = {"shape": [desc.dims[dim] for dim in order]}
    if order != tuple(range(desc.ndims)):
        fields["permutation"] = [order.index(dim) for dim in range(desc.ndims)]
    metadata = json.dumps(fields, separators=(",", ":"))
    parts = ", ".join(f"{name}=[{','.join(map(str, value))}]" for name, value in fields.items())
    value_type = ARROW_TYPES[desc.dtype.name]
    return metadata, f"extension<arrow.fixed_shape_tensor[value_type={value_type}, {parts}]>"


def _read(given: Given) -> MemoryDesc:
    text = given.text.strip()
    match = re.fullmatch(_PRINTED, text)
    found = _metadata(text) if match is None else _printed(match["rest"])
    dtype = None if match is None else _dtype(text, match["type"])
    try:
        shape = exact_ints("shape", found["shape"])
        order = exact_ints("permutation", found.get("permutation", ())) or tuple(range(len(shape)))
    except (KeyError, MemdescError):
        reason = 'it is {"shape":[3,4],"permutation":[1,0]}, with lists of integers'
        raise not_understood(_NAME, text, reason) from None
    if sorted(order) != list(range(len(shape))):
        reason = f"permutation {list(order)} is not 0 to {len(shape) - 1}, each once"
        raise not_understood(_NAME, text, reason)
    dims = given.sizes(tuple(shape[place] for place in order))
    letters = (LETTERS[order.index(place)] for place in range(len(order)))
    return memory_desc(dims, given.type(dtype), "".join(letters))


def _metadata(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_fields)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _printed(rest: str) -> dict[str, Any]:
    """Return the fields of a type as it is printed."""
    parts = re.findall(r"(shape|permutation)=\[([0-9]{1,18}(?:,[0-9]{1,18})*)\]", rest)
    return _fields([(name, list(map(int, value.split(",")))) for name, value in parts])


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return fields by their names; none at all if a name comes twice."""
    found = dict(pairs)
    return found if len(found) == len(pairs) else {}


def _dtype(text: str, name: str) -> DataType:
    if name not in _NAMES:
        msg = f"{short_repr(text)} has the value type {name}; the types are {', '.join(_NAMES)}"
        raise UnsupportedFormatError(msg)
    return _NAMES[name]


SYSTEM = System("arrow", "the metadata of Arrow's fixed_shape_tensor", _write, _read)
