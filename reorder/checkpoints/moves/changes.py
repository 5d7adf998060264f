"""Changes: what the bytes of a tensor or a record, or of a region of it, become.

The part of a change in a region is a change itself, over the bytes of only that region. Each change
is made by compiled code, and can be compared with its definition in numpy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import lcm
from threading import local
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from memdesc import Layout, MemdescError, MemoryDesc, memory_desc
from memdesc.desc import desc_of
from memdesc.record import RecordDesc
from memdesc.views import permute_axes
from reorder.api import prepare
from reorder.checkpoints.formats.entry import Desc
from reorder.checkpoints.moves.pieces import FieldLayout, Operand, Region
from reorder.memory.memory import Memory
from reorder.plan.plan import check_pair, plan_reorder
from reorder.quantized import quantize
from reorder.records.decode import decode_into
from reorder.records.numbers import dequantize_reference
from reorder.records.record import Record
from reorder.records.repacking import convert_numbers, dim_order, is_rounded
from reorder.reference import execute_reference
from reorder.values.attr import GROUPED_DIMS, Attr
from reorder.values.binding import bind
from reorder.values.formats import INTEGERS
from reorder.values.scales import check_quantized_types, split_dims

# for each tensor that is read, or each that is written, by its role
Bytes = Mapping[str, NDArray[np.uint8]]
Operands = Mapping[str, Operand]
Layouts = Mapping[str, tuple[Layout, ...]]

# the role of a tensor that is not part of a record, and of codes beside their scales
ONLY = "memory"
# scales are chosen and stored in f32
_SCALE_BITS = 32
# the largest buffer that a thread keeps for its next piece
_PAGE, _MAX_KEPT = 4096, 256 << 20


class _Scratch(local):
    """Buffers that a thread reuses: fresh memory costs a page fault for each page."""

    def __init__(self) -> None:
        self.held: dict[str, NDArray[np.uint8]] = {}

    def take(self, name: str, nbytes: int) -> NDArray[np.uint8]:
        """Return uninitialised bytes at the start of a page; large buffers are not kept."""
        if nbytes > _MAX_KEPT:
            return np.empty(nbytes, np.uint8)
        held = self.held.get(name)
        if held is None or held.nbytes < nbytes:
            self.held.pop(name, None)
            fresh = np.empty(nbytes + _PAGE, np.uint8)
            held = self.held[name] = fresh[-fresh.ctypes.data % _PAGE :]
        return held[:nbytes]


scratch = _Scratch()


@dataclass(frozen=True)
class Change(ABC):
    """How tensors change: `src` becomes `dst`. Regions have their dims in the order of `dst`."""

    src: Desc
    dst: Desc

    # bytes of memory for each byte that is read or written
    working: ClassVar[int] = 1

    def __str__(self) -> str:
        return f"{self.src!r} -> {self.dst!r}"

    @property
    def dims(self) -> tuple[int, ...]:
        """The logical sizes of the target."""
        return self.dst.dims

    @property
    def alignment(self) -> tuple[int, ...]:
        """Sizes and offsets of regions are multiples of these."""
        return (1,) * len(self.dims)

    @property
    def reads(self) -> Operands:
        """The tensors that are read, by their roles."""
        return _operands(self.src, permutation(self.src, self.dst), is_written=False)

    @property
    def writes(self) -> Operands:
        """The tensors that are written, by their roles."""
        return _operands(self.dst, permutation(self.dst, self.dst), is_written=True)

    @property
    def is_copy(self) -> bool:
        """Whether the bytes that are written are those that are read."""
        return False

    def part(self, region: Region, read: Layouts, written: Layouts, **more: Any) -> Self:
        """Return the change of a region, whose fields have these layouts, with other `more`."""
        return replace(
            self,
            src=_desc_of(self.src, permutation(self.src, self.dst), region, read),
            dst=_desc_of(self.dst, permutation(self.dst, self.dst), region, written),
            **more,
        )

    @abstractmethod
    def apply(self, read: Bytes) -> Bytes:
        """Return the bytes to write, until the next call. Fails if dst cannot hold a number."""

    def with_chosen(self, written: Bytes) -> tuple[Change, Bytes]:
        """Return the change with the scales that `apply` chose and wrote, and what that writes."""
        return self, written

    def definition(self, read: Bytes, written: Bytes) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the numbers that are wanted, and those written; see also `with_chosen`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Reorder(Change):
    """A reorder of one tensor, without accumulation: a piece may run twice."""

    src: MemoryDesc
    dst: MemoryDesc
    attr: Attr | None = None

    def __post_init__(self) -> None:
        # boxes are planned when it runs
        check_pair(self.src, self.dst)
        bind(self.attr, self.src, self.dst)

    @property
    def alignment(self) -> tuple[int, ...]:
        """Groups that share a scale; with compensation, the whole tensor."""
        if self.src.extra is not None or self.dst.extra is not None:
            return self.dims  # compensation belongs to all elements
        alignment = [1] * len(self.dims)
        for parameter in () if self.attr is None else self.attr.parameters:
            for dim, group in enumerate(parameter.groups, len(alignment) - GROUPED_DIMS):
                alignment[dim] = lcm(alignment[dim], group)
        return tuple(alignment)

    @property
    def is_copy(self) -> bool:
        """Whether it leaves all bytes as they are."""
        is_full = not _has_gaps(self.dst) and self.dst.padded_nelems == self.dst.nelems
        return is_full and self.src == self.dst and self.attr is None

    def apply(self, read: Bytes) -> Bytes:
        """Reorder."""
        data = scratch.take("made", self.dst.min_nbytes)
        if _has_gaps(self.dst):
            data[:] = 0
        prepare(plan_reorder(self.src, self.dst, self.attr), threads=1)(read[ONLY], data)
        return {ONLY: data}

    def definition(self, read: Bytes, written: Bytes) -> tuple[NDArray[Any], NDArray[Any]]:
        """Reorder by definition."""
        data, found = padded(read[ONLY], self.src.min_nbytes), written[ONLY]
        wanted = np.zeros(max(len(found), self.dst.min_nbytes), np.uint8)
        execute_reference(self.src, self.dst, data, wanted, self.attr)
        return wanted[: len(found)], found

    def part(self, region: Region, read: Layouts, written: Layouts, **more: Any) -> Self:
        """Return the change of a region, with the scales and zero points of its elements."""
        attr = self.attr
        if attr is None or not attr.parameters:
            return super().part(region, read, written, **more)
        operands = {operand.role: operand for operand in bind(attr, self.src, self.dst).operands}
        given: dict[str, Any] = {}
        for parameter in filter(lambda parameter: parameter.mask, attr.parameters):
            operand = operands[parameter.role]
            along = tuple(
                slice(at // group, (at + size) // group) if operand.mask >> dim & 1 else slice(None)
                for dim, (size, at, group) in enumerate(zip(*region, operand.groups, strict=True))
            )
            given[parameter.role] = parameter.values.reshape(operand.sizes)[along].reshape(-1)
        return super().part(region, read, written, attr=replace(attr, **given))


@lru_cache(maxsize=1024)  # the layers of a model are alike
def copied(nbytes: int) -> Reorder:
    """Return the change that copies bytes."""
    desc = memory_desc((nbytes,), "u8")
    return Reorder(desc, desc)


@dataclass(frozen=True)
class Quantize(Change):
    """Floats that become codes, and scales chosen from the data: tensors, or those of a record.

    For unsigned integers zero points are a third. `axes` and `groups` are as in `quantize`.
    """

    src: MemoryDesc
    axes: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()

    working: ClassVar[int] = 4  # numpy finds the largest values in f32

    def __post_init__(self) -> None:
        check_quantized_types(self.src.dtype, self.codes.dtype)
        if self.src.dtype.bits > _SCALE_BITS:
            raise MemdescError(f"scales are chosen and stored in f32, not for {self.src.dtype}")
        split_dims(self.src.dims, self.axes, self.groups)

    @property
    def codes(self) -> MemoryDesc:
        """The layout of the codes."""
        return self.dst if isinstance(self.dst, MemoryDesc) else self.dst.codes.desc

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the codes, the scales and the zero points if there are any."""
        if isinstance(self.dst, MemoryDesc):
            return (ONLY, *self.scales)
        return self.dst.codes.tensor, self.dst.scales.tensor

    @property
    def alignment(self) -> tuple[int, ...]:
        """All elements that share a scale."""
        groups = (*(1,) * (len(self.dims) - len(self.groups)), *self.groups)
        return tuple(
            groups[dim] if dim in self.axes else max(size, 1) for dim, size in enumerate(self.dims)
        )

    @property
    def scales(self) -> dict[str, MemoryDesc]:
        """The layouts of scales and zero points that are tensors, over all dims."""
        counts = [
            size // group if dim in self.axes else 1
            for dim, (size, group) in enumerate(zip(self.dims, self.alignment, strict=True))
        ]
        integers = INTEGERS.get(self.codes.dtype.name)
        types = {"scales": "f32"}
        types |= {"zero_points": "s32"} if integers and integers.low == 0 else {}
        return {role: memory_desc(counts, dtype) for role, dtype in types.items()}

    @property
    def writes(self) -> Operands:
        """Codes, scales and zero points."""
        if isinstance(self.dst, RecordDesc):
            return super().writes
        operands = dict(super().writes)
        for role, desc in self.scales.items():
            part = FieldLayout.of(desc)._replace(groups=self.alignment)
            operands[role] = Operand(desc.nbytes, (part,), is_written=True)
        return operands

    def apply(self, read: Bytes) -> Bytes:
        """Choose scales, and convert."""
        x = Memory(self.src, read[ONLY], zero_pad=False)
        codes, *chosen = quantize(
            x, self.codes.dtype, self.axes, self.codes, groups=self.groups, threads=1
        )
        return dict(zip(self.roles, (codes.data, *map(_bytes_of, chosen)), strict=False))

    def with_chosen(self, written: Bytes) -> tuple[Change, Bytes]:
        """Return the reorder with the scales that were written, and the codes."""
        codes, *roles = self.roles
        count = self.scales["scales"].nelems
        dtypes = {"dst_scale": np.float32, "dst_zero_point": np.int32}
        given: dict[str, Any] = {"saturate": True}
        for (name, dtype), role in zip(dtypes.items(), roles, strict=False):
            given[name] = written[role].view(dtype)[:count]
            given[f"{name}_mask"] = sum(1 << dim for dim in self.axes)
            given[f"{name}_groups"] = self.groups
        return Reorder(self.src, self.codes, Attr(**given)), {ONLY: written[codes]}


@dataclass(frozen=True)
class Repack(Change):
    """A record that becomes another record, or a tensor of plain numbers; both are bare."""

    src: RecordDesc

    def apply(self, read: Bytes) -> Bytes:
        """Decode, or write the same numbers in another format."""
        record = record_of(self.src, read)
        if isinstance(self.dst, MemoryDesc):
            data = scratch.take("made", self.dst.nbytes)
            if self.dst.has_padding or _has_gaps(self.dst):
                data[:] = 0  # not all of it is written
            decode_into(record, Memory.attached(self.dst, data), 1)
            return {ONLY: data}
        made = {name: scratch.take(f"made {name}", n) for name, n in self.dst.tensors.items()}
        held = sum(field.layout.nelems * field.bits for field in self.dst.fields)
        if held != 8 * self.dst.nbytes:
            for data in made.values():
                data[:] = 0  # there are gaps between fields
        # a warning of the step says what is rounded
        order = permutation(self.src, self.dst)
        convert_numbers(record, Record(self.dst, made), order, 1, is_exact=False)
        return made

    def definition(self, read: Bytes, written: Bytes) -> tuple[NDArray[Any], NDArray[Any]]:
        """Decode both sides, or the one that is a record, by definition."""
        values = dequantize_reference(record_of(self.src, read))
        if isinstance(self.dst, MemoryDesc):
            plain = Reorder(memory_desc(self.dst.dims, "f32"), self.dst)
            return plain.definition({ONLY: _bytes_of(values)}, written)
        order = np.argsort(permutation(self.src, self.dst))
        found = dequantize_reference(record_of(self.dst, written))
        # -0 and 0 count as one number
        wanted, found = values.transpose(order) + 0.0, found + 0.0
        if is_rounded(self.src, self.dst):  # they may differ by two roundings to f32
            with np.errstate(all="ignore"):
                wide = wanted.astype(np.float64)
                found = np.where(abs(wide - found) <= 2.0**-22 * abs(wide), wanted, found)
        return wanted, found


def permutation(src: Desc, dst: Desc) -> tuple[int, ...]:
    """Return which dim of dst each dim of src is, by the letters of two records."""
    if isinstance(src, RecordDesc):
        return dim_order(src, dst.letters if isinstance(dst, RecordDesc) else src.letters)
    return tuple(range(len(src.dims)))


def code_tensors(desc: RecordDesc) -> set[str]:
    """Return the tensors of a record that hold codes."""
    return {desc.field(name).tensor for name, _ in desc.rule.code.parts}


def _has_gaps(desc: MemoryDesc) -> bool:
    """Whether a reorder leaves bits as they are: gaps, or half of the first or the last byte."""
    is_whole = desc.is_dense and not desc.offset0
    return not is_whole or bool(desc.padded_nelems * desc.dtype.bits % 8)


def _bytes_of(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def padded(data: NDArray[np.uint8], nbytes: int) -> NDArray[np.uint8]:
    """Return the bytes, with zeros after them up to `nbytes`."""
    missing = nbytes - len(data)
    return np.concatenate([data, np.zeros(missing, np.uint8)]) if missing > 0 else data


def record_of(desc: RecordDesc, data: Bytes) -> Record:
    """Return a record over the bytes of its tensors, whose buffers may lack padding."""
    return Record(desc, {name: padded(data[name], n)[:n] for name, n in desc.tensors.items()})


def _operands(desc: Desc, perm: tuple[int, ...], *, is_written: bool) -> Operands:
    """Return each tensor; dim k of the descriptor is dim `perm[k]` of the change."""
    if isinstance(desc, MemoryDesc):
        return {ONLY: Operand(desc.min_nbytes, (FieldLayout.of(desc),), is_written)}
    fields: dict[str, list[FieldLayout]] = {name: [] for name in desc.tensors}
    order = np.argsort(perm)
    for field in desc.fields:
        groups, counts = (tuple(steps[k] for k in order) for steps in (field.groups, field.counts))
        layout = permute_axes(field.layout, perm)
        fields[field.tensor].append(FieldLayout(layout, field.bits, groups, counts))
    return {
        name: Operand(nbytes, tuple(fields[name]), is_written)
        for name, nbytes in desc.tensors.items()
    }


def _desc_of(desc: Desc, perm: tuple[int, ...], region: Region, layouts: Layouts) -> Desc:
    """Return the descriptor of a region, with new layouts of the fields of each tensor."""
    if isinstance(desc, MemoryDesc):
        (layout,), *_ = layouts.values()  # scales come after the codes
        return desc_of(desc.dtype, layout)
    back = tuple(perm.index(dim) for dim in range(len(perm)))
    rest = {tensor: iter(held) for tensor, held in layouts.items()}
    fields = tuple(
        replace(field, layout=permute_axes(next(rest[field.tensor]), back)) for field in desc.fields
    )
    return replace(desc, dims=tuple(region.sizes[dim] for dim in perm), fields=fields)
