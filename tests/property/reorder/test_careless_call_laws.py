"""One wrong argument of any public function gives a sound result, or an error of ours."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import ml_dtypes
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import memdesc
import reorder
from memdesc import MemdescError
from tests.property.memdesc.test_bad_input_laws import check


class CallersOwnError(Exception):
    """Raised by the caller's own method; it may pass through."""


class _Broken:
    """An object whose own methods fail, but for equality and hash."""

    def __repr__(self) -> str:
        raise RuntimeError

    def __index__(self) -> int:
        raise CallersOwnError

    def __iter__(self) -> NoReturn:
        raise RuntimeError


def _broken_iterator() -> Iterator[int]:
    yield 1
    raise RuntimeError


def _cyclic_list() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _nested_tuple() -> tuple[Any, ...]:
    found: tuple[Any, ...] = ()
    for _ in range(100_000):
        found = (found,)
    return found


def _same(value: Any) -> Any:
    return value


def _closed_file() -> Any:
    with open("/dev/null") as file:  # noqa: PTH123 - of no directory
        return file


_NUMBERS = (np.bool_, np.int8, np.uint64, np.float16, np.float32, np.longdouble, np.complex64)
_SHAPES: tuple[tuple[int, ...], ...] = ((), (2,), (0, 3), (2, 17, 5, 4))
_VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 13, 2**31, 2**63 - 1, 2**63, -(2**63), 2**64, 10**5000),
    *(float("nan"), float("inf"), -0.0, 1.5, 3j, Ellipsis, object, int, print, np),
    *("", "a", "abcd", "f32", "\0", "\ud800", "{0}", "%s", "x" * 10**5, "1" * 5000, "[" * 10**5),
    *(b"", b"\xff", (), [], {}, set(), (None,), [[1, 2], [3]], {"a": None}),
    *((1,) * 13, (1,) * 12, (0,) * 4, (-1,) * 4, (2**62,) * 2, (True,) * 4, ("a",) * 4),
    *(range(2**40), slice(None, None, 0), memoryview(bytes(4)), memoryview(bytes(4))[::-1]),
    memoryview(bytearray(64)).cast("B", (8, 8)),
    *(np.datetime64("2020"), np.str_("abcd"), np.void(b"abc"), np.ma.masked),
    np.ma.masked_array(np.ones((2, 17, 5, 4), np.float32), mask=True),
    *(np.ones((1,) * ndims, np.float32) for ndims in (13, 64)),
    np.broadcast_to(np.float32(1), (2**40, 3)),
    np.zeros((0, 2**40, 2**20), np.int8),
    *(np.ones(shape, kind) for kind in _NUMBERS for shape in _SHAPES),
    *(np.zeros((2, 3), kind) for kind in ("O", "S3", "U2", "M8[s]", "V0", "f4,i1", ">f4")),
    np.ones((2, 17, 5, 4)).astype(ml_dtypes.int4),
]
# Each makes a new value, as some are used up by a call.
WRONG: list[Callable[[], Any]] = [
    *(partial(_same, value) for value in _VALUES),
    *(_Broken, _broken_iterator, _cyclic_list, _nested_tuple, _closed_file, object),
    itertools.count,
    lambda: memdesc.memory_desc((2**31, 2**20), "f32", strides=(0, 0)),
    lambda: memdesc.memory_desc((2, 0), "s4"),
    lambda: reorder.Memory(_desc()),
    lambda: reorder.Attr(src_scale=np.ones(17, np.float32), src_scale_mask=2),
]


def _desc(tag: str = "nChw8c", dtype: str = "f32") -> memdesc.MemoryDesc:
    return memdesc.memory_desc((2, 17, 5, 4), dtype, tag)


_X = np.ones((2, 17, 5, 4), np.float32)
_LAYOUT = _desc().layout
_MEMORY = reorder.Memory(_desc())
_PLAN = reorder.plan_reorder(_desc("nchw"), _desc())
_RECORD = reorder.records.Record(memdesc.record.record_desc((1, 32), "q4_0"))
_EXTRA = memdesc.Extra(1, 2)
_IMAGE = memdesc.image_desc((1, 64, 56, 56), "f16", "in_out_channel")
_INDEX = (0, 1, 2, 3)
_DIMS = (2, 17, 5, 4)
# A function, and arguments that are right.
_CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (memdesc.memory_desc, (_DIMS, "f32", "nChw8c")),
    (lambda *given: memdesc.memory_desc(_DIMS, "f32", strides=given), (340, 20, 4, 1)),
    (
        lambda s, b, i, p, o: memdesc.memory_desc(
            _DIMS, "f32", strides=s, inner_blks=b, inner_idxs=i, padded_dims=p, offset0=o
        ),
        ((480, 160, 32, 8), (8,), (1,), (2, 24, 5, 4), 0),
    ),
    (memdesc.runtime_desc, ((memdesc.RUNTIME, 17, 5, 4), "f32", "nChw8c")),
    (memdesc.record.record_desc, ((64, 128), "gptq")),
    (memdesc.image_desc, ((1, 64, 56, 56), "f16", "in_out_channel")),
    (memdesc.tags.parse_tag, ("aBcd8b", "abcd")),
    (memdesc.parse_layout, ("(2,3):(3,1)", None, "f32")),
    (memdesc.verbose.from_verbose, (memdesc.verbose.to_verbose(_desc()), _DIMS)),
    (memdesc.MemoryDesc.from_json, (_desc().to_json(),)),
    (_desc("abcd").to_notation, ("xla",)),
    (memdesc.verbose.to_verbose, (_desc(),)),
    (memdesc.array_desc, (_X,)),
    (memdesc.data_type, ("f32",)),
    (memdesc.Extra, (1, 2, 1.0)),
    (memdesc.Extra.from_verbose, (_EXTRA.to_verbose(),)),
    (_EXTRA.spans, (64, (2, 3))),
    (_EXTRA.nbytes, (64, (2, 3))),
    (_desc().dtype.nbytes, (3,)),
    (memdesc.tags.FormatTag, (((0,), (1,)), (), (1, 1))),
    (memdesc.Layout, (_LAYOUT.dims, _LAYOUT.axes, _LAYOUT.blocks, 0)),
    (_LAYOUT.axis_size, (1,)),
    (_LAYOUT.axis_blocks, (1,)),
    (_LAYOUT.outer, (1,)),
    (lambda padded: _LAYOUT.tables(padded=padded), (True,)),
    (lambda at, padded: _desc().offset(at, padded=padded), (_INDEX, True)),
    (_desc().index, (3,)),
    (_desc().reshape, (_DIMS,)),
    (_desc().permute_axes, (_INDEX,)),
    (_desc().submemory, ((1, 8, 1, 1), (0, 8, 0, 0))),
    (_desc().with_dtype, ("f16",)),
    (_desc().source, ("c", "tensor", "nchw")),
    (lambda letters, at: _desc().show(letters, highlight=at), ("nchw", [_INDEX])),
    (_IMAGE.pixel, (_INDEX,)),
    (_IMAGE.fits, (100, 100)),
    (reorder.Attr, (2.0, 2.0, 3, -1, 0.5, None)),
    (reorder.plan_reorder, (_desc("nchw"), _desc(), None)),
    (reorder.reorder, (_X, "nChw8c")),
    (
        lambda src, kind, attr, out, n: reorder.reorder(
            _X, "nhwc", src=src, dtype=kind, attr=attr, out=out, threads=n
        ),
        (None, None, None, None, 1),
    ),
    (reorder.execute, (_PLAN, _X, _MEMORY.data, 1)),
    (
        reorder.reference.execute_reference,
        (_desc("nchw"), _desc(), _X, np.zeros(_desc().nbytes, np.uint8), None),
    ),
    (reorder.Memory, (_desc(), np.zeros(_desc().nbytes, np.uint8))),
    (_MEMORY.__getitem__, (_INDEX,)),
    (lambda value: reorder.Memory(_desc()).apply(lambda _: value), (_X,)),
    (reorder.quantize, (_X, "s8", 0)),
    (lambda groups, flag: reorder.quantize(_X, "s8", groups=groups, symmetric=flag), ((), True)),
    (reorder.compare_layouts, (_desc(), _desc("nchw"))),
    (reorder.compare_values, (_MEMORY, _X)),
    (_RECORD.set_field, ("d", np.ones((1, 1), np.float16))),
    (reorder.records.repack, (_RECORD, "q8_0")),
]


@settings(max_examples=10 * settings().max_examples)
@given(st.data())
def test_a_wrong_argument_is_refused_in_a_short_message(data: st.DataObject) -> None:
    call, right = data.draw(st.sampled_from(_CALLS))
    k = data.draw(st.integers(0, len(right) - 1))
    wrong = data.draw(st.sampled_from(WRONG))()
    if type(right[k]) is tuple and right[k] and data.draw(st.booleans()):
        j = data.draw(st.integers(0, len(right[k]) - 1))
        wrong = (*right[k][:j], wrong, *right[k][j + 1 :])
    try:
        check(call(*right[:k], wrong, *right[k + 1 :]))
    except CallersOwnError:
        pass
    except (MemdescError, TypeError) as error:
        assert len(str(error)) < 4000


def test_a_name_has_the_dims_and_the_type_of_the_other_layout_in_every_call() -> None:
    wanted = reorder.reorder(_X, "nChw8c").data
    moved, defined = np.empty_like(wanted), np.empty_like(wanted)
    reorder.execute(reorder.plan_reorder("nchw", _desc()), _X, moved)
    name: Any = "nchw"
    reorder.reference.execute_reference(name, _desc(), _X, defined)
    assert np.array_equal(moved, wanted)
    assert np.array_equal(defined, wanted)
