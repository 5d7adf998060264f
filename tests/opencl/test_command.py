"""The command on devices."""

from pathlib import Path

import numpy as np
import pytest

from memdesc import MemdescError, memory_desc
from reorder import load, opencl
from reorder.cli import doctor, main
from tests.opencl.runtimes import Runtime, refused

X = np.random.default_rng(0).random((2, 17, 3, 2), np.float32)


def test_reorder_runs_on_the_device_that_is_named(
    runtime: Runtime, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    src, out = str(tmp_path / "in.npy"), str(tmp_path / "out.npz")
    np.save(src, X)
    name = runtime.name[:8].upper()
    assert main(["reorder", src, out, "--to", "nChw8c", "--device", name]) == 0
    found = load(out)
    assert found.desc == memory_desc(X.shape, "f32", "nChw8c")
    assert found.numpy().tobytes() == X.tobytes()
    np.save(tmp_path / "scales.npy", np.linspace(0.01, 0.1, 17).astype(np.float32))
    words = ["--to", "nhwc", "--to-dtype", "s8", "--scale", f"{tmp_path / 'scales.npy'}:2"]
    # the second time, half of what the first wrote is added
    for more in ([], ["--beta", "0.5"]):
        for file, where in (("cpu.npz", []), ("device.npz", ["--device", name])):
            assert main(["reorder", src, str(tmp_path / file), *words, *more, *where]) == 0
        assert (tmp_path / "cpu.npz").read_bytes() == (tmp_path / "device.npz").read_bytes()
    capsys.readouterr()
    assert main(["reorder", src, out, "--to", "nhwc", "--device", name, "--threads", "2"]) == 2
    assert "--threads is for the CPU" in capsys.readouterr().err
    assert main(["reorder", src, out, "--to", "nhwc", "--device", "no such device"]) == 2
    assert "no OpenCL device 'no such device' works; there are: " in capsys.readouterr().err


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
    with pytest.raises(MemdescError, match="the name of a device is a string, not 3"):
        opencl.find_device(3)  # type: ignore[arg-type] # the mistake


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
