from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.reorder.cli.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Commands that run in `tmp_path`, which is empty."""
    monkeypatch.chdir(tmp_path)
    return Shell(capsys)
