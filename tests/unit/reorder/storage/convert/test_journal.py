"""Journals that are damaged, or cannot be written."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memdesc import MemdescError
from reorder.storage.containers.partial import Partial
from reorder.storage.convert import journal as journal_module
from reorder.storage.convert.journal import Journal, facts_left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SECONDS = 5.0


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "SECONDS", 0.005)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Partial]:
    found = Partial(tmp_path / ".x.memdesc-partial")
    yield found
    found.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for the thread of a journal, which takes some milliseconds."""
    end = time.monotonic() + _SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)


def begun(folder: Partial) -> Journal:
    return Journal(folder, "me", lambda: None)


@pytest.mark.parametrize(
    "line",
    [
        b'{"1": 5',
        b"5",
        b"null",
        b'{"a": 1}',
        b'{"1": "a"}',
        b'{"1": 1.5}',
        b"[1]",
        b"",
        b"\0",
        b"[" * 9999,
    ],
)
def test_lines_from_a_damaged_one_on_are_not_trusted(folder: Partial, line: bytes) -> None:
    path = folder.path / "journal"
    path.write_bytes(b'"me"\n{"0": 5, "7": 5}\n' + line + b'\n{"8": 5}\n')
    assert begun(folder).done == {0: 5, 7: 5}


def test_a_journal_of_another_conversion_or_of_other_bytes_is_replaced(folder: Partial) -> None:
    path = folder.path / "journal"
    for text in (b'"you"\n{"1": 5}\n', b'\xff\n{"1": 5}\n', b""):
        path.write_bytes(text)
        assert begun(folder).done == {}
        assert path.read_text() == '"me"\n'


def test_what_a_conversion_left_says_which_one_it_was(folder: Partial, tmp_path: Path) -> None:
    target, path = tmp_path / "x", folder.path / "journal"
    assert facts_left(target) is None
    begun(folder)
    assert facts_left(target) == "me"
    for text in (b"", b"\xff\n", b'{"a": \n', b"[" * 9999):
        path.write_bytes(text)
        assert facts_left(target) is None


def test_a_journal_that_cannot_grow_ends_nothing_and_lists_its_tasks_later(folder: Partial) -> None:
    path = folder.path / "journal"
    with begun(folder) as journal:
        path.rename(folder.path / "kept")
        path.mkdir()  # nothing is written to it
        journal.add(1, 10, 5)
        time.sleep(0.02)
        path.rmdir()
        (folder.path / "kept").rename(path)
    assert begun(folder).done == {1: 5}


def test_a_journal_that_cannot_be_begun_is_an_error(folder: Partial) -> None:
    (folder.path / "journal").mkdir()
    with pytest.raises(MemdescError, match="journal' is where a conversion writes, but it is not"):
        begun(folder)


def test_what_was_being_written_when_a_process_ended_is_cut_off(folder: Partial) -> None:
    path = folder.path / "journal"
    path.write_bytes(b'"me"\n{"0": 5, "7": 5}\n{"8": ')
    with begun(folder) as journal:
        journal.add(9, 10, 5)
    assert path.read_bytes() == b'"me"\n{"0": 5, "7": 5}\n{"9": 5}\n'
    assert begun(folder).done == {0: 5, 7: 5, 9: 5}


def test_tasks_are_listed_again_and_again_and_in_the_end(
    folder: Partial, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder.path / "journal"
    with begun(folder) as journal:
        for task in (1, 2):
            journal.add(task, 10, 5)
            wait_until(lambda task=task: path.read_text().endswith(f'{{"{task}": 5}}\n'))  # type: ignore[misc] # of this round
        monkeypatch.setattr(journal_module, "SECONDS", 1000.0)
        time.sleep(0.02)
        journal.add(3, 10, 5)
    assert path.read_bytes() == b'"me"\n{"1": 5}\n{"2": 5}\n{"3": 5}\n'


def test_tasks_are_listed_as_soon_as_they_have_written_much(
    folder: Partial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "SECONDS", 1000.0)
    monkeypatch.setattr(journal_module, "NBYTES", 30)
    path = folder.path / "journal"
    with begun(folder) as journal:
        for task in (1, 2, 3):
            journal.add(task, 10, 5)
        wait_until(lambda: path.read_bytes() == b'"me"\n{"1": 5, "2": 5, "3": 5}\n')
        for task in (4, 5):
            journal.add(task, 10, 5)
        time.sleep(0.02)
        assert path.read_bytes() == b'"me"\n{"1": 5, "2": 5, "3": 5}\n'
    assert path.read_bytes() == b'"me"\n{"1": 5, "2": 5, "3": 5}\n{"4": 5, "5": 5}\n'


def test_a_task_is_listed_when_what_was_written_before_is_on_disk(
    folder: Partial, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    journal: list[Journal] = []

    def recorded(name: str) -> None:
        call = getattr(os, name)

        def record(handle: int, *arguments: Any) -> Any:
            if Path(f"/proc/self/fd/{handle}").readlink() == folder.path / "journal":
                calls.append(" ".join((name, *(each.decode().strip() for each in arguments))))
            return call(handle, *arguments)

        monkeypatch.setattr(os, name, record)

    def sync() -> None:
        calls.append("sync")
        if len(calls) == 1:  # its bytes may not be on disk when this returns
            journal[0].add(8, 10, 5)

    journal.append(Journal(folder, "me", sync))
    recorded("write")
    recorded("fsync")
    with journal[0]:
        journal[0].add(7, 10, 5)
        wait_until(lambda: 'write {"7": 5}' in calls)
    line = ['write {"7": 5}', "fsync", "sync", 'write {"8": 5}', "fsync"]
    assert calls == ["sync", *line]


def test_what_ends_the_thread_is_raised_in_the_end(folder: Partial) -> None:
    def fail() -> None:
        msg = "the disk is gone"
        raise MemdescError(msg)

    with (
        pytest.raises(MemdescError, match="the disk is gone"),
        Journal(folder, "me", fail) as journal,
    ):
        journal.add(1, 10, 5)
    assert begun(folder).done == {}
    with pytest.raises(KeyError), Journal(folder, "me", fail) as journal:  # noqa: PT012 - it is raised at the end
        journal.add(1, 10, 5)
        raise KeyError  # of the conversion itself, which is what its caller must see


def test_a_part_of_a_line_is_taken_back(folder: Partial, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = folder.path / "journal", os.write
    short = [3]

    def write_some(handle: int, data: bytes) -> int:
        return write(handle, data[: short.pop()] if short else data)

    with begun(folder) as journal:
        monkeypatch.setattr(os, "write", write_some)
        journal.add(1, 10, 5)
        wait_until(lambda: not short and path.read_bytes() == b'"me"\n')
        monkeypatch.setattr(os, "write", write)
        journal.add(2, 10, 5)
    assert path.read_bytes() == b'"me"\n{"1": 5, "2": 5}\n'
