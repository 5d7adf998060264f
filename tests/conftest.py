"""Profiles of hypothesis, and files that need packages of the extras `peers` and `judges`.

`HYPOTHESIS_PROFILE=campaign pytest tests/property` runs the laws on 2,000 examples each, or on as
many as `MEMDESC_EXAMPLES` says.
In CI (where the variable CI is `true`), and with the profile `ci`, examples do not change from run
to run: a change fails by what it changes. All other runs draw new ones, as does the profile
`nightly`, with more of them and with what repeats a failure.

A file whose tests all have the mark `peers` or `judges` may end its import by
`pytest.importorskip`: where the mark is not asked for, the file is not imported.
"""

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

# shells start background jobs with SIGINT ignored, which the processes of tests would inherit
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)

_IN_CI = os.environ.get("CI") == "true"

settings.register_profile(
    "default",
    max_examples=40,
    deadline=None,
    suppress_health_check=_SLOW,
    # where CI is set, Hypothesis itself has other defaults
    derandomize=False,
    database=DirectoryBasedExampleDatabase(Path(".hypothesis", "examples")),
)
_DEFAULT = settings.get_profile("default")
settings.register_profile("ci", _DEFAULT, derandomize=True, database=None, print_blob=True)
settings.register_profile("nightly", _DEFAULT, max_examples=400, print_blob=True)
_MANY = int(os.environ.get("MEMDESC_EXAMPLES", "2000"))
settings.register_profile("campaign", _DEFAULT, max_examples=_MANY)
# one failure is enough: examples are neither made smaller nor kept
settings.register_profile(
    "mutation",
    settings.get_profile("ci"),
    database=None,
    phases=(Phase.explicit, Phase.generate),
    print_blob=False,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if _IN_CI else "default"))

_MARK_OF_ALL = re.compile(
    r"^pytestmark = \[?\s*pytest\.mark\.(campaign|docs|judges|peers)\b", re.MULTILINE
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files whose tests all have a marker that is not asked for: they load much."""
    wanted = config.getoption("markexpr")
    if not wanted or collection_path.suffix != ".py":
        return None
    found = _MARK_OF_ALL.search(collection_path.read_text(encoding="utf-8"))
    return bool(found and (found[1] not in wanted or f"not {found[1]}" in wanted)) or None
