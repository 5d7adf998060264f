"""Texts in OpenCL C: those of kernels, and generated sources, on every runtime found."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reorder
from memdesc import MemdescError, MemoryDesc, image_desc, memory_desc
from reorder import opencl
from reorder.opencl import binaries
from reorder.opencl.execution import _DIVISION
from reorder.opencl.kernel.launch import DeviceTraits, kernel_source
from reorder.plan import ReorderPlan
from tests.opencl.runtimes import Runtime, examples
from tests.strategies import desc_pairs, descs
from tests.unit.reorder.opencl.test_kernels import planned

# what is written, by a kernel of what name, from what to what
Case = tuple[MemoryDesc | ReorderPlan, str, MemoryDesc, MemoryDesc]


def _fill(dst: MemoryDesc) -> Case:
    return dst, "fill", memory_desc(dst.dims, dst.dtype), dst


def _plan(pair: tuple[MemoryDesc, MemoryDesc]) -> Case:
    return reorder.plan_reorder(*pair), "reorder", *pair


_DESCS = descs(max_nelems=384, source=False).filter(lambda desc: desc.nelems)
_PAIRS = desc_pairs(max_nelems=384).filter(lambda pair: pair[0].nelems)
_FILLS = st.lists(_DESCS.map(_fill), min_size=1, max_size=5)
_PLANS = st.lists(_PAIRS.map(_plan), min_size=1, max_size=5)
_SIZES = st.sampled_from([1, 2, 7])


def _built(runtime: Runtime, sources: list[str]) -> cl.Program:
    with warnings.catch_warnings():
        # Intel's compiler reports that it compiled
        warnings.simplefilter("ignore", cl.CompilerWarning)
        program: cl.Program = cl.Program(runtime.context, "\n".join(sources)).build(["-Werror"])
    return program


def check(runtime: Runtime, cases: list[Case], size: int) -> None:
    """Build the sources of some cases as one program, and compare what its kernels move."""
    program = _built(
        runtime, [made.source("opencl", f"t{k}") for k, (made, *_) in enumerate(cases)]
    )
    for k, (made, kernel, src, dst) in enumerate(cases):
        content = np.random.default_rng(k).integers(0, 256, src.min_nbytes, np.uint8)
        wanted = np.full(dst.min_nbytes, 0xA5, np.uint8)
        given_, moved = runtime.buffer(content), runtime.buffer(wanted)
        reorder.reference.execute_reference(src, dst, content, wanted)
        cl.Kernel(program, f"t{k}_{kernel}")(runtime.queue, (size,), None, given_, moved)
        assert np.array_equal(runtime.read(moved), wanted), made.source("opencl")


@pytest.mark.parametrize(("dtypes", "min_tiled"), [(("f32", "s8"), 1 << 16), (("u8", "u8"), 0)])
def test_kernels_compile_without_warnings(
    dtypes: tuple[str, str], min_tiled: int, runtime: Runtime
) -> None:
    src, dst = (
        memory_desc((300, 9), dtype, tag) for dtype, tag in zip(dtypes, ("ab", "ba"), strict=True)
    )
    for transfer in planned(src, dst, DeviceTraits(128, min_tiled=min_tiled)):
        for launch in transfer.launches:
            assert _built(runtime, [kernel_source(launch.pattern)])


@examples(2)
@given(_PLANS, _SIZES)
def test_a_kernel_of_a_plan_moves_what_a_reorder_moves(
    runtime: Runtime, cases: list[Case], size: int
) -> None:
    check(runtime, cases, size)


@examples(2)
@given(_FILLS, _SIZES)
def test_a_kernel_fills_what_a_reorder_moves(
    runtime: Runtime, cases: list[Case], size: int
) -> None:
    check(runtime, cases, size)


DIMS = (2, 17, 5, 4)
SRC = memory_desc(DIMS, "f32")
TARGETS = (
    memory_desc(DIMS, "f32", "nChw16c"),
    memory_desc(DIMS, "f32", "aBcd3b"),
    memory_desc(DIMS, "s8", "nhwc"),
    image_desc(DIMS, "f32", "in_out_channel"),
    image_desc(DIMS, "f16", "in_out_width"),
)


@pytest.mark.parametrize("dst", TARGETS, ids=repr)
def test_texts_are_what_a_runtime_compiles(
    dst: Any, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(binaries.CACHE_FOLDER, str(tmp_path))
    device = runtime.device.device
    context = cl.Context([device])
    reorder.reorder(np.zeros(DIMS, np.float32), dst, queue=cl.CommandQueue(context)).get()
    texts = opencl.kernel_texts(SRC, dst, device=device)
    keys = {
        binaries._key(device, text, options)  # noqa: SLF001 - the names of files
        for text in texts
        for options in ((), _DIVISION)
    }
    kept = {file.name for file in (tmp_path / "opencl").iterdir()}
    assert kept <= keys
    assert len(kept) == len(texts)


def test_texts_of_buffers_need_no_device() -> None:
    texts = opencl.kernel_texts(SRC, memory_desc(DIMS, "f32", "nChw16c"))
    assert texts
    assert all("__kernel" in text for text in texts)
    empty = memory_desc((0, 3), "f32")
    assert opencl.kernel_texts(empty, empty) == ()
    with pytest.raises(MemdescError, match=r"device must be a pyopencl\.Device, not 3"):
        opencl.kernel_texts(SRC, SRC, device=3)  # type: ignore[arg-type] # the mistake
    with pytest.raises(MemdescError, match="src must be a MemoryDesc or an ImageDesc, not 'nchw'"):
        opencl.kernel_texts("nchw", SRC)  # type: ignore[arg-type] # the mistake
    with pytest.raises(MemdescError, match="src has dims"):
        opencl.kernel_texts(SRC, memory_desc((3,), "f32"))
