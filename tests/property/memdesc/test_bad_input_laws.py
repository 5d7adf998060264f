"""Whatever a caller passes is described correctly, or refused in a short message.

Arguments are any values; strings and fields that differ from valid ones by a few changes; and
layouts, tags and images made by hand of any integers.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memdesc import (
    Axis,
    Block,
    ImageDesc,
    Layout,
    MemdescError,
    MemoryDesc,
    RuntimeDesc,
    data_type,
    image_desc,
    known_names,
    memory_desc,
)
from memdesc.dtypes import DATA_TYPES
from memdesc.names import is_image, suggest
from memdesc.tags import Digit, FormatTag, parse_tag
from memdesc.verbose import from_verbose, to_verbose
from tests.files import json_mutations, mutations
from tests.strategies import descs, name_strings, tags

_NUMPY = (np.int8(3), np.uint64(2**63), np.float32(2), np.bool_(1), np.array(3), np.array([1, 2]))
_EDGES = (2**31, 2**62, 2**63 - 1, 2**63, -(2**63), 10**5000)
NUMBERS = st.one_of(
    st.integers(-3, 70),
    st.integers(),
    st.booleans(),
    st.floats(),
    st.sampled_from([None, *_EDGES, *_NUMPY, 2j, "3", b"3", ()]),
)
_OBJECTS = (object(), int, [[1, 2]], np.zeros((2, 2), int), np.array([], int), range(3), {1})
SIZES = st.one_of(
    st.lists(st.integers(0, 20), min_size=1, max_size=12),
    st.lists(NUMBERS, max_size=14),
    NUMBERS,
    st.lists(NUMBERS, max_size=4).map(iter),
    st.text(max_size=4),
    st.dictionaries(st.integers(0, 3), st.integers(), max_size=3),
    st.sampled_from(_OBJECTS),
)
_HUGE = st.integers(1, 5) | st.sampled_from([2**20, 2**31, 2**32, 2**62, 2**63 - 1])
_TYPES: tuple[Any, ...] = (np.float32, np.dtype("f8"), object, [], {}, [("a", "f4")])
DTYPES = st.one_of(
    st.sampled_from(list(DATA_TYPES)), name_strings(), NUMBERS, st.sampled_from(_TYPES)
)
NAMES = name_strings() | NUMBERS
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 20), st.floats(), st.text(max_size=5)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
_DIMS = (2, 17, 5, 4)
_DESCS = [
    memory_desc(_DIMS, "f32", "nChw16c"),
    memory_desc(_DIMS, "s4", "ABcd4a/1.8b8a/4.4b"),
    memory_desc(_DIMS, "bf16", "a(cb)d"),
    memory_desc(_DIMS, "u8", strides=(400, 20, 4, 1), offset0=7),
    memory_desc((3, 2, 17, 5, 4), "s8", "b_fs_zyx_fsv16").submemory((3, 1, 16, 5, 4), (0,) * 5),
]


def only_memdesc_errors(make: Callable[..., Any], *args: Any) -> Any:
    """Return the result, or None where it is refused as it should be: in a short message."""
    try:
        return make(*args)
    except MemdescError as error:
        message = str(error)
    assert 5 < len(message) < 4000
    return None


def _changed(*texts: str) -> st.SearchStrategy[str]:
    """Draw a string that differs from one of these by a few changes."""
    return st.sampled_from(texts).flatmap(
        lambda text: mutations(text.encode()).map(lambda data: data.decode("latin1"))
    )


def _check_desc(desc: MemoryDesc | RuntimeDesc) -> None:
    """Ask what can be asked of any descriptor, however large."""
    if isinstance(desc, RuntimeDesc):
        to_verbose(desc)
        return
    assert eval(repr(desc)) == desc if "MemoryDesc" not in repr(desc) else True
    assert MemoryDesc.from_json(desc.to_json()) == desc
    assert 0 <= desc.min_nbytes <= desc.nbytes < 2**63
    assert type(desc.nbytes) is int
    assert {type(size) for size in (*desc.dims, *desc.padded_dims)} == {int}
    only_memdesc_errors(to_verbose, desc)


def _check_tag(tag: FormatTag) -> None:
    assert parse_tag(str(tag)) == tag
    if desc := only_memdesc_errors(memory_desc, (3,) * tag.ndims, "f32", tag):
        _check_desc(desc)


def _check_image(image: ImageDesc) -> None:
    assert image.width * image.height * image.channels == image.desc.padded_nelems
    assert eval(repr(image)) == image


def _check_dtype(dtype: object) -> None:
    assert dtype in DATA_TYPES.values()


def _by_name(dims: tuple[int, ...], dtype: str, name: str) -> MemoryDesc:
    if is_image(name):
        only_memdesc_errors(image_desc, dims, dtype, name)
    return memory_desc(dims, dtype, name)


def _by_strides(sizes: Any, strides: Any, options: dict[str, Any]) -> MemoryDesc:
    return memory_desc(sizes, "f32", strides=strides, **options)


def _by_verbose(text: str, sizes: Any, offset0: Any) -> Any:
    dims: Any = sizes if isinstance(sizes, list) else ["a", "b"]
    return from_verbose(text, dims, offset0=offset0)


class _Reader(NamedTuple):
    """What makes a value, what its arguments are drawn from, and what checks the value."""

    make: Callable[..., Any]
    given: tuple[st.SearchStrategy[Any], ...]
    check: Callable[[Any], None]


_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("inner_blks", "inner_idxs", "padded_dims"), SIZES),
        "offset0": NUMBERS,
        "layout": name_strings(),
    },
)
_SMALL = st.lists(st.integers(-1, 4), max_size=3).map(tuple)
_DIGITS = st.builds(Digit, st.integers(-1, 3), st.integers(-1, 9), st.integers(-1, 4))
_VERBOSE = st.one_of(
    NAMES,
    st.binary(max_size=9),
    st.text(":apo0x1b8-", max_size=12).map("f32:{}".format),
    st.builds("f32:p:blocked:{}:{}:f0".format, name_strings(), st.text(":apo0x1b8-", max_size=12)),
)
_KNOWN = [name.text for name in known_names()]
_SOME_DIMS = st.sampled_from([_DIMS, (35, 19), (2, 4, 8, 3, 5), (7,)])
_READERS = {
    "tag and sizes": _Reader(memory_desc, (SIZES, DTYPES, st.none() | NAMES), _check_desc),
    "strides": _Reader(_by_strides, (SIZES, SIZES, _OPTIONS), _check_desc),
    "huge sizes": _Reader(
        memory_desc,
        (st.lists(_HUGE, min_size=1, max_size=12), st.sampled_from(["u8", "s4"]), NAMES),
        _check_desc,
    ),
    "tag": _Reader(parse_tag, (NAMES,), _check_tag),
    "tag by hand": _Reader(
        FormatTag,
        (
            st.lists(_SMALL, max_size=3).map(tuple),
            st.lists(_DIGITS, max_size=5).map(tuple),
            _SMALL,
        ),
        _check_tag,
    ),
    "image": _Reader(
        image_desc, (SIZES, DTYPES, NAMES | st.text("abcdABCD|4() ", max_size=14)), _check_image
    ),
    "data type": _Reader(data_type, (DTYPES,), _check_dtype),
    "verbose": _Reader(_by_verbose, (_VERBOSE, SIZES, NUMBERS), _check_desc),
    "JSON": _Reader(
        MemoryDesc.from_json,
        (st.one_of(st.text(max_size=20), st.binary(max_size=20), JSON.map(json.dumps), NUMBERS),),
        _check_desc,
    ),
    "fields of JSON": _Reader(
        MemoryDesc.from_json,
        (
            descs(max_ndims=4, max_nelems=64).flatmap(
                lambda desc: json_mutations(json.loads(desc.to_json()))
            ),
        ),
        _check_desc,
    ),
    "JSON that was changed": _Reader(
        MemoryDesc.from_json, (_changed(*(desc.to_json() for desc in _DESCS)),), _check_desc
    ),
    "verbose that was changed": _Reader(
        from_verbose,
        (_changed(*(to_verbose(_DESCS[k]) for k in (0, 3))), st.just(_DIMS)),
        _check_desc,
    ),
    "tag that was changed": _Reader(parse_tag, (_changed(*_KNOWN),), _check_tag),
    "name that was changed": _Reader(
        _by_name, (_SOME_DIMS, st.sampled_from(["s8", "f16"]), _changed(*_KNOWN)), _check_desc
    ),
}


@pytest.mark.parametrize("what", _READERS)
@given(data=st.data())
def test_anything_is_read_as_what_it_says_or_refused(what: str, data: st.DataObject) -> None:
    reader = _READERS[what]
    found = only_memdesc_errors(reader.make, *map(data.draw, reader.given))
    if found is not None:
        reader.check(found)


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
    for name in found:
        if name.isalpha() and set(name.lower()) <= set("abcdefghijkl"):
            parse_tag(name)


# Values by hand, of integers of any type.

_SEEDS = st.integers(0, 2**32)
_KINDS = [np.dtype(f"{sign}{nbytes}").type for nbytes in (1, 2, 4, 8) for sign in "iu"]
_STRANGE: tuple[Any, ...] = (True, 1.0, np.float32(2), None, "1", 2**63, -(2**64), np.ones(2))
_NEAR_EDGES = (
    0,
    1,
    -1,
    2,
    3,
    7,
    8,
    16,
    127,
    255,
    300,
    2**31,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63) + 1,
)


def disguised(number: int, rng: np.random.Generator) -> Any:
    """Return the same number as an integer of any type that holds it."""
    kind = _KINDS[rng.integers(len(_KINDS))]
    if rng.random() < 0.5 or not np.iinfo(kind).min <= number <= np.iinfo(kind).max:
        return number
    return kind(number)


def _another(number: int, rng: np.random.Generator) -> Any:
    """Return a nearby number, an extreme one, or a non-number."""
    choice = rng.integers(8)
    if choice < 4:
        return disguised(number + int(rng.integers(-3, 4)), rng)
    if choice < 5:
        return disguised(number * int(rng.choice([-1, 2, 3])), rng)
    if choice < 7:
        return disguised(_NEAR_EDGES[rng.integers(len(_NEAR_EDGES))], rng)
    return _STRANGE[rng.integers(len(_STRANGE))]


class _Change:
    """Walks through a value of tuples and changes one of its numbers, or a few."""

    def __init__(self, rng: np.random.Generator, count: int, changes: int) -> None:
        self._rng = rng
        self._at = set(rng.integers(max(count, 1), size=changes).tolist()) if changes else set()
        self._seen = 0

    def apply(self, value: Any) -> Any:
        """Return the value with the changes, and its numbers in integers of any type."""
        if isinstance(value, tuple):
            parts = [self.apply(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        self._seen += 1
        if self._seen - 1 in self._at:
            return _another(value, self._rng)
        return disguised(value, self._rng)


def mutated(value: Any, rng: np.random.Generator, changes: int) -> Any:
    """Return tuples with some numbers changed, and the others in integers of any type."""
    return _Change(rng, _count(value), changes).apply(value)


def _count(value: Any) -> int:
    return sum(map(_count, value)) if isinstance(value, tuple) else 1


def _numbers(value: Any) -> list[Any]:
    """Return all numbers in tuples of tuples."""
    if isinstance(value, tuple):
        return [number for part in value for number in _numbers(part)]
    return [value]


@given(descs(max_nelems=256), _SEEDS, st.sampled_from([0, 1, 1, 2]))
def test_a_layout_by_hand_is_refused_or_holds_python_ints_and_its_bounds(
    desc: MemoryDesc, seed: int, changes: int
) -> None:
    known = desc.layout
    fields = (known.dims, known.axes, known.blocks, known.offset0)
    try:
        made = Layout(*mutated(fields, np.random.default_rng(seed), changes))
    except MemdescError:
        assert changes
        return
    assert {*map(type, _numbers((made.dims, made.axes, made.blocks, made.offset0)))} == {int}
    assert ({*map(type, made.axes)}, {*map(type, made.blocks)}) == ({Axis}, {Block})
    assert changes or made == known
    if made.nelems and made.padded_nelems <= 1 << 14:
        offsets = made.offsets(padded=True)
        assert offsets.min() >= 0
        assert offsets.max() == made.last


@given(st.integers(1, 4).flatmap(lambda ndims: tags(ndims, any_digits=True)), _SEEDS)
# an alignment of 19 digits, 2**63 - 1
@example(parse_tag("(ABC)d2(abc)"), 439)
def test_a_tag_by_hand_is_refused_or_reads_back(tag: FormatTag, seed: int) -> None:
    rng = np.random.default_rng(seed)
    changes = int(rng.integers(3))
    try:
        made = FormatTag(*mutated((tag.axes, tag.digits, tag.align), rng, changes))
    except MemdescError:
        assert changes
        return
    assert {*map(type, _numbers((made.axes, made.digits, made.align)))} == {int}
    assert parse_tag(str(made)) == made


@given(st.tuples(*[st.integers(1, 9)] * 4), _SEEDS)
def test_an_image_by_hand_is_refused_or_has_all_of_its_pixels(
    dims: tuple[int, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    known = image_desc(dims, "f32", "in_out_channel")
    sizes: Any = mutated((known.width, known.height, known.channels), rng, int(rng.integers(3)))
    try:
        made = ImageDesc(known.desc, sizes[0], sizes[1], sizes[2], known.name)
    except MemdescError:
        return
    x, y, lane = made.pixel([disguised(size - 1, rng) for size in dims])
    assert (x < made.width, y < made.height, lane < made.channels) == (True, True, True)
