"""Conversions of every pair, and attributes, against their definition; run by test_stages.py.

As a program it is run for processors other than this one.
"""

import sys
from itertools import product
from typing import Any

import numpy as np

from memdesc import memory_desc
from memdesc.dtypes import DATA_TYPES
from reorder import Attr
from tests.conversions import every_code, random_codes, run
from tests.reorders import check

_PAIRS = (
    ("f32", "s8"),
    ("s8", "f32"),
    ("f32", "bf16"),
    ("f16", "f32"),
    ("f32", "u4"),
    ("s4", "f32"),
    ("f64", "f32"),
    ("u4", "s64"),
)
_LAYOUTS = (("ab", "ab"), ("ab", "ba"), ("ba", "Ab8a"), ("aB16b", "ab"), ("AB4b16a4b", "ba"))


def pairs() -> int:
    """Convert every code of small types, and random ones of large types, into every type.

    Returns the number of pairs.
    """
    for src, dst in product(DATA_TYPES, DATA_TYPES):
        codes = every_code(src) if DATA_TYPES[src].bits <= 16 else random_codes(src, 5001, 7)
        ours, wanted = (run(codes, src, dst, by=by) for by in ("kernels", "definition"))
        wrong = np.flatnonzero(ours != wanted)
        assert not wrong.size, (
            src,
            dst,
            [(hex(codes[k]), hex(ours[k]), hex(wanted[k])) for k in wrong[:3]],
        )
    return len(DATA_TYPES) ** 2


def lengths() -> None:
    """Convert rows of all lengths around those of vectors, at offsets of every parity."""
    for src, dst in _PAIRS:
        for n in (*range(1, 20), *range(30, 35), *range(62, 67), 127, 129, 191, 255, 257):
            for gap in (0, 1, 3):
                wide, narrow = ((3, n), (n + gap, 1)), ((3, n), (n + 2 * gap + n % 2, 1))
                pair = (
                    memory_desc(wide[0], src, strides=wide[1], offset0=gap),
                    memory_desc(narrow[0], dst, strides=narrow[1], offset0=1),
                )
                check((*pair, None), n, at_end=n % 2 == 0)


def layouts(*, streams: bool) -> None:
    """Convert matrices between layouts, with scales along rows, columns, both, groups, and sums.

    Code is compiled for each pair of types, and again where it streams, so the laws of this file
    share few pairs. How lines are streamed depends on the widths of the types alone.
    """
    narrow, wide, integer, same = ("f32", "s8"), ("u8", "f32"), ("s32", "u8"), ("f32", "f32")
    of_rows, of_columns = np.linspace(0.1, 3, 42), np.linspace(0.1, 3, 70)
    of_groups = np.linspace(0.1, 3, 42 * 7)
    given: tuple[tuple[Attr | None, tuple[tuple[str, str], ...]], ...] = (
        (None, (narrow, wide, integer, same)),
        (Attr(dst_scale=0.3, dst_zero_point=3), (narrow, integer)),
        (Attr(dst_scale=of_rows, dst_scale_mask=1, beta=0.5), (wide, integer)),
        (Attr(src_scale=of_columns, src_scale_mask=2), (narrow, same)),
        (Attr(dst_scale=of_columns, dst_scale_mask=2, saturate=True), (narrow, wide)),
        (Attr(src_scale=of_groups, src_scale_mask=3, src_scale_groups=(1, 10)), (integer, same)),
    )
    cases = [(attr, pair) for attr, pairs in given for pair in pairs]
    cases = [case for case in cases if not streams or case[1] != integer]
    for (stag, dtag), (attr, (src, dst)) in product(_LAYOUTS, cases):
        check(
            (memory_desc((42, 70), src, stag), memory_desc((42, 70), dst, dtag), attr),
            5,
            at_end=True,
        )


def groups() -> None:
    """Convert with scales and zero points in groups of every length, along rows of either side."""
    dims, rng = (54, 160), np.random.default_rng(3)
    sizes = (1, 2), (1, 4), (2, 8), (1, 16), (1, 20), (9, 32), (1, 80)
    cases = [*product((("u8", "f32", "src_scale"),), ("ab", "ba", "BA16b16a"), sizes)]
    others = ("f32", "s8", "dst_scale"), ("u8", "f32", "src_zero_point")
    cases += product(others, ("ba",), sizes[1::4])
    for (src, dst, role), dtag, group in cases:
        counts = [size // part for size, part in zip(dims, group, strict=True)]
        is_scale = role.endswith("scale")
        values = rng.uniform(0.1, 3, counts) if is_scale else rng.integers(-9, 9, counts)
        given: dict[str, Any] = {role: values, f"{role}_mask": 3, f"{role}_groups": group}
        pair = memory_desc(dims, src, "ab"), memory_desc(dims, dst, dtag)
        check((*pair, Attr(**given)), 7, at_end=True)


def channels() -> None:
    """Convert images of few channels, with a scale and a zero point for each, in whole tiles."""
    for channels, (stag, dtag) in product(
        (3, 7, 24), (("axb", "axb"), ("axb", "abx"), ("aBx16b", "aBx16b"), ("aBx16b", "axb"))
    ):
        dims, scales = (3, channels, 31, 17), np.linspace(0.5, 2, channels)
        src = memory_desc(dims, "u8", stag), memory_desc(dims, "f32", dtag)
        points = np.arange(channels)
        attr = Attr(
            src_scale=scales, src_scale_mask=2, src_zero_point=points, src_zero_point_mask=2
        )
        check((*src, attr), 5, at_end=True)
        dst = memory_desc(dims, "f32", stag), memory_desc(dims, "u8", dtag)
        check((*dst, Attr(dst_scale=scales, dst_scale_mask=2)), 5, at_end=True)


def padding(*, streams: bool) -> None:
    """Convert between equal blocks of channels, of which the last has padding."""
    pairs: tuple[tuple[str, str], ...] = ("f32", "s8"), ("u8", "f32"), ("u4", "s8")
    if not streams:
        # rows that end in zeros are never streamed
        pairs += ("f32", "bf16"), ("s32", "u8"), ("s64", "f64")
    for channels, (src, dst) in product((7, 29), pairs):
        scales = np.linspace(0.3, 2, channels)
        attrs = (
            None,
            Attr(dst_scale=0.25),
            Attr(dst_scale=scales, dst_scale_mask=2),
            Attr(src_scale=scales, src_scale_mask=2, src_zero_point=3 * (src != "f32")),
            Attr(src_scale=0.7, beta=0.5),
        )
        for attr, width in zip(attrs, (16, 8, 16, 4, 32), strict=True):
            tag, dims = f"aBx{width}b", (2, channels, 3, 5)
            check((memory_desc(dims, src, tag), memory_desc(dims, dst, tag), attr), 5, at_end=True)


if __name__ == "__main__":
    count = pairs()
    lengths()
    layouts(streams=False)
    groups()
    channels()
    padding(streams=False)
    sys.stdout.write(f"{count} pairs\n")
