from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from memdesc import staging
from memdesc.staging import StagedFile, own_turn

# a process that writes a file and waits before it is published; the arguments say where, and
# whether it is written without a name
_WRITER = """
import sys, time
from pathlib import Path
from memdesc import staging
staging._UNNAMED *= int(sys.argv[2])
file = staging.StagedFile(Path(sys.argv[1]), lambda file: file.write(b"new"))
print("written", flush=True)
time.sleep(60)
"""


def _start(target: Path, *, unnamed: bool) -> subprocess.Popen[str]:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(target), str(int(unnamed))],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "written\n"
    return writer


@pytest.fixture(params=["unnamed", "unnamed, no links", "named"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    # what file systems that are rare here cannot do is not asked of them
    if request.param == "unnamed, no links":
        monkeypatch.setattr(staging, "_OPEN_FILES", Path("/proc/self/fdinfo"))
    if request.param == "named":
        monkeypatch.setattr(staging, "_UNNAMED", 0)


@pytest.mark.parametrize("older", [None, b"old"])
def test_a_file_is_there_when_it_is_published_and_not_before(
    tmp_path: Path, older: bytes | None
) -> None:
    target = tmp_path / "x"
    if older is not None:
        target.write_bytes(older)
    file = StagedFile(target, lambda file: file.write(b"new"))
    assert target.exists() == (older is not None)
    file.publish()
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]
    file.discard()
    assert target.read_bytes() == b"new"


def test_what_is_discarded_or_fails_leaves_nothing(tmp_path: Path) -> None:
    StagedFile(tmp_path / "x", lambda file: file.write(b"new")).discard()

    def fail(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        StagedFile(tmp_path / "x", fail)
    assert not list(tmp_path.iterdir())


def test_new_files_may_be_read_by_those_whom_the_process_lets(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        StagedFile(tmp_path / "x", lambda file: file.write(b"new")).publish()
    finally:
        os.umask(mask)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_leaves_no_unnamed_file(tmp_path: Path, kind: signal.Signals) -> None:
    with _start(tmp_path / "x", unnamed=True) as writer:
        writer.send_signal(kind)
    assert not list(tmp_path.iterdir())


def test_a_file_that_a_killed_process_left_is_removed_and_others_are_not(tmp_path: Path) -> None:
    foreign = tmp_path / ".memdesc.settings"
    foreign.touch()
    with _start(tmp_path / "x", unnamed=False) as killed:
        killed.kill()
    with _start(tmp_path / "y", unnamed=False) as alive:
        # the second has removed what the first left, and is at work itself
        assert len(list(tmp_path.glob(".memdesc.*.tmp"))) == 1
        staging.remove_abandoned.cache_clear()
        StagedFile(tmp_path / "z", lambda file: file.write(b"new")).publish()
        assert len(list(tmp_path.glob(".memdesc.*.tmp"))) == 1
        alive.kill()
    staging.remove_abandoned.cache_clear()
    StagedFile(tmp_path / "z", lambda file: file.write(b"new")).publish()
    assert sorted(tmp_path.iterdir()) == [foreign, tmp_path / "z"]


def test_a_file_that_was_taken_for_abandoned_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = staging.try_lock
    taken: list[Path] = []

    def late(handle: int) -> bool:
        # another process is faster, once
        if not taken:
            taken.extend(tmp_path.glob(".memdesc.*.tmp"))
            for path in taken:
                path.unlink()
        return lock(handle)

    monkeypatch.setattr(staging, "_UNNAMED", 0)
    monkeypatch.setattr(staging, "try_lock", late)
    StagedFile(tmp_path / "x", lambda file: file.write(b"new")).publish()
    assert len(taken) == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]


def test_systems_without_locks_remove_what_can_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # elsewhere an open file cannot be removed; here nothing is open
    monkeypatch.setattr(staging, "_HAS_LOCKS", False)
    monkeypatch.setattr(staging, "_UNNAMED", 0)
    (tmp_path / ".memdesc.0123456789abcdef.tmp").touch()
    StagedFile(tmp_path / "x", lambda file: file.write(b"new")).publish()
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]


def test_turns_of_threads_do_not_overlap(tmp_path: Path) -> None:
    inside: list[int] = []
    most = 0

    def work() -> None:
        nonlocal most
        for _ in range(20):
            with own_turn(tmp_path):
                inside.append(0)
                most = max(most, len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


@pytest.mark.skipif(os.name != "posix", reason="folders are locked on POSIX systems only")
def test_a_turn_waits_for_the_one_before_but_not_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = []
    entered, left = threading.Event(), threading.Event()

    def first() -> None:
        with own_turn(tmp_path):
            entered.set()
            left.wait()
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait()
    with monkeypatch.context() as patch:
        patch.setattr(staging, "_MAX_WAIT_SECONDS", 0.01)
        with own_turn(tmp_path):
            order.append("does not wait")
    left.set()
    with own_turn(tmp_path):
        order.append("second")
    thread.join()
    assert order == ["does not wait", "first", "second"]


def test_there_are_no_turns_without_locks_and_where_there_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_turn(tmp_path / "missing"):
        pass
    monkeypatch.setattr(staging, "_HAS_LOCKS", False)
    with own_turn(tmp_path), own_turn(tmp_path):
        pass
    staging.unlock(-1)  # nothing is asked of the system


@pytest.mark.parametrize("is_replaced", [False, True])
def test_bytes_are_on_disk_before_the_name_and_then_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_replaced: bool
) -> None:
    target, sync = tmp_path / "x", os.fsync
    if is_replaced:
        target.write_bytes(b"old")
    synced: list[tuple[int, bool]] = []

    def recorded(handle: int) -> None:
        is_named = target.exists() and target.read_bytes() == b"new"
        synced.append((os.fstat(handle).st_ino, is_named))
        sync(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    StagedFile(target, lambda file: file.write(b"new")).publish()
    assert (target.stat().st_ino, False) in synced
    assert synced[-1] == (tmp_path.stat().st_ino, True)
