"""Every runtime on the machine that works; without one, tests skip and say so.

Tests on all but the first have the marker `runtimes`.
"""

import pytest

from tests.opencl.runtimes import Runtime, runtimes


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "runtime" in metafunc.fixturenames:
        missing = pytest.param(
            None,
            id="none",
            marks=pytest.mark.skip(reason="no OpenCL runtime (intel-opencl-rt or pocl-opencl-icd)"),
        )
        others = [pytest.param(one, marks=pytest.mark.runtimes) for one in runtimes()[1:]]
        found = [*runtimes()[:1], *others] or [missing]
        names = [one.name for one in runtimes()]
        metafunc.parametrize("runtime", found, ids=names or None, scope="session")


@pytest.fixture
def first() -> Runtime:
    """The first runtime, for what does not depend on it."""
    found = runtimes()
    if not found:
        pytest.skip("no OpenCL runtime (intel-opencl-rt or pocl-opencl-icd)")
    return found[0]
