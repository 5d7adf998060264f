from dataclasses import fields as dataclass_fields
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memdesc import Layout, MemdescError, memory_desc
from memdesc.errors import OverlapError
from memdesc.layout import layout_by_strides
from memdesc.record import Codebook, Constant, Field, Number, RecordDesc, Rule, record_desc
from tests import refused


def layout(dims: tuple[int, ...], strides: tuple[int, ...], offset0: int = 0) -> Layout:
    return memory_desc(dims, "u8", strides=strides, offset0=offset0).layout


CODES = Field("q", "u8", layout((2, 8), (10, 1), 2), (1, 1), "data")
SCALES = Field("d", "f16", layout((2, 1), (5, 1)), (1, 8), "data")
RULE = Rule(Number((("q", 0),)), (Number((("d", 0),)),))


FLOATS = Number((("d", 0),))
TWO = Field("a", "u8", memory_desc((2, 4), "u8").layout, (1, 4), "a", (0, 1, 0, 1))
OTHER = replace(TWO, name="b", tensor="b", index=(0, 1, 1, 0))
# the highest bit of the first code of each row
BIT = Field("bit", "u1", layout((2, 1), (80, 1), 23), (1, 8), "data")
WIDE = replace(CODES, kind="u16", tensor="wide")
SIGNS = Codebook(2, bytes([1, 255] * 256), (0, 1))


def rule(**change: Any) -> RecordDesc:
    words = replace(SCALES, name="w", kind="u16", tensor="w")
    return RecordDesc((2, 8), (SCALES, CODES, words), RULE._replace(**change))


def with_code(*fields: Field, code: Number) -> RecordDesc:
    return RecordDesc((2, 8), (SCALES, *fields), RULE._replace(code=code))


def constant(name: str, kind: str, value: Any) -> RecordDesc:
    constants = (Constant(name, kind, (value,)),)
    return RecordDesc((2, 8), (SCALES, CODES), RULE, constants=constants)


_SECTIONS = refused.sections(Path(__file__).with_name("refused.txt"))
_NAMES: dict[str, Any] = {
    **globals(),
    "layout_by_strides": layout_by_strides,
    "record": lambda name, *dims, **options: record_desc(dims or (256, 512), name, **options),
    "field": lambda **change: replace(CODES, **change),
    "code": lambda **change: rule(code=RULE.code._replace(**change)),
}


@pytest.mark.parametrize("section", _SECTIONS)
def test_what_makes_no_record_is_refused(section: str) -> None:
    refused.check(_SECTIONS[section], _NAMES)


_WRONG: tuple[Any, ...] = (
    *(7, 1.5, True, None, "x", b"x", [], {}),
    *(["q"], (7,), ("q",), (("q", True),), {"q": 0}),
)
_BY_HAND = (CODES, RULE, RULE.code, SIGNS, Constant("x", "s64", (1,)))


@pytest.mark.parametrize("value", _BY_HAND, ids=lambda value: type(value).__name__)
def test_a_part_of_another_type_is_refused_and_one_of_its_type_kept(value: Any) -> None:
    """*Law*: a value by hand has parts of the types that its class declares."""
    fields = getattr(value, "_fields", None) or [part.name for part in dataclass_fields(value)]
    make = value._replace if hasattr(value, "_replace") else partial(replace, value)
    for name, wrong in product(fields, _WRONG):
        try:
            made = make(**{name: wrong})
            is_book = isinstance(made, Codebook)
            code = RULE.code._replace(codebook=made) if is_book else made
            rule = RULE._replace(code=code) if isinstance(code, Number) else RULE
            RecordDesc(
                (2, 8),
                (SCALES, made if isinstance(made, Field) else CODES),
                made if isinstance(made, Rule) else rule,
                constants=(made,) if isinstance(made, Constant) else (),
            )
        except MemdescError:
            continue
        own = getattr(value, name)
        assert type(wrong) is type(own) or own is None or {type(wrong), type(own)} == {list, tuple}


def test_constants_are_tensors_without_numbers() -> None:
    shape = Constant("shape", "s64", (2, 8))
    desc = RecordDesc((2, 8), (SCALES, CODES), RULE, constants=(shape,))
    assert shape.data == np.array([2, 8], np.int64).tobytes()
    assert desc.tensors == {"data": 20, "shape": 16}
    assert (desc.nbytes, desc.bits_per_element, desc.field("q")) == (36, 18, CODES)
    # names and letters are no part of the value
    named = replace(desc, name="other", letters="oi", options=(("group", 8),))
    assert (named, hash(named)) == (desc, hash(desc))
    assert desc != replace(desc, rule=RULE._replace(sign=-1))
    assert desc != desc.bare == RecordDesc((2, 8), (SCALES, CODES), RULE)
    assert "shape: s64, (2, 8)" in str(desc.show())


def test_fields_overlap_unless_bounded_work_proves_them_apart() -> None:
    shared = replace(SCALES, layout=layout((2, 1), (0, 1)))  # all rows share it
    assert RecordDesc((2, 8), (shared, CODES), RULE).tensors == {"data": 20}
    count = 10**5
    q = Field("q", "u8", layout((count, 1), (10**6 + 3, 1)), (1, count), "data")
    d = Field("d", "u8", layout((1, count), (1, 10**6 + 5), 10**9 + 1), (count, 1), "data")
    with pytest.raises(OverlapError, match="fields q and d of tensor 'data' overlap"):
        RecordDesc((count, count), (q, d), RULE)


def test_numbers_and_rules_print_as_formulas() -> None:
    q, pair = (("q", 0),), (("q", 0), ("h", 4))
    divisor = FLOATS._replace(divides=True)
    divided = RULE._replace(scale=(FLOATS, divisor, FLOATS), offset=(FLOATS, divisor))
    for value, formula in (
        (Number(q, -1), "(q + 1)"),
        (Number(q, 1), "(q - 1)"),
        (Number(pair, 16), "((q | h << 4) - 16)"),
        (Number(pair), "(q | h << 4)"),
        (RULE._replace(offset=(FLOATS, FLOATS)), "d * q + d * d"),
        (divided, "d / d * d * q + d / d"),
        (RULE._replace(kind="bf16"), f"{RULE} in bf16"),
    ):
        assert str(value) == formula
    assert str(record_desc((1, 256), "iq4_xs").rule).endswith("* table[qs]")
    # integers are those that f32 holds exactly
    for rule in (divided, *(RULE._replace(code=Number(q, at)) for at in (2**24, -(2**24)))):
        assert RecordDesc((2, 8), (SCALES, CODES), rule).rule == rule


def test_zero_points_are_subtracted_from_integers() -> None:
    for kind, table in (("f16", ()), ("u4", tuple(range(16)))):
        other = Field("z", kind, memory_desc((2, 8), kind).layout, (1, 1), "z")
        number = Number((("z", 0),), table=table)
        with pytest.raises(MemdescError, match="zero points are subtracted from integers, and"):
            RecordDesc((2, 8), (SCALES, CODES, other), RULE._replace(code=number, zero=RULE.code))
        rule = RULE._replace(zero=number)
        assert RecordDesc((2, 8), (SCALES, CODES, other), rule).rule == rule
