"""What commands show on stderr while they work: warnings, and a bar."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Self

from reorder.cli.command import one_line

_WIDTH = 24
# Seconds after which work is long enough to show a bar.
_PATIENCE = 0.5
# Seconds between two lines where there is no terminal, as in the log of a server.
LINE_SECONDS = 10.0


def warn(text: str) -> None:
    """Write a line about what is probably a mistake."""
    _say(f"memdesc: warning: {one_line(text)}\n")


def _say(text: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):  # the work goes on without its terminal
            sys.stderr.write(text)
            sys.stderr.flush()


class Progress:
    """Shows how much of the work is done: a bar on a terminal, else a line every 10 seconds.

    The bar appears when the work has taken half a second. Use this as a context, which erases the
    bar at the end, even after an error.
    """

    def __init__(self, total: int) -> None:
        self._total = max(total, 1)
        self._done = 0
        self._start = self._shown = time.monotonic()
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            _say("\r\033[K")

    def step(self, text: str, amount: int = 0) -> None:
        """Add to what has been done, and say what comes next."""
        self.move_to(self._done + amount, text)

    def move_to(self, done: int, text: str) -> None:
        """Set how much has been done, and say what comes next."""
        self._done = done
        if sys.stderr is None:
            return
        share, now = min(self._done / self._total, 1.0), time.monotonic()
        if sys.stderr.isatty():
            if now - self._start > _PATIENCE:
                filled = round(share * _WIDTH)
                bar = f"[{'#' * filled}{'.' * (_WIDTH - filled)}]"
                _say(f"\r\033[K{bar} {share:4.0%} {text}")
                self._is_shown = True
        elif now - self._shown >= LINE_SECONDS:
            self._shown = now
            _say(f"memdesc: {share:.0%} {text}\n")
