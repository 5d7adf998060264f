"""Every runtime on the machine that works; without one, tests skip and say so."""

from __future__ import annotations

import pytest

from reorder.opencl.programs import CACHE_FOLDER
from tests.opencl.runtimes import Runtime, runtimes


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "runtime" in metafunc.fixturenames:
        found = runtimes()
        missing = pytest.param(
            None,
            id="none",
            marks=pytest.mark.skip(reason="no OpenCL runtime (intel-opencl-rt or pocl-opencl-icd)"),
        )
        metafunc.parametrize(
            "runtime", found or [missing], ids=[one.name for one in found] or None, scope="session"
        )


@pytest.fixture(autouse=True)
def _pocl_compiles_what_is_needed(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spare PoCL what takes most of its time: optimisations, and a second kernel for the binary.

    PoCL has a cache of its own. Other runtimes optimise, and have binaries; PoCL does so too in the
    campaign.
    """
    named = {"runtime", "first"} & {*request.fixturenames}
    if named and request.node.get_closest_marker("campaign") is None:
        runtime: Runtime = request.getfixturevalue(named.pop())
        if runtime.name == "Portable Computing Language":
            monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")
            monkeypatch.setenv(CACHE_FOLDER, "")


@pytest.fixture
def first() -> Runtime:
    """The first runtime, for what does not depend on it."""
    found = runtimes()
    if not found:
        pytest.skip("no OpenCL runtime (intel-opencl-rt or pocl-opencl-icd)")
    return found[0]
