"""Tensors that export no array, and masked arrays: an error that says what to pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc


class Producer:
    """A tensor whose parts of the protocol raise."""

    def __init__(self, error: Exception, stage: str) -> None:
        self.error, self.stage = error, stage

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.stage == "device":
            raise self.error
        return 1, 0

    def is_neg(self) -> bool:
        if self.stage == "negation":
            raise self.error
        return False

    def __dlpack__(self, **_: Any) -> Any:
        raise self.error


class OpaqueError(Exception):
    """An error of the producer's own kind."""


@pytest.mark.parametrize("stage", ["device", "negation", "capsule"])
@pytest.mark.parametrize(
    "error",
    [
        # what torch raises for opaque tensors (to_mkldnn) and sparse ones
        RuntimeError("Cannot access data pointer of Tensor that doesn't have storage"),
        NotImplementedError("Cannot access storage of OpaqueTensorImpl"),
        BufferError("no export"),
        AttributeError("no storage"),
        OSError("device lost"),
        KeyError("device"),
        AssertionError(),
        OpaqueError("lines\nof\na stack" * 1000),
    ],
)
def test_a_producer_that_raises_is_refused_with_the_way_out(error: Exception, stage: str) -> None:
    x = Producer(error, stage)
    desc = memory_desc((2, 3), "f32")
    for use in (
        lambda: reorder.reorder(x, "ba"),
        lambda: reorder.Memory(desc, x),
        lambda: reorder.execute(reorder.plan_reorder(desc, desc), x, bytearray(24)),
    ):
        with pytest.raises(MemdescError, match="pass a dense") as caught:
            use()
        assert len(str(caught.value)) < 700
        assert "\n" not in str(caught.value)


def test_a_producer_without_memory_says_so() -> None:
    with pytest.raises(MemoryError):
        reorder.reorder(Producer(MemoryError(), "capsule"), "ba")


def test_masked_arrays_are_refused_with_the_way_out() -> None:
    x = np.ma.masked_array(np.ones((2, 3), np.float32), mask=np.eye(2, 3, dtype=np.bool_))
    desc = memory_desc((2, 3), "f32")
    plan = reorder.plan_reorder(desc, desc)
    out = np.zeros((2, 3), np.float32)
    for use in (
        lambda: reorder.reorder(x, "ba"),
        lambda: reorder.reorder(x, "ba", src=desc),
        lambda: reorder.Memory(desc, x),
        lambda: reorder.execute(plan, x, out),
        lambda: reorder.execute(plan, out, x),
        lambda: reorder.quantize(x, "s8"),
        lambda: reorder.Attr(src_scale=x, src_scale_mask=3),
    ):
        with pytest.raises(MemdescError, match=r"is a masked array.*pass x\.filled\(value\)"):
            use()
    assert not out.any()
    reorder.reorder(x.filled(7), "ba")
