"""Step: how one tensor or record is converted, decided before its bytes are read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from memdesc import MemdescError, MemoryDesc, UnsupportedFormatError, data_type, memory_desc
from memdesc.errors import about
from memdesc.names import expand_meta_tag, resolve
from memdesc.record import RecordDesc, record_desc
from memdesc.record.names import scheme_of
from memdesc.tags import LETTERS
from reorder.checkpoints.convert.rules import WHOLE, Rule, is_record
from reorder.checkpoints.formats.entry import (
    QUANTIZED,
    WEIGHT,
    Entry,
    Tensor,
    joined_tensors,
    record_tensors,
    stored_desc,
    stored_layout,
    stored_record,
)
from reorder.checkpoints.moves.changes import ONLY, Change, Quantize, Reorder, Repack, copied
from reorder.checkpoints.moves.pieces import Cut, cut
from reorder.checkpoints.moves.tasks import Task
from reorder.checkpoints.weights import tensors_of
from reorder.records.repacking import is_rounded, target_desc
from reorder.values.attr import Attr
from reorder.values.formats import FLOATS, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from memdesc.tags import FormatTag
    from reorder.checkpoints.convert.conversion import ConvertOptions
    from reorder.checkpoints.formats.entry import Desc, Place
    from reorder.checkpoints.weights import Weight

_SCALES = "f32"


@dataclass(frozen=True)
class Step:
    """What a tensor, or the tensors of a record, become."""

    # what is converted, for messages
    name: str
    # what is read, by role: the tensors of a record by their names in it, or `ONLY` one tensor
    sources: Mapping[str, Entry]
    # what is written, by role: likewise, or codes with the ``scales`` and ``zero_points`` chosen
    targets: Mapping[str, Tensor]
    change: Change
    # the rule that asks for it
    rule: Rule | None = None
    # tensors that the output does not need, such as a `g_idx` that keeps the order of inputs
    dropped: tuple[Entry, ...] = ()
    # targets that depend on nothing that is read, by role
    constants: Mapping[str, bytes] = field(default_factory=dict)
    # how the change is cut, if not into one piece
    cut: Cut | None = None

    @property
    def src(self) -> Desc:
        """What the sources hold; bytes if they are copied."""
        return self.change.src

    @property
    def dst(self) -> Desc:
        """What the targets hold; bytes if they are copied."""
        return self.change.dst

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that are written."""
        return tuple(self.targets.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors that are written, but for constants."""
        return sum(each.nbytes for role, each in self.targets.items() if role not in self.constants)

    @property
    def is_copy(self) -> bool:
        """Whether the bytes are copied."""
        return self.change.is_copy

    @property
    def rounding(self) -> str:
        """What is rounded: a factor of scales that becomes its reciprocal."""
        src, dst = self.src, self.dst
        if not (
            isinstance(src, RecordDesc) and isinstance(dst, RecordDesc) and is_rounded(src, dst)
        ):
            return ""
        old, new = (str(desc.rule).rpartition(" * ")[0] for desc in (src, dst))
        return (
            f"{old} becomes {new}, with the reciprocal rounded to f32: scales change by at most "
            "1.2e-07 of their value; codes do not change"
        )

    @property
    def pieces(self) -> Cut:
        """The pieces of the change."""
        return self.cut or Cut(self.change, ())

    def in_pieces(self, options: ConvertOptions) -> Step:
        """Return the step with its pieces; the message of an error has the tensor."""
        with about(self.name):
            found = cut(self.change, options.max_bytes, options.thread_count)
        return replace(self, cut=found)

    def tasks(self, where: Callable[[str], Place]) -> Iterator[Task]:
        """Return the pieces with their places; `where` gives those of what is written."""
        src = {role: entry.place for role, entry in self.sources.items()}
        dst = {role: where(each.name) for role, each in self.targets.items()}
        rule = self.rule.text if self.rule else ""
        return (Task(self.name, piece, src, dst, rule) for piece in self.pieces.pieces())

    def fail(self, problem: str) -> NoReturn:
        """Raise an error that names the rule, if there is one."""
        if self.rule is not None:
            self.rule.fail(problem)
        raise MemdescError(problem) from None


# --- single tensors ---


def copied_step(entry: Entry, target: Tensor, rule: Rule | None = None) -> Step:
    """Return the step that copies the bytes of a tensor, and its note."""
    target = target._replace(note=entry.note)
    return Step(entry.name, {ONLY: entry}, {ONLY: target}, copied(target.nbytes), rule)


def copy_step(entry: Entry, name: str, format_name: str, rule: Rule | None = None) -> Step:
    """Return the step of a tensor that no rule changes."""
    desc, dtype = entry.desc, entry.dtype
    if isinstance(desc, RecordDesc):
        return copied_step(entry, stored_record(name, desc, format_name), rule)
    if desc is None or not entry.is_described:
        plain = desc and memory_desc(desc.dims, desc.dtype)
        if desc and plain and plain != desc:
            # numpy's arrays in Fortran order: other containers do not have that order
            layout = {ONLY: stored_layout(name, plain)}
            return Step(entry.name, {ONLY: entry}, layout, Reorder(desc, plain), rule)
        desc = None
    elif desc == stored_desc(desc.dtype.name, entry.shape)[0] and not desc.dtype.is_packed:
        # a type that its container does not have, such as bf16 in archives of numpy
        dtype = desc.dtype.name
    return copied_step(entry, Tensor(name, dtype, entry.shape, entry.nbytes, desc), rule)


def layout_step(entry: Entry, rule: Rule, format_name: str) -> Step:
    """Return the step of a tensor whose layout or type a rule changes."""
    name = rule.renamed(entry.name)
    if rule.is_renaming:
        return copy_step(entry, name, format_name, rule)
    try:
        src = _held_layout(entry, rule)
        change = _change(rule, src)
    except MemdescError as error:
        hint = ""
        if rule.src is not None and is_record(rule.src):
            parts = ", ".join(tensors_of(rule.src.name.lower()))
            hint = (
                f"; no weight that it matches has all tensors of {rule.src}, {parts}: to move a "
                "record, match what comes before the names of its tensors"
            )
        elif is_record(rule.dst) and not _is_encoding(rule):
            hint = (
                f"; plain numbers do not become {rule.dst}: give a data type and scales=, such as "
                "'u4, scales=ab, groups=1x32'"
            )
        rule.fail(f"{entry.name} of {entry.dtype} and shape {entry.shape}: {error}{hint}")
    dst, given = change.dst, dict(rule.attr)
    constants: dict[str, bytes] = {}
    if isinstance(dst, RecordDesc):
        prefix = name.removesuffix(WEIGHT)
        targets = record_tensors(prefix, prefix, dst, format_name)
    elif isinstance(change, Quantize):
        targets = _quantized(name, dst, change.scales, change.axes, change.groups)
    elif not given.keys().isdisjoint({"dst_scale", "dst_zero_point"}):
        values = {"scales": np.array([given.get("dst_scale", 1)], np.float32)}
        if "dst_zero_point" in given:
            values["zero_points"] = np.array([given["dst_zero_point"]], np.int32)
        scales = {role: memory_desc((1,), each.dtype) for role, each in values.items()}
        targets = _quantized(name, dst, scales)
        constants = {role: each.tobytes() for role, each in values.items()}
    elif change == Reorder(src, src):
        return copied_step(entry, stored_layout(name, dst, entry.dtype), rule)
    else:
        is_packed = src.dtype == dst.dtype and data_type(entry.dtype).bits > src.dtype.bits
        targets = {ONLY: stored_layout(name, dst, entry.dtype if is_packed else None)}
    return Step(entry.name, {ONLY: entry}, targets, change, rule, constants=constants)


def _change(rule: Rule, src: MemoryDesc) -> Change:
    """Return how a rule changes a tensor."""
    if rule.dst is not None and _is_encoding(rule):
        if rule.dtype is not None or rule.scales is not None:
            raise MemdescError(
                f"{rule.dst.name} says which types codes and scales have; leave out other keys"
            )
        record = record_desc(src.dims, rule.dst.name, **dict(rule.dst.options))
        if record.scales.kind != _SCALES:
            raise MemdescError(f"scales are chosen in f32; leave out scales= of {rule.dst.name}")
        return Quantize.into(src, record)
    dtype = src.dtype if rule.dtype is None else data_type(rule.dtype)
    dst = src.with_extra(None).with_dtype(dtype)
    if rule.dst is not None:
        dst = memory_desc(src.dims, dtype, str(rule.dst))
    if rule.scales is not None:
        letters = "" if rule.scales == WHOLE else rule.scales
        axes = tuple(sorted({LETTERS.index(letter) for letter in letters}))
        if any(dim >= src.ndims for dim in axes):
            raise MemdescError(f"scales={letters} names a dim that {src.dims} do not have")
        return Quantize(src, dst, axes, rule.groups or ())
    if not rule.attr and src.dtype.name in FLOATS and dst.dtype.name in INTEGERS:
        raise MemdescError(
            f"{src.dtype} becomes {dst.dtype} by scales; give scale=, or scales= to choose them "
            "from the data, or scale=1 to round"
        )
    given: dict[str, Any] = dict(rule.attr)
    return Reorder(src, dst, Attr(**given, saturate=True) if given else None)


def _quantized(
    name: str,
    codes: MemoryDesc,
    scales: Mapping[str, MemoryDesc],
    axes: tuple[int, ...] = (),
    groups: tuple[int, ...] = (),
) -> dict[str, Tensor]:
    """Return how codes are stored with their scales and zero points, which are over all dims."""
    tensors = {ONLY: stored_layout(name, codes)}
    for role, each in scales.items():
        dims = tuple(each.dims[dim] for dim in axes) or (1,)
        tensors[role] = stored_layout(f"{name}{QUANTIZED[role]}", memory_desc(dims, each.dtype))
    return joined_tensors(name, {"quantized": {"axis": axes, "groups": groups}}, tensors)


def _is_encoding(rule: Rule) -> bool:
    """Whether a rule turns floats into a record: floats as codes, with one f32 scale each."""
    scheme = scheme_of(rule.dst.name.lower()) if rule.dst and is_record(rule.dst) else None
    if scheme is None:
        return False
    first, *others = (
        part.kind.format(**scheme.defaults) for part in scheme.parts_of(scheme.defaults)
    )
    return first in FLOATS and others == [_SCALES]


# --- records ---


def record_step(weight: Weight, rule: Rule, format_name: str) -> Step:
    """Return the step of a record: another record, or plain numbers."""
    src, prefix = weight.desc, rule.renamed(weight.prefix)
    if src is None:
        rule.fail(f"{weight.prefix}: {weight.reason}")
    if is_record(rule.dst) and weight.is_looked_up:
        rule.fail(
            f"{weight.prefix}: its scales are looked up by an indirection table (act-order), which "
            "no record holds: it becomes floats, as in 'plain(axes=oi), bf16'"
        )
    if is_record(rule.dst) and rule.dtype is not None:
        rule.fail(
            f"{weight.prefix}: records keep their types; {rule.dtype} goes with a layout, such as "
            "'ab, f16'"
        )
    constants: dict[str, bytes] = {}
    try:
        if rule.dst is None or not is_record(rule.dst):
            floats, plain = _decoded_layouts(src, rule)
            change = Repack(src.bare, floats)
            targets = {ONLY: stored_layout(weight.decoded_name(prefix), plain)}
        else:
            dst = target_desc(src, rule.dst.name, dict(rule.dst.options))
            constants = {each.tensor: each.data for each in dst.constants}
            change = Repack(src.bare, dst.bare)
            is_bare = len(weight.tensors) > 1 and not weight.is_dotted
            name = weight.called(prefix)
            targets = record_tensors(name, prefix, dst, format_name, is_bare=is_bare)
    except MemdescError as error:
        rule.fail(f"{weight.prefix}: {error}")
    order = weight.order
    dropped = () if order is None or order in weight.tensors.values() else (order,)
    return Step(weight.prefix, weight.tensors, targets, change, rule, dropped, constants)


def _decoded_layouts(src: RecordDesc, rule: Rule) -> tuple[MemoryDesc, MemoryDesc]:
    """Return the layout that a record is decoded to, and the layout that is stored for it."""
    dtype = rule.dtype or "f32"
    options = {} if rule.dst is None else dict(rule.dst.options)
    if rule.dst is None or options.keys() != {"axes"}:
        found = memory_desc(src.dims, dtype, None if rule.dst is None else str(rule.dst))
        return found, found
    # row-major over the dims in another order, by the letters of the record
    axes = str(options["axes"])
    if rule.dst.name != "plain" or sorted(axes) != sorted(src.letters):
        raise MemdescError(
            f"axes= goes with plain and must be {src.letters} in some order, not {axes}"
        )
    order = [src.letters.index(letter) for letter in axes]
    stored = memory_desc(tuple(src.dims[dim] for dim in order), dtype)
    return memory_desc(src.dims, dtype, "".join(LETTERS[dim] for dim in order)), stored


# --- what a tensor holds, by a rule ---


def _held_layout(entry: Entry, rule: Rule) -> MemoryDesc:
    """Return the layout of an entry, from its descriptor or from a rule, which must agree."""
    if rule.src is None and rule.holds is None and rule.dims is None:
        if isinstance(entry.desc, MemoryDesc):
            return entry.desc
        raise MemdescError(entry.reason or f"it holds {entry.desc!r}")
    name = "plain" if rule.src is None else str(rule.src)
    found = _layout_of_rule(entry, rule, name)
    if found.nbytes != entry.nbytes:
        raise MemdescError(
            f"it has {entry.nbytes} bytes, but {found!r} takes {found.nbytes}; its dims are given "
            "as dims="
        )
    if entry.is_described and found != entry.desc:
        raise MemdescError(
            f"it holds {entry.desc!r}, as its descriptor says, not {name}; leave out '{name} ->'"
        )
    return found


def _layout_of_rule(entry: Entry, rule: Rule, name: str) -> MemoryDesc:
    """Return the layout that a rule names, with dims from the shape."""
    words = data_type(entry.dtype)
    dtype = words if rule.holds is None else data_type(rule.holds)
    if rule.dims is None and entry.is_described and isinstance(entry.desc, MemoryDesc):
        return memory_desc(entry.desc.dims, entry.desc.dtype, name)
    kind = _element_type(name, dtype.name, dtype.bits)
    if rule.dims is not None:
        return memory_desc(rule.dims, kind, name)
    bits = data_type(kind).bits
    if bits < words.bits:
        raise MemdescError(
            f"{name} has {words.bits // bits} elements in a word of {words}; give its dims="
        )
    # for a layout of any rank: each block adds an axis to the shape
    ndims = len(entry.shape) - len(re.findall("[0-9]+[a-z]", name))
    tag = resolve(expand_meta_tag(name, ndims), (), bits)
    return memory_desc(_dims_of_blocks(entry.shape, tag), kind, name)


def _element_type(name: str, dtype: str, bits: int) -> str:
    """Return the type of the elements of a layout: the given one, or the one that it packs."""
    for kind, width in ((dtype, bits), ("u4", 4), ("u8", 8)):
        try:
            resolve(name, (), width)
        except UnsupportedFormatError:
            continue
        except MemdescError:  # a name for any number of dims, or none: the caller finds out
            return dtype
        return kind
    return dtype


def _dims_of_blocks(shape: tuple[int, ...], tag: FormatTag) -> tuple[int, ...]:
    """Return logical sizes from a shape with an axis for each block in memory, or for each dim."""
    if len(shape) == tag.ndims != len(tag.digits):
        return shape
    if len(shape) != len(tag.digits) or any(len(axis) > 1 for axis in tag.axes):
        raise MemdescError(
            f"{tag} has {len(tag.digits)} axes in memory; give its logical sizes as dims="
        )
    sizes = [1] * tag.ndims
    for digit, size in zip(tag.digits, shape, strict=True):
        if digit.extent and digit.extent != size:
            raise MemdescError(
                f"{tag} has a block of {digit.extent}, but the axis of the shape has {size}"
            )
        sizes[tag.axes[digit.axis][0]] *= size
    return tuple(sizes)
