from pathlib import Path

import pytest

from tests.unit.reorder.cli.shell import Shell


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Commands that run in `tmp_path`, which is empty."""
    monkeypatch.chdir(tmp_path)
    return Shell(capsys)
