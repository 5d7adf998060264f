"""Conversion and arithmetic by definition, in numpy: what every kernel must equal, bit for bit.

The rule. A value is decoded into the working type (`working_type`): exactly, but for s32
in f32 and s64 in f64, which round to the nearest, ties to even. The formula is computed
there, each operation rounded::

    d = src_scale * (x - src_zero_point)
    d = d + beta * old                        (only where beta is not 0)
    d = d / dst_scale + dst_zero_point

Neutral parameters are no operations, so -0.0 stays. The result is encoded once:

* to an integer: NaN becomes 0, the rest rounds to the nearest, ties to even, and saturates;
* to a float: to the nearest, ties to even, denormals included. What rounds beyond the largest
  number becomes infinite, in f8_e4m3 NaN, in f4_e2m1 6; with `saturate` the largest number,
  also for infinities. A NaN stays one, with its sign and the upper bits of its payload, and
  is made quiet; one that comes out of arithmetic is the quiet NaN without sign and payload;
* to e8m0: the exponent of the magnitude, cut, not rounded; infinities and NaN are its NaN.

Integers become other integers without the detour. Equal types without arithmetic move bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reorder.values.formats import FLOATS, INTEGERS, FloatFormat, working_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import DataType
    from reorder.values.binding import Bound

__all__ = ["convert", "decode", "encode", "wide_dtype"]

_E8M0_NAN, _E8M0_BIAS = 255, 127
_WIDE = FLOATS["f64"]


def wide_dtype(name: str) -> np.dtype[Any]:
    """Return the numpy dtype of a working type."""
    return np.dtype({"f64": np.float64, "f32": np.float32, "s64": np.int64}[name])


def convert(
    bits: NDArray[Any], src: DataType, dst: DataType, bound: Bound, old: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Convert the bits of elements of src into those of dst.

    Parameters
    ----------
    bits : ndarray of unsigned
        Elements of src over the dims.
    src, dst : DataType
        Types of both sides.
    bound : Bound
        The parameters, each over the dims or 1 where it does not change along them.
    old : ndarray of unsigned, optional
        What dst holds, for `beta`.
    """
    if src == dst and not bound.is_arithmetic:
        return bits
    work = working_type(src.name, dst.name, arithmetic=bound.is_arithmetic)
    wide = wide_dtype(work)
    parameters = bound.arrays(wide)
    with np.errstate(all="ignore"):
        if "src_zero_point" in parameters:
            # a difference of integers is exact in f64, but for those of s64
            x = (
                decode(bits, src, "f64") - bound.arrays(np.dtype(np.float64))["src_zero_point"]
            ).astype(wide)
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
        if bound.saturates:
            limit = wide.type(
                np.finfo(np.float32).max if dst.name == "e8m0" else FLOATS[dst.name].max
            )
            x = np.clip(x, -limit, limit)
        if bound.through_f16:
            x = _decode_float(_encode_float(x, FLOATS["f16"]), FLOATS["f16"]).astype(wide)
        return encode(x, dst)


def decode(bits: NDArray[Any], dtype: DataType, work: str) -> NDArray[Any]:
    """Return the values of elements in a working type."""
    wide = wide_dtype(work)
    with np.errstate(all="ignore"):
        if dtype.name in INTEGERS:
            signed = INTEGERS[dtype.name][0] < 0
            if dtype.is_packed:
                return ((bits.astype(np.int8) ^ 8) - 8 if signed else bits).astype(wide)
            return bits.view(bits.dtype.str.replace("u", "i") if signed else bits.dtype).astype(
                wide
            )
        if dtype.name == "e8m0":
            return np.where(
                bits == _E8M0_NAN, np.nan, np.ldexp(1.0, bits.astype(np.int32) - _E8M0_BIAS)
            ).astype(wide)
        return _decode_float(bits, FLOATS[dtype.name]).astype(wide)


def encode(values: NDArray[Any], dtype: DataType) -> NDArray[Any]:
    """Return the bits of values of a working type as elements."""
    unsigned = dtype.bits_dtype
    if dtype.name in INTEGERS:
        low, high = INTEGERS[dtype.name]
        if values.dtype.kind == "f":
            with np.errstate(all="ignore"):
                rounded = np.rint(np.where(np.isnan(values), 0, values).astype(np.float64))
                # 2^63 is a float, 2^63 - 1 is none
                whole = np.where(abs(rounded) < 2.0**63, rounded, 0).astype(np.int64)
                values = np.where(
                    abs(rounded) < 2.0**63, whole, np.where(rounded < 0, -(2**63), 2**63 - 1)
                )
        whole = np.clip(values, low, high).astype(np.int64).view(np.uint64)
        found: NDArray[Any] = (whole & np.uint64(15) if dtype.is_packed else whole).astype(unsigned)
        return found
    if dtype.name == "e8m0":
        with np.errstate(all="ignore"):
            magnitude = abs(values.astype(np.float64))
            exponent = np.clip(np.frexp(magnitude)[1] - 1 + _E8M0_BIAS, 0, _E8M0_NAN)
            codes = np.where(
                magnitude == 0, 0, np.where(np.isfinite(magnitude), exponent, _E8M0_NAN)
            )
        return codes.astype(unsigned)
    return _encode_float(values, FLOATS[dtype.name]).astype(unsigned)


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
    if form.has_inf or form.nan > form.largest:
        payload = (
            fraction << np.uint64(_WIDE.mantissa - form.mantissa) if form.has_inf else np.uint64(0)
        )
        is_nan = magnitude > form.overflow if form.has_inf else magnitude == form.nan
        wide = np.where(is_nan, np.uint64(_WIDE.nan) | payload, wide)
    found: NDArray[np.float64] = (wide | sign << np.uint64(63)).view(np.float64)
    return found


def _encode_float(values: NDArray[Any], form: FloatFormat) -> NDArray[np.uint64]:
    """Round values to the nearest number of a format, ties to even; return its bits."""
    wide = values.astype(np.float64)
    bits = wide.view(np.uint64)
    magnitude = np.abs(wide)
    # one step of the format at each value: the exponent, but no less than that of the denormals
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
    return codes | (bits >> np.uint64(63)) << np.uint64(form.exponent + form.mantissa)
