"""A kernel body for processors: one work item moves or converts runs of elements in plain loops.

The compilers of processors make vectors of such loops. What they make of neighbouring work items
is several times slower, and slower still with barriers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.conversion import BETA
from reorder.opencl.codegen.convert import (
    INVERSE,
    code_type,
    converted,
    operand_type,
    operand_value,
)
from reorder.opencl.codegen.element_types import ELEMENT_TYPES, memory_type
from reorder.opencl.codegen.indices import index_lines
from reorder.opencl.codegen.pattern import AccessKind
from reorder.opencl.codegen.words import one_element

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern, Serial

__all__ = [
    "PORTABLE",
    "element_bits",
    "run_of_elements",
    "serial_lines",
    "shared_values",
    "stored_value",
]

# Functions that a compiler does not expand before it looks for vectors; a NaN gives y, as they do.
PORTABLE = (
    "#undef fmin",
    "#undef fmax",
    "#undef min",
    "#define fmin(x, y) ((x) < (y) ? (x) : (y))",
    "#define fmax(x, y) ((x) > (y) ? (x) : (y))",
    "#define min(x, y) ((x) < (y) ? (x) : (y))",
)
_BYTE = 8


def serial_lines(pattern: Pattern, serial: Serial) -> Iterator[str]:
    """Return the body: loops over the steps of a work item, the run of loop 0 innermost."""
    reads = pattern.src.kind != AccessKind.NONE
    yield from index_lines(pattern)
    yield from shared_values(
        pattern, () if pattern.conversion is None else pattern.conversion.scalars, ""
    )
    yield "const index_t end = min(i0 + ((index_t)1 << p.shift0), p.extent0);"
    for k in reversed(range(1, len(pattern.loops))):
        yield f"const index_t end{k} = min(i{k} + ((index_t)1 << p.shift{k}), p.extent{k});"
        yield f"for (index_t x{k} = i{k}; x{k} < end{k}; ++x{k}) {{"
    outer = range(1, len(pattern.loops))
    for operand in (*(("src",) if reads else ()), "dst", *pattern.others):
        terms = [f"p.{operand}", f"i0 * p.{operand}0", *(f"x{k} * p.{operand}{k}" for k in outer)]
        yield f"const index_t {operand}_at = {' + '.join(terms)};"
    count = str(serial.whole) if serial.whole else "end - i0"
    yield f"const int count = (int)({count});"
    if reads:
        is_data = [f"x{k} < p.valid{k}" for k in outer]
        # a run behind the data has none: its zeros begin where it does
        whole = "count" if serial.whole else "(int)max(min(end, p.valid0) - i0, (index_t)0)"
        yield f"const int valid = {' && '.join(is_data) or '1'} ? {whole} : 0;"
        # there may be no scales for padding
        if serial.uniform:
            yield "if (valid > 0) {"
        yield from shared_values(pattern, serial.uniform, "_at")
        yield from run_of_elements(pattern, serial, "valid")
        if serial.uniform:
            yield "}"
        yield from _zeros(pattern, serial, "valid")
    else:
        yield from _zeros(pattern, serial, "0")
    yield from ("}" for _ in outer)


def shared_values(pattern: Pattern, roles: tuple[str, ...], suffix: str) -> Iterator[str]:
    """Return the values of roles that all elements of a run share."""
    conversion = pattern.conversion
    if conversion is None:
        return
    for role in roles:
        value = operand_value(conversion, role, f"{role}{suffix}")
        yield f"const {operand_type(conversion, role)} {role}_all = {value};"
    if conversion.multiplies and "dst_scale" in roles:
        yield f"const float {INVERSE} = 1.0f / dst_scale_all;"


def element_bits(pattern: Pattern) -> tuple[int, int]:
    """Return the bits of an element of src and of dst."""
    src, dst = pattern.src.element, pattern.dst.element
    return int(src[1:]), int(dst[1:])


def run_of_elements(pattern: Pattern, serial: Serial, count: str, to: str = "") -> Iterator[str]:
    """Return the loop over a run; to an array of elements of dst instead of dst, if it is named."""
    bits = element_bits(pattern)
    paired = [k for k in (0, 1) if bits[k] < _BYTE and not (to and k)]
    if not paired:
        yield f"for (int k = 0; k < {count}; ++k)"
        stored = stored_value(
            pattern, serial, one_element("src", _at(serial, "src", "k"), bits[0]), "k"
        )
        yield (
            f"    {to}[k] = {stored};" if to else f"    dst[{_at(serial, 'dst', 'k')}] = {stored};"
        )
        return
    yield f"for (int pair = 0; pair < {count} / 2; ++pair) {{"
    yield "const int k = 2 * pair;"
    codes = [one_element("src", _at(serial, "src", at), bits[0]) for at in ("k", "k + 1")]
    if 0 in paired:
        yield "const uint byte = src[(src_at >> 1) + pair];"
        codes = ["(byte & 15)", "(byte >> 4)"]
    low, high = (
        stored_value(pattern, serial, code, at)
        for code, at in zip(codes, ("k", "k + 1"), strict=True)
    )
    if 1 in paired:
        yield f"dst[(dst_at >> 1) + pair] = (uchar)({low} | {high} << 4);"
    elif to:
        yield f"{to}[k] = {low}; {to}[k + 1] = {high};"
    else:
        yield f"dst[{_at(serial, 'dst', 'k')}] = {low};"
        yield f"dst[{_at(serial, 'dst', 'k + 1')}] = {high};"
    yield "}"


def stored_value(pattern: Pattern, serial: Serial, code: str, k: str) -> str:
    """Return the expression of an element of dst, from the bits of that of src."""
    conversion = pattern.conversion
    if conversion is None:
        return code
    shared = (*conversion.scalars, *serial.uniform)

    def operand(role: str) -> str:
        if role in shared:
            return f"{role}_all"
        return operand_value(conversion, role, _at(serial, role, k))

    bits = element_bits(pattern)
    old = one_element("dst", _at(serial, "dst", k), bits[1]) if BETA in conversion.roles else ""
    kind = ELEMENT_TYPES[f"b{max(bits[1], _BYTE)}"].memory
    code = f"({code_type(conversion.src)}){code}"
    return f"({kind}){converted(conversion, code, operand, old)}"


def _at(serial: Serial, operand: str, k: str) -> str:
    """Return the offset of an element of a run."""
    if operand in serial.contiguous:
        return f"{operand}_at + {k}"
    return f"{operand}_at + ({k}) * p.{operand}0"


def _zeros(pattern: Pattern, serial: Serial, start: str) -> Iterator[str]:
    """Return the loop that writes zeros behind the data of a run."""
    if element_bits(pattern)[1] < _BYTE:
        yield f"for (int k = {start} / 2; k < count / 2; ++k) dst[(dst_at >> 1) + k] = 0;"
        return
    zero = f"({memory_type(pattern.dst)})(0)"
    yield f"for (int k = {start}; k < count; ++k) dst[{_at(serial, 'dst', 'k')}] = {zero};"
