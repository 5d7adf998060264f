import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from memdesc import MemdescError
from reorder.cli.main import main
from reorder.opencl import Device, find_device
from reorder.opencl.binaries import CACHE_LIMIT
from reorder.opencl.discovery import _remedy_of
from reorder.opencl.icds import VARIABLE
from tests.opencl.runtimes import Runtime

ASK = """
import json, os
from reorder import opencl
found = opencl.devices()
print(json.dumps({"platforms": [d.platform for d in found], "problems": [d.problem for d in found],
                  "variable": os.environ.get("OCL_ICD_VENDORS"), "report": opencl.loader_report()}))
"""


def ask(**settings: str) -> dict[str, Any]:
    """Look for devices in a new process: the loader searches once."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | settings
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def has_package(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


def test_runtimes_are_found_without_settings_and_leave_none_behind() -> None:
    found = ask()
    assert found["variable"] is None
    if has_package("intel-opencl-rt"):
        assert "Intel(R) OpenCL" in found["platforms"]
        assert any(
            "libintelocl.so" in line and "does not exist" in line for line in found["report"]
        )
    if Path("/etc/OpenCL/vendors/pocl.icd").exists():
        assert "Portable Computing Language" in found["platforms"]
    if not found["platforms"]:
        pytest.skip("no OpenCL runtime (intel-opencl-rt or pocl-opencl-icd)")
    assert set(found["problems"]) == {""}


def test_a_variable_of_the_user_is_kept(tmp_path: Path) -> None:
    found = ask(**{VARIABLE: str(tmp_path)})
    assert not {"Intel(R) OpenCL", "NVIDIA CUDA"} & set(found["platforms"])
    assert found["variable"] == str(tmp_path)
    assert found["report"] == [f"{VARIABLE}={tmp_path} is set, so it alone decides"]


def test_a_wrong_limit_of_the_cache_is_not_blamed_on_a_device(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(CACHE_LIMIT, "abc")
    with pytest.raises(MemdescError, match=f"^{CACHE_LIMIT}='abc' is not a number of bytes"):
        find_device()
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert f"{CACHE_LIMIT}='abc' is not a number of bytes" in said
    assert "reinstall" not in said


def test_a_runtime_that_does_not_load_is_reported_in_the_words_of_the_loader(
    tmp_path: Path,
) -> None:
    vendors, lib = tmp_path / "etc" / "OpenCL" / "vendors", tmp_path / "lib"
    for folder in (vendors, lib):
        folder.mkdir(parents=True)
    (lib / "libbroken.so").write_bytes(b"no library")
    (vendors / "broken.icd").write_text(f"{lib}/libbroken.so\n")
    (vendors / "absent.icd").write_text("libabsent-opencl.so.1\n")
    report = ask(CONDA_PREFIX=str(tmp_path))["report"]
    assert (
        f"{vendors}/absent.icd: libabsent-opencl.so.1 (does not load: "
        "libabsent-opencl.so.1: cannot open shared object file: " in "".join(report)
    )
    assert (
        f"{vendors}/broken.icd: {lib}/libbroken.so "
        f"(does not load: {lib}/libbroken.so: file too short)"
    ) in report
    assert not [line for line in report if "does not load" in line and str(tmp_path) not in line]


def test_a_working_device_says_what_it_can_do(runtime: Runtime) -> None:
    device = runtime.device
    assert device.works
    assert (device.problem, device.remedy) == ("", "")
    assert device.max_width == device.device.image2d_max_width >= 8192


def test_a_problem_comes_with_what_to_do() -> None:
    assert "apt install pocl-opencl-icd" in _remedy_of("error: unknown target CPU 'generic'")
    assert "pip install intel-opencl-rt intel-cmplr-lib-rt" in _remedy_of("BUILD_PROGRAM_FAILURE")
    assert not Device(None, "a", "b", "c", True, 1, 1, "it fails", "remedy it").works  # type: ignore[arg-type]  # noqa: FBT003 - fields in their order
