"""The machine of a process: its affinity, the quota of its control groups, or an assumed one."""

import json
import os
from pathlib import Path

import pytest

from reorder.assumed import PROCESSORS, AssumedMachine, read_machine
from reorder.cpu.settings import thread_limit
from reorder.system import quota_cores
from tests.processors import runnable_processors
from tests.programs import run_python

_FACTS = """
import json
from reorder.system import count_cores
from reorder.cpu.host import this_machine
from reorder.cpu.target import processor, register_bits

machine = this_machine()
print(json.dumps([
    count_cores(), machine.threads, machine.cache_nbytes, machine.own_cache_nbytes,
    processor().name, register_bits(),
]))
"""


def _facts(before: str = "", **settings: str) -> list[int]:
    """Return what a process finds, as `_FACTS` prints it; by default of the machine here."""
    ran = run_python("-c", before + _FACTS, **{"MEMDESC_MACHINE": "", **settings})
    found: list[int] = json.loads(ran.stdout)
    return found


def _write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n", encoding="utf-8")


def _quota(tmp_path: Path, text: str, folder: Path | None = None) -> int | None:
    file = tmp_path / "cgroup"
    file.write_text(text, encoding="utf-8")
    return quota_cores(file, folder or tmp_path)


def test_the_least_quota_of_all_groups_above_holds(tmp_path: Path) -> None:
    _write(tmp_path / "a" / "b", cpu__max="400000 100000")
    _write(tmp_path / "a", cpu__max="300000 100000")
    _write(tmp_path, cpu__max="max 100000")
    assert _quota(tmp_path, "0::/a/b\n") == 3
    # of version 1, in a container: the path is that of the host, and the folder the group's own
    text = "5:memory:/docker/0a\n4:cpu,cpuacct:/docker/0a\n0::/\n"
    for quota, cores in (("-1", None), ("250000", 3), ("0", None)):
        files = {"cpu__cfs_quota_us": quota, "cpu__cfs_period_us": "100000"}
        _write(tmp_path / "1" / "cpu,cpuacct", **files)
        assert _quota(tmp_path, text, tmp_path / "1") == cores
    # no limit is found where there are no groups
    for text in ("", "nonsense", "0::/a/b\n", "4:cpu:/x\n"):
        assert _quota(tmp_path, text, tmp_path / "missing") is None
    assert quota_cores(tmp_path / "missing", tmp_path) is None


def test_a_number_of_threads_that_is_none_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, limit in (("3", 3), ("0", 1), ("", None), ("many", None), ("-2", None)):
        monkeypatch.setenv("NUMBA_NUM_THREADS", value)
        assert thread_limit() == limit


def test_a_process_counts_the_cores_of_its_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    assert _facts(f"import os; os.sched_setaffinity(0, [{min(allowed)}])")[0] == 1
    assert 1 <= _facts()[0] <= len(allowed)


def test_a_process_in_a_group_with_a_quota_counts_its_cores() -> None:
    for top, files in (("cpu", {"cpu.cfs_quota_us": "100000"}), ("", {"cpu.max": "100000 100000"})):
        group = Path("/sys/fs/cgroup") / top / f"memdesc-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for name, text in files.items():
                (group / name).write_text(text, encoding="utf-8")
            join = f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')"
            assert _facts(join, NUMBA_NUM_THREADS="4")[1] == 1
        except OSError:
            continue
        finally:
            group.rmdir()
        return
    pytest.skip("no control group can be made here, which takes root and a writable /sys/fs/cgroup")


@pytest.mark.parametrize("processor", runnable_processors())
def test_a_process_assumes_the_machine_in_its_environment(processor: str) -> None:
    found = _facts(MEMDESC_MACHINE=f"cores=16 l2=1M l3=32M cpu={processor}")
    bits = 512 if "avx512bw" in PROCESSORS[processor] else 256
    bits = bits if "avx2" in PROCESSORS[processor] else 128
    assert found == [16, 16, 28 << 20, 1 << 20, processor, bits]
    limited = _facts(MEMDESC_MACHINE="cores=16", NUMBA_NUM_THREADS="3")
    assert limited[:2] == [16, 3]
    assert read_machine(" l1=100  l3=1G cpu=host ") == AssumedMachine(caches=(100, 0, 1 << 30))


_AS_NEHALEM = """
import platform
from llvmlite import binding
platform.machine = lambda: {machine!r}
features = binding.FeatureMap()
features["ssse3"] = True
binding.get_host_cpu_features = lambda: features
import memdesc
try:
    import reorder.cpu
except memdesc.MemdescError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        ("x86_64", "has no avx2, fma, f16c; choose one of x86-64, nehalem"),
        ("aarch64", "is aarch64; leave cpu= out"),
    ],
)
def test_instructions_that_the_processor_lacks_are_not_assumed(
    machine: str, reason: str, tmp_path: Path
) -> None:
    # an empty folder for what LLVM says
    settings = {"MEMDESC_MACHINE": "cpu=haswell", "NUMBA_CACHE_DIR": str(tmp_path)}
    ran = run_python("-c", _AS_NEHALEM.format(machine=machine), **settings)
    said = "MEMDESC_MACHINE assumes cpu=haswell, but the processor here"
    assert ran.stdout == f"{said} {reason}\n"
