"""Long strings are read or refused in linear time: quadratic time would take minutes for them."""

from collections.abc import Callable
from contextlib import suppress
from itertools import product

import pytest

from memdesc import MemdescError, MemoryDesc, memory_desc, parse_layout
from memdesc.exchange import SYSTEMS
from memdesc.names.similar import suggest
from reorder.logs import VerbosePrimitive, read_verbose
from tests.work import hangs_fail

_LENGTH = 200_000
_LINE = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,{},{},,{},0.25"
_TENSORS = "src:f32::blocked:abcd::f0 dst:f32:p:blocked:aBcd16b::f0"
_PIECES = ("a", "1", "1e", "e1", "_", "a1", ":", "x", "(", "[", "=", " ", "a:", "é", "+a:1")


def _read(text: str) -> None:
    """Read a line of a log, and all that it says."""
    for entry in read_verbose([text]).entries:
        assert entry.primitive.tensors is not None
        assert entry.primitive.attributes is not None
        assert entry.primitive.sizes is not None


def _try(read: Callable[[str], object], text: str) -> None:
    with hangs_fail(), suppress(MemdescError):
        read(text)


@pytest.mark.parametrize("piece", _PIECES)
def test_a_long_word_of_a_log_takes_linear_time(piece: str) -> None:
    word = piece * (_LENGTH // len(piece))
    for fields in (
        (f"src:f32::blocked:abcd::{word}", "", "2x3x4x5"),
        (f"src:{word}", "", "2x3x4x5"),
        (f"src:f32:{word} dst:f32::blocked:abcd::f0", "", "2x3x4x5"),
        (_TENSORS, f"attr-scales:{word}", "2x3x4x5"),
        (_TENSORS, f"attr-post-ops:{word}", "2x3x4x5"),
        (_TENSORS, word, "2x3x4x5"),
        (_TENSORS, "", word),
        (_TENSORS, "", f"mb1{word}!"),
    ):
        _try(_read, _LINE.format(*fields))
    _try(_read, word)
    _try(_read, f"onednn_verbose,{word}")


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_long_notation_takes_linear_time(system: str) -> None:
    starts = ("", "(", "f32[2,3]{1,0:", "inner_dims_pos = [", "lambda a, b: [")
    for start, piece in product(starts, _PIECES):
        text = start + piece * (_LENGTH // len(piece))
        _try(lambda text: parse_layout(f"{system}:{text}", (2, 3)), text)


@pytest.mark.parametrize(
    "read", [suggest, MemoryDesc.from_json, lambda text: memory_desc((2, 3), "f32", text)]
)
def test_long_names_and_descriptors_take_linear_time(read: Callable[[str], object]) -> None:
    for piece in (*_PIECES, '{"a":', "[[", '"'):
        _try(read, piece * (_LENGTH // len(piece)))


def test_sizes_that_are_not_finite_or_whole_give_no_dims() -> None:
    long = f"mb1{'1e' * 40}!", f"mb{'9' * 400}"
    for problem in ("mb1e999", "mb1e999ic3", "mb1.5e99999ic3", *long):
        assert not VerbosePrimitive("cpu", "lrn", "x", "", "", "", "", problem).sizes.sizes
        _read(_LINE.format(_TENSORS, "", problem))
    line = _LINE.format("data:f32::blocked:a::f0", "", "mb1.5ic3").replace("reorder", "lrn")
    # nor does an axis that is not a dim
    tensors = "src:f32::blocked:ab::f0 src:f32::blocked:ab::f0 dst:f32::blocked:ab::f0"
    for axis in ("9" * 5000, "²", "\u0661", "-1", "1e3"):
        text = _LINE.format(tensors, "", "2x3:2x3").replace("reorder", "concat")
        text = text.replace(",,2x3", f",axis:{axis},2x3")
        assert read_verbose([text]).entries[0].primitive.tensors["dst"].dims == ()
    (tensor,) = read_verbose([line]).entries[0].primitive.tensors.values()
    assert tensor.dims == ()
