"""Records: compiled code equals the definition, and every layout the row-major one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reorder
from memdesc import memory_desc
from memdesc.record import Field, Number, RecordDesc, Rule, known_records, record_desc
from memdesc.record.rows import SCHEMES
from tests.records import bits_of, dequantize_reference, random_record

# sizes that suit each format; groups of 128 along one of them
_NEXT = str.maketrans("abAB", "bcBC")
_SIZES = st.sampled_from((128, 256, 384, 512, 1280))


@st.composite
def records(draw: st.DrawFn) -> reorder.records.Record:
    name = draw(st.sampled_from(known_records()))
    dims: tuple[int, ...] = draw(_SIZES), draw(_SIZES) // 128 * 256
    if name in SCHEMES and len(SCHEMES[name].forms) > 1 and draw(st.booleans()):
        dims = (draw(st.integers(1, 3)), *dims)
    desc: RecordDesc = record_desc(dims, name)
    return random_record(desc, np.random.default_rng(draw(st.integers(0, 99))))


@settings(max_examples=settings().max_examples // 2)
@given(
    records(),
    st.sampled_from(("ab", "ba", "AB16a8b", "Ab3a")),
    st.sampled_from(("f32", "f16", "bf16", "f64", "f8_e4m3")),
    st.sampled_from((1, 2)),
)
def test_a_record_becomes_what_its_rule_gives_rounded_once(
    record: reorder.records.Record, tag: str, dtype: str, threads: int
) -> None:
    # experts come first
    desc = tag if len(record.desc.dims) == 2 else f"a{tag.translate(_NEXT)}"
    found = reorder.dequantize(record, dst=desc, dtype=dtype, threads=threads)
    wanted = reorder.reorder(dequantize_reference(record), desc, dtype=dtype)
    assert found.desc == wanted.desc
    assert (found.data == wanted.data).all()


_INTEGERS = ("u1", "u2", "u4", "s4", "u8", "s8", "u16", "s16")
_FLOATS = ("f16", "bf16", "f32", "e8m0", "f8_e4m3")
_TAGS = ("ab", "ba", "Ab4a", "aB8b", "AB2a/1.4a/2.4b", "aB2b/1.4b/2")


def _record_by_hand(rng: np.random.Generator) -> RecordDesc:
    """Return a record of random fields, each in a tensor of its own."""
    rows, columns = int(rng.integers(1, 9)), int(rng.choice((1, 3, 16, 48, 64, 256, 320)))

    def field(name: str, kinds: tuple[str, ...], groups: tuple[int, int]) -> Field:
        sizes = -(-rows // groups[0]), -(-columns // groups[1])
        layout = memory_desc(sizes, "u8", str(rng.choice(_TAGS))).layout
        return Field(name, str(rng.choice(kinds)), layout, groups, name)

    def groups() -> tuple[int, int]:
        return int(rng.choice((1, 2, rows))), int(rng.choice((1, 5, 16, 32, columns)))

    def maybe(name: str) -> tuple[Number, ...]:
        divides = name == "s" and bool(rng.integers(2))
        return (Number(((name, 0),), divides=divides),) if rng.integers(2) else ()

    rule = Rule(
        Number((("q", 0),), int(rng.integers(-9, 9))),
        (Number((("d", 0),)), *maybe("s")),
        next(iter(maybe("z")), None),
        maybe("m"),
        int(rng.choice((1, -1))),
        str(rng.choice(("f32", "f32", "bf16", "f16"))),
    )
    fields = (
        field("q", _INTEGERS, (1, 1)),
        field("d", _FLOATS, groups()),
        field("s", _INTEGERS, groups()),
        field("z", (*_INTEGERS, *_FLOATS), groups()),
        field("m", _FLOATS, groups()),
    )
    return RecordDesc((rows, columns), fields, rule)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(300))
def test_records_of_any_fields_equal_their_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    record = random_record(_record_by_hand(rng), rng)
    found = reorder.dequantize(record).numpy()
    assert (bits_of(found) == bits_of(dequantize_reference(record))).all()
