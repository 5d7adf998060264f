"""Processes of Python that tests start."""

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_SECONDS = 550


def run_python(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these sources, and fail with what it says on stderr if it fails."""
    ran = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(_ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
    return ran
