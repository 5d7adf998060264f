"""Checkouts of this project as processes that time reorders."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple, Self

_PROGRAM = Path(__file__).with_name("timing_worker.py")


class Checkout(NamedTuple):
    """A folder that holds the library, and the Python that runs it."""

    folder: Path
    python: str

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start this Python so that it imports from this folder and from no other checkout."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder), **variables}
        return subprocess.Popen(
            [self.python, "-P", *arguments],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


class Worker:
    """A process that times reorders of one checkout."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        self.process = checkout.start(str(_PROGRAM))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def check_origin(self) -> None:
        """Refuse a library that was imported from elsewhere."""
        found = self._read()
        for name in ("memdesc", "reorder"):
            if not Path(found[name]).is_relative_to(self.checkout.folder):
                msg = f"{name} of {self.checkout.folder} was imported from {found[name]}"
                raise RuntimeError(msg)

    def ask(self, **request: object) -> float:
        """Send a request, and return the seconds of one call."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise ValueError(answer["error"])
        return float(answer["seconds"])

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            msg = f"the worker {self.process.args!r} ended with {self.process.wait()}"
            raise RuntimeError(msg)
        found: dict[str, Any] = json.loads(line)
        return found
