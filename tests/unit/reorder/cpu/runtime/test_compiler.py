"""A llvmlite that lacks what kernels are compiled with is refused by name."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import llvmlite
import pytest
from llvmlite.binding import ffi

from memdesc import MemdescError
from reorder.cpu.runtime import compiler

_ROOT = Path(__file__).parents[5]


def test_a_missing_lock_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ffi.lib, "_lock")
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = next(each for each in project["dependencies"] if each.startswith("llvmlite"))
    wanted = (
        re.escape(f"llvmlite {llvmlite.__version__}: ") + ".*_lock.*" + re.escape(f"'{bounds}'")
    )
    with pytest.raises(MemdescError, match=wanted):
        runpy.run_path(compiler.__file__)
