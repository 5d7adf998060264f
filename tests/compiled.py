"""Compilers of the machine, and generated sources as loaded libraries."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from numpy.typing import NDArray

_WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
# a compiler and a language -> what it is started with
COMPILERS: dict[tuple[str, str], list[str]] = {
    ("gcc", "c"): ["gcc", "-std=c11", "-x", "c"],
    ("clang", "c"): ["clang", "-std=c11", "-x", "c"],
    ("gcc", "c++"): ["g++", "-std=c++17", "-x", "c++"],
    ("clang", "c++"): ["clang++", "-std=c++17", "-x", "c++"],
}
# that no integer overflows is checked in the campaign, as it takes long; the runtime of clang's
# sanitizer is linked into programs only, not into libraries
_SANITIZED = ["-fsanitize=undefined", "-fno-sanitize-recover=all"]


def compile_library(
    source: str, folder: Path, compiler: tuple[str, str] = ("gcc", "c"), *flags: str
) -> ctypes.CDLL:
    """Compile without a warning, and load; skip where the compiler is missing."""
    command = COMPILERS[compiler]
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    file = folder / f"source{len(list(folder.iterdir()))}"
    file.write_text(source, encoding="utf-8")
    library = file.with_suffix(".so")
    is_campaign = settings.get_current_profile_name() == "campaign"
    checked = _SANITIZED if is_campaign and compiler[0] == "gcc" else []
    ran = subprocess.run(
        [*command, *_WARNINGS, "-shared", "-fPIC", *checked, *flags, str(file), "-o", str(library)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stderr}\n{source}"
    return ctypes.CDLL(str(library))


def address(array: NDArray[Any]) -> ctypes.c_void_p:
    """Return the address of the first byte of an array."""
    return ctypes.c_void_p(array.ctypes.data)


def run_python(source: str) -> dict[str, Any]:
    """Return what a source in Python defines."""
    names: dict[str, Any] = {}
    exec(source, names)
    return names
