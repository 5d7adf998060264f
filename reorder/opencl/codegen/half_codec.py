"""OpenCL C functions between the codes of f16 and values of f32, by what devices have for it.

`vload_half` and `vstore_half_rte` exist on every device, round to the nearest, ties to even, and
flush no denormal half (OpenCL C 1.2, 6.1.1.1 and 6.12.7). What becomes of a NaN is left to
devices: its sign is set here, and its payload where it is kept. GPUs have instructions for them; on
processors the functions of runtimes are slower than integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.float_codec import WIDE, decode_float
from reorder.values.formats import FLOATS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.conversion import Conversion
    from reorder.opencl.codegen.float_codec import Wide
    from reorder.values.formats import Format

__all__ = ["decode_half", "encode_half", "pixel_of_half", "uses_halves"]


def uses_halves(conversion: Conversion, form: Format, wide: Wide) -> bool:
    """Whether a conversion uses these functions for a format and a working type."""
    is_half = form == FLOATS["f16"] and wide.form == FLOATS["f32"]
    return conversion.has_half_instructions and is_half


def pixel_of_half(*, is_native: bool) -> Iterator[str]:
    """Return the body of a function from a code to the number with which an image is written."""
    if is_native:
        return decode_half(keeps_payload=False)
    return decode_float(FLOATS["f16"], WIDE["f32"])


def decode_half(*, keeps_payload: bool = True) -> Iterator[str]:
    """Return the body of a decoder of `code`; without its payload a NaN keeps its sign."""
    yield "const ushort half_code = (ushort)code;"
    yield "const uint bits = as_uint(vload_half(0, (const half *)&half_code));"
    sign = "(code & 0x8000) << 16"
    if keeps_payload:
        yield "const uint magnitude = code & 0x7fff;"
        yield f"const uint nan = 0x7fc00000 | magnitude << 13 | {sign};"
        yield "return as_float(magnitude > 0x7c00 ? nan : bits);"
    else:
        yield f"return as_float((bits & 0x7fffffff) | {sign});"


def encode_half(*, keeps_payload: bool = True) -> Iterator[str]:
    """Return the body of an encoder of `value`; without its payload a NaN keeps its sign."""
    yield "ushort half_code;"
    yield "vstore_half_rte(value, 0, (half *)&half_code);"
    yield "const uint bits = as_uint(value), sign = bits >> 16 & 0x8000;"
    if keeps_payload:
        yield "const uint magnitude = bits & 0x7fffffff;"
        yield "const uint nan = 0x7e00 | (magnitude >> 13 & 0x3ff) | sign;"
        yield "return magnitude > 0x7f800000 ? nan : (uint)half_code;"
    else:
        yield "return (half_code & 0x7fff) | sign;"
