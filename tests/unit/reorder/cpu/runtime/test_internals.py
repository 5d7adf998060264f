"""An llvmlite that lacks what kernels are compiled with is refused by name."""

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
    wanted = rf"llvmlite {re.escape(llvmlite.__version__)}: .*_lock.*pip install 'llvmlite>="
    with pytest.raises(MemdescError, match=wanted):
        runpy.run_path(compiler.__file__)


def test_the_message_has_the_bounds_of_the_package() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (bounds,) = (each for each in project["dependencies"] if each.startswith("llvmlite"))
    assert f"'{bounds}'" in Path(compiler.__file__).read_text(encoding="utf-8")
