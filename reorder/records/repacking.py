"""Repack a record: write exactly the same numbers in another format.

Codes keep their order: a target with zero points gets the codes as they are, counted from its
lowest code; one without gets the codes minus the zero point of the source. An offset that one
format adds to `scale * code` becomes a zero point of the other if it is a multiple of the scale,
and vice versa. The factors of a scale are copied one by one if both formats have the same number of
them; otherwise their product is written. A factor that one format multiplies by and the other
divides by becomes its reciprocal, which f32 usually has to round: such numbers are refused, or
rounded if the caller allows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from memdesc import MemdescError, data_type
from memdesc.dtypes import BYTE_BITS
from memdesc.errors import short_repr
from memdesc.lazy import cached_property
from memdesc.record import BIT_PLANES, Number, RecordDesc, Rule, record_desc
from memdesc.record.rows import read_name
from memdesc.tuples import NamedTuple
from reorder.api import reorder
from reorder.memory.memory import Memory
from reorder.records.numbers import (
    bits_memory,
    code_range,
    integers_of,
    is_integer_number,
    is_signed,
    load_bits,
    number_bits,
    number_values,
    rounded,
    store_bits,
    store_integers,
    way_out,
    write_number,
)
from reorder.records.record import Record, first_index
from reorder.threads import checked_threads, current_limit
from reorder.values.convert import decode
from reorder.values.formats import FLOATS

# the relative error of a product with a reciprocal instead of a quotient: two roundings to f32
_MAX_ERROR = 2.0**-23
# no known format holds a zero point as large as this
_MAX_STEPS = 1 << 20


def repack(
    record: Record,
    dst: str | RecordDesc,
    *,
    exact: bool = True,
    threads: int | None = None,
    **options: Any,
) -> Record:
    """Write the numbers of a record in another format, exactly.

    *Law*: ``dequantize(repack(r, t))`` equals ``dequantize(r)``, transposed if the target has its
    dims in the other order; 0.0 and -0.0 count as equal.

    Codes and scales are moved. The only factor that cannot be moved is the global scale of NVFP4:
    compressed-tensors divides by it and ModelOpt multiplies, so it becomes the nearest reciprocal.

    Parameters
    ----------
    record : Record
        What to repack.
    dst : str or RecordDesc
        The format, as for `record_desc`. If the formats order their dims differently, (in, out)
        becomes (out, in).
    exact : bool
        Whether a reciprocal is refused if it changes a product of scales. If not, each product
        may have a relative error of at most 2**-23, in f32.
    threads : int, optional
        As for `reorder`.
    **options
        As for `record_desc`. Width, group and types default to those of `record`.

    Raises
    ------
    MemdescError
        If the target cannot hold a number exactly; the message names the field and the place.

    Examples
    --------
    >>> blocks = np.zeros((8, 4, 18), np.uint8)    # 8 outputs, 128 inputs: d of f16, 16 bytes
    >>> blocks[:, :, :2] = np.array([0.5], np.float16).view(np.uint8)
    >>> r = reorder.records.Record(memdesc.record.record_desc((8, 128), "q4_0"), blocks)
    >>> p = reorder.records.repack(r, "awq")
    >>> p.desc
    record_desc((128, 8), 'awq', group=32, scales='f16')
    >>> bool((reorder.dequantize(p).numpy().T == reorder.dequantize(r).numpy()).all())
    True
    """
    if not isinstance(record, Record):
        raise MemdescError(f"repack takes a Record, not {short_repr(record)}")
    source = record.desc
    desc = dst if isinstance(dst, RecordDesc) else target_desc(source, dst, options)
    if desc is dst and (dims_in(source, dst.letters) != dst.dims or options):
        raise MemdescError(
            f"{source!r} has dims {source.dims} ({source.letters}), and dst {dst!r} "
            f"({dst.letters}); it must have the same, and no further options"
        )
    threads = current_limit() if threads is None else checked_threads(threads)
    out = Record(desc)
    if 0 not in desc.dims:
        perm = dim_order(source, desc.letters)
        convert_numbers(record, out, perm, threads, is_exact=exact)
    return out


def target_desc(source: RecordDesc, target: str, options: Mapping[str, Any]) -> RecordDesc:
    """Return the descriptor of the format `target` for the numbers of `source`."""
    name, letters, legal = read_name(target, len(source.dims))
    chosen = _defaults(source, name, legal) | dict(options)
    return record_desc(dims_in(source, letters), name, **chosen)


def dim_order(source: RecordDesc, letters: str) -> tuple[int, ...]:
    """Return the target dim of each source dim, matched by letters if both have the same ones."""
    ndims = len(source.dims)
    old, new = source.letters[:ndims], letters[:ndims]
    if sorted(old) != sorted(new):
        return tuple(range(ndims))
    return tuple(new.index(letter) for letter in old)


def dims_in(source: RecordDesc, letters: str) -> tuple[int, ...]:
    """Return the dims of a record in the order of the given letters."""
    order = dim_order(source, letters)
    return tuple(source.dims[order.index(dim)] for dim in range(len(order)))


def _defaults(source: RecordDesc, name: str, legal: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the target that follow from the format of the source."""
    scale, code, held = source.scales, source.codes, dict(source.options)
    sizes = dict(zip(source.letters, zip(scale.groups, source.dims, strict=True), strict=False))
    chosen: dict[str, Any] = {"g_idx": bool(held.get("g_idx"))}
    if "i" in sizes:
        group, size = sizes["i"]
        chosen["group"] = -1 if group >= size else group
    if "o" in sizes:
        rows, size = sizes["o"]
        chosen["rows"] = -1 if 1 < rows >= size else rows
    chosen |= {"bits": held["bits"]} if "bits" in held else {}
    chosen |= {"codes": code.kind} if code.kind in FLOATS else {}
    # exponents, which few formats have as scales, stay exponents only in the same format
    if scale.kind in {"f16", "bf16", "f32"} or name == source.name:
        chosen["scales"] = scale.kind
    if isinstance(legal.get("zeros"), bool):
        # zero points of GPTQ usually are all the middle code
        chosen["zeros"] = not source.rule.is_symmetric and source.name != "gptq"
    return {key: value for key, value in chosen.items() if key in legal}


def is_rounded(source: RecordDesc, target: RecordDesc) -> bool:
    """Whether a factor of one format is a reciprocal in the other, which f32 usually rounds."""
    old, new = ([number.divides for number in desc.rule.scale] for desc in (source, target))
    return len(old) == len(new) and old != new


def convert_numbers(
    record: Record,
    out: Record,
    perm: tuple[int, ...],
    threads: int | None,
    *,
    is_exact: bool,
) -> None:
    """Write the numbers of a record into `out`; dim k becomes dim `perm[k]`.

    Unless `is_exact`, a factor of the scales may become a rounded reciprocal.
    """
    if record.desc == out.desc and perm == tuple(range(len(perm))):
        for field in record.desc.fields:
            bits = load_bits(record.tensors[field.tensor], field, threads)
            store_bits(out.tensors[field.tensor], field, bits, threads)
        return
    conversion = _Conversion(record, out, perm, is_exact=is_exact)
    with np.errstate(all="ignore"):
        conversion.write()
    conversion.write_codes(threads)


class _Factor(NamedTuple):
    """A factor of a product: a value for each group."""

    values: NDArray[Any]
    # whether the product is divided by it
    divides: bool = False


def _product(factors: list[_Factor]) -> NDArray[Any]:
    """Return the product of factors, from the left."""
    product = factors[0].values
    for values, divides in factors[1:]:
        product = product / values if divides else product * values
    return product


class _Conversion:
    """Writes the numbers of one record as those of another.

    All values are arrays over the dims of the target, with a value for each interval between places
    where a group of any number starts; along dims that share one value, their size is 1.
    """

    def __init__(
        self, record: Record, out: Record, perm: tuple[int, ...], *, is_exact: bool
    ) -> None:
        self.record, self.out, self.perm, self.is_exact = record, out, perm, is_exact
        self.source, self.target = record.desc.rule, out.desc.rule
        # the dim of the source for each one of the target
        self.order = np.argsort(perm)
        # what must be added to the codes
        self.delta: Any = np.int64(0)
        old = [self._groups(number) for number in self.source.numbers[1:]]
        new = [out.desc.field_of(number).groups for number in self.target.numbers[1:]]
        # the smallest groups of the source, for messages
        self.least = [*map(min, *old, old[0])]
        # one group of all elements can stand for groups of any size
        self.starts = [
            np.unique(np.concatenate([np.arange(0, max(size, 1), group) for group in along]))
            for size, *along in zip(out.desc.dims, *old, *new, strict=True)
        ]

    def _groups(self, number: Number) -> tuple[int, ...]:
        groups = self.record.desc.field_of(number).groups
        return tuple(groups[dim] for dim in self.order)

    def write(self) -> None:
        """Write the numbers. Codes are of at most a byte, and stand for one number each."""
        descs = self.record.desc, self.out.desc
        for desc in descs:
            if any(number.codebook or number.kind for number in desc.rule.numbers):
                self._refuse(
                    f"the numbers of {desc.name or 'a codebook'} are not codes times a scale; "
                    "dequantize() decodes them"
                )
        if max(number_bits(desc, desc.rule.code) for desc in descs) > BYTE_BITS:
            self._refuse("codes of more than 8 bits are not repacked")
        if all(is_integer_number(desc, desc.rule.code) for desc in descs):
            self._write_integers()
        else:
            self._write_tables()

    def _write_integers(self) -> None:
        """Write the scales, zero points and offsets of integer codes, which may change."""
        source, target = self.source, self.target
        shift = code_range(self.out.desc, target.code)[0]
        shift -= code_range(self.record.desc, source.code)[0]
        self._check_float_zeros(is_alike=shift == source.code.minus == target.code.minus == 0)
        zero: Any = np.int64(source.code.minus)
        if source.zero is not None:
            zero = self._read(source.zero) + source.code.minus
        factors = self._factors(source.offset)
        added = np.float32(source.sign) * _product(factors) if factors else None
        before, self.delta = (zero, added), np.int64(shift)
        if added is not None and not target.offset:
            zero, added = self._fold(zero, added), None
        after: Any = np.int64(target.code.minus)
        if target.zero is not None:
            after = zero + shift
            self._put(target.zero, after - target.code.minus, "zero points")
        elif target.offset:
            rest = target.code.minus - shift - zero
            if added is None or rest.any():
                factors = []
                base = np.float32(0) if added is None else added
                added = base + self.scale * rest.astype(np.float32)
        else:
            self.delta = target.code.minus - zero
        self._write_scales()
        if added is not None:
            kept = factors if source.sign == target.sign else []
            self._write_factors(target.offset, kept, np.float32(target.sign) * added, "offsets")
        if before[1] is not added or source.kind != target.kind:
            self._check_formulas(before, (after, added))

    def _check_float_zeros(self, *, is_alike: bool) -> None:
        """Refuse zero points that are floats unless both formats subtract them in the same way."""
        source, target = self.source, self.target
        old, new = (
            desc.rule.zero is not None and not is_integer_number(desc, desc.rule.zero)
            for desc in (self.record.desc, self.out.desc)
        )
        is_alike &= new and source.zero is not None and source.kind == target.kind
        if (old or new) and (not is_alike or source.offset or target.offset):
            self._refuse("only one subtracts zero points that are floats, or they round otherwise")

    def _write_tables(self) -> None:
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
        first = _Factor((self.factors[0].values.astype(np.float64) * ratio).astype(np.float32))
        factors = [first, *self.factors[1:]]
        product = _product(factors)
        # exact in f64, so products with the values of either table are rounded alike
        if not np.array_equal(product, self.scale.astype(np.float64) * ratio, equal_nan=True):
            self._refuse(f"scales times {ratio} are not f32")
        self._write_factors(target.scale, factors, product, "scales")

    @cached_property
    def factors(self) -> list[_Factor]:
        return self._factors(self.source.scale)

    @cached_property
    def scale(self) -> NDArray[Any]:
        return _product(self.factors)

    def _factors(self, numbers: tuple[Number, ...]) -> list[_Factor]:
        return [_Factor(self._read(x).astype(np.float32), x.divides) for x in numbers]

    def _read(self, number: Number) -> NDArray[Any]:
        """Return the values of a number of the source."""
        values = number_values(self.record.tensors, self.record.desc, number, load_bits)
        values = values.transpose(self.order)
        for dim, group in enumerate(self._groups(number)):
            values = _taken(values, self.starts[dim] // group, dim)
        return values

    def _put(self, number: Number, values: Any, what: str) -> None:
        dims, field = self.out.desc.dims, self.out.desc.field_of(number)
        values = np.reshape(values, np.shape(values) or (1,) * len(dims))
        for dim, (starts, group) in enumerate(zip(self.starts, field.groups, strict=True)):
            firsts = np.searchsorted(starts, np.arange(0, dims[dim], group))
            kept = _taken(values, firsts, dim)
            if kept is values:
                continue
            again = np.broadcast_to(_taken(kept, starts // group, dim), values.shape)
            if not np.array_equal(again, values, equal_nan=values.dtype.kind == "f"):
                raise MemdescError(
                    f"{what} differ within {min(group, dims[dim])} adjacent elements along dim "
                    f"{dim}, which share one in the target; groups of the source have "
                    f"{self.least[dim]}"
                )
            values = kept
        write_number(self.out, number, np.broadcast_to(values, field.layout.dims), what)

    def _fold(self, zero: Any, added: NDArray[Any]) -> NDArray[Any]:
        """Return the zero point for which `scale * (code - zero)` includes the offset."""
        scale, added = np.broadcast_arrays(self.scale, added)
        none = np.zeros(added.shape, added.dtype)
        steps = np.rint(np.divide(added, scale, out=none, where=scale != 0))
        is_whole = (steps * scale == added) & (abs(steps) < _MAX_STEPS)
        if not is_whole.all():
            at = first_index(~is_whole)
            sides = zip(at, self.starts, self.least, strict=True)
            group = tuple(int(starts[place]) // least for place, starts, least in sides)
            self._refuse(
                f"it has no offset, and the offset of group {group}, {added[at]}, is not a "
                f"multiple of the scale {scale[at]}, up to {_MAX_STEPS} times"
            )
        folded: NDArray[Any] = zero - steps.astype(zero.dtype)
        return folded

    def _write_scales(self) -> None:
        """Write the scales. Their bits are moved if their types and groups are equal."""
        pairs = [*zip(self.source.scale, self.target.scale, strict=False)]
        fields = [(self.record.desc.field_of(x), self.out.desc.field_of(y)) for x, y in pairs]
        is_alike = len(self.source.scale) == len(self.target.scale) and all(
            # compare everything but the names of their fields, which must be whole
            self._groups(x) == new.groups
            and old.kind == new.kind
            and x[1:] == y[1:]
            and [shift for _, shift in (*x.parts, *y.parts)] == [0, 0]
            for (x, y), (old, new) in zip(pairs, fields, strict=True)
        )
        if not is_alike:
            self._write_factors(self.target.scale, self.factors, self.scale, "scales")
        for old, new in fields if is_alike else ():
            bits = load_bits(self.record.tensors[old.tensor], old)
            store_bits(self.out.tensors[new.tensor], new, bits.transpose(self.order))

    def _write_factors(
        self, numbers: tuple[Number, ...], factors: list[_Factor], product: Any, what: str
    ) -> None:
        """Write factors one by one if the target has as many; otherwise their product and ones."""
        if len(factors) != len(numbers):
            ones = np.ones((1,) * len(self.out.desc.dims), np.float32)
            factors = [_Factor(product), *[_Factor(ones)] * (len(numbers) - 1)]
        made = [
            _Factor(np.float32(1) / values if number.divides != divides else values, number.divides)
            for number, (values, divides) in zip(numbers, factors, strict=True)
        ]
        if [factor.divides for factor in made] != [factor.divides for factor in factors]:
            if any((factor.values == 0).any() for factor in factors):
                self._refuse(f"a factor of {what} is 0, which has no reciprocal")
            self._check_reciprocals(_product(made), product, what)
        for number, factor in zip(numbers, made, strict=True):
            self._put(number, factor.values, what)

    def _check_reciprocals(self, made: NDArray[Any], wanted: NDArray[Any], what: str) -> None:
        """Refuse reciprocals that change a product, unless the caller lets them round it."""
        made, wanted = made.astype(np.float64), wanted.astype(np.float64)
        is_changed = (made != wanted) & ~(np.isnan(made) & np.isnan(wanted))
        error = float(np.max(abs(made - wanted) / abs(wanted), initial=0, where=is_changed))
        is_rounding = error <= _MAX_ERROR
        if is_changed.any() and (self.is_exact or not is_rounding):
            hint = "; exact=False allows that" if is_rounding else ""
            self._refuse(
                f"a factor becomes its reciprocal, and {is_changed.sum()} of {is_changed.size} "
                f"{what} change by up to {error:.2g} of their value{hint}"
            )

    def _check_formulas(self, *formulas: tuple[Any, Any]) -> None:
        """Compare the formulas, each with a zero point and an offset, for all codes and groups."""
        first, last = code_range(self.record.desc, self.source.code)
        for code in range(first, last + 1):
            before, after = (
                _computed(rule, self.scale, own - zero, 0 if added is None else added)
                for rule, own, (zero, added) in zip(
                    (self.source, self.target), (code, code + self.delta), formulas, strict=True
                )
            )
            if ((before != after) & ~(np.isnan(before) & np.isnan(after))).any():
                self._refuse("rounding differs between their formulas")

    def _refuse(self, why: str) -> NoReturn:
        raise MemdescError(f"{self.record.desc!r} cannot be {self.out.desc!r}: {why}")

    def write_codes(self, threads: int | None) -> None:
        """Write the codes with what is added to them; refuse what does not fit."""
        record, out, delta = self.record, self.out, self.delta
        source, target = self.source.code, self.target.code
        is_changed, is_single = delta.any(), len(source.parts) == len(target.parts) == 1
        old, new = record.desc.field_of(source), out.desc.field_of(target)
        is_alike = old.bits == new.bits and is_signed(old) == is_signed(new)
        if is_single and not is_changed and is_alike:
            src = bits_memory(record.tensors[old.tensor], old)
            dst = bits_memory(out.tensors[new.tensor], new)
            if src is not None and dst is not None:
                moved = Memory.attached(src.desc.permute_axes(self.perm), src.data)
                reorder(moved, out=dst, threads=threads)
                return
        read = partial(load_bits, threads=threads)
        codes = integers_of(record.tensors, record.desc, source, read, np.int16)
        codes = codes.transpose(self.order)
        if is_changed:
            # a larger change than codes of a byte can have is refused below, with its numbers
            dtype = np.int16 if abs(delta).max() < 1 << 14 else np.int64
            delta = np.reshape(delta.astype(dtype), np.shape(delta) or (1,) * codes.ndim)
            for dim, size in enumerate(codes.shape):
                if delta.shape[dim] > 1:
                    delta = delta.repeat(np.diff(self.starts[dim], append=size), dim)
            codes = codes + delta
        low, high = code_range(out.desc, target)
        outside = (codes < low) | (codes > high)
        if outside.any():
            at = first_index(outside)
            raise MemdescError(
                f"{out.desc.name} has codes of {low} to {high} and zero point {target.minus}, but "
                f"the code at {at} becomes {codes[at]}; {outside.sum()} do not fit"
                f"{'' if record.desc.rule.is_symmetric else way_out(out.desc, 'zero points')}"
            )
        store_integers(out, target, codes, threads)


def _taken(values: NDArray[Any], index: NDArray[Any], dim: int) -> NDArray[Any]:
    """Return the values at places along a dim, which begin with 0, unless all share one."""
    size = values.shape[dim]
    return values if size <= 1 or size == len(index) == index[-1] + 1 else values.take(index, dim)


def _computed(rule: Rule, scale: NDArray[Any], codes: Any, added: Any) -> NDArray[Any]:
    """Return `scale * codes + added` as a rule computes it."""
    product = rounded(codes.astype(np.float32) * scale, rule.kind)
    return rounded(product + added, rule.kind)


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
