"""Printed plans of named reorders: what a user pastes into a report stays what it was.

A changed plan is no mistake in itself; read the difference, then write the file anew
with `python -m tests.golden.test_plans`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from memdesc import memory_desc
from reorder import plan_reorder

_FILE = Path(__file__).with_name("plans.txt")

# name: dims, dtype, src, dst
_CASES = {
    "activations to blocks": ((8, 17, 56, 56), "f32", "nchw", "nChw16c"),
    "blocks to activations": ((8, 17, 56, 56), "f32", "nChw16c", "nchw"),
    "channels last": ((8, 17, 56, 56), "f32", "nchw", "nhwc"),
    "the same layout": ((8, 17, 56, 56), "f32", "nChw8c", "nChw8c"),
    "a transpose": ((4096, 1021), "f32", "ab", "ba"),
    "small blocks to large": ((4, 35, 3, 3), "bf16", "aBcd8b", "aBcd32b"),
    "weights to two blocks": ((512, 300, 3, 3), "f32", "oihw", "OIhw16i16o"),
    "weights for int8": ((35, 37, 3, 3), "s8", "oihw", "OIhw4i16o4i"),
    "weights for bf16": ((64, 64, 1, 1), "bf16", "oihw", "OIhw8i16o2i"),
    "grouped weights": ((3, 32, 18, 2, 4), "f32", "goihw", "gOIhw16i16o"),
    "blocks that do not divide": ((4, 35, 3, 3), "f32", "aBcd48b", "aBcd32b"),
    "blocks that meet again far away": ((4, 100, 3, 3), "f32", "aBcd47b", "aBcd31b"),
    "three blocks of one dim": ((50, 6), "u8", "ab", "A4a2a3ab"),
    "a swizzle": ((35, 37, 2, 3), "s8", "oihw", "os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4"),
    "a fused plane": ((35, 37, 2, 3), "f16", "oihw", "i_yxs_os_yxsv2_osv16"),
    "a fused plane, transposed": ((35, 37, 2, 3), "f16", "abdc", "i_yxs_os_yxsv2_osv16"),
    "an alignment": ((35, 37, 2, 3), "s8", "oihw", "os_iyx_osv32__ai32"),
    "4-bit packing": ((35, 37, 1, 1), "u4", "oihw", "os_iyx_osv32"),
    "one element": ((1, 1), "f32", "ab", "AB8a8b"),
    "no element": ((0, 3), "f32", "ab", "ba"),
    "twelve dims": ((2,) * 12, "f32", "abcdefghijkl", "lkjihgfedcba"),
}


def _print(name: str) -> str:
    dims, dtype, src, dst = _CASES[name]
    plan = plan_reorder(memory_desc(dims, dtype, src), memory_desc(dims, dtype, dst))
    return f"{name}: {src} -> {dst}\n{plan}"


def _kept() -> dict[str, str]:
    return {
        text.partition(":")[0]: text
        for text in _FILE.read_text(encoding="utf-8").rstrip("\n").split("\n\n")
    }


@pytest.mark.parametrize("name", _CASES)
def test_the_plan_is_printed_as_it_was(name: str) -> None:
    assert _print(name) == _kept()[name]


def test_every_kept_plan_is_checked() -> None:
    assert list(_kept()) == list(_CASES)


if __name__ == "__main__":
    _FILE.write_text("\n\n".join(map(_print, _CASES)) + "\n", encoding="utf-8")
