"""The text of kernels: what a runtime compiles, shown without one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from memdesc import MemdescError, image_desc, memory_desc
from reorder import opencl, reorder
from reorder.cli import main
from reorder.opencl import binaries
from reorder.opencl.programs import _DIVISION
from tests.opencl.runtimes import Runtime

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
    reorder(np.zeros(DIMS, np.float32), dst, queue=cl.CommandQueue(context)).get()
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


def test_explain_writes_kernels_of_buffers_and_images(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("explain", "nchw", "2x17x5x4", "--to", "in_out_channel", "--kernels", "opencl")
    texts = opencl.kernel_texts(SRC, image_desc(DIMS, "f32", "in_out_channel"))
    assert main([*words]) == 0
    assert capsys.readouterr().out.endswith("\n\n" + "\n".join(texts))
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["texts"] == [*texts]
