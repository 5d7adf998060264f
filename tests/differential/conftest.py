"""The two libraries as fixtures, and what the tests counted, at the end of the run."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from _pytest.terminal import TerminalReporter

from .cases import SEED
from .libdnnl import Library, find_libraries
from .tally import REPORT

_WHEELS: Final = {"3.2": "onednn-cpu-gomp==2023.2.0", "3.13": "onednn==2026.1.0"}


def open_library(version: str, libraries: Mapping[str, Path]) -> Library:
    """Load one of the libraries; skip where its wheel is missing, but fail in CI on x86-64."""
    path = libraries.get(version)
    if path is None:
        reason = f"no libdnnl {version}: pip install {_WHEELS[version]}"
        # there are no wheels for other processors
        if os.environ.get("CI") == "true" and platform.machine() == "x86_64":
            pytest.fail(reason)
        pytest.skip(reason)
    return Library(path)


@pytest.fixture(scope="session")
def dnnl_3_2() -> Library:
    """Return oneDNN 3.2, on one thread.

    GNU OpenMP keeps a team of threads where there is more than one: it spins on a busy
    machine, and does not survive the forks of other tests.
    """
    library = open_library("3.2", find_libraries())
    library.c.omp_set_num_threads(1)
    return library


@pytest.fixture(scope="session")
def dnnl_3_13() -> Library:
    """Return oneDNN 3.13."""
    return open_library("3.13", find_libraries())


@pytest.fixture(params=["dnnl_3_2", "dnnl_3_13"])
def library(request: pytest.FixtureRequest) -> Library:
    """Return each of the two."""
    found: Library = request.getfixturevalue(request.param)
    return found


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Show what was compared with the real oneDNN."""
    if REPORT:
        terminalreporter.section(f"compared with libdnnl, MEMDESC_SEED={SEED}")
        for line in REPORT:
            terminalreporter.write_line(line)
