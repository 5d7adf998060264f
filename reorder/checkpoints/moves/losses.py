"""What a conversion may not lose: finite numbers that overflow, tensors that become 0."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.record import Field, RecordDesc
from memdesc.tuples import NamedTuple
from reorder.api import reorder
from reorder.checkpoints.formats.entry import Desc
from reorder.checkpoints.moves.changes import (
    ONLY,
    Bytes,
    Change,
    Reorder,
    code_tensors,
    padded,
    permutation,
    record_of,
)
from reorder.memory.memory import Memory
from reorder.records.decode import dequantize_record
from reorder.records.numbers import code_range, is_integer_number, load_bits, number_values
from reorder.records.record import first_index
from reorder.values.attr import Attr
from reorder.values.binding import bind
from reorder.values.formats import (
    FLOATS,
    FORMATS,
    INTEGERS,
    ExponentFormat,
    FloatFormat,
    IntegerFormat,
    largest_number,
)

# the types that a message may suggest because they hold larger numbers, the best choice first
_WIDER = ("bf16", "f32")
# integers that show which numbers are beyond a type: the first with more bits than the type
_WIDE_INTEGERS = (32, "s32"), (64, "s64")


class FinalError(MemdescError):
    """A conversion would end like this however often it runs, so nothing of it is kept."""


# --- scales and zero points ---


def check_factors(change: Change, read: Bytes, offsets: tuple[int, ...] = ()) -> None:
    """Refuse scales, zero points and offsets that are not finite, or zero points beyond every code.

    The change is that of a region at some offsets along the dims of the target. Scales among the
    codes of what becomes floats are judged by the floats.
    """
    src, dst = change.src, change.dst
    if not isinstance(src, RecordDesc) or 0 in src.dims:
        return
    offsets = tuple(offsets[dim] for dim in permutation(src, dst)) if offsets else ()
    rule, codes = src.rule, code_tensors(src)
    data = record_of(src, read).tensors
    for number in (*rule.scale, *rule.offset, *filter(None, [rule.zero])):
        field = src.field_of(number)
        is_beside = field.tensor not in codes or isinstance(dst, RecordDesc)
        if number.table or is_integer_number(src, number) or not is_beside:
            continue
        values = number_values(data, src, number, load_bits)
        why = "not finite; the checkpoint is damaged, so get it again"
        _refuse(field, values, ~np.isfinite(values), offsets, why)
    if isinstance(dst, MemoryDesc) or dst.rule.zero != rule.zero:
        _check_zero_points(src, data, offsets)


def _check_zero_points(src: RecordDesc, data: Bytes, offsets: tuple[int, ...]) -> None:
    """Refuse integer zero points that are beyond every code, such as 16 for codes of 4 bits.

    Formats that store them minus 1 can hold such a value, and readers disagree about it: those that
    add 1 to each zero point read 16. GPTQModel subtracts and adds 1 in a whole word, so it stores a
    0 as this value, with a borrow from the next zero point (GPTQModel 7.7, `utils/model.py`).
    """
    code, zero = src.rule.code, src.rule.zero
    if zero is None or not (is_integer_number(src, code) and is_integer_number(src, zero)):
        return
    most, stored = (code_range(src, number)[1] - number.minus for number in (code, zero))
    if stored > most:
        values = number_values(data, src, zero, load_bits)
        why = (
            f"a zero point of {stored}, which no code has, or, as GPTQModel writes it, a 0 that "
            "also lowers the next one by 1; save the model with GPTQModel as checkpoint_format "
            "gptq_v2, which stores zero points as they are; if this one does, say "
            f"{src.name}(zeros=v2)"
        )
        _refuse(src.field_of(zero), values + zero.minus, values > most, offsets, why)


def _refuse(
    field: Field,
    values: NDArray[Any],
    wrong: NDArray[np.bool_],
    offsets: tuple[int, ...],
    why: str,
) -> None:
    """Refuse numbers of a field if some are wrong; the message has an index in the whole tensor."""
    if wrong.any():
        first = first_index(wrong)
        at = _moved(first, [at // group for at, group in zip(offsets, field.groups, strict=False)])
        value = "NaN" if np.isnan(values[first]) else f"{values[first]:g}"
        raise FinalError(
            f"{field.name} of {field.kind} is {value} at {at}, and {wrong.sum()} of {wrong.size} "
            f"read with it are {why}"
        )


def _moved(index: tuple[int, ...], offsets: Collection[int]) -> tuple[int, ...]:
    """Return an index in the whole tensor, given one in a region that begins at `offsets`."""
    return tuple(i + start for i, start in zip_longest(index, offsets, fillvalue=0))


# --- what a tensor loses ---


class Lost(NamedTuple):
    """What a region of a tensor lost; whether that is too much is judged on the whole tensor."""

    dtype: str
    # how many elements there are, how many saturated, and how many NaN became a number
    nelems: int
    saturated: int
    nans: int
    # the largest number, if all became 0; None if one did not
    vanished: float | None

    def joined(self, other: Lost | None) -> Lost:
        """Return what two regions lost."""
        dtype, nelems, saturated, nans, gone = other or Lost(self.dtype, 0, 0, 0, self.vanished)
        largest = None if self.vanished is None or gone is None else max(self.vanished, gone)
        counts = self.nelems + nelems, self.saturated + saturated, self.nans + nans
        return Lost(dtype, *counts, largest)


def check_lost(losses: Mapping[str, Lost], name: str) -> None:
    """Refuse a whole tensor in which every number became 0, or saturated."""
    dtype, nelems, saturated, nans, vanished = losses.get(name, Lost("", 0, 0, 0, None))
    if vanished:
        hint = "" if dtype in _WIDER else f"; {' and '.join(_WIDER)} hold it"
        raise FinalError(
            f"{name}: all numbers would become 0 in {dtype}: the largest is {vanished:.6g}{hint}; "
            "or give a smaller scale"
        )
    if nans == nelems > 0:
        raise FinalError(f"{name}: all {nelems} numbers are NaN, which {dtype} does not have")
    if saturated and saturated + nans == nelems:
        raise FinalError(
            f"{name}: all {nelems} numbers are beyond {dtype} at this scale; give a larger scale"
        )


def saturation_warnings(losses: Mapping[str, Lost]) -> tuple[str, ...]:
    """Return a warning for each tensor in which numbers saturated, or NaN became a number."""
    warnings = []
    for name, lost in sorted(losses.items()):
        beyond = f"beyond {lost.dtype} at this scale and became its largest or least number"
        most = FLOATS[lost.dtype].max if lost.dtype in FLOATS else 0
        nan = f"NaN and became {f'{most:g} or {-most:g}' if most else 0}"
        for count, what in ((lost.saturated, beyond), (lost.nans, nan)):
            if count:
                warnings.append(f"{name}: {count} of {lost.nelems} numbers are {what}")
    return tuple(warnings)


def lost_by(change: Change, read: Bytes, made: Bytes, offsets: tuple[int, ...] = ()) -> Lost | None:
    """Return what the change of a region at some offsets loses; refuse new infinities and NaN."""
    src, dst = change.src, change.dst
    if isinstance(dst, RecordDesc) or not dst.nelems:
        return None
    attr = change.attr or Attr() if isinstance(change, Reorder) else None
    name, form, saturated, nans = dst.dtype.name, FORMATS[dst.dtype.name], 0, 0
    wanted = cache(lambda: _wanted(src, dst, attr, read))
    if isinstance(src, MemoryDesc):
        if _may_saturate(src, dst, attr):
            saturated = int(_are_beyond(wanted(), form).sum())
        held = FORMATS[src.dtype.name]
        is_plain = attr is None or not (attr.parameters or attr.saturate)
        narrow, wide = (FLOATS.get(desc.dtype.name) for desc in (src, dst))
        if is_plain and narrow and wide and wide.holds(narrow):
            return None
        if _has_no_nan(dst) and isinstance(held, FloatFormat | ExponentFormat):
            x = _memory_of(src, read)
            nans = int(np.isnan(_as_f64(x)).sum()) if _has_special(x, held) else 0
    if not isinstance(form, FloatFormat | ExponentFormat):
        return Lost(name, dst.nelems, saturated, nans, None)
    memory = Memory(dst, made[ONLY][: dst.min_nbytes], zero_pad=False)
    # padding is zero
    if _has_special(memory, form):
        # a product of finite codes and scales may be infinite in f32 already
        was_finite = (
            _finite_codes(src, read) if isinstance(src, RecordDesc) else np.isfinite(wanted())
        )
        _check_finite(src, wanted(), was_finite, memory, offsets)
    if isinstance(form, ExponentFormat):  # such a type has no 0
        return Lost(name, dst.nelems, saturated, nans, None)
    # as signed integers, positive numbers are positive, so this is decided without a copy, except
    # for a byte of two, which may hold a -0
    bits = memory.elements.view(f"i{memory.elements.itemsize}")
    is_gone = (dst.dtype.is_packed or int(bits.max()) <= 0) and not _as_f64(memory).any()
    largest = float(np.abs(wanted()).max()) if is_gone else None
    return Lost(name, dst.nelems, saturated, nans, largest)


def _may_saturate(src: MemoryDesc, dst: MemoryDesc, attr: Attr | None) -> bool:
    """Whether numbers beyond dst, if there are any, become its largest or least."""
    held, target = (INTEGERS.get(desc.dtype.name) for desc in (src, dst))
    if held and target and not (attr and attr.parameters):
        return held.low < target.low or held.high > target.high
    # without an attribute, scales are chosen from these numbers
    if attr is None:
        return False
    return _has_no_nan(dst) or (attr.saturate and largest_number(dst.dtype.name) is not None)


def _has_no_nan(desc: MemoryDesc) -> bool:
    """Whether NaN and numbers beyond this type become other numbers: in integers and f4_e2m1."""
    form = FLOATS.get(desc.dtype.name)
    return desc.dtype.name in INTEGERS if form is None else not form.has_nan


def _wanted(src: Desc, dst: MemoryDesc, attr: Attr | None, read: Bytes) -> NDArray[Any]:
    """Return the numbers that dst should hold, in a type that is wider than its own."""
    if isinstance(src, RecordDesc):
        return dequantize_record(record_of(src, read), "f32", None, 1).numpy()
    given: dict[str, Any] = {"saturate": False}
    wide = next((name for bits, name in _WIDE_INTEGERS if dst.dtype.bits < bits), None)
    if wide is None or dst.dtype.name not in INTEGERS:
        # zero points go with integers; they are added below
        role = "dst_zero_point"
        given |= {role: 0, f"{role}_mask": None, f"{role}_groups": ()}
        # f64 does not hold all integers of 64 bits
        is_u64 = src.dtype.name == "u64" and dst.dtype.name in INTEGERS
        wide = "u64" if is_u64 and not (attr and attr.parameters) else "f64"
    x, own = _memory_of(src, read), replace(attr or Attr(), **given)
    numbers: NDArray[Any] = reorder(x, memory_desc(dst.dims, wide), attr=own, threads=1).numpy()
    if wide == "f64":
        numbers = numbers + bind(attr, src, dst).arrays(numbers.dtype).get("dst_zero_point", 0.0)
    return numbers


def _are_beyond(numbers: NDArray[Any], form: Any) -> NDArray[np.bool_]:
    """Return which numbers are beyond a type; for one of integers, after rounding."""
    beyond: NDArray[np.bool_]
    if not isinstance(form, IntegerFormat):
        beyond = abs(numbers) > form.max
    elif numbers.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            numbers = np.rint(numbers)
        # the integer is of 64 bits: the float is one more than the largest
        beyond = (numbers < float(form.low)) | (numbers >= float(form.high))
    else:
        beyond = (numbers < form.low) | (numbers > form.high)
    return beyond


def _memory_of(src: MemoryDesc, read: Bytes) -> Memory:
    return Memory(src, padded(read[ONLY], src.nbytes)[: src.nbytes], zero_pad=False)


def _check_finite(
    src: Desc,
    wanted: NDArray[Any],
    was_finite: NDArray[np.bool_],
    made: Memory,
    offsets: tuple[int, ...],
) -> None:
    """Refuse infinities or NaN that were finite numbers."""
    numbers, most = _as_f64(made), largest_number(made.desc.dtype.name) or 0.0
    lost = ~np.isfinite(numbers) & was_finite
    if not lost.any():
        return
    at = first_index(lost)
    index, value, others = _moved(at, offsets), wanted[at], lost.sum() - 1
    do = "does" if others == 1 else "do"
    more = f", and so {do} {others} more near it" if others else ""
    if not np.isfinite(value):
        raise FinalError(
            f"the number at {index} is {value:.6g}, although codes are finite: a scale is not, "
            f"or their product is beyond f32{more}; the checkpoint is damaged, so get it again"
        )
    wider = [name for name in _WIDER if FLOATS[name].max >= abs(float(value))]
    hint = f"; {' and '.join(wider)} hold{'s' if len(wider) == 1 else ''} it" if wider else ""
    if not isinstance(src, RecordDesc):
        hint += "; or give a scale"
    raise FinalError(
        f"{value:.6g} at {index} would become {numbers[at]:.6g} in {made.desc.dtype}, whose "
        f"largest number is {most:.6g}{more}{hint}"
    )


def _has_special(held: Memory, form: FloatFormat | ExponentFormat) -> bool:
    """Whether an element is an infinity or NaN, by the extremes of the bits, without a copy."""
    codes = held.elements
    if isinstance(form, ExponentFormat):
        return int(codes.max()) == form.nan
    signed = codes.view(f"i{codes.itemsize}")
    if not form.has_negative_zero:  # its bits, the least integer, are the only NaN
        return int(signed.min()) == -form.sign
    is_beyond = int(signed.max()) > form.largest or int(codes.max()) > form.sign + form.largest
    return form.has_nan and is_beyond


def _as_f64(held: Memory) -> NDArray[np.float64]:
    wide = memory_desc(held.desc.dims, "f64")
    numbers: NDArray[np.float64] = reorder(held, wide, threads=1).numpy()
    return numbers


def _finite_codes(desc: RecordDesc, read: Bytes) -> NDArray[np.bool_]:
    """Return which codes of a record are finite, over its dims; scales are checked before."""
    code = desc.rule.code
    dtype = desc.field_of(code).kind
    if code.table or dtype not in FLOATS or not FLOATS[dtype].has_nan:
        return np.ones(desc.dims, np.bool_)
    codes = number_values(record_of(desc, read).tensors, desc, code, load_bits)
    return np.asarray(np.isfinite(codes), np.bool_)
