"""Profiles of hypothesis, and the campaigns that run only where they are asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Sequence

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("default", max_examples=100, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("campaign", max_examples=2000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Skip campaigns unless the command line speaks of them: pytest -m campaign."""
    if "campaign" in config.option.markexpr:
        return
    for item in items:
        if item.get_closest_marker("campaign"):
            item.add_marker(pytest.mark.skip(reason="a campaign; run pytest -m campaign"))
