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
from reorder.opencl.kernel.launch import DeviceTraits, kernel_source
from reorder.opencl.kernel.profile import GPU, Profile
from tests.strategies import desc_pairs, descs
from tests.unit.reorder.opencl.test_kernels import planned

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from tests.opencl.runtimes import Runtime

_MANY = st.lists(
    descs(max_nelems=384, source=False).filter(lambda desc: desc.nelems), min_size=1, max_size=5
)


def _built(runtime: Runtime, sources: list[str]) -> cl.Program:
    with warnings.catch_warnings():
        # Intel's compiler reports that it compiled
        warnings.simplefilter("ignore", cl.CompilerWarning)
        program: cl.Program = cl.Program(runtime.context, "\n".join(sources)).build(["-Werror"])
    return program


def check(runtime: Runtime, many: list[MemoryDesc], global_size: int) -> None:
    """Build the sources of descriptors as one program, and compare what they fill."""
    program = _built(runtime, [desc.source("opencl", f"t{k}") for k, desc in enumerate(many)])
    for k, desc in enumerate(many):
        plain = memory_desc(desc.dims, desc.dtype, "abcdefghijkl"[: desc.ndims])
        src = np.random.default_rng(k).integers(0, 256, plain.min_nbytes, np.uint8)
        wanted = np.full(desc.min_nbytes, 0xA5, np.uint8)
        given_, filled = runtime.buffer(src), runtime.buffer(wanted)
        reorder.execute_reference(plain, desc, src, wanted)
        cl.Kernel(program, f"t{k}_fill")(runtime.queue, (global_size,), None, given_, filled)
        assert np.array_equal(runtime.read(filled), wanted), desc.source("opencl")


@pytest.mark.parametrize(
    ("dtypes", "profile"), [(("f32", "s8"), GPU), (("u8", "u8"), GPU._replace(min_tiled=0))]
)
def test_kernels_compile_without_warnings(
    dtypes: tuple[str, str], profile: Profile, runtime: Runtime
) -> None:
    src, dst = (
        memory_desc((300, 9), dtype, tag) for dtype, tag in zip(dtypes, ("ab", "ba"), strict=True)
    )
    for transfer in planned(src, dst, DeviceTraits(128, profile=profile)):
        for launch in transfer.launches:
            assert _built(runtime, [kernel_source(launch.pattern)])


_PAIRS = st.lists(
    desc_pairs(max_nelems=384).filter(lambda pair: pair[0].nelems), min_size=1, max_size=5
)


def check_plans(runtime: Runtime, pairs: list[tuple[MemoryDesc, MemoryDesc]], size: int) -> None:
    """Build the sources of plans as one program, and compare what they move."""
    plans = [reorder.plan_reorder(*pair) for pair in pairs]
    program = _built(runtime, [plan.source("opencl", f"t{k}") for k, plan in enumerate(plans)])
    for k, plan in enumerate(plans):
        src = np.random.default_rng(k).integers(0, 256, plan.src.min_nbytes, np.uint8)
        wanted = np.full(plan.dst.min_nbytes, 0xA5, np.uint8)
        given_, moved = runtime.buffer(src), runtime.buffer(wanted)
        reorder.execute_reference(plan.src, plan.dst, src, wanted)
        cl.Kernel(program, f"t{k}_reorder")(runtime.queue, (size,), None, given_, moved)
        assert np.array_equal(runtime.read(moved), wanted), plan.source("opencl")


@settings(max_examples=2)
@given(_PAIRS, st.sampled_from([1, 2, 7]))
def test_a_kernel_of_a_plan_moves_what_a_reorder_moves(
    runtime: Runtime, pairs: list[tuple[MemoryDesc, MemoryDesc]], size: int
) -> None:
    check_plans(runtime, pairs, size)


@pytest.mark.campaign
@settings(max_examples=200)
@given(_PAIRS, st.sampled_from([1, 2, 7]))
def test_many_kernels_of_plans_move_what_a_reorder_moves(
    runtime: Runtime, pairs: list[tuple[MemoryDesc, MemoryDesc]], size: int
) -> None:
    check_plans(runtime, pairs, size)


@settings(max_examples=2)
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
