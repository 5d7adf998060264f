"""Which record a group of tensors can be: its dims from their shapes, and what does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, MemoryDesc, RecordDesc, data_type, record_desc
from memdesc.record.names import read_name
from reorder.storage.containers.descriptors import stored_desc
from reorder.storage.siblings import shown_options
from reorder.storage.stored import ONE, written_tensors
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reorder.storage.containers.entry import Entry
    from reorder.storage.containers.plan import Tensor
    from reorder.storage.siblings import Siblings

__all__ = ["check_tensors", "desc_of_tensors"]

# dims of records whose scales are (groups, out)
_MATRIX = "io"
_BYTE_BITS = 8


def desc_of_tensors(found: Siblings, name: str, given: Mapping[str, Any]) -> RecordDesc:
    """Return the record of a name with the dims, the group and the scales of the tensors."""
    has = {
        option: given.get(option, value)
        for option, value in shown_options(name, found.entries).items()
    }
    sample = record_desc((4096, 4096), name, **has)
    for each in sample.tensors:
        if each not in found.entries:
            msg = (
                f"{found.prefix!r} has no tensor {each!r}; {name} has the tensors "
                f"{', '.join(sample.tensors)}"
            )
            raise MemdescError(msg)
    if [*sample.tensors] == [ONE]:
        return _single_desc(found.codes, name, given)
    _, letters, legal = read_name(name)
    scales = found.entries[sample.field(sample.rule.scale[0].parts[0][0]).tensor]
    if letters == _MATRIX:
        dims, groups = _dims_by_scales(found, scales, {**legal, **given}.get("bits", 4))
    else:
        bits, has_group = sample.fields[0].bits, "group" in legal
        dims, groups = _dims_by_codes(found, scales, bits, has_group=has_group)
    inputs = dims[letters.index("i")]
    group = inputs // groups if groups > 1 else -1
    options = {"codes": _kind(found.codes), "scales": _kind(scales), "group": group, **has}
    kept = {option: value for option, value in options.items() if option in legal}
    return record_desc(dims, name, **(kept | dict(given)))


def _dims_by_scales(found: Siblings, scales: Entry, bits: Any) -> tuple[tuple[int, ...], int]:
    """Return (in, out) and the number of groups from scales (groups, out) and bytes of codes."""
    shape = scales.desc.dims if isinstance(scales.desc, MemoryDesc) else scales.shape
    if len(shape) != len(_MATRIX):
        msg = f"{scales.name!r} has the shape {scales.shape}; scales of records have 2 dims"
        raise MemdescError(msg)
    groups, columns = shape
    codes = found.codes
    count = codes.nbytes * _BYTE_BITS // bits if bits in (4, 8) else 0
    if not groups or not columns or not count or count % (groups * columns):
        msg = (
            f"{codes.name!r}: {codes.nbytes} bytes of {bits}-bit codes are not a multiple of the "
            f"{groups} x {columns} scales"
        )
        raise MemdescError(msg)
    return (count // columns, columns), groups


def _dims_by_codes(
    found: Siblings, scales: Entry, bits: int, *, has_group: bool
) -> tuple[tuple[int, ...], int]:
    """Return (out, in) from codes, whose words lie along in, and the number of groups."""
    codes = found.codes
    words = data_type(codes.dtype).bits
    if len(codes.shape) != len(_MATRIX) or words < bits:
        msg = (
            f"{codes.name!r} of {codes.dtype} and shape {codes.shape} cannot hold {bits}-bit codes"
        )
        raise MemdescError(msg)
    dims = codes.shape[0], codes.shape[1] * (words // bits)
    groups = scales.shape[0] if scales.shape else 0
    if has_group and (not groups or dims[1] % groups):
        msg = f"{scales.name!r} has {groups} groups for {dims[1]} inputs, which they do not divide"
        raise MemdescError(msg)
    return dims, groups


def _single_desc(entry: Entry, name: str, options: Mapping[str, Any]) -> RecordDesc:
    """Return a record in one tensor: what its type says, or what its bytes are by name."""
    if isinstance(entry.desc, RecordDesc):
        if entry.desc.name != name:
            msg = f"it holds {entry.desc!r}, not {name}"
            raise MemdescError(msg)
        return entry.desc
    rows, blocks = entry.shape[:-1], entry.shape[-1:]
    bits = record_desc((8, 256), name, **options).bits_per_element
    desc = record_desc((*rows, *(int(size * 8 / bits) for size in blocks)), name, **options)
    if desc.nbytes != entry.nbytes:
        msg = f"{entry.nbytes} bytes of shape {entry.shape} are not {desc!r}"
        raise MemdescError(msg)
    return desc


def check_tensors(found: Siblings, desc: RecordDesc, noted: RecordDesc | None = None) -> None:
    """Refuse words of other types or shapes than the record has, and other descriptors or notes."""
    if noted not in (None, desc):
        msg = f"{found.codes.name!r} holds a tensor of {noted!r}, as its descriptor says"
        raise MemdescError(msg)
    if [*desc.tensors] == [ONE]:
        return
    for name, tensor in written_tensors(found.prefix, desc, "").items():
        if problem := _misfit(found.entries[name], tensor):
            msg = f"{found.entries[name].name!r} {problem}, so it does not fit {desc!r}"
            raise MemdescError(msg)


def _misfit(entry: Entry, tensor: Tensor) -> str:
    """Return how an entry differs from a tensor of a record; empty if it does not."""
    if tensor.desc is not None and entry.desc == tensor.desc:
        return ""
    kind = _kind(entry)
    plain = [stored_desc(each, entry.shape)[0] for each in (entry.dtype, kind)]
    if entry.desc not in plain:  # what is stored with it, or arrays in the order of Fortran
        wanted = tensor.desc or f"{tensor.dtype} of {tensor.shape}"
        says = ", as the descriptor stored with it says" if entry.is_described else ""
        return f"holds {_named(entry.desc)}{says}, not {wanted!r}"
    if entry.dtype == "u8" and len(entry.shape) == 1 and entry.nbytes == tensor.nbytes:
        return ""  # bytes without a shape
    is_same = kind == tensor.dtype
    # the same words as integers of another width, or bits of a type that the container lacks
    is_alike = {kind, tensor.dtype} <= INTEGERS.keys() or (
        kind == f"u{data_type(tensor.dtype).bits}"
    )
    shapes = [_trimmed(each.shape) if is_same else each.shape[:-1] for each in (entry, tensor)]
    if not (is_same or is_alike) or shapes[0] != shapes[1] or entry.nbytes != tensor.nbytes:
        return (
            f"of {kind} has the shape {entry.shape} and {entry.nbytes} bytes, not "
            f"{tensor.shape} of {tensor.dtype} and {tensor.nbytes} bytes"
        )
    return ""


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the ones at its end: a scalar is also written as (1,) or (1, 1)."""
    count = next((k for k in range(len(shape), 0, -1) if shape[k - 1] != 1), 0)
    return shape[:count]


def _named(desc: MemoryDesc | RecordDesc | None) -> str:
    """Return a descriptor with the name of its packing, where it has one."""
    names = desc.tags() if isinstance(desc, MemoryDesc) else ()
    packing = next((name.text for name in names if name.vocabulary == "weights"), None)
    return f"{desc!r} ({packing})" if packing else repr(desc)


def _kind(entry: Entry) -> str:
    # archives have bf16 as words of 16 bits, with a descriptor
    return entry.desc.dtype.name if isinstance(entry.desc, MemoryDesc) else entry.dtype
