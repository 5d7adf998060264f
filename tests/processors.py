"""Older x86-64 processors that kernels can be compiled for, and run on a newer one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from llvmlite import binding

if TYPE_CHECKING:
    from pathlib import Path

_AVX2 = ("ssse3", "avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
# By LLVM's names: the features that kernels ask for, and one that only machines with the rest have.
PROCESSORS: dict[str, tuple[str, ...]] = {
    "x86-64": (),
    "nehalem": ("ssse3",),
    "haswell": _AVX2,
    "skylake-avx512": _AVX512,
    "icelake-server": (*_AVX512, "avx512vbmi"),
}


def environment_of(processor: str, cache: Path) -> dict[str, str]:
    """Return the settings of a process that compiles for a processor; skip where it cannot run.

    `cache` is the folder of its kernels.
    """
    host = binding.get_host_cpu_features()
    lacking = [feature for feature in PROCESSORS[processor] if not host.get(feature)]
    if lacking:
        pytest.skip(f"this machine has no {', '.join(lacking)}")
    return {
        "NUMBA_CPU_NAME": processor,
        "NUMBA_CPU_FEATURES": ",".join(f"+{feature}" for feature in PROCESSORS[processor]),
        "NUMBA_CACHE_DIR": str(cache),
    }
