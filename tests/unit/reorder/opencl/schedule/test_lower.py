from __future__ import annotations

from memdesc import memory_desc
from reorder.opencl.schedule.transfers import OperandSpec
from tests.unit.reorder.opencl.launches import launches


def test_large_tensors_take_64_bits_and_small_ones_do_not() -> None:
    for rows, is_wide in ((2**15, False), (2**17, True)):
        src, dst = memory_desc((rows, 2**15), "u8", "ab"), memory_desc((rows, 2**15), "u8", "ba")
        (launch,) = launches(OperandSpec(src, None, "u8"), OperandSpec(dst, None, "u8"))
        assert launch.pattern.is_wide == is_wide
