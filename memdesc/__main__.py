"""`python -m memdesc` is the command `memdesc`.

The command is found by the name that the installed distribution gives it, because this
package imports nothing that moves data, and the command does.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def find_command(name: str) -> Callable[[], int]:
    """Load the console script of a distribution that has the same name.

    Raises
    ------
    SystemExit
        If it is not installed; the message says what to install.
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
