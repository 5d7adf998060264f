"""Journals that are damaged, or cannot be written."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from memdesc import MemdescError
from reorder.storage.convert.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "line", [b"[1,", b"5", b"null", b'{"a": 1}', b'[1, "a"]', b"[1.5]", b"", b"\0", b"[" * 9999]
)
def test_lines_from_a_damaged_one_on_are_not_trusted(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(json.dumps("me").encode() + b"\n[0, 7]\n" + line + b"\n[8]\n")
    assert Journal(path, "me", lambda: None, 1.0).done == {0, 7}


def test_a_journal_of_another_conversion_or_of_other_bytes_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for text in (b'"you"\n[1]\n', b"\xff\n[1]\n", b""):
        path.write_bytes(text)
        assert Journal(path, "me", lambda: None, 1.0).done == set()
        assert path.read_text() == '"me"\n'


def test_a_journal_that_cannot_grow_ends_nothing_and_lists_its_tasks_later(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, "me", lambda: None, 0.001) as journal:
        path.rename(tmp_path / "kept")
        path.mkdir()  # nothing is written to it
        journal.add(1)
        time.sleep(0.02)
        path.rmdir()
        (tmp_path / "kept").rename(path)
    assert Journal(path, "me", lambda: None, 1.0).done == {1}


def test_a_journal_that_cannot_be_begun_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MemdescError, match="cannot be written: Is a directory"):
        Journal(tmp_path, "me", lambda: None, 1.0)
