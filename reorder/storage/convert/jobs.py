"""Jobs: what happens to each tensor or record of a checkpoint, decided before anything is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError, MemoryDesc, RecordDesc, data_type, memory_desc, record_desc
from memdesc.record.names import read_name
from memdesc.tags import LETTERS
from reorder.plan.plan import plan_reorder
from reorder.records.repack import defaults
from reorder.storage.containers.descriptors import stored_desc
from reorder.storage.containers.plan import Tensor
from reorder.storage.convert.held import held_layout
from reorder.storage.convert.matching import renamed
from reorder.storage.convert.rules import WHOLE, Rule, is_record
from reorder.storage.siblings import ORDER
from reorder.storage.stored import stored_layout, stored_record, written_tensors
from reorder.values.attr import Attr
from reorder.values.formats import FLOATS, INTEGERS
from reorder.values.scales import check_types, split_dims

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reorder.storage.containers.entry import Entry
    from reorder.storage.groups import Group

__all__ = ["Job", "Plan", "copy_job", "layout_job", "record_job"]

# scales are chosen and stored in f32
_MAX_BITS = 32


@dataclass(frozen=True)
class Job:
    """What becomes of a tensor, or of the tensors of a record.

    Attributes
    ----------
    name : str
        What is converted, for messages.
    sources : mapping of str to Entry
        What is read: of a record each tensor by its name there, else one called ``""``.
    targets : mapping of str to Tensor
        What is written, likewise.
    src, dst : MemoryDesc or RecordDesc, optional
        What they hold; None where bytes stay as they are.
    attr : Attr, optional
        Of a reorder.
    axes, groups : tuple of int
        Along which dims scales are chosen from the data, and their groups.
    scales : tuple of Tensor
        Where these are written: scales, then zero points.
    rule : Rule, optional
        The rule that asks for it.
    dropped : tuple of Entry
        What the output does not need, such as an order of inputs that is none.
    """

    name: str
    sources: Mapping[str, Entry]
    targets: Mapping[str, Tensor]
    src: MemoryDesc | RecordDesc | None = None
    dst: MemoryDesc | RecordDesc | None = None
    attr: Attr | None = None
    axes: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    scales: tuple[Tensor, ...] = ()
    rule: Rule | None = None
    dropped: tuple[Entry, ...] = field(default=())

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that is written."""
        return (*self.targets.values(), *self.scales)

    @property
    def is_copy(self) -> bool:
        """Whether bytes stay as they are."""
        return self.src is None

    def __str__(self) -> str:
        if self.is_copy:
            return "copied"
        return f"{self.src!r} -> {self.dst!r}"


class Plan(NamedTuple):
    """What a conversion does.

    Attributes
    ----------
    jobs : tuple of Job
        In the order of the source.
    warnings : tuple of str
        What a user may not have meant.
    partial : mapping of str to list of str
        Rules -> tensors of the output whose codes or scales they changed alone.
    left : str
        Codes of a quantised weight that stay as they were; empty if there are none.
    """

    jobs: tuple[Job, ...]
    warnings: tuple[str, ...]
    partial: Mapping[str, list[str]]
    left: str

    @property
    def moved(self) -> tuple[Job, ...]:
        """The jobs of records, which files beside the model may declare."""
        return tuple(job for job in self.jobs if isinstance(job.src, RecordDesc))


def copy_job(entry: Entry, name: str, format_name: str, rule: Rule | None = None) -> Job:
    """Return the job of a tensor that stays as it is.

    Arrays of numpy in Fortran order become row-major: other containers have no such order.
    """
    if isinstance(entry.desc, MemoryDesc) and not entry.is_described:
        plain = memory_desc(entry.desc.dims, entry.desc.dtype)
        if plain != entry.desc:
            target = stored_layout(name, plain)
            return Job(entry.name, {"": entry}, {"": target}, entry.desc, plain, rule=rule)
    if isinstance(entry.desc, RecordDesc):
        tensor = stored_record(name, entry.desc, format_name)
    else:
        desc, dtype = entry.desc if entry.is_described else None, entry.dtype
        if isinstance(desc, MemoryDesc) and not desc.dtype.is_packed:
            # a type that its container does not have, such as bf16 in archives of numpy
            is_plain = desc == stored_desc(desc.dtype.name, entry.shape)[0]
            dtype = desc.dtype.name if is_plain else dtype
        tensor = Tensor(name, dtype, entry.shape, entry.nbytes, desc)
    return Job(entry.name, {"": entry}, {"": tensor._replace(origin=entry.name)}, rule=rule)


def layout_job(entry: Entry, rule: Rule, format_name: str) -> Job:
    """Return the job of a tensor of which a rule moves the layout or the type.

    Raises
    ------
    MemdescError
        If it cannot be moved so: with the rule and the tensor.
    """
    name = renamed(rule, entry.name)
    if rule == Rule(rule.text, rule.pattern, rename=rule.rename):
        return copy_job(entry, name, format_name, rule)
    src = held_layout(entry, rule)
    try:
        dst = _layout(src, rule)
        if rule.scales is not None:
            return _quantize_job(entry, rule, src, dst)
        attr = _attr(rule, src, dst)
        plan_reorder(src, dst, attr)
    except MemdescError as error:
        hint = ""
        if is_record(rule.dst):
            hint = (
                "; a record is moved by a pattern of what stands before the names of its tensors"
                if is_record(rule.src)
                else "; of numbers no records are made: give a data type and scales=, such as "
                "'u4, scales=ab, groups=1x32'"
            )
        rule.fail(f"{entry.name}, {src!r}: {error}{hint}")
    if src == dst and attr is None:
        target = stored_layout(name, dst, entry.dtype)._replace(origin=entry.name)
        return Job(entry.name, {"": entry}, {"": target}, rule=rule)
    words = entry.dtype if data_type(entry.dtype).bits > src.dtype.bits else None
    target = stored_layout(name, dst, words if src.dtype == dst.dtype else None)
    return Job(entry.name, {"": entry}, {"": target}, src, dst, attr, rule=rule)


def _layout(src: MemoryDesc, rule: Rule) -> MemoryDesc:
    dtype = src.dtype if rule.dtype is None else data_type(rule.dtype)
    if rule.dst is None:
        return src.with_extra(None).with_dtype(dtype)
    return memory_desc(src.dims, dtype, str(rule.dst))


def _attr(rule: Rule, src: MemoryDesc, dst: MemoryDesc) -> Attr | None:
    given = {
        "dst_scale": rule.scale,
        "dst_zero_point": rule.zero_point,
        "src_scale": rule.src_scale,
        "src_zero_point": rule.src_zero_point,
    }
    named = {role: value for role, value in given.items() if value is not None}
    if not named:
        is_narrow = src.dtype.name in FLOATS and dst.dtype.name in INTEGERS
        if is_narrow:
            msg = (
                f"{src.dtype} becomes {dst.dtype} by scales; give scale=, or scales= to choose "
                "them from the data, or scale=1 to round"
            )
            raise MemdescError(msg)
        return None
    return Attr(**named, saturate=True)  # type: ignore[arg-type] # by role


def _quantize_job(entry: Entry, rule: Rule, src: MemoryDesc, dst: MemoryDesc) -> Job:
    letters = "" if rule.scales in (None, WHOLE) else str(rule.scales)
    axes = tuple(sorted({LETTERS.index(letter) for letter in letters}))
    if any(dim >= src.ndims for dim in axes):
        msg = f"scales={letters} name a dim that {src.dims} do not have"
        raise MemdescError(msg)
    groups = rule.groups or ()
    check_types(src.dtype, dst.dtype)
    if src.dtype.bits > _MAX_BITS:
        msg = f"scales are chosen and stored in f32, for floats of 16 or 32 bits, not {src.dtype}"
        raise MemdescError(msg)
    sizes = split_dims(src.dims, axes, groups)[1]
    shape = tuple(sizes[dim] for dim in axes)
    name = renamed(rule, entry.name)
    scales = [stored_layout(f"{name}_scale", memory_desc(shape or (1,), "f32"))]
    if dst.dtype.name in INTEGERS and INTEGERS[dst.dtype.name].low == 0:
        scales.append(stored_layout(f"{name}_zero_point", memory_desc(shape or (1,), "s32")))
    target = stored_layout(name, dst)
    return Job(
        entry.name,
        {"": entry},
        {"": target},
        src,
        dst,
        axes=axes,
        groups=groups,
        scales=tuple(scales),
        rule=rule,
    )


def record_job(group: Group, rule: Rule, format_name: str) -> Job:
    """Return the job of a record: another record, or plain numbers.

    Raises
    ------
    MemdescError
        If it cannot become that: with the rule and the prefix.
    """
    src = group.desc
    if src is None:
        rule.fail(f"{group.prefix}: {group.reason}")
    prefix = renamed(rule, group.prefix)
    try:
        if rule.dst is None or not is_record(rule.dst):
            layout = None if rule.dst is None else str(rule.dst)
            plain = memory_desc(src.dims, rule.dtype or "f32", layout)
            dst: MemoryDesc | RecordDesc = plain
            stem = prefix if len(group.tensors) == 1 else f"{prefix}.weight".removeprefix(".")
            targets = {"": stored_layout(stem, plain)}
        else:
            dst = _target(src, rule)
            targets = written_tensors(prefix, dst, format_name)
    except MemdescError as error:
        rule.fail(f"{group.prefix}: {error}")
    order = group.found.entries.get(ORDER)
    dropped = () if order is None else (order,)
    return Job(group.prefix, group.tensors, targets, src, dst, rule=rule, dropped=dropped)


def _target(src: RecordDesc, rule: Rule) -> RecordDesc:
    """Return the record that a rule asks for; group and scales are by default those of src."""
    if rule.dst is None or rule.dtype is not None:
        msg = f"records keep their types; {rule.dtype} goes with a layout, such as 'ab, f16'"
        raise MemdescError(msg)
    name, letters, legal = read_name(rule.dst.name)
    swaps = src.letters != letters and sorted(src.letters) == sorted(letters)
    dims = src.dims[::-1] if swaps else src.dims
    found = defaults(src, legal)
    return record_desc(dims, name, **(found | dict(rule.dst.options)))
