"""Pull requests draw the same examples each time; nightly runs draw new ones."""

import json

from tests.programs import run_python

# a process of its own: the profile is that of a whole process
_PROGRAM = """
import importlib, json, os, sys
import tests.conftest
from hypothesis import settings

for ci, profile in json.loads(sys.argv[1]):
    os.environ |= {"CI": ci, "HYPOTHESIS_PROFILE": profile}
    importlib.reload(tests.conftest)
    now = settings()
    print(now.derandomize, now.max_examples, now.database is not None)
"""
# the variable CI, the profile, and what follows
_FOUND = {
    ("true", ""): "True 40 False",
    ("", "ci"): "True 40 False",
    ("", ""): "False 40 True",
    ("", "campaign"): "False 2000 True",
    # hosted runners always set CI
    ("true", "nightly"): "False 400 True",
    ("true", "campaign"): "False 2000 True",
}


def test_examples_are_fixed_for_a_change_and_new_each_night() -> None:
    ran = run_python("-c", _PROGRAM, json.dumps([*_FOUND]))
    assert ran.stdout.splitlines() == [*_FOUND.values()]
