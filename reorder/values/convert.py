"""The definition of conversion and arithmetic, in numpy; all kernels equal it bit for bit.

docs/dtypes.md has the rules. A value is decoded into the working type (`working_type`), in which
the formula of `reorder.Attr` is computed, and the result is encoded once. In f32, the difference
x - src_zero_point is computed from the integers themselves and rounded once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc.dtypes import DATA_TYPES
from reorder.values.formats import (
    FLOATS,
    FORMATS,
    INTEGERS,
    BooleanFormat,
    ExponentFormat,
    FloatFormat,
    IntegerFormat,
    difference_type,
    largest_number,
    working_type,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import DataType
    from reorder.values.binding import BoundAttr

_WIDE = FLOATS["f64"]
# the most bits of an element, if all of its values are tried
_MAX_TRIED = 16


def convert(
    bits: NDArray[Any],
    src: DataType,
    dst: DataType,
    bound: BoundAttr,
    old: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Convert the bits of elements of src into those of dst.

    Parameters
    ----------
    bits : ndarray of unsigned integers
        Elements of src over the dims.
    src, dst : DataType
        The types of both sides.
    bound : BoundAttr
        The scales, zero points, beta and roundings, checked.
    old : ndarray of unsigned integers, optional
        What dst holds, for `beta`.
    """
    if src == dst and not bound.is_arithmetic:
        return bits
    work = working_type(src.name, dst.name, arithmetic=bound.is_arithmetic)
    wide = DATA_TYPES[work].numpy
    parameters = bound.arrays(wide)
    with np.errstate(all="ignore"):
        if "src_zero_point" in parameters:
            exact = difference_type(src.name, work, parameters["src_zero_point"])
            points = bound.arrays(DATA_TYPES[exact].numpy)["src_zero_point"]
            x = (decode(bits, src, exact) - points).astype(wide)
        else:
            x = decode(bits, src, work)
        if "src_scale" in parameters:
            x = parameters["src_scale"] * x
        if bound.beta:
            x = x + wide.type(bound.beta) * decode(old if old is not None else bits, dst, work)
        if "dst_scale" in parameters:
            x = x / parameters["dst_scale"]
        if "dst_zero_point" in parameters:
            x = x + parameters["dst_zero_point"]
        if bound.is_arithmetic:
            x = np.where(np.isnan(x), wide.type(np.nan), x)
        limit = largest_number(dst.name) if bound.saturates else None
        if limit is not None:
            x = np.clip(x, -wide.type(limit), wide.type(limit))
        if bound.through_f16:
            x = _decode_float(_encode_float(x, FLOATS["f16"]), FLOATS["f16"]).astype(wide)
        return encode(x, dst)


def decode(bits: NDArray[Any], dtype: DataType, work: str) -> NDArray[Any]:
    """Return the values of elements in a working type."""
    wide, form = DATA_TYPES[work].numpy, FORMATS[dtype.name]
    values: NDArray[Any]
    with np.errstate(all="ignore"):
        match form:
            case IntegerFormat():
                values = _decode_integer(bits, form)
            case BooleanFormat():
                values = bits != 0
            case ExponentFormat():
                powers = np.ldexp(1.0, bits.astype(np.int32) - form.bias)
                values = np.where(bits == form.nan, np.nan, powers)
            case FloatFormat():
                values = _decode_float(bits, form)
    return values.astype(wide)


def encode(values: NDArray[Any], dtype: DataType) -> NDArray[Any]:
    """Return the elements nearest to values of a working type, as bits."""
    form = FORMATS[dtype.name]
    codes: NDArray[Any]
    with np.errstate(all="ignore"):
        match form:
            case IntegerFormat():
                codes = _encode_integer(values, form)
            case BooleanFormat():
                codes = np.where(values != 0, np.uint64(form.true), np.uint64(0))
            case ExponentFormat():
                codes = _encode_exponent(values, form)
            case FloatFormat():
                codes = _encode_float(values, form)
    return codes.astype(dtype.bits_dtype)


def _decode_integer(bits: NDArray[Any], form: IntegerFormat) -> NDArray[Any]:
    """Return the values as integers that are as wide as the codes."""
    if not form.is_signed:
        return bits
    # a 4-bit code is held in a byte, so its sign is extended to that width
    sign = bits.dtype.type(1 << (form.bits - 1))
    extended: NDArray[Any] = (bits ^ sign) - sign
    return extended.view(bits.dtype.str.replace("u", "i"))


def _encode_integer(values: NDArray[Any], form: IntegerFormat) -> NDArray[np.uint64]:
    """Round to the nearest, ties to even, and saturate; NaN becomes 0."""
    low, high = form
    if values.dtype.kind == "f":
        rounded = np.rint(np.where(np.isnan(values), 0, values).astype(np.float64))
        # floats do not have the largest 64-bit integer; float(high) is the next larger number
        is_inside = (rounded > low) & (rounded < float(high))
        whole = np.where(is_inside, rounded, 0).astype(np.int64 if form.is_signed else np.uint64)
        ends = np.where(rounded <= low, whole.dtype.type(low), whole.dtype.type(high))
        whole = np.where(is_inside, whole, ends)
    else:
        # bounds outside the working type have no effect
        limits = np.iinfo(values.dtype)
        whole = np.clip(values, max(low, limits.min), min(high, limits.max))
    return whole.astype(np.uint64) & np.uint64((1 << form.bits) - 1)


def _encode_exponent(values: NDArray[Any], form: ExponentFormat) -> NDArray[Any]:
    """Return the exponents of magnitudes, rounded down."""
    magnitude = abs(values.astype(np.float64))
    exponent = np.clip(np.frexp(magnitude)[1] - 1 + form.bias, 0, form.nan)
    codes = np.where(magnitude == 0, 0, exponent)
    return np.where(np.isfinite(magnitude), codes, form.nan)


def _decode_float(bits: NDArray[Any], form: FloatFormat) -> NDArray[np.float64]:
    """Return values as f64, exactly; a NaN keeps its sign and payload, and becomes quiet."""
    codes = bits.astype(np.uint64)
    sign = codes >> np.uint64(form.exponent + form.mantissa) & np.uint64(1)
    magnitude = codes & np.uint64((1 << (form.exponent + form.mantissa)) - 1)
    exponent = (magnitude >> np.uint64(form.mantissa)).astype(np.int32)
    fraction = magnitude & np.uint64((1 << form.mantissa) - 1)
    significand = np.where(exponent > 0, fraction + np.uint64(1 << form.mantissa), fraction).astype(
        np.float64
    )
    value = np.ldexp(significand, np.maximum(exponent, 1) - form.bias - form.mantissa)
    value = np.where(magnitude > form.largest, np.inf, value)
    wide = value.view(np.uint64)
    if form.has_inf:
        payload = fraction << np.uint64(_WIDE.mantissa - form.mantissa)
        wide = np.where(magnitude > form.overflow, np.uint64(_WIDE.nan) | payload, wide)
    elif form.has_nan:
        is_nan = (magnitude if form.has_negative_zero else codes) == form.nan
        wide = np.where(is_nan, np.uint64(_WIDE.nan), wide)
    signed: NDArray[np.float64] = (wide | sign << np.uint64(63)).view(np.float64)
    return signed


def _encode_float(values: NDArray[Any], form: FloatFormat) -> NDArray[np.uint64]:
    """Round values to the nearest number of a format, ties to even; return its bits."""
    wide = values.astype(np.float64)
    bits = wide.view(np.uint64)
    magnitude = np.abs(wide)
    # the exponent of each value, but at least that of denormals; it determines the rounding step
    finite = np.where(np.isfinite(wide), magnitude, 0)
    exponent = np.maximum(
        np.where(finite > 0, np.frexp(finite)[1].astype(np.int64) - 1, -_WIDE.bias), 1 - form.bias
    )
    if form == _WIDE:
        codes = bits & np.uint64(2**63 - 1)
    else:
        steps = np.rint(np.ldexp(finite, (form.mantissa - exponent).astype(np.int32)))
        codes = (((exponent + form.bias - 1) << form.mantissa) + steps.astype(np.int64)).astype(
            np.uint64
        )
        codes = np.where((codes > form.largest) | np.isinf(wide), np.uint64(form.overflow), codes)
    payload = (
        bits >> np.uint64(_WIDE.mantissa - form.mantissa) & np.uint64((1 << form.mantissa) - 1)
        if form.has_inf
        else np.uint64(0)
    )
    codes = np.where(np.isnan(wide), np.uint64(form.nan) | payload, codes)
    signs = (bits >> np.uint64(63)) << np.uint64(form.exponent + form.mantissa)
    return codes | (signs if form.has_negative_zero else np.where(codes == 0, 0, signs))


def without_quotient(bound: BoundAttr, src: DataType, dst: DataType) -> BoundAttr:
    """Return parameters with a product for the quotient, if no value of src gives another result.

    The nearest integer to a product with an inverse is hardly ever another one.
    """
    values, form = bound.by_role, INTEGERS.get(dst.name)
    is_narrow = src.name in FLOATS and max(src.bits, dst.bits) <= _MAX_TRIED
    if "dst_scale" not in values or form is None or not is_narrow or bound.beta or bound.varying:
        return bound
    constants = {role: np.float32(of[0]) for role, of in values.items()}
    x, point = _values_of(src), constants.get("dst_zero_point", np.float32(0))
    scale, divisor = constants.get("src_scale", np.float32(1)), constants["dst_scale"]
    with np.errstate(all="ignore"):
        factor = scale / divisor
        scaled = scale * x / divisor, factor * x
        wanted, multiplied = (np.clip(np.rint(of + point), *form) for of in scaled)
    if not factor or not np.array_equal(wanted, multiplied):
        return bound
    *_, quotient = (of for of in bound.operands if of.role == "dst_scale")
    product = quotient._replace(role="src_scale", values=np.array([factor], np.float64))
    points = (of for of in bound.operands if of.role == "dst_zero_point")
    return bound._replace(operands=(product, *points))


@cache
def _values_of(dtype: DataType) -> NDArray[np.float32]:
    """Return all values of a type but NaN."""
    values: NDArray[np.float32] = decode(np.arange(1 << dtype.bits), dtype, "f32")
    return values[~np.isnan(values)]
