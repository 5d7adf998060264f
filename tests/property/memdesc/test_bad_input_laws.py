"""Whatever a caller passes is described correctly, or refused in a short message.

Strings and fields that differ from valid ones by a few changes; and layouts, tags and images made
by hand of any integers. Wrong arguments of any kind are those of `test_careless_call_laws`.
"""

import json
from collections.abc import Callable
from random import Random
from typing import Any

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
    image_desc,
    known_names,
    memory_desc,
    parse_layout,
)
from memdesc.exchange import SYSTEMS
from memdesc.names import ANY_NDIMS
from memdesc.names.images import IMAGES, is_image
from memdesc.names.similar import suggest
from memdesc.tags import Digit, FormatTag, parse_tag
from memdesc.verbose import from_verbose, to_verbose
from tests.files import json_mutations, mutations
from tests.strategies import descs, name_strings, tags
from tests.tables import READINGS

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


def check(value: object) -> None:
    """Ask what can be asked of any value of memdesc, however large."""
    match value:
        case RuntimeDesc():
            to_verbose(value)
        case MemoryDesc():
            assert eval(repr(value)) == value if "MemoryDesc" not in repr(value) else True
            assert MemoryDesc.from_json(value.to_json()) == value
            assert 0 <= value.min_nbytes <= value.nbytes < 2**63
            assert {*map(type, (value.nbytes, *value.dims, *value.padded_dims))} == {int}
            only_memdesc_errors(to_verbose, value)
        case FormatTag():
            assert parse_tag(str(value)) == value
            check(only_memdesc_errors(memory_desc, (3,) * value.ndims, "f32", value))
        case ImageDesc():
            assert value.width * value.height * value.channels == value.desc.padded_nelems
            assert eval(repr(value)) == value


def _by_name(dims: tuple[int, ...], dtype: str, name: str) -> MemoryDesc:
    if is_image(name):
        check(only_memdesc_errors(image_desc, dims, dtype, name))
    return memory_desc(dims, dtype, name)


def _by_notation(text: str) -> Any:
    for name in ("", *(f"{system}:" for system in SYSTEMS)):
        for dims in (None, _DIMS[:2]):
            desc = only_memdesc_errors(parse_layout, name + text, dims)
            assert desc is None or dims in (None, desc.dims)


def _changed(*texts: str) -> st.SearchStrategy[str]:
    """Draw a string that differs from one of these by a few changes."""
    return st.sampled_from(texts).flatmap(
        lambda text: mutations(text.encode()).map(lambda data: data.decode("latin1"))
    )


_HUGE = st.integers(1, 5) | st.sampled_from([2**20, 2**31, 2**32, 2**62, 2**63 - 1])
_SMALL = st.lists(st.integers(-1, 4), max_size=3).map(tuple)
_DIGITS = st.builds(Digit, st.integers(-1, 3), st.integers(-1, 9), st.integers(-1, 4))
_KNOWN = [name.text for name in known_names()]
_SOME_DIMS = st.sampled_from([_DIMS, (35, 19), (2, 4, 8, 3, 5), (7,)])
_TAGS = [st.lists(each, max_size=most).map(tuple) for each, most in ((_SMALL, 3), (_DIGITS, 5))]
_FIELDS = descs(max_ndims=4, max_nelems=64).map(lambda desc: json.loads(desc.to_json()))
_PIECES = [
    *(text for text, *_ in READINGS),
    *"(){}[]:,*T1298 ",
]


# what makes a value, and what its arguments are drawn from
_READERS: dict[str, tuple[Callable[..., Any], tuple[st.SearchStrategy[Any], ...]]] = {
    "huge sizes": (
        memory_desc,
        (st.lists(_HUGE, min_size=1, max_size=12), st.sampled_from(["u8", "s4"]), name_strings()),
    ),
    "tag by hand": (FormatTag, (*_TAGS, _SMALL)),
    "tag": (parse_tag, (name_strings() | _changed(*_KNOWN),)),
    "name": (
        _by_name,
        (_SOME_DIMS, st.sampled_from(["s8", "f16"]), name_strings() | _changed(*_KNOWN)),
    ),
    "fields of JSON": (MemoryDesc.from_json, (_FIELDS.flatmap(json_mutations),)),
    "JSON": (
        MemoryDesc.from_json,
        (st.text(max_size=20) | _changed(*map(MemoryDesc.to_json, _DESCS)),),
    ),
    "verbose": (from_verbose, (_changed(*(to_verbose(_DESCS[k]) for k in (0, 3))), st.just(_DIMS))),
    "notation": (
        _by_notation,
        (st.lists(st.sampled_from(_PIECES), max_size=9).map("".join) | st.text(max_size=20),),
    ),
}


@pytest.mark.parametrize("what", _READERS)
@given(data=st.data())
def test_anything_is_read_as_what_it_says_or_refused(what: str, data: st.DataObject) -> None:
    make, given_to = _READERS[what]
    check(only_memdesc_errors(make, *map(data.draw, given_to)))


@given(st.one_of(st.text(max_size=120), name_strings()))
@example("KLE")
def test_suggestions_are_at_most_three_known_names(text: str) -> None:
    found = suggest(text)
    assert len(found) <= 3
    assert {*found} <= {*ANY_NDIMS, *IMAGES, *_KNOWN}


# Values by hand, of integers of any type.

_RANDOM = st.randoms(use_true_random=False)
_KINDS = [np.dtype(f"{sign}{nbytes}").type for nbytes in (1, 2, 4, 8) for sign in "iu"]
_STRANGE: tuple[Any, ...] = (True, 1.0, np.float32(2), None, "1", 2**63, -(2**64), np.ones(2))
_EDGES = (0, 1, -1, 2, 3, 7, 8, 16, 127, 255, 300, *(2**k for k in (31, 40, 62)))
_NEAR_EDGES = (*_EDGES, 2**63 - 1, -(2**63) + 1)


def disguised(number: int, rng: Random) -> Any:
    """Return the same number as an integer of any type that holds it."""
    kind = rng.choice(_KINDS)
    holds = np.iinfo(kind).min <= number <= np.iinfo(kind).max
    return kind(number) if holds and rng.random() < 0.5 else number


def _another(number: int, rng: Random) -> Any:
    """Return a nearby number, an extreme one, or a non-number."""
    near = [number + rng.randint(-3, 3), number * rng.choice([-1, 2, 3]), rng.choice(_NEAR_EDGES)]
    (chosen,) = rng.choices([*near, None], [4, 1, 2, 1])
    return rng.choice(_STRANGE) if chosen is None else disguised(chosen, rng)


def mutated(value: Any, rng: Random, changes: int) -> Any:
    """Return tuples with some numbers changed, and all of them in integers of any type."""
    count = len(_numbers(value))
    at = set(rng.choices(range(count), k=changes))
    seen = iter(range(count))

    def apply(part: Any) -> Any:
        if isinstance(part, tuple):
            parts = [apply(each) for each in part]
            return type(part)(*parts) if hasattr(part, "_fields") else tuple(parts)
        return (_another if next(seen) in at else disguised)(part, rng)

    return apply(value)


def _numbers(value: Any) -> list[Any]:
    """Return all numbers in tuples of tuples."""
    if isinstance(value, tuple):
        return [number for part in value for number in _numbers(part)]
    return [value]


@given(descs(max_nelems=256), _RANDOM, st.sampled_from([0, 1, 1, 2]))
def test_a_layout_by_hand_is_refused_or_holds_python_ints_and_its_bounds(
    desc: MemoryDesc, rng: Random, changes: int
) -> None:
    known = desc.layout
    fields = (known.dims, known.axes, known.blocks, known.offset0)
    try:
        made = Layout(*mutated(fields, rng, changes))
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


@given(st.integers(1, 4).flatmap(lambda ndims: tags(ndims, any_digits=True)), _RANDOM)
@example(parse_tag("(ABC)d2(abc)__(abc)9223372036854775807"), Random(1))
def test_a_tag_by_hand_is_refused_or_reads_back(tag: FormatTag, rng: Random) -> None:
    changes = rng.randrange(3)
    try:
        made = FormatTag(*mutated((tag.axes, tag.digits, tag.align), rng, changes))
    except MemdescError:
        assert changes
        return
    assert {*map(type, _numbers((made.axes, made.digits, made.align)))} == {int}
    assert parse_tag(str(made)) == made


@given(st.tuples(*[st.integers(1, 9)] * 4), _RANDOM)
def test_an_image_by_hand_is_refused_or_has_all_of_its_pixels(
    dims: tuple[int, ...], rng: Random
) -> None:
    known = image_desc(dims, "f32", "in_out_channel")
    numbers = known.width, known.height, known.channels
    width, height, channels = mutated(numbers, rng, rng.randrange(3))
    try:
        made = ImageDesc(known.desc, width, height, channels, known.name)
    except MemdescError:
        return
    x, y, lane = made.pixel([disguised(size - 1, rng) for size in dims])
    assert (x < made.width, y < made.height, lane < made.channels) == (True, True, True)
