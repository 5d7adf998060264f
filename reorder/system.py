"""What the system gives: its architecture, functions of its C library, a cache folder, and cores.

The cores that this process may use follow from its affinity and the quota of its container;
`reorder.assumed` may say another number.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from typing import Any, TypeAlias

from reorder.assumed import assumed_machine

StrPath: TypeAlias = "str | os.PathLike[str]"

_MEMBERSHIP, _ROOT = "/proc/self/cgroup", "/sys/fs/cgroup"


def is_x86() -> bool:
    """Whether the processor is a 64-bit x86."""
    return platform.machine().lower() in {"x86_64", "amd64"}


def is_arm() -> bool:
    """Whether the processor is a 64-bit ARM."""
    return platform.machine().lower() in {"aarch64", "arm64"}


def system_function(name: str, *argtypes: Any) -> Any:
    """Return a function of the C library that returns an int; None if there is none."""
    function = None if os.name == "nt" else getattr(ctypes.CDLL(None), name, None)
    if function is not None and argtypes:
        function.argtypes = argtypes
    return function


def user_cache_folder() -> str | None:
    """Return this package's folder among the user's caches, if any; it need not exist."""
    home = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    usual = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    caches = os.environ.get(home) or os.path.expanduser(usual)
    # a relative folder would be made wherever the process is
    return f"{caches}/memdesc" if os.path.isabs(caches) else None


def count_cores() -> int:
    """Return how many cores this process may use, or is to assume."""
    assumed = assumed_machine().cores
    if assumed is not None:
        return assumed
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = _own_quota()
    return cores if quota is None else min(cores, quota)


def quota_cores(membership: StrPath, root: StrPath) -> int | None:
    """Return the cores that Linux control groups grant, rounded up; None without a limit.

    If threads use up a quota, the kernel stops all of them for the rest of the period. `membership`
    lists the groups of a process, and `root` is where they are mounted: in version 2 with a file
    ``cpu.max``, in version 1 with ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us`` (Linux,
    Documentation/admin-guide/cgroup-v2 and Documentation/scheduler/sched-bwc). Limits of parent
    groups apply as well.
    """
    shares = []
    for files in _quota_files(membership, root):
        with suppress(OSError, ValueError):
            quota, period = (int(number) for file in files for number in read_text(file).split())
            if quota > 0 and period > 0:
                shares.append(max(1, -(-quota // period)))
    return min(shares, default=None)


_own_quota = cache(partial(quota_cores, _MEMBERSHIP, _ROOT))


def _quota_files(membership: StrPath, root: StrPath) -> Iterator[list[str]]:
    """Yield the files with the quota and the period of a process's groups, and of their parents."""
    with suppress(OSError, ValueError):
        for line in read_text(membership).splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                tops, names = {f"{root}", f"{root}/unified"}, ["cpu.max"]
            elif "cpu" in controllers.split(","):
                tops = {f"{root}/{controllers}", f"{root}/cpu"}
                names = ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
            else:
                continue
            # in a container this may be the path on the host; then only the top exists here
            parts = [part for part in path.split("/") if part]
            folders = ["/".join(parts[:count]) for count in range(len(parts) + 1)]
            yield from ([f"{top}/{at}/{name}" for name in names] for top in tops for at in folders)


def read_text(file: StrPath) -> str:
    """Return what a small file says; pathlib and text mode take several times as long."""
    with open(file, "rb", buffering=0) as opened:
        return opened.readall().decode()
