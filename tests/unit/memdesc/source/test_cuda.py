"""Sources in CUDA, compiled by nvcc, or checked by clang where that is missing."""

import shutil
import subprocess
from pathlib import Path

import pytest

from memdesc import memory_desc

_NVCC = ["nvcc", "-std=c++17", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra", "-ptx"]
_CLANG = ["clang++", "-x", "cuda", "-std=c++17", "-nocudainc", "-nocudalib", "-fsyntax-only"]
_CLANG += ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-cuda-version"]
# what the headers of CUDA define
_STUBS = "".join(
    f"#define __{name}__ __attribute__(({name}))\n" for name in ("global", "host", "device")
)
_STUBS += "struct Index { unsigned x; };\n"
_STUBS += "extern __device__ const Index blockIdx, blockDim, threadIdx, gridDim;\n"


def test_kernels_compile_without_warnings(tmp_path: Path) -> None:
    descs = [
        memory_desc((2, 17, 5, 4), "f32", "nChw16c"),
        memory_desc((2, 17, 5, 4), "s4", "aB(CD)8b16(cd)"),
        memory_desc((3, 5), "bf16", strides=(-7, 1), offset0=20),
        memory_desc((1, 1), "s64", "ab"),
    ]
    source = "\n".join(desc.source("cuda", f"t{k}") for k, desc in enumerate(descs))
    file = tmp_path / "source.cu"
    if shutil.which("nvcc"):
        command = [*_NVCC, "-o", str(tmp_path / "source.ptx")]
    elif shutil.which("clang++"):
        command, source = _CLANG, _STUBS + source
    else:
        pytest.skip("there is neither nvcc nor clang")
    file.write_text(source, encoding="utf-8")
    ran = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
