"""The stages of conversion at every length, beyond the caches, and for other machines."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from llvmlite import binding

from memdesc import DATA_TYPES
from tests.reorders import beyond_caches
from tests.unit.reorder.cpu.convert_matrix import layouts, lengths

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

_ROOT = Path(__file__).parents[4]
_PLACES: dict[str, Callable[[], AbstractContextManager[None]]] = {"in the caches": nullcontext, "beyond them": beyond_caches}


@pytest.mark.parametrize("place", _PLACES)
def test_rows_of_every_length_are_converted_from_and_to_every_offset(place: str) -> None:
    with _PLACES[place]():
        lengths()


@pytest.mark.parametrize("place", _PLACES)
def test_matrices_are_converted_between_layouts_with_attributes(place: str) -> None:
    with _PLACES[place]():
        layouts()


@pytest.mark.campaign
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86-64 machines")
@pytest.mark.parametrize("machine", ["x86-64", "nehalem", "haswell", "skylake-avx512"])
def test_conversions_for_other_machines_are_right_on_this_one(machine: str, tmp_path: Path) -> None:
    needs = {"haswell": "avx2", "skylake-avx512": "avx512bw"}.get(machine)
    if needs and not binding.get_host_cpu_features().get(needs):
        pytest.skip(f"this machine has no {needs}")
    own = {"NUMBA_CPU_NAME": machine, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(_ROOT)}
    program = str(Path(__file__).with_name("convert_matrix.py"))
    ran = subprocess.run([sys.executable, program], env=os.environ | own, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{len(DATA_TYPES) ** 2} pairs\n"
