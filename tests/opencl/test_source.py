"""Generated sources in OpenCL C, on every runtime found."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reorder
from memdesc import memory_desc
from tests.strategies import descs

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from tests.opencl.runtimes import Runtime

_MANY = st.lists(
    descs(max_nelems=384, source=False).filter(lambda desc: desc.nelems), min_size=1, max_size=8
)


def check(runtime: Runtime, many: list[MemoryDesc], global_size: int) -> None:
    """Build the sources of descriptors as one program, and compare what they fill."""
    source = "\n".join(desc.source("opencl", f"t{k}") for k, desc in enumerate(many))
    with warnings.catch_warnings():
        # Intel's compiler reports that it compiled
        warnings.simplefilter("ignore", cl.CompilerWarning)
        program = cl.Program(runtime.context, source).build(["-Werror"])
    for k, desc in enumerate(many):
        plain = memory_desc(desc.dims, desc.dtype, "abcdefghijkl"[: desc.ndims])
        src = np.random.default_rng(k).integers(0, 256, plain.min_nbytes, np.uint8)
        wanted = np.full(desc.min_nbytes, 0xA5, np.uint8)
        given_, filled = runtime.buffer(src), runtime.buffer(wanted)
        reorder.execute_reference(plain, desc, src, wanted)
        cl.Kernel(program, f"t{k}_fill")(runtime.queue, (global_size,), None, given_, filled)
        assert np.array_equal(runtime.read(filled), wanted), desc.source("opencl")


@settings(max_examples=3)
@given(_MANY, st.sampled_from([1, 2, 7]))
def test_a_kernel_fills_what_a_reorder_moves(
    runtime: Runtime, many: list[MemoryDesc], global_size: int
) -> None:
    check(runtime, many, global_size)


@pytest.mark.campaign
@settings(max_examples=200)
@given(_MANY, st.sampled_from([1, 2, 7]))
def test_many_kernels_fill_what_a_reorder_moves(
    runtime: Runtime, many: list[MemoryDesc], global_size: int
) -> None:
    check(runtime, many, global_size)
