"""Every hint of reorder works: the call that fails, what its message says, the call that follows.

A hint in one of the modules below that no row covers fails a test.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import array_desc, image_desc, memory_desc
from reorder import Memory, plan_reorder
from reorder.cli import main
from tests import hints
from tests.hints import Row

MODULES = (
    "reorder/api.py",
    "reorder/memory/buffers.py",
    "reorder/memory/inputs.py",
    "reorder/memory/memory.py",
    "reorder/plan/plan.py",
)
X = np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2)
D = memory_desc((2, 3), "f32", "ab")
PADDED = memory_desc((3,), "u8", "A4a")
PLAN = plan_reorder(D, "ba")
SIX = np.zeros((2, 3), np.float32)
S4 = memory_desc((2, 4), "s4", "ab")


def run(plan: reorder.ReorderPlan, x: object, out: object) -> object:
    reorder.execute(plan, x, out)
    return out


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


class Nested:
    """An object with the array protocol alone."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(X, dtype, copy=copy)


_MISALIGNED = np.zeros(25, np.uint8)[1:]
_STEPPED = np.zeros((2, 6), np.float32)[:, ::2]
_ODD = np.zeros(5, np.dtype([("a", "u1"), ("b", "<f4")]))["b"]
_REPEATED = memory_desc((4, 3), "u8", strides=(0, 1))

ROWS = (
    Row(
        "reorder() packs them",
        lambda: array_desc(np.zeros(4, S4.dtype.numpy)),
        lambda: reorder.reorder(np.zeros(4, S4.dtype.numpy), "a"),
    ),
    # buffers
    Row(
        "pass its bytes, .data",
        lambda: run(PLAN, Memory(D), SIX),
        lambda: run(PLAN, Memory(D).data, SIX.copy()),
    ),
    Row(
        "pass f32 elements or raw bytes",
        lambda: run(PLAN, np.zeros((2, 3)), SIX),
        lambda: (run(PLAN, SIX, SIX.copy()), run(PLAN, SIX, np.zeros(24, np.uint8))),
    ),
    Row(
        "describe it with array_desc() or copy it",
        lambda: run(PLAN, _STEPPED, SIX),
        lambda: (run(PLAN, _STEPPED.copy(), SIX.copy()), array_desc(_STEPPED)),
    ),
    Row(
        "pass a writable buffer, or a copy",
        lambda: run(PLAN, SIX, bytes(24)),
        lambda: (run(PLAN, SIX, bytearray(24)), run(PLAN, SIX, SIX.copy())),
    ),
    Row(
        "bytes of f32; copy it",
        lambda: run(PLAN, _MISALIGNED, SIX),
        lambda: run(PLAN, _MISALIGNED.copy(), SIX.copy()),
    ),
    Row(
        "pass a numpy array or bytes",
        lambda: run(PLAN, "x", SIX),
        lambda: (run(PLAN, bytes(24), SIX.copy()), run(PLAN, SIX, SIX.copy())),
    ),
    Row(
        "pass a writable numpy array or a bytearray",
        lambda: run(PLAN, SIX, "x"),
        lambda: (run(PLAN, SIX, bytearray(24)), run(PLAN, SIX, SIX.copy())),
    ),
    # Memory
    Row(
        "pass a copy, or zero_pad=False if it is zero already",
        lambda: Memory(PADDED, bytes(4)),
        lambda: (Memory(PADDED, bytearray(bytes(4))), Memory(PADDED, bytes(4), zero_pad=False)),
    ),
    Row(
        "so numpy(copy=False) is impossible; see blocks() for a view",
        lambda: reorder.reorder(X, "nChw4c").numpy(copy=False),
        lambda: reorder.reorder(X, "nChw4c").blocks(),
    ),
    Row(
        "attach a copy",
        lambda: Memory(D, bytes(24)).apply(np.negative),
        lambda: Memory(D, bytearray(bytes(24))).apply(np.negative),
    ),
    # reorder
    Row(
        "pass np.asarray(x)",
        lambda: reorder.reorder([[1.0, 2.0]], "ba"),  # type: ignore[call-overload] # the mistake
        lambda: reorder.reorder(np.asarray([[1.0, 2.0]]), "ba"),
    ),
    Row(
        "pass np.asarray(x)",
        lambda: reorder.reorder(Nested(), "nhwc"),  # type: ignore[call-overload] # likewise
        lambda: reorder.reorder(np.asarray(Nested()), "nhwc"),
    ),
    Row(
        "to describe raw bytes, pass src=, a MemoryDesc",
        lambda: reorder.reorder(bytes(24), "ba"),  # type: ignore[call-overload] # likewise
        lambda: reorder.reorder(bytes(24), "ba", src=D),  # type: ignore[call-overload] # a buffer
    ),
    Row(
        "pass its elements as a numpy array",
        lambda: reorder.reorder(3, "a"),  # type: ignore[call-overload] # likewise
        lambda: reorder.reorder(np.array([3]), "a"),
    ),
    Row(
        "pass dst, the layout to move into ('plain' is row-major), or out",
        lambda: reorder.reorder(SIX),
        lambda: (
            reorder.reorder(SIX, "plain"),
            reorder.reorder(SIX, out=Memory(D)),
            reorder.reorder(SIX, dtype="f16"),
        ),
    ),
    Row(
        "leave them out, or pass an out with that descriptor",
        lambda: reorder.reorder(SIX, "ba", out=Memory(D)),
        lambda: (
            reorder.reorder(SIX, out=Memory(D)),
            reorder.reorder(SIX, "ba", out=Memory(PLAN.dst)),
        ),
    ),
    Row(
        "pass a writable array, or leave it out",
        lambda: reorder.reorder(SIX, "ba", out=read_only(np.zeros((2, 3), np.float32))),
        lambda: (
            reorder.reorder(SIX, out=np.zeros((2, 3), np.float32)),
            reorder.reorder(SIX, "ba"),
        ),
    ),
    Row(
        "pass a Memory, which holds two",
        lambda: reorder.reorder(np.zeros((2, 4), S4.dtype.numpy), out=np.zeros((2, 4), "int4")),
        lambda: reorder.reorder(np.zeros((2, 4), S4.dtype.numpy), out=Memory(S4)),
    ),
    Row(
        "for a flat buffer give src=memory_desc(dims, dtype, 'nhwc')",
        lambda: reorder.reorder(X.reshape(-1), "nchw", src="nhwc"),
        lambda: reorder.reorder(
            X.reshape(-1), "nchw", src=memory_desc((1, 4, 3, 2), "f32", "nhwc")
        ),
    ),
    Row(
        "pass a MemoryDesc as src",
        lambda: reorder.reorder(np.zeros((1, 1, 4, 8, 16), "f4"), "nchw", src="bf8_xy16"),
        lambda: reorder.reorder(
            np.zeros((1, 1, 4, 8, 16), "f4"),
            "nchw",
            src=memory_desc((1, 8, 8, 8), "f32", "bf8_xy16"),
        ),
    ),
    Row(
        "leave src out",
        lambda: reorder.reorder(X.transpose(0, 2, 3, 1), "nchw", src="nhwc"),
        lambda: (
            reorder.reorder(X.transpose(0, 2, 3, 1), "nchw"),
            reorder.reorder(np.ascontiguousarray(X.transpose(0, 2, 3, 1)), "nchw", src="nhwc"),
        ),
    ),
    Row(
        "if the axes are in memory order, give src=, such as src='nhwc'",
        lambda: reorder.reorder(X.transpose(0, 2, 3, 1).copy(), out=Memory(array_desc(X))),
        lambda: reorder.reorder(
            X.transpose(0, 2, 3, 1).copy(), out=Memory(array_desc(X)), src="nhwc"
        ),
    ),
    Row(
        "(see permute_axes, reshape, submemory)",
        lambda: plan_reorder(D, memory_desc((6,), "f32", "a")),
        lambda: plan_reorder(D.reshape((6,)), memory_desc((6,), "f32", "a")),
    ),
    Row(
        "leave it out, or pass out=Memory(image_desc.desc) and no dst",
        lambda: reorder.reorder(X, "in_out_channel", out=Memory(array_desc(X))),
        lambda: (
            reorder.reorder(X, "in_out_channel"),
            reorder.reorder(X, out=Memory(image_desc(X.shape, "f32", "in_out_channel").desc)),
        ),
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.hint[:60])
def test_a_hint_is_given_and_works(row: Row) -> None:
    hints.check(row)


def test_padding_over_broadcast_data_is_left_alone_if_the_caller_says_so() -> None:
    desc = replace(_REPEATED)
    assert Memory(desc, bytes(3), zero_pad=False).desc == desc


# not hints, and hints that other tests follow: of a device, of padding over broadcast data
_REASONS = (
    "needs a copy",
    "several indices would write one element",
    "pass queue=",
    "so its padding overlaps its data; pass zero_pad=False",
    "reorder its chunks with reorder.dask.reorder(x, dst)",
)


@cache
def _messages() -> tuple[str, ...]:
    return tuple(map(hints.message, ROWS))


@pytest.mark.parametrize("module", MODULES)
def test_no_hint_of_these_modules_is_without_a_row(module: str) -> None:
    assert hints.without_row(hints.hints(module), _messages(), _REASONS) == []


@pytest.mark.parametrize(
    ("axes", "name"), [((0, 2, 3, 1), "nhwc"), ((3, 2, 0, 1), "dcab"), ((1, 0, 2, 3), "bacd")]
)
def test_compare_says_in_what_order_the_dims_of_the_other_file_may_be(
    axes: tuple[int, ...], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    paths = [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]
    for path, array in zip(paths, (x, np.ascontiguousarray(x.transpose(axes))), strict=True):
        np.save(path, array)
    assert main(["compare", *paths]) == 2
    assert f"such as --from-b {name}" in capsys.readouterr().err
    assert main(["compare", *paths, "--from-b", name]) == 0
