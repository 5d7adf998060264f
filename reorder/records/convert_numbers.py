"""Write the numbers of one record into another format, so that no value changes.

Codes keep their order: a target with zero points gets the codes as they are, counted from its
lowest code; one without gets the codes minus the zero point of the source. An offset that one
format adds to `scale * code` becomes a zero point of the other if it is a multiple of the scale,
and vice versa. The factors of a scale are copied one by one if both formats have the same number of
them; otherwise their product is written. A factor that one format multiplies by and the other
divides by becomes its reciprocal, which f32 usually has to round: such numbers are refused, or
differ by a rounding if the caller allows it.
"""

from __future__ import annotations

from functools import cached_property, reduce
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from memdesc import MemdescError, data_type, memory_desc
from memdesc.dtypes import BYTE_BITS
from memdesc.record import BIT_PLANES, Field, Number, Rule
from reorder.api import reorder
from reorder.memory.memory import Memory
from reorder.records.encode import (
    code_range,
    is_integer_number,
    number_bits,
    regroup,
    way_out,
    write_number,
)
from reorder.records.fields import read_field, write_field
from reorder.records.moves import (
    field_memory,
    move_field,
    packed_field,
    read_integers,
    read_number,
    stored_integers,
)
from reorder.records.reference import expand, rounded
from reorder.values.convert import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from memdesc.record import RecordDesc
    from reorder.records.record import Record

# the relative error of a product with a reciprocal instead of a quotient: two roundings to f32
_MAX_ERROR = 2.0**-23
# no known format holds a zero point that is as large
_MAX_STEPS = 1 << 20


class _Grouped(NamedTuple):
    """Values over the dims of the target, one for each group of adjacent elements."""

    values: NDArray[Any]
    groups: tuple[int, ...]
    # for a factor: whether the product is divided by it
    divides: bool = False


def is_rounded(source: RecordDesc, target: RecordDesc) -> bool:
    """Whether a factor of one format is a reciprocal in the other, which f32 usually rounds."""
    old, new = ([number.divides for number in desc.rule.scale] for desc in (source, target))
    return len(old) == len(new) and old != new


def convert_numbers(
    record: Record,
    out: Record,
    perm: tuple[int, ...],
    threads: int | None,
    errors: list[float] | None,
) -> None:
    """Write the numbers of a record into `out`; dim k becomes dim `perm[k]`.

    Fails if a number would change. `errors` is that of `write_numbers`.
    """
    is_same = record.desc == out.desc and perm == tuple(range(len(perm)))
    if is_same and _has_codebooks(record.desc):
        for field in record.desc.fields:
            data = record.tensors[field.tensor]
            write_field(out.tensors[field.tensor], field, read_field(data, field))
        return
    delta = write_numbers(record, out, perm, threads, errors)
    _map_codes(record, out, delta, perm, threads)


def _has_codebooks(desc: RecordDesc) -> bool:
    """Whether a code stands for several numbers, or the bits of a float are split into fields."""
    return any(number.codebook or number.kind for number in desc.rule.numbers)


def write_numbers(
    record: Record,
    out: Record,
    perm: tuple[int, ...],
    threads: int | None,
    errors: list[float] | None,
) -> _Grouped:
    """Write all numbers but the codes, which are not read; return what must be added to the codes.

    `perm` is the dim of `out` for each dim of `record`. Fails if a number would change. Only with a
    list as `errors` may a factor of the scales become a rounded reciprocal; the largest relative
    error of a product of scales is appended to the list.
    """
    writer = _NumberWriter(record, out, perm, threads, errors)
    writer.check_width()
    are_integers = all(is_integer_number(r.desc, r.desc.rule.code) for r in (record, out))
    with np.errstate(all="ignore"):
        return writer.write_integers() if are_integers else writer.write_tables()


class _NumberWriter:
    """Writes the scales, zero points and offsets of one record as those of another."""

    def __init__(
        self,
        record: Record,
        out: Record,
        perm: tuple[int, ...],
        threads: int | None,
        errors: list[float] | None,
    ) -> None:
        self.record, self.out, self.perm, self.threads = record, out, perm, threads
        self.errors = errors
        self.source, self.target = record.desc.rule, out.desc.rule
        self.dims = out.desc.dims

    def check_width(self) -> None:
        """Refuse codes of more than a byte, and codes that stand for several numbers."""
        for each in (self.record.desc, self.out.desc):
            if _has_codebooks(each):
                self._refuse(
                    f"the numbers of {each.name or 'a codebook'} are not codes of a scale; "
                    "dequantize() decodes them"
                )
        if max(number_bits(r.desc, r.desc.rule.code) for r in (self.record, self.out)) > BYTE_BITS:
            self._refuse("codes of more than 8 bits are not repacked")

    def write_integers(self) -> _Grouped:
        """Write the scales, zero points and offsets of integer codes; return the codes' change."""
        source, target = self.source, self.target
        if any(map(_has_float_zero, (self.record.desc, self.out.desc))):
            return self._write_float_zeros()
        low = code_range(self.record.desc, source.code)[0]
        shift = code_range(self.out.desc, target.code)[0] - low
        zero = self._zero()
        offsets = [self._read(number) for number in source.offset]
        added = self._product(offsets) if offsets else None
        if added is not None:
            added = _Grouped(np.float32(source.sign) * added.values, added.groups)
        before = (zero, added)
        if added is not None and not target.offset:
            zero, added = self._offset_as_zero(self.scale, zero, added), None
        if target.zero is not None:
            delta = self._constant(shift)
            least = shift - target.code.minus
            self._write(target.zero, self._map(lambda z: z + least, zero), "zero points")
        elif target.offset:
            delta = self._constant(shift)
            rest = self._map(lambda z: target.code.minus - shift - z, zero)
            if added is None or rest.values.any():
                offsets = []
                added = self._map(_plus_steps, self.scale, rest, added or self._constant(0))
        else:
            delta = self._map(lambda z: target.code.minus - z, zero)
        self._write_scales()
        if added is not None:
            self._write_offset(offsets, added)
        if before[1] is not added or source.kind != target.kind:
            new = self._constant(target.code.minus)
            new = new if target.zero is None else self._map(lambda z: z + shift, zero)
            self._check_formulas(self.scale, before, delta, (new, added))
        return delta

    def _write_float_zeros(self) -> _Grouped:
        """Write scales, and zero points that are floats and that both formats subtract alike."""
        source, target = self.source, self.target
        if source.zero is None or target.zero is None or source.offset or target.offset:
            self._refuse("one has zero points that are floats, and the other has none")
        lows = {code_range(r.desc, r.desc.rule.code)[0] for r in (self.record, self.out)}
        if source.kind != target.kind or len(lows | {source.code.minus, target.code.minus}) > 1:
            self._refuse("zero points that are floats are subtracted with different rounding")
        zero = self._read(source.zero)
        if not _has_float_zero(self.out.desc):
            self._refuse("zero points that are floats are not integers")
        self._write(target.zero, zero, "zero points")
        self._write_scales()
        return self._constant(0)

    def write_tables(self) -> _Grouped:
        """Write the scales of codes whose values are in a table; the codes do not change."""
        source, target = self.source, self.target
        excluded = (source.zero, target.zero, *source.offset, *target.offset)
        old, new = (_code_values(r.desc) for r in (self.record, self.out))
        if any(number is not None for number in excluded) or len(old) != len(new):
            self._refuse("codes that are looked up need tables of equal length, and no offsets")
        ratio = _ratio(old, new)
        if ratio is None:
            self._refuse("their codes stand for different numbers")
        if source.kind != target.kind:
            self._refuse(f"one is computed in {source.kind}, the other in {target.kind}")
        first, *others = self.factors
        wide = first.values.astype(np.float64) * ratio
        factors = [_Grouped(wide.astype(np.float32), first.groups), *others]
        # exact in f64, so products with the values of either table are rounded alike
        wanted = self.scale.values.astype(np.float64) * ratio
        product = self._product(factors)
        if not np.array_equal(product.values, wanted, equal_nan=True):
            self._refuse(f"scales times {ratio} are not f32")
        self._write_factors(self.target.scale, factors, product, "scales")
        return self._constant(0)

    @cached_property
    def factors(self) -> list[_Grouped]:
        """The factors of the scale; they are not read if it is enough to move their bits."""
        return [self._read(each)._replace(divides=each.divides) for each in self.source.scale]

    @cached_property
    def scale(self) -> _Grouped:
        """The product of the factors."""
        return self._product(self.factors)

    def _read(self, number: Number) -> _Grouped:
        """Return the values of a number of the source over the dims of the target, in f32."""
        found = self._read_exactly(number)
        return _Grouped(found.values.astype(np.float32), found.groups)

    def _read_exactly(self, number: Number) -> _Grouped:
        """Return the values of a number like `_read`, but integers as integers."""
        desc, order = self.record.desc, np.argsort(self.perm)
        field = packed_field(self.record, number)
        if field is None:
            values = read_number(self.record.tensors, desc, number)
        else:
            # int32 can hold any byte minus what a rule subtracts
            values = read_integers(self.record, field, self.threads).astype(np.int32)
            values -= number.minus
        groups = desc.field_of(number).groups
        return _Grouped(values.transpose(order), tuple(groups[dim] for dim in order))

    def _zero(self) -> _Grouped:
        """Return what the source's rule subtracts from the stored codes."""
        minus = self.source.code.minus
        if self.source.zero is None:
            return self._constant(minus)
        zero = self._read_exactly(self.source.zero)
        return _Grouped(zero.values + minus, zero.groups) if minus else zero

    def _constant(self, value: int) -> _Grouped:
        return _Grouped(np.full((1,) * len(self.dims), value, np.int64), self.dims)

    def _map(self, function: Callable[..., NDArray[Any]], *operands: _Grouped) -> _Grouped:
        """Apply a function to values, over the largest groups that divide those of all operands."""
        groups = tuple(map(gcd, *(each.groups for each in operands)))
        values = [
            regroup(each.values, each.groups, groups, self.dims, "values") for each in operands
        ]
        return _Grouped(function(*values), groups)

    def _product(self, factors: list[_Grouped]) -> _Grouped:
        """Return the first factor times, or divided by, each of the others."""
        return reduce(
            lambda one, other: self._map(np.divide if other.divides else np.multiply, one, other),
            factors,
        )

    def _offset_as_zero(self, scale: _Grouped, zero: _Grouped, added: _Grouped) -> _Grouped:
        """Return the zero point for which `scale * (code - zero)` includes the offset."""

        def fold(s: NDArray[Any], z: NDArray[Any], m: NDArray[Any]) -> NDArray[Any]:
            steps = np.rint(np.divide(m, s, out=np.zeros_like(m), where=s != 0))
            is_whole = (steps * s == m) & (abs(steps) < _MAX_STEPS)
            if not is_whole.all():
                at = tuple(int(i) for i in np.argwhere(~is_whole)[0])
                self._refuse(
                    f"it has no offset, and the offset of group {at}, {m[at]}, is not a multiple "
                    f"of the scale {s[at]}, up to {_MAX_STEPS} times"
                )
            folded: NDArray[Any] = z - np.where(is_whole, steps, 0).astype(z.dtype)
            return folded

        return self._map(fold, scale, zero, added)

    def _write(self, number: Number, each: _Grouped, what: str) -> None:
        """Write a number of the target."""
        groups = self.out.desc.field_of(number).groups
        values = regroup(each.values, each.groups, groups, self.dims, what)
        write_number(self.out, number, values, what)

    def _write_scales(self) -> None:
        if not self._move_scales():
            self._write_factors(self.target.scale, self.factors, self.scale, "scales")

    def _move_scales(self) -> bool:
        """Move the bits of scales if their types and groups are equal; otherwise return False."""
        if len(self.source.scale) != len(self.target.scale):
            return False
        pairs = zip(self.source.scale, self.target.scale, strict=True)
        return all(move_field(self.record, self.out, pair, self.perm) for pair in pairs)

    def _write_offset(self, factors: list[_Grouped], added: _Grouped) -> None:
        """Write the offset `added`; its factors are copied if both formats give it one sign."""
        same = self.source.sign == self.target.sign
        signed = _Grouped(np.float32(self.target.sign) * added.values, added.groups)
        self._write_factors(self.target.offset, factors if same else [], signed, "offsets")

    def _write_factors(
        self, numbers: tuple[Number, ...], factors: list[_Grouped], product: _Grouped, what: str
    ) -> None:
        """Write factors one by one if the target has as many; otherwise their product and ones."""
        if len(factors) != len(numbers):
            one = _Grouped(np.ones((1,) * len(self.dims), np.float32), self.dims)
            factors = [product, *[one] * (len(numbers) - 1)]
        pairs = [*zip(numbers, factors, strict=True)]
        found = [
            each
            if number.divides == each.divides
            else _Grouped(np.float32(1) / each.values, each.groups, number.divides)
            for number, each in pairs
        ]
        if any(number.divides != each.divides for number, each in pairs):
            if any((each.values == 0).any() for each in factors):
                self._refuse(f"a factor of {what} is 0, which has no reciprocal")
            self._check_reciprocals(self._product(found), product, what)
        for number, each in zip(numbers, found, strict=True):
            self._write(number, each, what)

    def _check_reciprocals(self, made: _Grouped, wanted: _Grouped, what: str) -> None:
        """Refuse reciprocals that change a product, unless the caller passed `errors`."""
        wide = made.values.astype(np.float64), wanted.values.astype(np.float64)
        is_changed = (wide[0] != wide[1]) & ~(np.isnan(wide[0]) & np.isnan(wide[1]))
        error = float(np.max(abs(wide[0] - wide[1]) / abs(wide[1]), initial=0, where=is_changed))
        is_rounding = error <= _MAX_ERROR
        if self.errors is not None and is_rounding:
            self.errors.append(error)
        elif is_changed.any():
            part = (
                f"by up to {error:.2g} of their value" if is_rounding else "by more than a rounding"
            )
            hint = "; exact=False allows that" if is_rounding else ""
            self._refuse(
                f"a factor becomes its reciprocal, and {int(is_changed.sum())} of "
                f"{is_changed.size} {what} change {part}{hint}"
            )

    def _check_formulas(
        self,
        scale: _Grouped,
        old: tuple[_Grouped, _Grouped | None],
        delta: _Grouped,
        new: tuple[_Grouped, _Grouped | None],
    ) -> None:
        """Compare two formulas, each with a zero point and an offset, for all codes and groups."""
        none = self._constant(0)
        operands = (scale, old[0], old[1] or none, delta, new[0], new[1] or none)
        first, last = code_range(self.record.desc, self.source.code)

        def differ(*parts: NDArray[Any]) -> NDArray[np.bool_]:
            s, z, m, d, new_z, new_m = parts
            m, new_m = m.astype(np.float32), new_m.astype(np.float32)
            found = np.zeros(s.shape, np.bool_)
            for code in range(first, last + 1):
                before = _computed(self.source, s, code - z, m)
                after = _computed(self.target, s, code + d - new_z, new_m)
                is_other = before != after
                if is_other.any():
                    found |= is_other & ~(np.isnan(before) & np.isnan(after))
            return found

        if self._map(differ, *operands).values.any():
            hint = way_out(self.out.desc, "offsets")
            self._refuse(f"rounding differs between their formulas{hint}")

    def _refuse(self, why: str) -> NoReturn:
        msg = f"{self.record.desc!r} cannot be {self.out.desc!r}: {why}"
        raise MemdescError(msg)


def _plus_steps(scale: NDArray[Any], steps: NDArray[Any], added: NDArray[Any]) -> NDArray[Any]:
    """Return an offset plus a number of scales."""
    moved: NDArray[Any] = added.astype(np.float32) + scale * steps.astype(np.float32)
    return moved


def _has_float_zero(desc: RecordDesc) -> bool:
    return desc.rule.zero is not None and not is_integer_number(desc, desc.rule.zero)


def _computed(
    rule: Rule, scale: NDArray[Any], codes: NDArray[Any], added: NDArray[Any]
) -> NDArray[Any]:
    """Return `scale * codes + added` as a rule computes it."""
    product = codes.astype(np.float32)
    product *= scale
    total = rounded(product, rule.kind)
    total += added
    return rounded(total, rule.kind)


def _ratio(old: NDArray[Any], new: NDArray[Any]) -> float | None:
    """Return the f32 factor between two tables, if it is exact for all values; otherwise None.

    It must be exact, since a rounded product could round differently once multiplied by a scale.
    """
    with np.errstate(all="ignore"):
        ratios = (old / new)[np.isfinite(new) & (new != 0)]
        # products of two f32 are exact in f64
        if not len(ratios) or not np.array_equal(
            new.astype(np.float64) * ratios[0].astype(np.float64), old, equal_nan=True
        ):
            return None
    return float(ratios[0])


def _code_values(desc: RecordDesc) -> NDArray[np.float32]:
    """Return the value of each stored code, from 0 on."""
    number = desc.rule.code
    codes = np.arange(1 << number_bits(desc, number), dtype=np.uint8)
    if number.table:
        return np.array(number.table, np.float32)[codes]
    kind = desc.field_of(number).kind
    if kind in BIT_PLANES or len(number.parts) > 1:
        return codes.astype(np.float32) - number.minus
    return decode(codes, data_type(kind), "f32") - np.float32(number.minus)


def _same_codes(source: RecordDesc, target: RecordDesc) -> tuple[Field, Field] | None:
    """Return the code fields of two records if each has one, and both hold the same integers."""
    old, new = ([desc.field(name) for name, _ in desc.rule.code.parts] for desc in (source, target))
    if len(old) != 1 or len(new) != 1 or old[0].kind in BIT_PLANES:
        return None
    return (old[0], new[0]) if stored_integers(old[0]) == stored_integers(new[0]) else None


def _map_codes(
    record: Record, out: Record, delta: _Grouped, perm: tuple[int, ...], threads: int | None
) -> None:
    """Write the codes of a record, plus `delta`, as those of `out`; refuse what does not fit."""
    same = _same_codes(record.desc, out.desc)
    if same is not None and not delta.values.any():
        src = field_memory(record, same[0])
        moved = Memory.attached(src.desc.permute_axes(perm), src.data)
        reorder(moved, out=field_memory(out, same[1]), threads=threads)
        return
    target = out.desc.rule.code
    new = [out.desc.field(name) for name, _ in target.parts]
    codes = _codes_of(record, threads).transpose(np.argsort(perm))
    if delta.values.any():
        # a larger change than codes of a byte can have is refused below, with its numbers
        kind = np.int16 if abs(delta.values).max() < 1 << 14 else np.int64
        codes = codes + expand(delta.values.astype(kind), delta.groups, out.desc.dims)
    low, high = code_range(out.desc, target)
    outside = (codes < low) | (codes > high)
    if outside.any():
        at = tuple(int(i) for i in np.argwhere(outside)[0])
        msg = (
            f"{out.desc.name} has codes of {low} to {high} and zero point {target.minus}, but the "
            f"code at {at} becomes {codes[at]}; {int(outside.sum())} do not fit"
            f"{'' if record.desc.rule.is_symmetric else way_out(out.desc, 'zero points')}"
        )
        raise MemdescError(msg)
    for field, (_, shift) in zip(new, target.parts, strict=True):
        if len(new) == 1 and field.kind not in BIT_PLANES:
            values = codes.astype(np.int8 if stored_integers(field)[0] == "s" else np.uint8)
            reorder(values, out=field_memory(out, field), threads=threads)
        else:
            bits = codes.astype(np.uint8) >> np.uint8(shift) & np.uint8((1 << field.bits) - 1)
            write_field(out.tensors[field.tensor], field, bits)


def _codes_of(record: Record, threads: int | None) -> NDArray[np.int16]:
    """Return the integers of a record's code fields, joined, over its dims."""
    desc = record.desc
    parts = [(desc.field(name), shift) for name, shift in desc.rule.code.parts]
    first = parts[0][0]
    if len(parts) == 1 and first.kind not in BIT_PLANES:
        wide = memory_desc(desc.dims, f"{stored_integers(first)[0]}8")
        moved = reorder(field_memory(record, first), wide, threads=threads)
        return moved.numpy().astype(np.int16)
    joined = np.zeros(desc.dims, np.int16)
    for field, shift in parts:
        joined |= read_field(record.tensors[field.tensor], field).astype(np.int16) << shift
    return joined
