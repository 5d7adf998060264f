"""Attributes of a reorder: what is refused, and the formula."""

from __future__ import annotations

import pickle
from dataclasses import fields
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import DATA_TYPES, MemdescError, memory_desc
from reorder import Attr
from reorder.values.formats import INTEGERS

BY = ["definition", "kernels"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"src_scale": 0}, "^src_scale is 0; scales are finite and not 0"),
        ({"dst_scale": float("nan")}, "dst_scale is nan"),
        ({"dst_scale": np.array([1.0, np.inf]), "dst_scale_mask": 1}, "dst_scale value 1 is inf"),
        ({"dst_scale": "2"}, "dst_scale must be a number or an array of numbers, not '2'"),
        ({"dst_scale": []}, "not an empty array"),
        ({"src_scale": True}, "must be a number"),
        ({"src_scale": [[1.0], [1.0, 2.0]]}, "must be a number or an array"),
        (
            {"src_scale": np.array([1, 2]), "src_scale_mask": 1},
            "src_scale is of int64; scales are float32, .*float8_e8m0fnu",
        ),
        (
            {"src_scale": [1.0, 2.0]},
            "src_scale has 2 values; say by src_scale_mask along which dims they differ",
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
        ({"dst_scale": 0.0}, r"^dst_scale is 0\.0; scales are finite and not 0"),
        (
            {"dst_scale": [1.0, 0.0], "dst_scale_mask": 1},
            r"^dst_scale value 1 is 0\.0; scales are finite and not 0",
        ),
        (
            {"dst_scale": np.ones(4, np.int64), "dst_scale_mask": 1},
            r"dst_scale is of int64; .*; convert it by \.astype\(np\.float32\)$",
        ),
        ({"src_zero_point": 1.5}, "src_zero_point must be integers, not float64: 1.5"),
        ({"src_zero_point": 2**70}, "src_zero_point must be"),
        (
            {"src_zero_point": np.array([2**63], np.uint64)},
            "src_zero_point 9223372036854775808 is beyond s32, -2147483648 to 2147483647",
        ),
        ({"dst_zero_point": 2**31}, "dst_zero_point 2147483648 is beyond s32, -2147483648 to "),
        (
            {"dst_zero_point": [0, -(2**31) - 1], "dst_zero_point_mask": 1},
            "dst_zero_point -2147483649 is beyond s32",
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


@pytest.mark.parametrize(
    ("dtypes", "given", "message"),
    [
        (
            ("f32", "s8"),
            {"dst_scale": [1.0, 2.0], "dst_scale_mask": 1},
            r"has 2 values, but mask 1 over dims \(4, 6\) asks for 4 of shape \(4,\)",
        ),
        (
            ("f32", "s8"),
            {"dst_scale": [2.0] * 4, "dst_scale_mask": 2},
            r"asks for 6 of shape \(6,\); a \(dim 0\) has size 4: mask 1$",
        ),
        (
            ("f32", "s8"),
            {"dst_scale_mask": 1},
            r"^dst_scale_mask 1 is given, but dst_scale is one number; dims \(4, 6\) ask for 4 of",
        ),
        (
            ("f32", "s8"),
            {"dst_scale": np.ones((6, 4)), "dst_scale_mask": 3},
            r"dst_scale of shape \(6, 4\) has 24 values, .* asks for 24 of shape \(4, 6\)",
        ),
        (
            ("f32", "s8"),
            {"dst_scale": [2.0] * 4, "dst_scale_mask": 4},
            r"dst_scale_mask 4 names c \(dim 2\), but the dims are \(4, 6\)",
        ),
        (
            ("f32", "s8"),
            {"src_scale": [2.0] * 4, "src_scale_mask": 1, "src_scale_groups": (1, 2)},
            "src_scale_mask must name both: 1 does not",
        ),
        (
            ("f32", "s8"),
            {"src_scale": [2.0] * 4, "src_scale_mask": 3, "src_scale_groups": (1, 4)},
            r"a group of 4 does not divide b \(dim 1\) of size 6",
        ),
        (("f32", "s8"), {"src_zero_point": 1}, "src_zero_point is for integers, but src is f32"),
        (("s8", "f32"), {"dst_zero_point": 1}, "dst_zero_point is for integers, but dst is f32"),
        (
            ("boolean", "s8"),
            {"src_zero_point": 1},
            "src_zero_point is for integers, but src is boolean",
        ),
        (("f32", "s8"), {"dst_scale": 1e-60}, "dst_scale 1e-60 is 0 or infinite in f32"),
        (("f32", "s8"), {"beta": 1e60}, "beta 1e.60 is 0 or infinite in f32"),
    ],
)
def test_what_does_not_fit_the_descriptors_is_refused_with_the_numbers(
    dtypes: tuple[str, str], given: dict[str, Any], message: str
) -> None:
    src, dst = (memory_desc((4, 6), dtype, "ab") for dtype in dtypes)
    with pytest.raises(MemdescError, match=message):
        reorder.plan_reorder(src, dst, Attr(**given))


def test_other_objects_are_no_attributes() -> None:
    desc = memory_desc((4, 6), "s8", "ab")
    with pytest.raises(MemdescError, match=r"attr must be a reorder\.Attr, not float"):
        reorder.plan_reorder(desc, desc, 2.0)  # type: ignore[arg-type] # what a caller might pass


def test_groups_of_one_dim_have_no_last_two() -> None:
    desc = memory_desc((4,), "s8", "a")
    with pytest.raises(MemdescError, match="along the last two dims"):
        reorder.plan_reorder(
            desc, desc, Attr(src_scale=[1.0], src_scale_mask=1, src_scale_groups=(1, 1))
        )


def test_beta_needs_what_it_adds_to() -> None:
    with pytest.raises(MemdescError, match=r"beta 0\.5 adds to what dst holds; give out"):
        reorder.reorder(np.zeros((2, 3), np.float32), "ab", attr=Attr(beta=0.5))


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
    assert hash(pickle.loads(pickle.dumps(attr))) == hash(attr)  # noqa: S301 - our own bytes
    assert pickle.loads(pickle.dumps(attr)) == attr  # noqa: S301 - likewise
    before = repr(attr)
    scales[0] = 7
    assert repr(attr) == before
    assert np.array_equal(attr.dst_scale, [1, 2])
    assert "dst_scale=float32[2], dst_scale_mask=1" in before
    assert Attr() == Attr(src_scale=1, dst_zero_point=0)
    assert repr(
        Attr(src_scale=[1.0, 2.0, 3.0, 4.0], src_scale_mask=3, src_scale_groups=(1, 2))
    ).endswith("src_scale_groups=(1, 2))")


def _run(x: Any, dst: str, attr: Attr, old: Any, by: str) -> Any:
    x = np.asarray(x)
    old = (
        np.asarray(old, DATA_TYPES[dst].numpy)
        if old is not None
        else np.full(x.shape, 77, np.uint8).astype(DATA_TYPES[dst].numpy)
    )
    out = reorder.reorder(old, "abcdefghijkl"[: x.ndim])
    if by == "kernels":
        return reorder.reorder(x, out=out, attr=attr).numpy()
    source = reorder.reorder(x, "abcdefghijkl"[: x.ndim])
    reorder.execute_reference(source.desc, out.desc, source.data, out.data, attr)
    return out.numpy()


@pytest.mark.parametrize("by", BY)
def test_the_formula_gives_the_numbers_that_onednn_gives(by: str) -> None:
    attr = Attr(src_zero_point=3, src_scale=2, beta=2, dst_scale=0.5, dst_zero_point=7)
    assert _run(np.array([5], np.int8), "s8", attr, [10], by) == 55
    assert (
        _run(np.array([5], np.float32), "f32", Attr(src_scale=2, dst_scale=4, beta=3), [10], by)
        == 10
    )
    assert _run(np.array([2.5], np.float32), "s8", Attr(dst_zero_point=1), None, by) == 4


@pytest.mark.parametrize("by", BY)
def test_neutral_parameters_are_no_operations(by: str) -> None:
    minus_zero = np.array([-0.0], np.float32)
    for attr in (Attr(), Attr(src_scale=1.0, dst_zero_point=0, beta=0)):
        assert np.signbit(_run(minus_zero, "f16", attr, None, by))
    assert np.signbit(_run(minus_zero, "f16", Attr(src_scale=2.0), None, by))
    signalling = np.array([0xFF800001], np.uint32).view(np.float32)
    assert _run(signalling, "f32", Attr(), None, by).view(np.uint32) == 0xFF800001
    # what comes out of arithmetic is one NaN
    assert _run(signalling, "f32", Attr(src_scale=2.0), None, by).view(np.uint32) == 0x7FC00000


@pytest.mark.parametrize("by", BY)
def test_what_dst_holds_is_not_read_without_beta(by: str) -> None:
    assert _run(np.array([3.0], np.float32), "f32", Attr(src_scale=2), [np.nan], by) == 6
    assert np.isnan(_run(np.array([3.0], np.float32), "f32", Attr(beta=1), [np.nan], by))


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize(
    "kind",
    [
        np.float32,
        np.float64,
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e8m0fnu,
        ml_dtypes.float8_e4m3fn,
    ],
)
def test_scales_may_be_of_any_of_the_types_for_scales(kind: Any, by: str) -> None:
    scales = np.array([0.5, 2.0, 8.0], np.float32).astype(kind)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = _run(x, "f32", Attr(src_scale=scales, src_scale_mask=2), None, by)
    assert np.array_equal(got, x * [0.5, 2.0, 8.0])


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize(
    ("src", "dst"),
    [("f32", "s8"), ("s8", "f32"), ("s32", "u8"), ("bf16", "f16"), ("u4", "s4"), ("s64", "f64")],
)
def test_each_element_gets_the_parameters_of_its_place(src: str, dst: str, by: str) -> None:
    rng = np.random.default_rng(1)
    dims = (3, 4, 6)
    fro, to = DATA_TYPES[src], DATA_TYPES[dst]
    x = rng.integers(0, 8, dims).astype(fro.numpy)
    old = rng.integers(0, 8, dims).astype(to.numpy)
    wide = np.float64 if "64" in src + dst else np.float32
    is_integer = {"src": src[0] in "su", "dst": dst[0] in "su"}
    for src_mask, dst_mask, groups, beta in product(
        (0, 1, 6, 7), (0, 2, 6), ((), (2, 3)), (0, 0.5)
    ):
        given: dict[str, Any] = {"beta": beta}
        full: dict[str, Any] = {}
        for role, mask in (
            ("src_scale", src_mask),
            ("dst_scale", dst_mask),
            ("src_zero_point", dst_mask),
            ("dst_zero_point", src_mask),
        ):
            if "zero" in role and not is_integer[role[:3]]:
                continue
            given_groups = groups if mask & 6 == 6 else ()
            sizes = [
                size // group if mask >> dim & 1 else 1
                for dim, (size, group) in enumerate(
                    zip(dims, (1, *(given_groups or (1, 1))), strict=True)
                )
            ]
            values = (
                rng.integers(0, 8, sizes)
                if "zero" in role
                else (rng.random(sizes) + 0.25).astype(np.float32)
            )
            given |= {role: values, f"{role}_mask": mask, f"{role}_groups": given_groups}
            for dim, group in enumerate((1, *(given_groups or (1, 1)))):
                values = values.repeat(group, dim) if mask >> dim & 1 else values
            full[role] = np.broadcast_to(values, dims).astype(wide)
        d = full["src_scale"] * (x.astype(wide) - full.get("src_zero_point", 0)).astype(wide)
        d += np.asarray(beta, wide) * old.astype(wide)
        d = d / full["dst_scale"] + full.get("dst_zero_point", 0)
        if is_integer["dst"]:
            low, high = (
                (np.iinfo if dst[1:] != "4" else ml_dtypes.iinfo)(to.numpy).min,
                (np.iinfo if dst[1:] != "4" else ml_dtypes.iinfo)(to.numpy).max,
            )
            wanted = np.clip(np.rint(d), low, high).astype(to.numpy)
        else:
            wanted = d.astype(to.numpy)
        assert np.array_equal(_run(x, dst, Attr(**given), old, by), wanted), given


@pytest.mark.parametrize("extreme", [(), (1e-30,)])
@pytest.mark.parametrize("many", [False, True])
def test_a_division_by_a_scale_is_a_division_whatever_the_numbers(
    many: bool, extreme: tuple[float, ...]
) -> None:
    rng = np.random.default_rng(4)
    scales = np.concatenate(
        [
            np.ldexp(1 + rng.random(60), rng.integers(-39, 39, 60)),
            [*extreme, -3.0, 1 / 3, 1 + 2.0**-23, 2 - 2.0**-23, 2.0**-40],
        ]
    )
    scales = scales.astype(np.float32)
    multiples = scales[:, None] * np.arange(1, 4000, dtype=np.float32)
    bits = rng.integers(0, 2**32, multiples.shape, dtype=np.uint32)
    x = np.concatenate(
        [multiples, np.nextafter(multiples, np.float32(0)), bits.view(np.float32)], axis=1
    )
    x[:, :4] = [0.0, -0.0, np.inf, -np.inf]
    with np.errstate(all="ignore"):
        wanted = x / scales[:, None]
    wanted = np.where(np.isnan(wanted), np.float32(np.nan), wanted)
    if many:
        got = (
            reorder.reorder(
                np.ascontiguousarray(x.T), "ab", attr=Attr(dst_scale=scales, dst_scale_mask=2)
            )
            .numpy()
            .T
        )
    else:
        got = reorder.reorder(x, "ab", attr=Attr(dst_scale=scales, dst_scale_mask=1)).numpy()
    assert np.array_equal(np.ascontiguousarray(got).view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("tag", ["ab", "Ab8a"])
def test_the_difference_of_32_bit_integers_is_rounded_once(tag: str, by: str) -> None:
    x = np.array([[2**31 - 1, -(2**31)], [2**24 + 1, 5], [2**24 + 3, 0]], np.int32)
    for dst, point, scale in (("f32", -(2**31), 1.0), ("s8", 2**24, 1.0), ("f16", 1, 0.5)):
        attr = Attr(src_zero_point=point, src_scale=scale)
        src, to = memory_desc(x.shape, "s32", "ab"), memory_desc(x.shape, dst, tag)
        out = reorder.Memory(to)
        if by == "kernels":
            reorder.execute(reorder.plan_reorder(src, to, attr), x, out.data)
        else:
            reorder.execute_reference(src, to, x, out.data, attr)
        exact = (x.astype(np.float64) - point).astype(np.float32) * np.float32(scale)
        with np.errstate(all="ignore"):
            wanted = (
                np.clip(exact, -128, 127).astype(np.int8)
                if dst == "s8"
                else exact.astype(to.dtype.numpy)
            )
        assert np.array_equal(out.numpy(), wanted)


_POINTS = [-5, 300, -40_000, 2**23, 2**24 + 3, 2**31 - 1, -(2**31)]


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("dst", ["f32", "f64"])
@pytest.mark.parametrize("src", ["s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_zero_points_of_src_are_s32_and_the_difference_is_exact(
    src: str, dst: str, by: str
) -> None:
    low, high = INTEGERS[src]
    numbers = [low, low + 1, 0, 1, 5, high - 1, high]
    x = np.array(numbers, DATA_TYPES[src].numpy)
    for point in _POINTS:
        # Python integers are exact; 64-bit ones are rounded to f64 first
        exact = [(int(float(n)) if src[1:] == "64" else n) - point for n in numbers]
        work = np.float64 if "64" in src + dst else np.float32
        wanted = [work(float(n)) for n in exact]
        got = _run(x, dst, Attr(src_zero_point=point), None, by)
        assert got.tolist() == np.array(wanted).astype(got.dtype).tolist()
        # one for each element, and a scale after it
        each = Attr(src_zero_point=[point] * len(numbers), src_zero_point_mask=1, src_scale=0.5)
        assert _run(x, dst, each, None, by).tolist() == (got / 2).tolist()


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("dst", ["s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32"])
def test_zero_points_of_dst_are_s32_and_saturate_at_the_end(dst: str, by: str) -> None:
    low, high = INTEGERS[dst]
    numbers = [-70_000.0, -300.5, -299.5, -1.0, 0.0, 0.5, 1.5, 5.0, 295.0, 70_000.0]
    x = np.array(numbers, np.float32)
    for point in _POINTS:
        sums = [float(np.float32(n) + np.float32(point)) for n in numbers]
        wanted = [min(max(round(n), low), high) for n in sums]
        got = _run(x, dst, Attr(dst_zero_point=point), None, by)
        assert [int(n) for n in got] == wanted
        each = Attr(dst_zero_point=[point] * x.size, dst_zero_point_mask=1)
        assert [int(n) for n in _run(x, dst, each, None, by)] == wanted


@pytest.mark.parametrize("by", BY)
def test_zero_points_beyond_both_types_are_legal(by: str) -> None:
    attr = Attr(src_zero_point=-5, dst_zero_point=300)
    x = np.array([0, 7, 255], np.uint8)
    assert _run(x, "s8", attr, None, by).tolist() == [127, 127, 127]
    attr = Attr(src_zero_point=1000, dst_zero_point=1003)
    assert _run(x, "s8", attr, None, by).tolist() == [3, 10, 127]


@pytest.mark.parametrize("by", BY)
def test_zero_points_stay_out_of_the_padding(by: str) -> None:
    src, dst = memory_desc((1, 3, 2, 2), "f32", "nchw"), memory_desc((1, 3, 2, 2), "u8", "nChw8c")
    x, attr = np.ones(12, np.float32), Attr(dst_zero_point=100)
    out = np.full(dst.nbytes, 77, np.uint8)
    if by == "kernels":
        reorder.execute(reorder.plan_reorder(src, dst, attr), x, out)
    else:
        reorder.execute_reference(src, dst, x, out, attr)
    assert (out.reshape(4, 8)[:, :3] == 101).all()
    assert (out.reshape(4, 8)[:, 3:] == 0).all()


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


def test_attributes_that_are_no_attr_are_refused() -> None:
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
    copied = pickle.loads(pickle.dumps(attr))  # noqa: S301 - our own bytes
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


@pytest.mark.parametrize("wrong", _WRONG.values(), ids=_WRONG)
@pytest.mark.parametrize("name", _PARAMETERS)
def test_no_parameter_takes_a_value_of_another_kind(name: str, wrong: Any) -> None:
    with pytest.raises(MemdescError, match=name):
        Attr(**{name: wrong})


@pytest.mark.parametrize("wrong", [True, np.True_, np.array([True]), "0.5"])
def test_beta_is_no_flag_and_no_string(wrong: Any) -> None:
    with pytest.raises(MemdescError, match=r"^beta must be a number, not"):
        Attr(beta=wrong)


def test_flags_of_numpy_are_flags() -> None:
    assert Attr(saturate=np.True_) == Attr(saturate=True)  # type: ignore[arg-type] # as callers do


class _Tensor:
    """As torch's tensors that require a gradient."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        msg = "use tensor.detach().numpy()"
        raise RuntimeError(msg)


def test_a_tensor_that_is_no_array_is_refused_with_its_reason() -> None:
    with pytest.raises(MemdescError, match=r"src_scale must be a number .*detach"):
        Attr(src_scale=_Tensor())
