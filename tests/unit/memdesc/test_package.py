from __future__ import annotations

import subprocess
import sys

import memdesc


def test_every_public_name_exists_and_is_said_once() -> None:
    assert sorted(set(memdesc.__all__)) == sorted(memdesc.__all__)
    assert all(hasattr(memdesc, name) for name in memdesc.__all__)


def test_importing_loads_neither_a_compiler_nor_a_device_nor_the_other_package() -> None:
    script = "import sys, memdesc; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    ).stdout.split()
    assert "memdesc.desc" in loaded
    assert not {name.partition(".")[0] for name in loaded} & {
        "numba",
        "llvmlite",
        "pyopencl",
        "reorder",
        "hypothesis",
        "pytest",
    }
