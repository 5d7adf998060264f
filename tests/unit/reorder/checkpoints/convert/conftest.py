"""A model whose checkpoint is converted."""

from pathlib import Path

import pytest

from tests.checkpoints import model_folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    model_folder(tmp_path / "model")
    return tmp_path / "model"
