"""A bar on stderr for long work; silent where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from typing import Self

__all__ = ["Progress"]

_WIDTH = 24
_PATIENCE = 0.5


class Progress:
    """Shows how much of the work is done, once it takes longer than half a second.

    Use it as a context; the bar is wiped at the end, also after an error.
    """

    def __init__(self, total: int) -> None:
        self._total = max(total, 1)
        self._done = 0
        self._start = time.monotonic()
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def step(self, text: str, amount: int = 0) -> None:
        """Add what has been done, and say what comes now."""
        self.move_to(self._done + amount, text)

    def move_to(self, done: int, text: str) -> None:
        """Set how much has been done, and say what comes now."""
        self._done = done
        if sys.stderr and sys.stderr.isatty() and time.monotonic() - self._start > _PATIENCE:
            share = min(self._done / self._total, 1.0)
            filled = round(share * _WIDTH)
            sys.stderr.write(
                f"\r\033[K[{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%} {text}"
            )
            sys.stderr.flush()
            self._is_shown = True
