"""How layouts and records are stored in containers: the words, their shape, and the descriptor.

Whole elements are stored by their physical shape, an axis for each block in memory order. Elements
of less than a byte, or in wider words, have as many axes as dims: the outermost blocks, and behind
them the rest as words, which is how the packings of 4-bit weights are stored: (in / 8, out) for
GPTQ, (in, out / 8) for AWQ, (in / 16, 2 * out) for Marlin, of int32 (AutoGPTQ, AutoAWQ, vLLM).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memdesc import MemoryDesc, RecordDesc, data_type, memory_desc
from memdesc.layout import memory_order
from reorder.storage.containers.descriptors import record_fields
from reorder.storage.containers.plan import Tensor
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from memdesc import Field

__all__ = [
    "IN_SHAPE",
    "ONE",
    "is_order_hidden",
    "stored_layout",
    "stored_record",
    "written_tensors",
]

# elements of a packing whose words are stored in the shape of the tensor, the last dim in words:
# torch 2.13, TensorRT-LLM, ROCm aiter
IN_SHAPE = ("torch_int4_cpu", "trtllm_mixed_gemm", "aiter_16x16")
# what the only tensor of a record is called in it
ONE = "data"
# words of the tensors of packed codes: AutoGPTQ, AutoAWQ, vLLM; others are bytes
_WORDS = {"gptq": "s32", "awq": "s32", "marlin": "s32"}
_WEIGHT = ".weight"


def stored_layout(name: str, desc: MemoryDesc, words: str | None = None) -> Tensor:
    """Return how an output stores a layout.

    Parameters
    ----------
    name : str
        Of the tensor.
    desc : MemoryDesc
        What it holds.
    words : str, optional
        The data type of words for narrower elements, as the source had them; else bytes.
    """
    dtype = desc.dtype
    for word in (words, "u8"):
        if word is None or data_type(word).bits <= dtype.bits:
            continue
        shape = _shape_of_words(desc, data_type(word).bits // dtype.bits)
        if shape is not None:
            return Tensor(name, word, shape, desc.nbytes, desc)
    if dtype.is_packed or desc.extra is not None:
        return Tensor(name, "u8", (desc.nbytes,), desc.nbytes, desc)
    shape = _extents(desc)
    if shape is None:
        return Tensor(name, "u8", (desc.nbytes,), desc.nbytes, desc)
    return Tensor(name, dtype.name, shape, desc.nbytes, desc)


def is_order_hidden(tensor: Tensor) -> bool:
    """Whether a permuted tensor is stored with the dtype and the shape of a row-major one."""
    desc = tensor.desc
    if not isinstance(desc, MemoryDesc) or not desc.nelems:
        return False
    order = [block.axis for block in sorted(desc.blocks, key=memory_order) if block.extent > 1]
    if order == sorted(order) or len(set(order)) < len(order):
        return False
    plain = stored_layout(tensor.name, memory_desc(desc.dims, desc.dtype), tensor.dtype)
    return (plain.dtype, plain.shape) == (tensor.dtype, tensor.shape)


def _extents(desc: MemoryDesc) -> tuple[int, ...] | None:
    """Return the extents of the blocks in memory order; None if they do not fill the memory."""
    found = tuple(block.extent for block in sorted(desc.blocks, key=memory_order))
    is_full = prod(found) == desc.padded_nelems == desc.layout.span and not desc.offset0
    return found if is_full or not desc.nelems else None


def _shape_of_words(desc: MemoryDesc, count: int) -> tuple[int, ...] | None:
    """Return the shape of words of `count` elements; None if they do not fill the rest."""
    extents = _extents(desc)
    if extents is None or desc.nelems == 0:
        return None
    names = {name.text.removesuffix("_experts") for name in desc.tags()}
    if any(name.startswith(IN_SHAPE) for name in names):
        extents = desc.padded_dims
    axes = max(desc.ndims - 1, 0)
    rest = prod(extents[axes:])
    return None if rest % count else (*extents[:axes], rest // count)


def stored_record(name: str, desc: RecordDesc, format_name: str) -> Tensor:
    """Return how an output stores a record of one tensor: in GGUF by its type, else as bytes."""
    if format_name == "gguf":
        return Tensor(name, desc.name, desc.dims, desc.nbytes, desc)
    rows = prod(desc.dims[:-1])
    shape = (*desc.dims[:-1], desc.nbytes // rows) if rows else (desc.nbytes,)
    return Tensor(name, "u8", shape, desc.nbytes, desc)


def written_tensors(prefix: str, desc: RecordDesc, format_name: str) -> dict[str, Tensor]:
    """Return how an output stores a record, by the names of its tensors; the first says it."""
    names = list(desc.tensors)
    if names == [ONE]:
        name = prefix if prefix.endswith(_WEIGHT) else f"{prefix}{_WEIGHT}"
        return {ONE: stored_record(name, desc, format_name)}
    stem = prefix.removesuffix(_WEIGHT)
    words = _WORDS.get(desc.name)
    found = {}
    for name in names:
        parts = [part for part in desc.fields if part.tensor == name]
        full = f"{stem}.{name}"
        if len(parts) == 1:
            found[name] = _alone(full, parts[0], words)
        else:
            found[name] = _joined(full, parts, desc.tensors[name])
    tensors = {name: tensor.name for name, tensor in found.items()}
    value = {"name": prefix, **record_fields(desc), "tensors": tensors}
    found[names[0]] = found[names[0]]._replace(value=value)
    return found


def _alone(name: str, part: Field, words: str | None) -> Tensor:
    """Return how a field is stored: codes as words, scales over their dims in whatever order.

    So loaders allocate them: (groups, out) for Marlin, the padded dims of the scales of cuBLAS,
    (1,) for one scale. Source: vLLM 0.10, `marlin_permute_scales` and `swizzle_blockscale`.
    """
    desc = part.desc
    is_code = desc.dtype.is_packed or part.kind in INTEGERS
    if is_code or prod(desc.padded_dims) * part.bits != 8 * desc.nbytes:
        return stored_layout(name, desc, words if part.kind in INTEGERS else None)
    shape = desc.padded_dims if prod(desc.padded_dims) != 1 else (1,)
    return Tensor(name, part.kind, shape, desc.nbytes, desc)


def _joined(name: str, parts: list[Field], nbytes: int) -> Tensor:
    """Return how fields of one type that take turns are stored: they are the last axis."""
    first = parts[0]
    blocks = sorted(first.layout.blocks, key=memory_order)
    shape = (*(block.extent for block in blocks), len(parts))
    if prod(shape) * first.bits == nbytes * 8 and len({part.kind for part in parts}) == 1:
        return Tensor(name, first.kind, shape, nbytes)
    return Tensor(name, "u8", (nbytes,), nbytes)
