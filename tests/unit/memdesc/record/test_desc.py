from __future__ import annotations

import copy
import pickle
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from memdesc import Layout, MemdescError, UnsupportedFormatError, memory_desc
from memdesc.errors import OverlapError
from memdesc.layout import layout_by_strides
from memdesc.record import Codebook, Constant, Digits, Field, Number, RecordDesc, Rule, record_desc


def layout(dims: tuple[int, ...], strides: tuple[int, ...], offset0: int = 0) -> Layout:
    return memory_desc(dims, "u8", strides=strides, offset0=offset0).layout


CODES = Field("q", "u8", layout((2, 8), (10, 1), 2), (1, 1), "data")
SCALES = Field("d", "f16", layout((2, 1), (5, 1)), (1, 8), "data")
RULE = Rule(Number((("q", 0),)), (Number((("d", 0),)),))


def test_a_record_by_hand_is_a_value() -> None:
    desc = RecordDesc((2, 8), (SCALES, CODES), RULE, "mine")
    assert (desc.nbytes, desc.tensors, desc.bits_per_element) == (20, {"data": 20}, 10)
    assert str(desc.rule) == "d * q"
    assert desc.field("q") is CODES
    for other in (
        copy.copy(desc),
        pickle.loads(pickle.dumps(desc)),
        replace(desc, name="other"),
        replace(desc, letters="oi"),
        replace(desc, options=(("group", 8),)),
    ):
        assert other == desc
        assert hash(other) == hash(desc)
    assert desc != replace(desc, rule=RULE._replace(sign=-1))
    assert repr(desc) == "record_desc((2, 8), 'mine')"


def test_planes_of_bits_are_layouts_without_a_descriptor() -> None:
    plane = record_desc((1, 32), "q5_0").field("qh")
    assert (plane.bits, plane.min_nbytes) == (1, 6)
    with pytest.raises(UnsupportedFormatError, match="field qh is a plane of 1 bits"):
        _ = plane.desc


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "a field of 'data' needs a name, not ''"),
        ({"kind": "u3"}, "field q: there is no kind 'u3'; the kinds are u1, u2, f64"),
        ({"groups": (1,)}, r"groups \(1,\) must be 2 numbers of 1 or more"),
        ({"groups": (1, 0)}, r"groups \(1, 0\) must be 2 numbers of 1 or more"),
        ({"groups": (1, 4), "index": (0, 1)}, "a number of 0 or more for each of the 4 elements"),
        ({"groups": (1, 2), "index": (0, -1)}, "a number of 0 or more for each of the 2 elements"),
        ({"layout": layout((2, 8), (0, 1))}, ""),
    ],
)
def test_fields_by_hand_are_checked(change: dict[str, Any], message: str) -> None:
    if not message:
        assert replace(CODES, **change).layout.dims == (2, 8)
        return
    with pytest.raises(MemdescError, match=message):
        replace(CODES, **change)


def test_a_field_whose_elements_overlap_is_refused() -> None:
    overlapping = layout_by_strides((2, 8), (1, 1))
    with pytest.raises(OverlapError):
        replace(CODES, layout=overlapping)


def test_groups_of_any_integers_become_a_tuple_of_ints() -> None:
    field = replace(CODES, groups=[np.int8(1), np.uint64(1)])  # type: ignore[arg-type] # what becomes a tuple
    assert field == CODES
    assert [type(group) for group in field.groups] == [int, int]


FLOATS = Number((("d", 0),))
WIDE = replace(CODES, kind="u16", tensor="wide")


@pytest.mark.parametrize(
    ("dims", "fields", "rule", "message"),
    [
        ((2, 8), (CODES, CODES), RULE, "2 fields are called 'q'"),
        ((2, 8), (CODES,), RULE, "no field 'd'; the fields are q"),
        ((16,), (CODES, SCALES), RULE, r"field q has dims \(2, 8\), and the record \(16,\)"),
        ((2, 16), (CODES, SCALES), RULE, r"field q has 8 along b \(dim 1\), but 16 elements in"),
        ((2, 8), (replace(WIDE, kind="u32"), SCALES), RULE, "integers of 32 bits are not exact"),
    ],
)
def test_records_by_hand_are_checked(dims: Any, fields: Any, rule: Any, message: str) -> None:
    with pytest.raises(MemdescError, match=message):
        RecordDesc(dims, fields, rule)


_PARTS = "parts of a Number are at least one field and a bit of 0 to 23"
_TABLE = "a table is a tuple of finite floats"
_ONE_INTEGER = "only integers are joined, shifted and looked up; floats stand alone"
_LANES = "with lanes that they have"
SIGNS = Codebook(2, bytes([1, 255] * 256), (0, 1))


def code(**change: Any) -> dict[str, Any]:
    return {"code": RULE.code._replace(**change)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": ()}, "a Rule needs at least one scale"),
        *(({"sign": sign}, "the sign of a Rule is 1 or -1") for sign in (0, 2)),
        *(
            ({"kind": kind}, "a Rule is computed in f32, bf16, f16, not")
            for kind in ("f64", "f8_e4m3", "")
        ),
        ({"zero": Number(())}, _PARTS),
        ({"zero": Number((("q", -1),))}, _PARTS),
        (code(minus=1 << 30), "minus must be an integer of at most 16777216"),
        *((code(table=(bad,) * 256), _TABLE) for bad in (float("nan"), float("-inf"))),
        (code(table=(1.0, 2.0)), "the table has 2 values, but codes of 8 bits need 256"),
        (code(divides=True), "only a factor after the first one divides"),
        ({"scale": (FLOATS._replace(divides=True),)}, "only a factor after the first one divides"),
        ({"offset": (FLOATS._replace(divides=True),)}, "only a factor after the first one divide"),
        ({"scale": (Number((("d", 1),)),)}, _ONE_INTEGER),
        ({"code": Number((("d", 0),), 1)}, _ONE_INTEGER),
        ({"scale": (Number((("d", 0),), 0, (1.0,) * 256),)}, _ONE_INTEGER),
        (code(parts=(("q", 0), ("d", 8))), _ONE_INTEGER),
        (code(parts=(("q", 0), ("w", 8))), "the fields of one number must have the same groups"),
        (code(codebook=SIGNS._replace(lanes=())), _LANES),
        (code(codebook=SIGNS._replace(lanes=(0, 2))), _LANES),
        (code(codebook=SIGNS._replace(size=17)), _LANES),
        (code(codebook=SIGNS._replace(values=b"")), _LANES),
        (code(codebook=SIGNS._replace(values=bytes(4))), "has 4 numbers, but .* 8 bits need 512"),
        (code(codebook=Digits(4, (0,))), "Digits of base 3, 5, 6, 7, with lanes that they have"),
        (code(codebook=Digits(3, (5,))), _LANES),
        (code(codebook=SIGNS, minus=1), "not minus and codebook"),
        (code(codebook=SIGNS, kind="f16"), "not codebook and kind"),
        (code(kind="f16"), "f16 has 16 bits, not 8"),
        (code(kind="f32"), "holds the bits of f16 or bf16, not of 'f32'"),
        (code(parts=(("q", 1),), codebook=Digits(3, (0,))), "a code with digits has 8 bits, not"),
        (code(parts=(("q", 8),), codebook=SIGNS), "at most 12 bits are looked up"),
    ],
)
def test_rules_by_hand_are_checked(change: dict[str, Any], message: str) -> None:
    words = replace(SCALES, name="w", kind="u16", tensor="w")
    with pytest.raises(MemdescError, match=message):
        RecordDesc((2, 8), (SCALES, CODES, words), RULE._replace(**change))


_WRONG: tuple[Any, ...] = (
    7,
    1.5,
    True,
    None,
    "x",
    b"x",
    ["q"],
    (7,),
    ("q",),
    (("q", True),),
    {"q": 0},
    [],
    {},
)
_BY_HAND = (CODES, RULE, RULE.code, SIGNS, Digits(3, (0,)), Constant("x", "s64", (1,)))


@pytest.mark.parametrize("value", _BY_HAND, ids=lambda value: type(value).__name__)
def test_a_part_of_another_type_is_refused_and_one_of_its_type_kept(value: Any) -> None:
    """*Law*: a value by hand has parts of the types that its class declares."""
    fields = getattr(value, "_fields", None) or [part.name for part in dataclass_fields(value)]
    for name, wrong in product(fields, _WRONG):
        constants: tuple[Constant, ...] = ()
        part, rule = CODES, RULE
        try:
            made = (
                value._replace(**{name: wrong})
                if hasattr(value, "_replace")
                else replace(value, **{name: wrong})
            )
            match made:
                case Field():
                    part = made
                case Rule():
                    rule = made
                case Number():
                    rule = RULE._replace(code=made)
                case Constant():
                    constants = (made,)
                case _:
                    rule = RULE._replace(code=RULE.code._replace(codebook=made))
            RecordDesc((2, 8), (SCALES, part), rule, constants=constants)
        except MemdescError:
            continue
        own = getattr(value, name)
        assert type(wrong) is type(own) or own is None or {type(wrong), type(own)} == {list, tuple}


def test_numbers_of_any_integers_become_a_tuple_of_ints() -> None:
    desc = RecordDesc([np.int8(2), 8], (SCALES, CODES), RULE)  # type: ignore[arg-type] # what becomes a tuple
    assert desc == RecordDesc((2, 8), (SCALES, CODES), RULE)
    assert hash(desc) == hash(RecordDesc((2, 8), (SCALES, CODES), RULE))


def test_constants_are_tensors_without_numbers() -> None:
    shape = Constant("shape", "s64", (2, 8))
    desc = RecordDesc((2, 8), (SCALES, CODES), RULE, constants=(shape,))
    assert shape.data == np.array([2, 8], np.int64).tobytes()
    assert desc.tensors == {"data": 20, "shape": 16}
    assert desc != desc.bare == RecordDesc((2, 8), (SCALES, CODES), RULE)
    assert "shape: s64, (2, 8)" in str(desc.show())


@pytest.mark.parametrize(
    ("constant", "message"),
    [
        (Constant("", "s64", (1,)), "a Constant needs the name of its tensor, not ''"),
        (Constant("data", "s64", (1,)), "tensor 'data' holds a constant and something else"),
        (
            Constant("x", "f16", (1.0,)),
            "x must have type f32 or a whole-byte integer type, such as s64, not 'f16'",
        ),
        (Constant("x", "s4", (1,)), "whole-byte integer type, such as s64, not 's4'"),
        (Constant("x", "f32", (1,)), "the values of x are floats of f32, not"),
        (Constant("x", "f32", (float("nan"),)), "the values of x are floats of f32"),
        (Constant("x", "u8", (256,)), "the values of x are ints of u8, not"),
        (Constant("x", "u8", (1.0,)), "the values of x are ints of u8, not"),
    ],
)
def test_constants_by_hand_are_checked(constant: Any, message: str) -> None:
    with pytest.raises(MemdescError, match=message):
        RecordDesc((2, 8), (SCALES, CODES), RULE, constants=(constant,))


def test_integers_are_those_that_f32_holds_exactly() -> None:
    fields = WIDE, SCALES
    code = Number((("q", 8),))
    assert RecordDesc((2, 8), fields, RULE._replace(code=code)).rule.code == code
    with pytest.raises(MemdescError, match="integers of 25 bits are not exact in f32"):
        RecordDesc((2, 8), fields, RULE._replace(code=Number((("q", 9),))))
    for minus in (2**24, -(2**24)):
        code = Number((("q", 0),), minus)
        assert RecordDesc((2, 8), (CODES, SCALES), RULE._replace(code=code)).rule.code == code
        with pytest.raises(MemdescError, match="minus must be an integer of at most 16777216"):
            RecordDesc(
                (2, 8),
                (CODES, SCALES),
                RULE._replace(code=code._replace(minus=minus + minus // 2**24)),
            )


@pytest.mark.parametrize("offset0", [0, 1])
def test_fields_that_share_a_byte_are_refused(offset0: int) -> None:
    near = replace(CODES, layout=layout((2, 8), (10, 1), offset0))
    with pytest.raises(OverlapError, match="fields d and q of tensor 'data' overlap"):
        RecordDesc((2, 8), (SCALES, near), RULE)
    apart = replace(near, tensor="other")
    assert RecordDesc((2, 8), (SCALES, apart), RULE).tensors == {"data": 12, "other": 18 + offset0}


def test_a_field_that_all_rows_share_does_not_overlap() -> None:
    shared = replace(SCALES, layout=layout((2, 1), (0, 1)))
    assert RecordDesc((2, 8), (shared, CODES), RULE).tensors == {"data": 20}


def test_fields_that_bounded_work_cannot_prove_apart_are_refused() -> None:
    count = 10**5
    q = Field("q", "u8", layout((count, 1), (10**6 + 3, 1)), (1, count), "data")
    d = Field("d", "u8", layout((1, count), (1, 10**6 + 5), 10**9 + 1), (count, 1), "data")
    with pytest.raises(OverlapError, match="fields q and d of tensor 'data' overlap"):
        RecordDesc((count, count), (q, d), RULE)


def test_numbers_and_rules_print_as_formulas() -> None:
    assert str(Number((("q", 0),), -1)) == "(q + 1)"
    assert str(Number((("q", 0),), 1)) == "(q - 1)"
    assert str(Number((("q", 0), ("h", 4)), 16)) == "((q | h << 4) - 16)"
    assert str(Number((("q", 0), ("h", 4)))) == "(q | h << 4)"
    assert str(RULE._replace(offset=(FLOATS, FLOATS))) == "d * q + d * d"
    assert str(record_desc((1, 256), "iq4_xs").rule).endswith("* table[qs]")


def test_a_factor_may_divide_those_before_it() -> None:
    divisor = FLOATS._replace(divides=True)
    rule = RULE._replace(scale=(FLOATS, divisor, FLOATS), offset=(FLOATS, divisor))
    assert str(rule) == "d / d * d * q + d / d"
    assert RecordDesc((2, 8), (SCALES, CODES), rule).rule == rule
    assert str(RULE._replace(kind="bf16")) == f"{RULE} in bf16"


@pytest.mark.parametrize("kind", ["f16", "u4"])
def test_zero_points_are_subtracted_from_integers(kind: str) -> None:
    other = Field("z", kind, memory_desc((2, 8), kind).layout, (1, 1), "z")
    number = Number((("z", 0),), table=tuple(range(16)) if kind == "u4" else ())
    with pytest.raises(MemdescError, match="zero points are subtracted from integers, and"):
        RecordDesc((2, 8), (SCALES, CODES, other), RULE._replace(code=number, zero=RULE.code))
    rule = RULE._replace(zero=number)
    assert RecordDesc((2, 8), (SCALES, CODES, other), rule).rule == rule


def test_fields_of_one_number_share_the_index() -> None:
    two = Field("a", "u8", memory_desc((2, 4), "u8").layout, (1, 4), "a", (0, 1, 0, 1))
    other = replace(two, name="b", tensor="b", index=(0, 1, 1, 0))
    assert two.counts == (1, 2)
    assert two.along_last(8).tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    rule = RULE._replace(code=Number((("a", 0), ("b", 8))))
    with pytest.raises(MemdescError, match="fields of one number must have the same groups"):
        RecordDesc((2, 8), (SCALES, two, other), rule)
    same = replace(other, index=two.index)
    assert RecordDesc((2, 8), (SCALES, two, same), rule).tensors["b"] == 8
    short = replace(two, layout=memory_desc((2, 3), "u8").layout)
    with pytest.raises(MemdescError, match=r"has 3 along .* in groups of 4 with 2 each are 4"):
        RecordDesc((2, 8), (SCALES, short), RULE._replace(code=Number((("a", 0),))))


def test_digits_are_those_after_the_point() -> None:
    codes, lanes = np.meshgrid(np.arange(256), np.arange(5))
    digits = Digits(3, (0,)).of(codes, lanes)
    for code in (0, 1, 85, 86, 171, 255):
        rest = Fraction(code, 256)
        for lane in range(5):
            digit, rest = divmod(rest * 3, 1)
            assert digits[lane, code] == digit
