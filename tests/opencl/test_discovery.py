"""Runtimes and devices are found, named and tried, by functions and by the command."""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memdesc import memory_desc
from reorder import load, opencl
from reorder.cli import doctor, main
from reorder.opencl.runtimes import VARIABLE, Icd, _remedy_of, find_icds
from tests.opencl.runtimes import Runtime, refused

_ASK = """
import json, os
from reorder import opencl
found = opencl.devices()
print(json.dumps({"platforms": [d.platform for d in found], "problems": [d.problem for d in found],
                  "variable": os.environ.get("OCL_ICD_VENDORS"), "report": opencl.loader_report()}))
"""
# an ICD file of an environment, a library that it may name, one of NVIDIA
_FILE, _LIBRARY = "prefix/etc/OpenCL/vendors/intel.icd", "prefix/lib/libintelocl.so"
_GONE, _BARE = "/opt/placeholder/lib/libintelocl.so", "lib/libnvidia-opencl.so.1"
_NAMES = f"it names {_GONE}, which does not exist"


@pytest.mark.parametrize(
    ("files", "library", "source", "note"),
    [
        ({"system/a.icd": "libpocl.so.2\n"}, "libpocl.so.2", "system/a.icd", ""),
        ({_FILE: f"{_GONE}\n"}, None, _FILE, f"{_NAMES}, and ROOT/{_LIBRARY} does not either"),
        # it moved with its environment
        ({_FILE: f"{_GONE}\n", _LIBRARY: ""}, f"ROOT/{_LIBRARY}", _FILE, _NAMES),
        ({_FILE: f"ROOT/{_LIBRARY}", _LIBRARY: ""}, f"ROOT/{_LIBRARY}", _FILE, ""),
        ({_FILE: "libintelocl.so"}, "libintelocl.so", _FILE, ""),
        ({_FILE: ""}, None, _FILE, "the file is empty or cannot be read"),
        ({_BARE: ""}, f"ROOT/{_BARE}", _BARE, "no ICD file names libnvidia-opencl.so.1"),
        # and is found once
        ({_BARE: "", "system/n.icd": Path(_BARE).name}, Path(_BARE).name, "system/n.icd", ""),
    ],
)
def test_the_files_that_name_runtimes_are_read(
    files: dict[str, str], library: str | None, source: str, note: str, tmp_path: Path
) -> None:
    def found() -> tuple[Icd, ...]:
        return find_icds(tmp_path / "system", (tmp_path / "prefix",), (tmp_path / "lib",))

    assert found() == ()
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content.replace("ROOT", str(tmp_path)))
    named = library and library.replace("ROOT", str(tmp_path))
    said = note.replace("ROOT", str(tmp_path))
    assert found() == (Icd(named, str(tmp_path / source), said),)


def test_folders_that_cannot_be_searched_have_no_runtimes(tmp_path: Path) -> None:
    # as those of another user, which root can search: the system refuses so long a name
    denied = Path("/" + "x" * 300)
    vendors = tmp_path / "etc" / "OpenCL" / "vendors"
    vendors.mkdir(parents=True)
    (vendors / "lost.icd").write_text(f"{denied}/libocl.so\n")
    (lost,) = find_icds(denied, (denied, tmp_path), (denied,))
    assert (lost.library, lost.source) == (None, str(vendors / "lost.icd"))


def ask(**settings: str) -> dict[str, Any]:
    """Look for devices in a new process: the loader searches once."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | settings
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
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
        said = [line for line in found["report"] if "libintelocl.so" in line]
        assert any("does not exist" in line for line in said)
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


def test_a_runtime_that_does_not_load_is_reported_in_the_words_of_the_loader(
    tmp_path: Path,
) -> None:
    vendors, broken = tmp_path / "etc" / "OpenCL" / "vendors", tmp_path / "libbroken.so"
    vendors.mkdir(parents=True)
    broken.write_bytes(b"no library")
    (vendors / "broken.icd").write_text(f"{broken}\n")
    (vendors / "absent.icd").write_text("libabsent-opencl.so.1\n")
    report = ask(CONDA_PREFIX=str(tmp_path))["report"]
    assert (
        f"{vendors}/absent.icd: libabsent-opencl.so.1 (does not load: "
        "libabsent-opencl.so.1: cannot open shared object file: " in "".join(report)
    )
    said = f"{vendors}/broken.icd: {broken} (does not load: {broken}: file too short)"
    assert said in report
    assert not [line for line in report if "does not load" in line and str(tmp_path) not in line]


def test_a_problem_comes_with_what_to_do(runtime: Runtime) -> None:
    device = runtime.device
    assert (device.works, device.problem, device.remedy) == (True, "", "")
    assert device.max_width == device.device.image2d_max_width >= 8192
    assert "apt install pocl-opencl-icd" in _remedy_of("error: unknown target CPU 'generic'")
    assert "pip install intel-opencl-rt intel-cmplr-lib-rt" in _remedy_of("BUILD_PROGRAM_FAILURE")


def test_a_device_is_found_by_a_part_of_its_name_or_of_its_platform(runtime: Runtime) -> None:
    device = runtime.device
    assert opencl.find_device(device.name.upper()).works
    assert opencl.find_device(device.platform.lower()[:9]).platform == device.platform
    for word in device.version.split()[2:]:
        assert opencl.find_device(word).works
    if "PoCL" in device.version:
        assert "PoCL" in opencl.find_device("pocl").version
    assert opencl.find_device().device == opencl.find_device("").device
    with refused(f"no OpenCL device 'nothing' works; there are: {opencl.devices()[0].name}"):
        opencl.find_device("nothing")
    with refused("the name of a device is a string, not 3"):
        opencl.find_device(3)  # type: ignore[arg-type] # the mistake


def test_the_command_runs_on_the_device_that_is_named(
    runtime: Runtime, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.random.default_rng(0).random((2, 17, 3, 2), np.float32)
    src, out = str(tmp_path / "in.npy"), str(tmp_path / "out.npz")
    np.save(src, x)
    name = runtime.name[:8].upper()
    assert main(["reorder", src, out, "--to", "nChw8c", "--device", name]) == 0
    found = load(out)
    assert found.desc == memory_desc(x.shape, "f32", "nChw8c")
    assert found.numpy().tobytes() == x.tobytes()
    words = ["--to", "nhwc", "--to-dtype", "s8", "--scale", "0.0187"]
    for file, where in (("cpu.npz", []), ("device.npz", ["--device", name])):
        assert main(["reorder", src, str(tmp_path / file), *words, *where]) == 0
    assert (tmp_path / "cpu.npz").read_bytes() == (tmp_path / "device.npz").read_bytes()
    capsys.readouterr()
    for wrong, said in (
        ([name, "--threads", "2"], "--threads is for the CPU"),
        (["no such device"], "no OpenCL device 'no such device' works; there are: "),
    ):
        assert main(["reorder", src, out, "--to", "nhwc", "--device", *wrong]) == 2
        assert said in capsys.readouterr().err


def test_a_report_is_markdown_and_tries_each_device(
    runtime: Runtime, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "TRIALS", (("nhwc", "f32"),))
    assert main(["doctor", "--report"]) == 0
    report = capsys.readouterr().out
    works = sum(device.works for device in opencl.devices())
    assert report.startswith("memdesc ")
    assert f"| {runtime.device.name} | {runtime.device.platform}, " in report
    assert report.count("| nhwc, f32 | exact (") == works
    assert "bytes differ" not in report
