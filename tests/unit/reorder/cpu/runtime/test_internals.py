"""A numba or llvmlite that lacks what kernels are compiled with is refused by name."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import numba
import pytest
from llvmlite.binding import ffi
from numba.core import caching, codegen, dispatcher

from memdesc import MemdescError
from reorder.cpu.runtime import internals

_FILE = Path(internals.__file__)
_ROOT = Path(__file__).parents[5]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (dispatcher, "_FunctionCompiler"),
        (ffi.lib, "_lock"),
        # overridden, and called by numba
        (codegen.CPUCodeLibrary, "_optimize_functions"),
        (caching.IndexDataCacheFile, "_load_index"),
    ],
)
def test_a_missing_name_is_reported(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    monkeypatch.delattr(owner, name)
    wanted = rf"numba {re.escape(numba.__version__)} with llvmlite .*{name}.*pip install 'numba>="
    with pytest.raises(MemdescError, match=wanted):
        runpy.run_path(str(_FILE))


def test_a_missing_member_of_instances_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching.FunctionCache, "__init__", lambda self: setattr(self, "_other", 0))
    with pytest.raises(MemdescError, match="FunctionCache has no _cache_file"):
        runpy.run_path(str(_FILE))


def test_the_message_has_the_bounds_of_the_package() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for package in ("numba", "llvmlite"):
        (bounds,) = [each for each in project["dependencies"] if each.startswith(package)]
        assert f"'{bounds}'" in _FILE.read_text(encoding="utf-8")
