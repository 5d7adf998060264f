"""Functions of a kernel that take 16 bytes from any byte of two aligned vectors."""

from __future__ import annotations

__all__ = ["SHIFTS", "VECTORS_NBYTES"]

# Of two vectors, which end no further behind any byte of the first one.
VECTORS_NBYTES = 32

SHIFTS = (
    "uint funnel(uint low, uint high, uint shift)",
    "{ return (uint)(((ulong)high << 32 | low) >> shift); }",
    # pairs of words, words, then bits are chosen
    "uint4 shifted(uint4 a, uint4 b, uint at) {",
    "    const int is_far = at & 8, is_odd = at & 4;",
    "    const uint shift = (at & 3) * 8;",
    "    const uint x0 = is_far ? a.z : a.x, x1 = is_far ? a.w : a.y, x2 = is_far ? b.x : a.z;",
    "    const uint x3 = is_far ? b.y : a.w, x4 = is_far ? b.z : b.x, x5 = is_far ? b.w : b.y;",
    "    const uint y0 = is_odd ? x1 : x0, y1 = is_odd ? x2 : x1, y2 = is_odd ? x3 : x2;",
    "    const uint y3 = is_odd ? x4 : x3, y4 = is_odd ? x5 : x4;",
    "    return (uint4)(funnel(y0, y1, shift), funnel(y1, y2, shift),",
    "                   funnel(y2, y3, shift), funnel(y3, y4, shift));",
    "}",
)
