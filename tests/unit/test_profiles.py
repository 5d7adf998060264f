"""Pull requests draw the same examples each time; nightly runs draw new ones."""

from __future__ import annotations

import pytest

from tests.programs import run_python

_PROGRAM = """
import tests.conftest
from hypothesis import settings
now = settings()
print(now.derandomize, now.max_examples, now.database is not None)
"""


@pytest.mark.parametrize(
    ("ci", "profile", "found"),
    [
        ("true", "", "True 40 False"),
        ("", "ci", "True 40 False"),
        ("", "", "False 40 True"),
        ("", "campaign", "False 2000 True"),
        # hosted runners always set CI
        ("true", "nightly", "False 400 True"),
        ("true", "campaign", "False 2000 True"),
    ],
)
def test_examples_are_fixed_for_a_change_and_new_each_night(
    ci: str, profile: str, found: str
) -> None:
    ran = run_python("-c", _PROGRAM, CI=ci, HYPOTHESIS_PROFILE=profile)
    assert ran.stdout == f"{found}\n"
