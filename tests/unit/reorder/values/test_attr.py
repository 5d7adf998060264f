"""Attributes of a reorder: values that are checked when they are made."""

from __future__ import annotations

import pickle
from dataclasses import fields
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from reorder import Attr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"src_scale": 0}, "^src_scale is 0; scales must be finite and not 0"),
        ({"dst_scale": float("nan")}, "dst_scale is nan"),
        ({"dst_scale": np.array([1.0, np.inf]), "dst_scale_mask": 1}, "dst_scale value 1 is inf"),
        ({"dst_scale": "2"}, "dst_scale must be a number or an array of numbers, not '2'"),
        ({"dst_scale": []}, "not an empty array"),
        ({"src_scale": True}, "must be a number"),
        ({"src_scale": [[1.0], [1.0, 2.0]]}, "must be a number or an array"),
        (
            {"src_scale": np.array([1, 2]), "src_scale_mask": 1},
            "src_scale is of int64; scales may be float32, .*float8_e8m0fnu",
        ),
        (
            {"src_scale": [1.0, 2.0]},
            "src_scale has 2 values; say with src_scale_mask along which dims they differ",
        ),
        ({"src_scale": [1.0, 2.0], "src_scale_mask": -1}, "src_scale_mask is -1"),
        ({"src_scale": [1.0, 2.0], "src_scale_mask": 1 << 12}, "src_scale_mask is 4096"),
        ({"src_scale": [1.0, 2.0], "src_scale_mask": 1.5}, "src_scale_mask must be an integer"),
        (
            {"src_scale": [1.0, 2.0], "src_scale_mask": 3, "src_scale_groups": (1, -2)},
            r"src_scale_groups \(1, -2\) must be two sizes of 1",
        ),
        (
            {"src_scale": [1.0, 2.0], "src_scale_mask": 3, "src_scale_groups": (2,)},
            r"src_scale_groups \(2,\) must be two sizes",
        ),
        (
            {"dst_scale": [1.0, 2.0]},
            "along which dims they differ: bit d for dim d, 1 for dim a, 2 for dim b",
        ),
        ({"dst_scale": 0.0}, r"^dst_scale is 0\.0; scales must be finite and not 0"),
        (
            {"dst_scale": [1.0, 0.0], "dst_scale_mask": 1},
            r"^dst_scale value 1 is 0\.0; scales must be finite and not 0",
        ),
        (
            {"dst_scale": np.ones(4, np.int64), "dst_scale_mask": 1},
            r"dst_scale is of int64; .*; convert it with \.astype\(np\.float32\)$",
        ),
        ({"src_zero_point": 1.5}, "src_zero_point must be integers, not float64: 1.5"),
        ({"src_zero_point": 2**70}, "src_zero_point must be"),
        (
            {"src_zero_point": np.array([2**63], np.uint64)},
            "src_zero_point 9223372036854775808 does not fit into s32, -2147483648 to 2147483647",
        ),
        (
            {"dst_zero_point": 2**31},
            "dst_zero_point 2147483648 does not fit into s32, -2147483648 to ",
        ),
        (
            {"dst_zero_point": [0, -(2**31) - 1], "dst_zero_point_mask": 1},
            "dst_zero_point -2147483649 does not fit into s32",
        ),
        ({"beta": float("inf")}, "beta is inf; it must be finite"),
        ({"beta": "1x"}, "beta must be a number"),
        ({"saturate": 1}, "saturate must be True or False, not 1"),
        ({"f8_rounding": "twice"}, "f8_rounding must be 'once' or 'onednn', not 'twice'"),
    ],
)
def test_what_no_reorder_can_use_is_refused_when_made(given: dict[str, Any], message: str) -> None:
    with pytest.raises(MemdescError, match=message):
        Attr(**given)


def test_attributes_are_values() -> None:
    scales = np.array([1.0, 2.0], np.float32)
    attr = Attr(
        dst_scale=scales,
        dst_scale_mask=1,
        src_zero_point=3,
        beta=0.5,
        saturate=True,
        f8_rounding="onednn",
    )
    assert attr == Attr(
        dst_scale=scales.copy(),
        dst_scale_mask=1,
        src_zero_point=3,
        beta=0.5,
        saturate=True,
        f8_rounding="onednn",
    )
    assert attr != Attr(dst_scale=2 * scales, dst_scale_mask=1)
    assert attr != 3
    assert hash(pickle.loads(pickle.dumps(attr))) == hash(attr)
    assert pickle.loads(pickle.dumps(attr)) == attr
    before = repr(attr)
    scales[0] = 7
    assert repr(attr) == before
    assert np.array_equal(attr.dst_scale, [1, 2])
    assert "dst_scale=float32[2], dst_scale_mask=1" in before
    assert Attr() == Attr(src_scale=1, dst_zero_point=0)
    assert repr(
        Attr(src_scale=[1.0, 2.0, 3.0, 4.0], src_scale_mask=3, src_scale_groups=(1, 2))
    ).endswith("src_scale_groups=(1, 2))")


def test_plans_show_types_and_attributes() -> None:
    src, dst = memory_desc((2, 20, 3), "f32", "abc"), memory_desc((2, 20, 3), "s8", "aBc8b")
    plan = reorder.plan_reorder(
        src, dst, Attr(dst_scale=np.ones(20), dst_scale_mask=2, dst_zero_point=1)
    )
    assert str(plan).splitlines() == [
        (
            "f32 -> s8 (2, 20, 3), Attr(dst_scale=float64[20], dst_scale_mask=2, dst_zero_point=1)"
            ", 2 boxes of extent(valid):src:dst:dst_scale"
        ),
        "  @0:0:0 2:60:72:0 2:24:24:8 3:1:8:0 8:3:1:1",
        "  @48:48:16 2:60:72:0 3:1:8:0 8(4):3:1:1",
    ]


def test_attributes_must_be_an_attr() -> None:
    with pytest.raises(MemdescError, match=r"attr must be a reorder\.Attr, not dict"):
        reorder.reorder(np.ones((2, 3), np.float32), "ba", attr={"dst_scale": 2})  # type: ignore[call-overload] # what a caller might pass


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("values", [2.0, [2.0], [1.0], [2.0, 4.0]])
def test_values_cannot_be_changed_after_they_were_checked(values: Any, dtype: Any) -> None:
    given = np.array(values, dtype)
    groups = [1, 1]
    attr = reorder.Attr(
        src_scale=given,
        src_scale_mask=3,
        src_scale_groups=groups,  # type: ignore[arg-type] # what a caller might pass
        dst_zero_point=[7] * given.size,
        dst_zero_point_mask=1,
    )
    as_made = hash(attr), repr(attr), np.array(attr.src_scale).tolist()
    given += 1
    groups[0] = 5
    for array in (attr.src_scale, attr.dst_zero_point, attr.parameters[0].values):
        assert isinstance(array, np.ndarray)
        for held in (array, array.base):
            if isinstance(held, np.ndarray):
                with pytest.raises(ValueError, match="WRITEABLE"):
                    held.flags.writeable = True
    copied = pickle.loads(pickle.dumps(attr))
    assert copied == attr
    assert (hash(copied), repr(copied), np.array(copied.src_scale).tolist()) == as_made


_PARAMETERS = [field.name for field in fields(Attr) if field.init]
_WRONG = {
    "text": "a",
    "bytes": b"1",
    "complex": 2j,
    "object": object(),
    "type": int,
    "texts": np.array(["a"]),
    "objects": np.array([None]),
    "records": np.zeros(2, [("a", "f4")]),
    "times": np.array([1, 2], "m8[s]"),
    "uneven": [[1], [1, 2]],
    "nan": float("nan"),
    "list of nan": [float("nan")],
    "flags": np.array([True, False]),
    "masked": np.ma.masked_array([1, 2], [False, True]),
    "bf16": np.array([1, 2], ml_dtypes.bfloat16),
    "huge": 10**400,
    "dict": {1: 2},
}


@pytest.mark.parametrize("kind", _WRONG)
def test_no_parameter_takes_a_value_of_another_kind(kind: str) -> None:
    wrong: Any = _WRONG[kind]
    for name in _PARAMETERS:
        with pytest.raises(MemdescError, match=name):
            Attr(**{name: wrong})


@pytest.mark.parametrize("wrong", [True, np.True_, np.array([True]), "0.5", np.ma.masked])
def test_beta_is_neither_a_flag_nor_a_string_nor_masked(wrong: Any) -> None:
    with pytest.raises(MemdescError, match=r"^beta must be a number, not"):
        Attr(beta=wrong)


def test_flags_of_numpy_are_flags() -> None:
    assert Attr(saturate=np.True_) == Attr(saturate=True)  # type: ignore[arg-type] # as callers do


class _Tensor:
    """As torch's tensors that require a gradient."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        msg = "use tensor.detach().numpy()"
        raise RuntimeError(msg)


def test_a_tensor_that_is_not_an_array_is_refused_with_its_reason() -> None:
    with pytest.raises(MemdescError, match=r"src_scale must be a number .*detach"):
        Attr(src_scale=_Tensor())


def test_arrays_that_were_checked_before_are_known_by_their_content() -> None:
    scales = np.array([0.5, 2, 3], np.float32)
    one, other = (reorder.Attr(dst_scale=scales.copy(), dst_scale_mask=1) for _ in range(2))
    assert one == other
    flag: Any = True
    with pytest.raises(MemdescError, match="dst_scale_mask must be an integer"):
        reorder.Attr(dst_scale=scales, dst_scale_mask=flag)
    assert reorder.Attr(dst_scale=scales[:, None], dst_scale_mask=1) != one
    scales[1] = 0
    for _ in range(2):
        with pytest.raises(MemdescError, match="dst_scale value 1 is 0"):
            reorder.Attr(dst_scale=scales, dst_scale_mask=1)
    with pytest.raises(MemdescError, match="an empty array"):
        reorder.Attr(dst_scale=scales[:0], dst_scale_mask=1)
