"""A model whose checkpoint is converted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.checkpoints import model_folder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    model_folder(tmp_path / "model")
    return tmp_path / "model"
