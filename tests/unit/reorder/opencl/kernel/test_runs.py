"""Launches of conversions, without a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memdesc import MemdescError, memory_desc
from reorder import Attr
from reorder.opencl.kernel.conversion import Floats
from reorder.opencl.kernel.launch import DeviceTraits
from reorder.opencl.kernel.transfers import (
    OperandSpec,
    Transfer,
    plan_transfers,
)
from tests.unit.reorder.opencl.launches import check_source

EXACT = Floats()
ROWS = np.linspace(1, 2, 64)


def planned(
    dims: tuple[int, ...],
    types: tuple[str, str],
    tags: tuple[str, str],
    attr: Attr | None = None,
    floats: Floats = EXACT,
) -> Transfer:
    """Plan a reorder between two buffers."""
    src, dst = (memory_desc(dims, *pair) for pair in zip(types, tags, strict=True))
    one, other = (OperandSpec(desc) for desc in (src, dst))
    (transfer,) = plan_transfers(one, other, DeviceTraits(256, floats), attr, is_aligned=True)
    return transfer


@pytest.mark.parametrize(
    ("types", "tags", "attr"),
    [
        (("f32", "s8"), ("ab", "ab"), Attr(dst_scale=0.5, dst_zero_point=3)),
        (("f32", "s8"), ("ab", "ba"), Attr(dst_scale=ROWS, dst_scale_mask=1)),
        (("f64", "u4"), ("ab", "Ba3b"), Attr(src_scale=0.5)),
        (("s8", "f32"), ("ab", "Ab8a"), Attr(src_scale=ROWS, src_scale_mask=1, beta=0.5)),
        (("u4", "u4"), ("ab", "ba"), None),
        (("f16", "e8m0"), ("AB47a31b", "AB31a47b"), None),
    ],
)
def test_every_parameter_of_a_conversion_is_passed_by_name(
    types: tuple[str, str], tags: tuple[str, str], attr: Any
) -> None:
    transfer = planned((64, 322), types, tags, attr, Floats(has_fma=True))
    assert transfer.launches
    for launch in transfer.launches:
        check_source(launch)


def test_halves_of_bytes_are_written_by_two_launches_one_after_the_other() -> None:
    transfer = planned((5, 7), ("s8", "s4"), ("ab", "ba"))
    assert list(map(len, transfer.stages)) == [1, 1]
    assert len(planned((6, 8), ("s8", "s4"), ("ab", "ba")).stages) == 1


@pytest.mark.parametrize(
    ("types", "attr", "floats", "reason"),
    [
        (("f64", "f32"), None, Floats(has_f64=False), "f64 to f32 is computed in f64, which"),
        (("f32", "f16"), Attr(src_scale=2), Floats(is_exact=False), "the device flushes denormals"),
        (("f32", "s8"), None, Floats(rounds=False), "the device does not round to nearest"),
        (
            ("f32", "s8"),
            Attr(dst_scale=2),
            Floats(has_f64=False, divides=False),
            "divides by dst_scale, and the device neither rounds quotients of f32 nor has f64",
        ),
    ],
)
def test_what_a_device_does_not_compute_to_the_bit_is_refused_with_the_reason(
    types: tuple[str, str], attr: Attr | None, floats: Floats, reason: str
) -> None:
    with pytest.raises(MemdescError, match=reason):
        planned((4, 6), types, ("ab", "ba"), attr, floats)


def test_without_arithmetic_codes_need_no_exact_floats() -> None:
    weak = Floats(has_f64=False, is_exact=False, divides=False)
    for types in (("f32", "f16"), ("f8_e4m3", "bf16"), ("f32", "s8"), ("s32", "u8")):
        assert planned((4, 6), types, ("ab", "ba"), None, weak).launches
