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

from collections.abc import Callable
from functools import cached_property, partial
from math import gcd
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, data_type
from memdesc.dtypes import BYTE_BITS
from memdesc.record import BIT_PLANES, Number, RecordDesc, Rule
from memdesc.tuples import NamedTuple
from reorder.api import reorder
from reorder.memory.memory import Memory
from reorder.records.numbers import (
    bits_kind,
    bits_memory,
    code_range,
    expand,
    integers_of,
    is_integer_number,
    load_bits,
    move_number,
    number_bits,
    number_values,
    rounded,
    store_bits,
    store_integers,
    way_out,
    write_number,
)
from reorder.records.record import Record
from reorder.values.convert import decode

# the relative error of a product with a reciprocal instead of a quotient: two roundings to f32
_MAX_ERROR = 2.0**-23
# no known format holds a zero point that is as large
_MAX_STEPS = 1 << 20


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
    """Write the numbers of a record into `out`; dim k becomes dim `perm[k]`."""
    if record.desc == out.desc and perm == tuple(range(len(perm))):
        for field in record.desc.fields:
            bits = load_bits(record.tensors[field.tensor], field, threads)
            store_bits(out.tensors[field.tensor], field, bits, threads)
        return
    delta = write_numbers(record, out, perm, errors)
    _write_codes(record, out, delta, perm, threads)


class _Grouped(NamedTuple):
    """Values over the dims of the target, one for each group of adjacent elements."""

    values: NDArray[Any]
    groups: tuple[int, ...]
    dims: tuple[int, ...]
    # for a factor: whether the product is divided by it
    divides: bool = False

    def of(self, function: Callable[..., NDArray[Any]], *others: _Grouped) -> _Grouped:
        """Apply a function, over the largest groups that divide those of all operands."""
        operands = (self, *others)
        groups = tuple(map(gcd, *(each.groups for each in operands))) if others else self.groups
        values = [each.over(groups, "values") for each in operands]
        return _Grouped(function(*values), groups, self.dims)

    def times(self, factors: list[_Grouped]) -> _Grouped:
        """Return the product with each of the factors, or the quotient, one after the other."""
        product = self
        for each in factors:
            product = product.of(np.divide if each.divides else np.multiply, each)
        return product

    def over(self, new: tuple[int, ...], what: str) -> NDArray[Any]:
        """Return the values for groups of other sizes."""
        values = self.values
        for dim, groups in enumerate(zip(self.groups, new, strict=True)):
            # a group may be larger than its dim
            one, other = (min(group, self.dims[dim]) for group in groups)
            common = gcd(one, other)
            values = _repeated(values, dim, one // common, -(-self.dims[dim] // common))
            if other > common:
                count = other // common
                kept = values[(slice(None),) * dim + (slice(None, None, count),)]
                again = _repeated(kept, dim, count, values.shape[dim])
                if not np.array_equal(again, values, equal_nan=values.dtype.kind == "f"):
                    raise MemdescError(
                        f"{what} differ within {other} adjacent elements along dim {dim}, which "
                        f"share one in the target; groups of the source have {one}"
                    )
                values = kept
        return values


def _repeated(values: NDArray[Any], dim: int, count: int, size: int) -> NDArray[Any]:
    """Repeat each value along a dim, which then has a size."""
    if count > 1:
        values = values.repeat(count, dim)
    return values[(slice(None),) * dim + (slice(size),)]


def write_numbers(
    record: Record, out: Record, perm: tuple[int, ...], errors: list[float] | None
) -> _Grouped:
    """Write all numbers but the codes, which are not read; return what must be added to the codes.

    Only with a list as `errors` may a factor of the scales become a rounded reciprocal; the largest
    relative error of a product of scales is appended to it.
    """
    with np.errstate(all="ignore"):
        return _Conversion(record, out, perm, errors).write()


class _Conversion:
    """Writes the scales, zero points and offsets of one record as those of another."""

    def __init__(
        self, record: Record, out: Record, perm: tuple[int, ...], errors: list[float] | None
    ) -> None:
        self.record, self.out, self.perm, self.errors = record, out, perm, errors
        self.source, self.target = record.desc.rule, out.desc.rule

    def write(self) -> _Grouped:
        """Write the numbers. Codes are of at most a byte, and stand for one number each."""
        descs = self.record.desc, self.out.desc
        for desc in descs:
            if any(number.codebook or number.kind for number in desc.rule.numbers):
                self._refuse(
                    f"the numbers of {desc.name or 'a codebook'} are not codes of a scale; "
                    "dequantize() decodes them"
                )
        if max(number_bits(desc, desc.rule.code) for desc in descs) > BYTE_BITS:
            self._refuse("codes of more than 8 bits are not repacked")
        are_integers = all(is_integer_number(desc, desc.rule.code) for desc in descs)
        return self._write_integers() if are_integers else self._write_tables()

    def _write_integers(self) -> _Grouped:
        """Write the scales, zero points and offsets of integer codes; return the codes' change."""
        source, target = self.source, self.target
        shift = code_range(self.out.desc, target.code)[0]
        shift -= code_range(self.record.desc, source.code)[0]
        self._check_float_zeros(is_alike=shift == source.code.minus == target.code.minus == 0)
        zero = self._constant(source.code.minus)
        if source.zero is not None:
            zero = self._read(source.zero).of(lambda z: z + source.code.minus)
        factors, added = [*map(self._factor, source.offset)], None
        if factors:
            added = factors[0].times(factors[1:]).of(lambda m: np.float32(source.sign) * m)
        before, delta = (zero, added), self._constant(shift)
        if added is not None and not target.offset:
            zero, added = self.scale.of(self._fold, zero, added), None
        after = self._constant(target.code.minus)
        if target.zero is not None:
            after = zero.of(lambda z: z + shift)
            self._put(target.zero, after.of(lambda z: z - target.code.minus), "zero points")
        elif target.offset:
            rest = zero.of(lambda z: target.code.minus - shift - z)
            if added is None or rest.values.any():
                factors = []
                added = self.scale.of(
                    lambda s, n, m: m.astype(np.float32) + s * n.astype(np.float32),
                    *(rest, added or self._constant(0)),
                )
        else:
            delta = zero.of(lambda z: target.code.minus - z)
        self._write_scales()
        if added is not None:
            signed = added.of(lambda m: np.float32(target.sign) * m)
            kept = factors if source.sign == target.sign else []
            self._write_factors(target.offset, kept, signed, "offsets")
        if before[1] is not added or source.kind != target.kind:
            self._check_formulas(before, delta, (after, added))
        return delta

    def _check_float_zeros(self, *, is_alike: bool) -> None:
        """Refuse zero points that are floats unless both formats subtract them alike."""
        source, target = self.source, self.target
        old, new = (
            desc.rule.zero is not None and not is_integer_number(desc, desc.rule.zero)
            for desc in (self.record.desc, self.out.desc)
        )
        if not old and not new:
            return
        if source.zero is None or target.zero is None or source.offset or target.offset:
            self._refuse("one has zero points that are floats, and the other has none")
        if source.kind != target.kind or not is_alike:
            self._refuse("zero points that are floats are subtracted with different rounding")
        if not new:
            self._refuse("zero points that are floats are not integers")

    def _write_tables(self) -> _Grouped:
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

        def scaled(values: NDArray[Any]) -> NDArray[Any]:
            return values.astype(np.float64) * ratio

        first, *others = self.factors
        first = first.of(lambda s: scaled(s).astype(np.float32))
        product = first.times(others)
        # exact in f64, so products with the values of either table are rounded alike
        if not np.array_equal(product.values, scaled(self.scale.values), equal_nan=True):
            self._refuse(f"scales times {ratio} are not f32")
        self._write_factors(target.scale, [first, *others], product, "scales")
        return self._constant(0)

    @cached_property
    def factors(self) -> list[_Grouped]:
        """The factors of the scale; they are not read if it is enough to move their bits."""
        return [*map(self._factor, self.source.scale)]

    @cached_property
    def scale(self) -> _Grouped:
        """The product of the factors."""
        return self.factors[0].times(self.factors[1:])

    def _factor(self, number: Number) -> _Grouped:
        found = self._read(number).of(lambda s: s.astype(np.float32))
        return found._replace(divides=number.divides)

    def _read(self, number: Number) -> _Grouped:
        """Return the values of a number of the source over the dims of the target."""
        desc, order = self.record.desc, np.argsort(self.perm)
        values = number_values(self.record.tensors, desc, number, load_bits)
        groups = desc.field_of(number).groups
        found = tuple(groups[dim] for dim in order)
        return _Grouped(values.transpose(order), found, self.out.desc.dims)

    def _constant(self, value: Any) -> _Grouped:
        dims = self.out.desc.dims
        return _Grouped(np.full((1,) * len(dims), value), dims, dims)

    def _fold(self, s: NDArray[Any], z: NDArray[Any], m: NDArray[Any]) -> NDArray[Any]:
        """Return the zero point for which `s * (code - zero)` includes the offset."""
        steps = np.rint(np.divide(m, s, out=np.zeros_like(m), where=s != 0))
        is_whole = (steps * s == m) & (abs(steps) < _MAX_STEPS)
        if not is_whole.all():
            at = tuple(int(i) for i in np.argwhere(~is_whole)[0])
            self._refuse(
                f"it has no offset, and the offset of group {at}, {m[at]}, is not a multiple of "
                f"the scale {s[at]}, up to {_MAX_STEPS} times"
            )
        folded: NDArray[Any] = z - steps.astype(z.dtype)
        return folded

    def _put(self, number: Number, each: _Grouped, what: str) -> None:
        """Write a number of the target."""
        groups = self.out.desc.field_of(number).groups
        write_number(self.out, number, each.over(groups, what), what)

    def _write_scales(self) -> None:
        """Move the bits of scales if their types and groups are equal; else write their values."""
        pairs = [*zip(self.source.scale, self.target.scale, strict=False)]
        is_paired = len(self.source.scale) == len(self.target.scale)
        if not is_paired or not all(
            move_number(self.record, self.out, pair, self.perm) for pair in pairs
        ):
            self._write_factors(self.target.scale, self.factors, self.scale, "scales")

    def _write_factors(
        self, numbers: tuple[Number, ...], factors: list[_Grouped], product: _Grouped, what: str
    ) -> None:
        """Write factors one by one if the target has as many; otherwise their product and ones."""
        if len(factors) != len(numbers):
            one = self._constant(np.float32(1))
            factors = [product, *[one] * (len(numbers) - 1)]
        turned = [
            (number, each)
            for number, each in zip(numbers, factors, strict=True)
            if number.divides != each.divides
        ]
        if turned and any((each.values == 0).any() for each in factors):
            self._refuse(f"a factor of {what} is 0, which has no reciprocal")
        made = [
            each
            if number.divides == each.divides
            else each.of(lambda s: np.float32(1) / s)._replace(divides=number.divides)
            for number, each in zip(numbers, factors, strict=True)
        ]
        if turned:
            self._check_reciprocals(made[0].times(made[1:]), product, what)
        for number, each in zip(numbers, made, strict=True):
            self._put(number, each, what)

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
        old: tuple[_Grouped, _Grouped | None],
        delta: _Grouped,
        new: tuple[_Grouped, _Grouped | None],
    ) -> None:
        """Compare two formulas, each with a zero point and an offset, for all codes and groups."""
        first, last = code_range(self.record.desc, self.source.code)

        def differ(*parts: NDArray[Any]) -> NDArray[np.bool_]:
            s, z, m, d, new_z, new_m = parts
            found = np.zeros(s.shape, np.bool_)
            for code in range(first, last + 1):
                before = _computed(self.source, s, code - z, m.astype(np.float32))
                after = _computed(self.target, s, code + d - new_z, new_m.astype(np.float32))
                found |= (before != after) & ~(np.isnan(before) & np.isnan(after))
            return found

        none = self._constant(0)
        operands = (old[0], old[1] or none, delta, new[0], new[1] or none)
        if self.scale.of(differ, *operands).values.any():
            self._refuse("rounding differs between their formulas")

    def _refuse(self, why: str) -> NoReturn:
        raise MemdescError(f"{self.record.desc!r} cannot be {self.out.desc!r}: {why}")


def _computed(
    rule: Rule, scale: NDArray[Any], codes: NDArray[Any], added: NDArray[Any]
) -> NDArray[Any]:
    """Return `scale * codes + added` as a rule computes it."""
    return rounded(rounded(codes.astype(np.float32) * scale, rule.kind) + added, rule.kind)


def _ratio(old: NDArray[Any], new: NDArray[Any]) -> float | None:
    """Return the f32 factor between two tables, if it is exact for all values; otherwise None."""
    ratios = (old / new)[np.isfinite(new) & (new != 0)].astype(np.float64)
    # products of two f32 are exact in f64
    if len(ratios) and np.array_equal(new.astype(np.float64) * ratios[0], old, equal_nan=True):
        return float(ratios[0])
    return None


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


def _write_codes(
    record: Record, out: Record, delta: _Grouped, perm: tuple[int, ...], threads: int | None
) -> None:
    """Write the codes of a record, plus `delta`, as those of `out`; refuse what does not fit."""
    source, target = record.desc.rule.code, out.desc.rule.code
    is_changed, is_single = delta.values.any(), len(source.parts) == len(target.parts) == 1
    old, new = record.desc.field_of(source), out.desc.field_of(target)
    if is_single and not is_changed and bits_kind(old) == bits_kind(new):
        src = bits_memory(record.tensors[old.tensor], old)
        dst = bits_memory(out.tensors[new.tensor], new)
        if src is not None and dst is not None:
            moved = Memory.attached(src.desc.permute_axes(perm), src.data)
            reorder(moved, out=dst, threads=threads)
            return
    read = partial(load_bits, threads=threads)
    codes = integers_of(record.tensors, record.desc, source, read, np.int16)
    codes = codes.transpose(np.argsort(perm))
    if is_changed:
        # a larger change than codes of a byte can have is refused below, with its numbers
        kind = np.int16 if abs(delta.values).max() < 1 << 14 else np.int64
        codes = codes + expand(delta.values.astype(kind), delta.groups, out.desc.dims)
    low, high = code_range(out.desc, target)
    outside = (codes < low) | (codes > high)
    if outside.any():
        at = tuple(int(i) for i in np.argwhere(outside)[0])
        raise MemdescError(
            f"{out.desc.name} has codes of {low} to {high} and zero point {target.minus}, but the "
            f"code at {at} becomes {codes[at]}; {int(outside.sum())} do not fit"
            f"{'' if record.desc.rule.is_symmetric else way_out(out.desc, 'zero points')}"
        )
    store_integers(out, target, codes, threads)
