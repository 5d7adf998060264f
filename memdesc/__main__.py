"""`python -m memdesc` is the command `memdesc`.

The command moves data, which this package never imports, so it is looked up among the console
scripts of the installed distribution.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution


def find_command(name: str) -> Callable[[], int]:
    """Load the console script that has the name of its distribution.

    Fails with a SystemExit if it is not installed; the message says what to install.
    """
    try:
        scripts = distribution(name).entry_points.select(group="console_scripts", name=name)
        (script,) = scripts
    except (PackageNotFoundError, ValueError):
        sys.exit(f"the command {name} is not installed; run: pip install {name}")
    command: Callable[[], int] = script.load()
    return command


if __name__ == "__main__":
    sys.exit(find_command("memdesc")())
