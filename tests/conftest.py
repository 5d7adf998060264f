"""Profiles of hypothesis.

`HYPOTHESIS_PROFILE=campaign pytest tests/property` runs the laws on 20 times as many examples.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("default", max_examples=100, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("campaign", max_examples=2000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
