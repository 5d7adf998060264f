"""The cores that a process may use: its affinity, and the quota of its control groups."""

import os
from pathlib import Path

import pytest

from reorder.cores import quota_cores
from reorder.cpu.settings import thread_limit
from tests.programs import run_python


def _write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n", encoding="utf-8")


def _member(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "cgroup"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_least_quota_of_all_groups_above_holds(tmp_path: Path) -> None:
    _write(tmp_path / "a" / "b", cpu__max="400000 100000")
    _write(tmp_path / "a", cpu__max="300000 100000")
    _write(tmp_path, cpu__max="max 100000")
    assert quota_cores(_member(tmp_path, "0::/a/b\n"), tmp_path) == 3


@pytest.mark.parametrize(("quota", "cores"), [("-1", None), ("250000", 3), ("0", None)])
def test_the_quota_of_version_1(quota: str, cores: int | None, tmp_path: Path) -> None:
    # in a container the path is that of the host, and the folder is the group's own
    _write(tmp_path / "cpu,cpuacct", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    member = _member(tmp_path, "5:memory:/docker/0a\n4:cpu,cpuacct:/docker/0a\n0::/\n")
    assert quota_cores(member, tmp_path) == cores


@pytest.mark.parametrize("text", ["", "nonsense", "0::/a/b\n", "4:cpu:/x\n"])
def test_no_limit_is_found_where_there_are_no_groups(text: str, tmp_path: Path) -> None:
    assert quota_cores(_member(tmp_path, text), tmp_path / "missing") is None
    assert quota_cores(tmp_path / "missing", tmp_path) is None


@pytest.mark.parametrize(
    ("value", "limit"), [("3", 3), ("0", 1), ("", None), ("many", None), ("-2", None)]
)
def test_a_number_of_threads_that_is_none_is_no_limit(
    value: str, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", value)
    assert thread_limit() == limit


def test_a_process_counts_the_cores_of_its_affinity() -> None:
    program = "from reorder.cores import count_cores; print(count_cores())"
    core = min(os.sched_getaffinity(0))
    alone = f"import os; os.sched_setaffinity(0, [{core}]); {program}"
    assert run_python("-c", alone, MEMDESC_MACHINE="").stdout == "1\n"
    cores = int(run_python("-c", program, MEMDESC_MACHINE="").stdout)
    assert 1 <= cores <= len(os.sched_getaffinity(0))


def test_a_process_in_a_group_with_a_quota_counts_its_cores() -> None:
    program = "from reorder.cpu import count_threads; print(count_threads())"
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
            settings = {"NUMBA_NUM_THREADS": "4", "MEMDESC_MACHINE": ""}
            ran = run_python("-c", f"{join}; {program}", **settings)
            assert ran.stdout == "1\n"
        except OSError:
            continue
        finally:
            group.rmdir()
        return
    pytest.skip("no control group can be made here, which takes root and a writable /sys/fs/cgroup")
