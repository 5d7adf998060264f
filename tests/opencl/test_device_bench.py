"""What is measured on a device."""

import re
from typing import Any

import pyopencl as cl
import pytest

from reorder.bench.cases import Problem
from reorder.bench.device import CASES, DeviceBench, duration, resized
from reorder.cli.bench import device_lines
from reorder.cli.main import main
from tests.opencl.runtimes import Runtime


def test_a_case_is_measured_beside_the_copy(first: Runtime) -> None:
    bench = DeviceBench(first.device)
    case = Problem((2, 8, 5, 6), "nhwc", "in_out_channel", "f16")
    row = bench.measure(case)
    assert row["nbytes"] == 2 * 8 * 5 * 6 * 2
    assert row["of_copy"] > 0
    # torch is beside a GPU that it can use
    assert row["torch_of_copy"] is None or row["torch_of_copy"] > 0
    facts: dict[str, Any] = {"device": "d", "platform": "p", "version": "v"}
    lines = device_lines(facts | {"cases": [row]})
    assert re.split(" {2,}", lines[3])[:5] == ["f16", "nhwc", "in_out_channel", "2x8x5x6", "0"]
    assert lines[2].endswith("TB/s  of the copy")
    assert lines[5].startswith("of the copy: geometric mean")
    beside_torch = device_lines(facts | {"cases": [row | {"torch_of_copy": 0.5}]})
    assert beside_torch[2].endswith("of the copy  torch, of the copy")
    assert beside_torch[3].endswith("0.50")


def test_a_reorder_of_two_launches_is_measured_from_the_first_to_the_last(first: Runtime) -> None:
    # rows of 37 values of 4 bits: each launch writes one half of the bytes they share
    bench = DeviceBench(first.device)
    case = Problem((37, 15), "ab", "ba", "f32", "s4")
    commands = bench.runner(bench.load(case))()
    bench.queue.finish()
    kernel = cl.command_type.NDRANGE_KERNEL
    assert [one.command_type for one in commands] == [kernel] * 2
    starts, ends = zip(*((one.profile.start, one.profile.end) for one in commands), strict=True)
    seconds = (max(ends) - min(starts)) * 1e-9
    assert duration(commands) == pytest.approx(seconds)
    assert seconds >= max(end - start for start, end in zip(starts, ends, strict=True)) * 1e-9


def test_a_time_decides_how_often_a_reorder_runs(first: Runtime) -> None:
    for seconds, runs in ((None, 11), (0.5, 5), (1e-9, 1), (1e9, 1000)):
        assert DeviceBench(first.device, seconds).runs(0.1) == runs


def test_cases_are_made_smaller() -> None:
    for case in CASES:
        small = resized(case, 1 << 20)
        assert small.mean_nbytes <= 1 << 20
        # rows that start anywhere still do
        odd = [k for k, dim in enumerate(case.dims) if dim % 2]
        assert all(small.dims[k] % 2 for k in odd)
        assert resized(case, 1 << 40) == case


_REFUSED = """
--size 1 1x2 | add --device NAME
--device x --size 0 | give megabytes above 0
--device x --seconds 0 | --seconds: give a time above 0, such as 0.1, not '0'
--device x --seconds nan | --seconds: give a time above 0, such as 0.1, not 'nan'
--device no-such-device | no OpenCL device
--device x 1x64x56x56 | fixed list of reorders, so leave out DIMS
--device x --from=ab --to=ba --dtype=s8 | leave out --from, --to, --dtype
--device x --scale=2 --threads=1 | --scale, --threads
"""


def test_wrong_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for line in _REFUSED.strip().splitlines():
        options, said = line.split(" | ")
        assert main(["bench", *options.split()]) != 0
        assert said in capsys.readouterr().err, line


@pytest.mark.campaign
def test_the_command_prints_a_table(first: Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--device", first.name, "--size", "0.05", "--seconds", "0.01"]) == 0
    out = capsys.readouterr().out
    assert len(re.findall("ab +ba ", out)) > 2
