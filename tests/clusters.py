"""Dask clusters for tests: a real scheduler and worker processes of this machine."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SECONDS = 60


class Cluster:
    """A scheduler, found by its file, and its workers, which start without each other's help."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.file = folder / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start("scheduler", "--port", "0", "--scheduler-file", str(self.file))
        end = time.monotonic() + _SECONDS
        # it is there before it is written
        while not (self.file.exists() and self.file.read_text()) and time.monotonic() < end:
            time.sleep(0.02)

    def add_worker(self, *flags: str) -> subprocess.Popen[bytes]:
        """Start a worker of one thread, in a working folder of its own."""
        where = ("--scheduler-file", str(self.file), "--local-directory", str(self._folder))
        return self._start(
            "worker", *where, "--no-nanny", "--nthreads", "1", "--memory-limit", "0", *flags
        )

    def _start(self, what: str, *flags: str) -> subprocess.Popen[bytes]:
        log = (self._folder / f"{what}{len(self.processes)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", what, *flags, "--no-dashboard"],
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process


@contextmanager
def started(folder: Path, workers: int) -> Iterator[Cluster]:
    """Start a cluster, and end it."""
    folder.mkdir()
    cluster = Cluster(folder)
    try:
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        for process in reversed(cluster.processes):
            process.kill()
            process.wait()
