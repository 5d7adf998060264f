"""How containers store layouts and records: the type and shape of the words, and the descriptor.

Whole elements are stored in their physical shape, with an axis for each block in memory order.
Elements narrower than a byte, or packed into wider words, have as many axes as dims: the outermost
blocks, then the rest as words. That is how 4-bit weights are packed into int32 (AutoGPTQ, AutoAWQ,
vLLM): (in / 8, out) for GPTQ, (in, out / 8) for AWQ.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Any

from memdesc import MemoryDesc, data_type, memory_desc
from memdesc.layout import memory_order
from memdesc.names.weights import PACKINGS
from memdesc.record import RecordDesc
from memdesc.record.names import scheme_of
from memdesc.record.scheme import Words
from reorder.checkpoints.formats.entry import Tensor

# the role of a record's only tensor
ONE = "data"
# roles of a Quantized's tensors -> the endings of their names
QUANTIZED = MappingProxyType({"memory": "", "scales": "_scale", "zero_points": "_zero_point"})
WEIGHT = ".weight"
_DOT = "."
# the types of weights that are not quantised
UNQUANTISED = ("f32", "f16", "bf16")
# endings of names beside codes whose name is the prefix, such as experts in one tensor:
# transformers has NAME and NAME_scale_inv; ModelOpt NAME, NAME_weight_scale, NAME_weight_scale_2
_BARE = {"weight": "", "weight_scale_inv": "_scale_inv"}
BARE_ROLES = MappingProxyType({ending.removeprefix("_"): role for role, ending in _BARE.items()})


def _joint(name: str) -> str:
    """Return what separates the name of a layer and those of a record's tensors."""
    scheme = scheme_of(name)
    return _DOT if scheme is None else scheme.joint


def model_axes(desc: RecordDesc) -> str:
    """Return the letters of a record's dims in the order in which models have them as floats."""
    scheme = scheme_of(desc.name)
    model = scheme.model if scheme else ""
    return model if len(model) == len(desc.letters) else desc.letters


def stem_of(name: str, role: str, record: str) -> str:
    """Return what precedes the role in the name of a record's tensor."""
    ending = _joint(record) + role
    return name.removesuffix(ending if name.endswith(ending) else _BARE.get(role, f"_{role}"))


def stored_layout(name: str, desc: MemoryDesc, words: str | None = None) -> Tensor:
    """Return how a layout is stored: narrow elements in `words`, or else at least in bytes."""
    dtype = desc.dtype
    for word in (words, "u8"):
        if word is None or data_type(word).bits <= dtype.bits:
            continue
        shape = _shape_of_words(desc, data_type(word).bits // dtype.bits)
        if shape is not None:
            return Tensor(name, word, shape, desc.nbytes, desc)
    shape = None if dtype.is_packed or desc.extra is not None else _extents(desc)
    kind, shape = ("u8", (desc.nbytes,)) if shape is None else (dtype.name, shape)
    return Tensor(name, kind, shape, desc.nbytes, desc)


def is_order_hidden(tensor: Tensor) -> bool:
    """Whether a permuted tensor is stored with the dtype and shape of a row-major one."""
    desc = tensor.desc
    if not isinstance(desc, MemoryDesc) or not desc.nelems or desc.layout.xor:
        return False
    order = [block.axis for block in sorted(desc.blocks, key=memory_order) if block.extent > 1]
    if order == sorted(order) or len(set(order)) < len(order):
        return False
    plain = stored_layout(tensor.name, memory_desc(desc.dims, desc.dtype), tensor.dtype)
    return (plain.dtype, plain.shape) == (tensor.dtype, tensor.shape)


def _extents(desc: MemoryDesc) -> tuple[int, ...] | None:
    """Return the blocks' extents in memory order; None if they leave gaps."""
    if desc.layout.xor:
        return None
    found = tuple(block.extent for block in sorted(desc.blocks, key=memory_order))
    is_full = prod(found) == desc.padded_nelems == desc.layout.span and not desc.offset0
    return found if is_full or not desc.nelems else None


def _shape_of_words(desc: MemoryDesc, count: int) -> tuple[int, ...] | None:
    """Return the shape in words of `count` elements; None if words would be partly filled."""
    extents = _extents(desc)
    if extents is None or desc.nelems == 0:
        return None
    packings = [PACKINGS[name.text] for name in desc.names() if name.text in PACKINGS]
    if any(packing.is_in_shape for packing in packings):
        extents = desc.padded_dims
    axes = max(desc.ndims - 1, 0)
    rest = prod(extents[axes:])
    return None if rest % count else (*extents[:axes], rest // count)


def stored_record(name: str, desc: RecordDesc, format_name: str) -> Tensor:
    """Return how a record of one tensor is stored: with its type in GGUF, else as bytes."""
    if format_name == "gguf":
        return Tensor(name, desc.name, desc.dims, desc.nbytes, desc)
    rows = prod(desc.dims[:-1])
    shape = (*desc.dims[:-1], desc.nbytes // rows) if rows else (desc.nbytes,)
    return Tensor(name, "u8", shape, desc.nbytes, desc)


def written_tensors(
    prefix: str, desc: RecordDesc, format_name: str, *, is_bare: bool = False
) -> dict[str, Tensor]:
    """Return how a record is stored, by the roles of its tensors.

    With `is_bare`, the codes are called `prefix` itself, and the others `prefix` and an ending.
    """
    names = list(desc.tensors)
    if names == [ONE]:
        name = prefix if is_bare or prefix.endswith(WEIGHT) else _in_layer(prefix, WEIGHT)
        return {ONE: stored_record(name, desc, format_name)}
    stem = prefix.removesuffix(WEIGHT)
    joint = _joint(desc.name)

    def full(role: str) -> str:
        if is_bare and joint == _DOT:
            return stem + _BARE.get(role, f"_{role}")
        return _in_layer(stem, joint + role)

    scheme = scheme_of(desc.name)
    if scheme is not None and scheme.bound(desc.dims, dict(desc.options)) == desc:
        words = scheme.words(desc)
    else:
        words = {name: Words("u8", (size,), size, None) for name, size in desc.tensors.items()}
    return {role: Tensor(full(role), *each) for role, each in words.items()}


def _in_layer(prefix: str, rest: str) -> str:
    """Return the name of a tensor of a layer; that of a model which is one layer has no prefix."""
    return prefix + rest if prefix else rest.removeprefix(".")


def joined_tensors(
    name: str, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return tensors by role; if they are several, the first has the note that joins them.

    `facts` are what `record_fields` returns for a record, or ``quantized`` with axis and groups.
    """
    if len(tensors) == 1:
        return dict(tensors)
    first = next(iter(tensors))
    note = {"name": name, **facts, "tensors": {role: each.name for role, each in tensors.items()}}
    return {**tensors, first: tensors[first]._replace(note=note)}
