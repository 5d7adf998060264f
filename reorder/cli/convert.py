"""`memdesc convert`: a checkpoint in other layouts, packings and types."""

from __future__ import annotations

import gc
import json
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from memdesc import MemdescError
from memdesc.errors import short_repr
from reorder.checkpoints.convert.conversion import (
    ConvertOptions,
    ConvertProgress,
    ConvertReport,
    convert,
)
from reorder.checkpoints.convert.targets import TARGETS, checked_target
from reorder.checkpoints.writer import InUseError, has_finished, partial_folder
from reorder.cli.command import Command, Facts, Options, Said, facts_of, threads_of
from reorder.cli.progress import Progress, warn
from reorder.disk import as_path, read_small
from reorder.messages import starred

if TYPE_CHECKING:
    from distributed import Client

# steps of the bar, and seconds between two updates
_PERCENT = 100
_INTERVAL = 0.1
# how many lines a dry run prints about tensors
_LISTED = 40
# how long to wait for a scheduler, and for its first worker; the most bytes of a scheduler's file
_CONNECTING, _MAX_FILE = 10, 1 << 24
# what --verify has found
_VERIFIED = "each tensor equals its input put through its rule"


def _answer(options: Options) -> tuple[Facts, int]:
    if options.dask is not None and options.threads is not None:
        raise MemdescError(
            "--threads is for this machine; a worker of Dask is given its own as it starts"
        )
    settings = ConvertOptions(
        max_bytes=options.max_bytes,
        threads=threads_of(options.threads) if options.dask is None else None,
        shard_bytes=options.shard_size,
        verify=options.verify,
        resume=options.resume,
        overwrite=options.overwrite,
        dry_run=options.dry_run,
    )
    rules = [*([] if options.rules is None else [Path(options.rules)]), *options.map]
    shown = _Shown(has_rules=bool(rules) or options.to is not None)
    try:
        with connected(options.dask) as client, shown.bar:
            report = convert(
                options.in_,
                options.out,
                options.to,
                map=rules,
                options=settings,
                progress=shown.show,
                client=client,
            )
    except InUseError:
        raise
    except (MemdescError, KeyboardInterrupt) as error:
        target = as_path(options.out)
        if not shown.has_begun or not has_finished(target):
            raise
        hint = f"--resume keeps the finished files, which are in {str(partial_folder(target))!r}"
        if isinstance(error, KeyboardInterrupt):
            error.add_note(hint)
            raise
        raise MemdescError(f"{error}; {hint}") from None
    for warning in report.warnings[shown.warned :]:
        warn(warning)
    names = ("weights", "converted", "copied", "bytes_in", "bytes_out", "files")
    count = len(report.warnings)
    # they were shown before the work began
    warnings = Said([*report.warnings], f"{count}, on stderr" if count else "none")
    facts = facts_of(report, *names) | {"warnings": warnings}
    if settings.dry_run:
        return facts | {"would": _listed(report)}, 0
    facts |= {"wrote": options.out, "resumed": report.resumed}
    verified = _VERIFIED if settings.verify else "no"
    seconds = round(time.monotonic() - shown.start, 3)
    return facts | {"verified": verified, "seconds": seconds}, 0


@contextmanager
def connected(address: str | None) -> Iterator[Client | None]:
    """Connect to the scheduler that is named: its address, or the file that it wrote."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client  # optional
    except ImportError:
        raise MemdescError(
            "distributed is not installed: pip install distributed, or memdesc[dask]"
        ) from None
    try:
        is_file = address.endswith(".json")
        where = json.loads(read_small(Path(address), _MAX_FILE))["address"] if is_file else address
        client = Client(str(where), timeout=_CONNECTING, set_as_default=False)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        msg = (
            f"there is no Dask scheduler at {short_repr(address)} ({short_repr(error)}); start one "
            "with `dask scheduler`, and name the address that it prints, as tcp://host:8786, or "
            "its --scheduler-file"
        )
    else:
        with client:
            with suppress(TimeoutError):
                client.wait_for_workers(1, timeout=_CONNECTING)
            yield client
        return
    gc.collect()  # the client that failed closes then; it blocks one that starts before
    raise MemdescError(msg)


class _Shown:
    """Shows warnings, then how fast bytes are written and the time left."""

    def __init__(self, *, has_rules: bool) -> None:
        self._has_rules = has_rules
        self.bar = Progress(_PERCENT)
        self.has_begun = False
        self.warned = 0
        self.start = self._last = 0.0

    def show(self, now: ConvertProgress) -> None:
        seconds = time.monotonic()
        if now.stage == "planned":
            if not self._has_rules:
                warn("nothing is converted: without --to, --map or --rules all tensors are copied")
            for warning in now.report.warnings:
                warn(warning)
            self.warned = len(now.report.warnings)
            self.has_begun, self.start = True, seconds
        elif seconds - self._last >= _INTERVAL:
            self._last = seconds
            rate = now.done / max(seconds - self.start, 1e-9)
            left = (now.total - now.done) / max(rate, 1)
            text = f"{now.stage} {rate / 1e6:.0f} MB/s, {left:.0f} s left"
            self.bar.move_to(_PERCENT * now.done // max(now.total, 1), text)


def _listed(report: ConvertReport) -> list[str]:
    """Return what a dry run says about the tensors and records that a rule changes.

    Those that differ only in the numbers of their names share a line.
    """
    groups: dict[str, list[str]] = {}
    for line in report.would:
        name, colon, what = line.partition(": ")
        groups.setdefault(starred(name) + colon + starred(what), []).append(line)
    lines = [
        lines[0] if len(lines) == 1 else f"{len(lines)} x {key}" for key, lines in groups.items()
    ]
    more = len(lines) - _LISTED
    return [*lines[:_LISTED], *([f"... and {more} more"] if more > 0 else [])]


def _target(text: str) -> str:
    """Return the name of a target; refuse others as `convert` does."""
    try:
        return checked_target(text)
    except MemdescError as error:
        raise ArgumentTypeError(str(error)) from None


COMMAND = Command(
    _answer,
    words={"targets": ", ".join(TARGETS)},
    settings={"--to": {"choices": [*TARGETS], "type": _target}},
)
