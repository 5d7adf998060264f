"""What conversions are said to lose, at the limits of types."""

from typing import Any

import numpy as np
import pytest

from memdesc import memory_desc
from reorder import Attr, reorder
from reorder.checkpoints.moves.changes import ONLY, Reorder
from reorder.checkpoints.moves.losses import FinalError, Lost, lost_by

_PLAIN, _SATURATES = Attr(), Attr(saturate=True)


def _lost(numbers: list[Any], src: str, dst: str, attr: Attr) -> Lost:
    held = np.uint64 if src == "u64" else np.float64
    x = reorder(np.array(numbers, held), "a", dtype=src)
    wanted = memory_desc((len(numbers),), dst, "a")
    made = reorder(x, wanted, attr=attr)
    lost = lost_by(Reorder(x.desc, wanted, attr), {ONLY: x.data}, {ONLY: made.data})
    assert lost is not None
    return lost


@pytest.mark.parametrize(
    ("src", "dst", "attr", "held", "beyond"),
    [
        # floats have the number after the largest integer of 64 bits, but not that integer
        ("f64", "s64", _PLAIN, [2.0**63 - 1024, -(2.0**63)], [2.0**63, -(2.0**63) - 2048]),
        ("f32", "s64", _PLAIN, [2.0**62], [2.0**63]),
        ("f64", "u64", _PLAIN, [2.0**64 - 2048, -0.5], [2.0**64, -0.51]),
        # f64 rounds this to 2^63
        ("u64", "s64", _PLAIN, [2**63 - 1], [2**63, 2**63 + 1, 2**64 - 1]),
        # what rounds to 0, or to the largest number, is not beyond it
        ("f32", "u32", _PLAIN, [-0.5, -0.0, 2.0**32 - 256], [-0.51, 2.0**32]),
        ("f64", "s32", _PLAIN, [2**31 - 0.51, -(2.0**31) - 0.5], [2**31 - 0.5, -(2**31) - 0.51]),
        ("f64", "s8", _PLAIN, [127.4, -128.5], [127.5, np.inf]),
        ("f32", "s32", Attr(dst_zero_point=99), [2.0**31 - 128], [2.0**31, 3e9]),
        ("f32", "s32", Attr(dst_zero_point=199), [2.0**31 - 256], [2.0**31 - 128]),
        ("f64", "u64", Attr(dst_zero_point=10), [-10.5, 2.0**64 - 4096], [-10.51, 2.0**64]),
        ("f64", "s64", Attr(dst_zero_point=4096), [2.0**63 - 8192], [2.0**63 - 4096]),
        ("f64", "e8m0", _SATURATES, [2.0**127, 0.0], [2.0**128, -1e300, np.inf]),
        ("f64", "f16", _SATURATES, [65504, -65504], [65505, -np.inf]),
    ],
)
def test_numbers_beyond_a_type_are_counted(
    src: str, dst: str, attr: Attr, held: list[Any], beyond: list[Any]
) -> None:
    for number in held:
        assert _lost([number], src, dst, attr).saturated == 0, number
    for number in beyond:
        assert _lost([number], src, dst, attr).saturated == 1, number
    assert _lost(held + beyond, src, dst, attr).saturated == len(beyond)


@pytest.mark.parametrize(
    ("number", "dst", "message"),
    [
        (2.0**128, "e8m0", r"would become nan in e8m0, whose largest number is 1\.70141e\+38; or "),
        (1e5, "f16", "would become inf in f16, whose largest number is 65504; bf16 and f32 hold "),
        (
            3.4e38,
            "f16",
            "would become inf in f16, whose largest number is 65504; f32 holds it; or ",
        ),
        (-1e300, "f16", "would become -inf in f16, whose largest number is 65504; or give a "),
    ],
)
def test_numbers_that_become_infinite_or_nan_are_refused(
    number: float, dst: str, message: str
) -> None:
    with pytest.raises(FinalError, match=message):
        _lost([1.0, number], "f64", dst, _PLAIN)
    # these were neither finite before
    assert _lost([1.0, np.inf, np.nan], "f64", dst, _PLAIN).saturated == 0


@pytest.mark.parametrize(
    ("src", "dst", "number"),
    [
        ("f8_e4m3fnuz", "f8_e4m3", 2.0**-10),
        ("f8_e5m2fnuz", "f8_e5m2", 2.0**-17),
        ("f32", "f16", 2.0**-25),
    ],
)
def test_numbers_below_those_of_a_type_vanish(src: str, dst: str, number: float) -> None:
    assert _lost([number], src, dst, _PLAIN).vanished == number
    assert _lost([number, 1.0], src, dst, _PLAIN).vanished is None
