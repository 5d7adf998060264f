import json
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memdesc import ImageDesc, MemdescError, MemoryDesc, data_type, image_desc, memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.names import suggest
from memdesc.tags import Digit, FormatTag, parse_tag
from memdesc.verbose import from_verbose, to_verbose
from tests.strategies import descs, name_strings

T = TypeVar("T")

NUMBERS = st.one_of(
    st.integers(-3, 70),
    st.integers(),
    st.sampled_from([2**31, 2**62, 2**63 - 1, 2**63, -(2**63), 10**5000]),
    st.booleans(),
    st.floats(),
    st.none(),
    st.sampled_from(
        [
            np.int8(3),
            np.uint64(2**63),
            np.float32(2),
            np.bool_(1),
            np.array(3),
            np.array(2.0),
            np.array([1, 2]),
        ]
    ),
    st.sampled_from([2j, "3", b"3", ()]),
)
SIZES = st.one_of(
    st.lists(st.integers(0, 20), min_size=1, max_size=12),
    st.lists(NUMBERS, max_size=14),
    NUMBERS,
    st.lists(NUMBERS, max_size=4).map(iter),
    st.text(max_size=4),
    st.dictionaries(st.integers(0, 3), st.integers(), max_size=3),
    st.sampled_from(
        [object(), int, [[1, 2]], np.zeros((2, 2), int), np.array([], int), range(3), {1}]
    ),
)
DTYPES = st.one_of(
    st.sampled_from(list(DATA_TYPES)),
    name_strings(),
    NUMBERS,
    st.sampled_from([np.float32, np.dtype("f8"), object, [], {}, [("a", "f4")]]),
)


def only_memdesc_errors(make: Callable[..., T], *args: Any, **options: Any) -> T | None:
    """Return the result, or None where it is refused as it should be: in a short message."""
    try:
        return make(*args, **options)
    except MemdescError as error:
        message = str(error)
    assert 5 < len(message) < 4000
    return None


def check(desc: MemoryDesc) -> None:
    """Ask what can be asked of any descriptor, however large."""
    assert eval(repr(desc)) == desc if "MemoryDesc" not in repr(desc) else True
    assert MemoryDesc.from_json(desc.to_json()) == desc
    assert 0 <= desc.min_nbytes <= desc.nbytes < 2**63
    assert type(desc.nbytes) is int
    assert {type(size) for size in (*desc.dims, *desc.padded_dims)} == {int}
    only_memdesc_errors(to_verbose, desc)


@given(SIZES, DTYPES, st.one_of(st.none(), name_strings(), NUMBERS))
def test_anything_by_tag_is_described_or_refused(sizes: Any, dtype: Any, tag: Any) -> None:
    if desc := only_memdesc_errors(memory_desc, sizes, dtype, tag):
        check(desc)


@given(
    SIZES,
    SIZES,
    st.fixed_dictionaries(
        {},
        optional={
            "inner_blks": SIZES,
            "inner_idxs": SIZES,
            "padded_dims": SIZES,
            "offset0": NUMBERS,
            "layout": name_strings(),
        },
    ),
)
def test_anything_by_strides_is_described_or_refused(
    sizes: Any, strides: Any, options: dict[str, Any]
) -> None:
    if desc := only_memdesc_errors(memory_desc, sizes, "f32", strides=strides, **options):
        check(desc)


@given(
    st.lists(
        st.one_of(st.integers(1, 5), st.sampled_from([2**20, 2**31, 2**32, 2**62, 2**63 - 1])),
        min_size=1,
        max_size=12,
    ),
    name_strings(),
)
def test_huge_sizes_are_described_exactly_or_refused(sizes: list[int], tag: str) -> None:
    if desc := only_memdesc_errors(memory_desc, sizes, "u8", tag):
        check(desc)
    if desc := only_memdesc_errors(memory_desc, sizes, "s4"):
        check(desc)
        assert desc.names()


@given(st.one_of(name_strings(), NUMBERS))
def test_any_string_is_a_tag_or_refused(text: Any) -> None:
    if tag := only_memdesc_errors(parse_tag, text):
        assert parse_tag(str(tag)) == tag


@given(
    st.lists(st.lists(st.integers(-1, 4), max_size=3).map(tuple), max_size=3).map(tuple),
    st.lists(
        st.builds(Digit, st.integers(-1, 3), st.integers(-1, 9), st.integers(-1, 4)), max_size=5
    ).map(tuple),
    st.lists(st.integers(-1, 3), max_size=3).map(tuple),
)
def test_any_tag_by_hand_is_one_that_reads_back_or_refused(
    axes: Any, digits: Any, align: Any
) -> None:
    if tag := only_memdesc_errors(FormatTag, axes, digits, align):
        assert parse_tag(str(tag)) == tag
        check(memory_desc((3,) * tag.ndims, "f32", tag))


@given(SIZES, DTYPES, st.one_of(name_strings(), st.text("abcdABCD|4() ", max_size=14), NUMBERS))
def test_anything_is_an_image_or_refused(sizes: Any, dtype: Any, name: Any) -> None:
    image: ImageDesc | None = only_memdesc_errors(image_desc, sizes, dtype, name)
    if image:
        assert image.width * image.height * image.channels == image.desc.padded_nelems
        assert eval(repr(image)) == image


@given(DTYPES)
def test_anything_is_a_data_type_or_refused(spec: Any) -> None:
    if dtype := only_memdesc_errors(data_type, spec):
        assert dtype in DATA_TYPES.values()


@given(
    st.one_of(name_strings(), st.binary(max_size=9), NUMBERS),
    st.text(":apo0x1b8-", max_size=12),
    SIZES,
    NUMBERS,
)
def test_anything_is_a_verbose_string_or_refused(
    tag: Any, rest: str, sizes: Any, offset0: Any
) -> None:
    for text in (
        tag,
        f"f32:{rest}",
        f"f32:p:blocked:{tag if isinstance(tag, str) else 'ab'}:{rest}:f0",
        f"f32::blocked:ab:{rest}:f0",
    ):
        if desc := only_memdesc_errors(
            from_verbose, text, sizes if isinstance(sizes, list) else list("ab"), offset0=offset0
        ):
            check(desc) if isinstance(desc, MemoryDesc) else to_verbose(desc)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 20), st.floats(), st.text(max_size=5)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.one_of(st.text(max_size=20), st.binary(max_size=20), JSON.map(json.dumps), NUMBERS))
def test_anything_is_json_or_refused(text: Any) -> None:
    assert only_memdesc_errors(MemoryDesc.from_json, text) is None


@given(descs(max_ndims=4, max_nelems=64), st.data())
def test_json_with_any_field_changed_is_described_or_refused(
    desc: MemoryDesc, data: st.DataObject
) -> None:
    fields = json.loads(desc.to_json())
    key = data.draw(st.sampled_from(sorted(fields)))
    value = fields[key]
    if isinstance(value, list) and value and data.draw(st.booleans()):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(JSON)
    else:
        fields[key] = data.draw(JSON)
    if read := only_memdesc_errors(MemoryDesc.from_json, json.dumps(fields)):
        check(read)


@given(descs(max_ndims=4, max_nelems=64), SIZES, SIZES)
def test_any_question_is_answered_or_refused(desc: MemoryDesc, a: Any, b: Any) -> None:
    a, b = (list(value) if hasattr(value, "__next__") else value for value in (a, b))
    for ask in (desc.offset, desc.reshape, desc.permute_axes, desc.with_dtype):
        only_memdesc_errors(ask, a)
    only_memdesc_errors(desc.submemory, a, b)


@given(st.one_of(st.text(max_size=120), name_strings()))
def test_suggestions_are_at_most_three_known_names(text: str) -> None:
    found = suggest(text)
    assert len(found) <= 3
    assert all(
        parse_tag(name) if name.isalpha() and set(name.lower()) <= set("abcdefghijkl") else name
        for name in found
    )
