"""A numba or llvmlite that lacks what kernels are compiled with is refused by name."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import llvmlite
import numba
import pytest
from llvmlite.binding import ffi
from numba.core import codegen, compiler, cpu

from memdesc import MemdescError
from reorder.cpu.runtime import compiler as compiler_of_text
from reorder.cpu.runtime import functions

_FILE = Path(functions.__file__)
_ROOT = Path(__file__).parents[5]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (compiler, "compile_extra"),
        (codegen, "AOTCodeLibrary"),
        (compiler.Flags, "error_model"),
        # overridden, and called by numba
        (codegen.CPUCodeLibrary, "_optimize_functions"),
        (cpu.CPUContext, "init"),
    ],
)
def test_a_missing_name_is_reported(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    monkeypatch.delattr(owner, name)
    if name == "init":
        monkeypatch.delattr(cpu.BaseContext, name)
    wanted = rf"numba {re.escape(numba.__version__)} with llvmlite .*{name}.*pip install 'numba>="
    with pytest.raises(MemdescError, match=wanted):
        runpy.run_path(str(_FILE))


def test_a_missing_lock_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ffi.lib, "_lock")
    wanted = rf"llvmlite {re.escape(llvmlite.__version__)}: .*_lock.*pip install 'llvmlite>="
    with pytest.raises(MemdescError, match=wanted):
        runpy.run_path(compiler_of_text.__file__)


def test_the_messages_have_the_bounds_of_the_package() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = {
        package: next(each for each in project["dependencies"] if each.startswith(package))
        for package in ("numba", "llvmlite")
    }
    assert all(f"'{each}'" in _FILE.read_text(encoding="utf-8") for each in bounds.values())
    loader = Path(compiler_of_text.__file__).read_text(encoding="utf-8")
    assert f"'{bounds['llvmlite']}'" in loader
