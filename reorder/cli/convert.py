"""`memdesc convert`."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from memdesc import MemdescError
from memdesc.disk import as_path, open_file
from reorder.cli.command import Command, Facts, add_max_bytes, bytes_of, one_line, threads_of
from reorder.cli.progress import Progress
from reorder.storage.containers.partial import InUseError
from reorder.storage.containers.writer import partial_folder
from reorder.storage.convert.convert import Conversion, Settings, convert, plan
from reorder.storage.convert.outputs import grown
from reorder.storage.convert.rules import Rule, parse_rule, rules_of_toml

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from reorder.storage.convert.convert import Step
    from reorder.storage.convert.jobs import Job

__all__ = ["COMMAND"]

_MAX_RULES = 1 << 20
# what the speed of the disk is measured with
_SAMPLE = 64 << 20
# seconds between two states of the bar
_INTERVAL = 0.1
# jobs that a dry run lists
_LISTED = 40
# what --verify has found
_VERIFIED = "each tensor equals its input put through its rule"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="IN", help="a checkpoint: a file, or a model's folder")
    parser.add_argument(
        "target",
        metavar="OUT",
        help="the checkpoint to write: its ending names the container; without one it is a folder "
        "of safetensors, with all other files of IN",
    )
    parser.add_argument(
        "--map",
        dest="maps",
        metavar="RULE",
        action="append",
        default=[],
        help="'PATTERN: [SRC ->] DST[, DTYPE][, KEY=VALUE ...]', such as '*.mlp.*: awq -> marlin'; "
        "any number, of which the last that matches serves; tensors without a rule are copied",
    )
    parser.add_argument(
        "--rules",
        metavar="FILE",
        help="a file of TOML with rules, which come before those of --map",
    )
    add_max_bytes(parser)
    parser.add_argument("--threads", type=int, help="how many pieces are moved at a time")
    parser.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="move the pieces on the workers of a Dask cluster, which see the same files under the "
        "same paths: the address of its scheduler, or its --scheduler-file; --max-bytes is then "
        "for each worker",
    )
    parser.add_argument(
        "--shard-size",
        metavar="SIZE",
        help="the most bytes of tensors in a file of a folder; by default as in IN",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check all, and say what would be done"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="read OUT back, and check that each tensor equals its input put through its rule; "
        "whether the rules are what the model needs is not checked",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on where the same conversion was interrupted"
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace OUT; a folder only if no other files are lost",
    )
    parser.add_argument(
        "--allow-partial",
        action="store_true",
        help="change codes of quantised weights without their scales, or these without the codes",
    )


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    if options.dask is None:
        return _converted(options, threads_of(options.threads), convert)
    if options.threads is not None:
        msg = "--threads is for this machine; how many a worker of Dask has is told to the worker"
        raise MemdescError(msg)
    from reorder.storage.convert.cluster import connected, convert_on_cluster, worker_threads

    for name in ("source", "target"):  # workers have other working folders
        setattr(options, name, str(Path(getattr(options, name)).absolute()))
    with connected(options.dask) as client:
        return _converted(options, worker_threads(client), partial(convert_on_cluster, client))


def _converted(
    options: argparse.Namespace, threads: int, run: Callable[[Conversion, Step], Facts]
) -> tuple[Facts, int]:
    """Plan a conversion, and run it, or say what it would do."""
    settings = Settings(
        max_bytes=bytes_of("--max-bytes", options.max_bytes),
        threads=threads,
        shard_bytes=None
        if options.shard_size is None
        else bytes_of("--shard-size", options.shard_size),
        verify=options.verify,
        resume=options.resume,
        overwrite=options.overwrite,
        allow_partial=options.allow_partial,
    )
    made = plan(options.source, options.target, _rules(options), settings)
    for warning in made.warnings:
        _warn(warning)
    facts = _facts(made)
    if options.dry_run:
        return facts | {"seconds_estimated": _seconds(made), **_listed(made.jobs)}, 0
    written = sum(task.nbytes for job in made.jobs for task in job.tensors)
    start = time.monotonic()
    with Progress(written * (1 + settings.verify)) as progress:
        try:
            found = run(made, _Rate(progress, written * (1 + settings.verify)).step)
        except InUseError:
            raise
        except (MemdescError, KeyboardInterrupt) as error:
            if not grown(made.target):
                raise
            left = partial_folder(made.target)
            hint = f"what was written is in {str(left)!r}: --resume goes on with it"
            if isinstance(error, KeyboardInterrupt):
                error.add_note(hint)
                raise
            msg = f"{error}; {hint}"
            raise MemdescError(msg) from None
    seconds = time.monotonic() - start
    facts |= {"wrote": options.target, "tasks": found["tasks"], "resumed": found["resumed"]}
    verified = _VERIFIED if settings.verify else "no"
    return facts | {"verified": verified, "seconds": round(seconds, 3)}, 0


def _warn(warning: str) -> None:
    if sys.stderr is None:
        return
    with suppress(OSError):  # a terminal that is gone stops no conversion
        sys.stderr.write(f"memdesc: warning: {one_line(warning)}\n")


class _Rate:
    """Says how fast bytes are written, and the time left; threads call it at the same time."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self._start, self._lock = time.monotonic(), Lock()
        self._shown = self._start

    def step(self, what: str, nbytes: int) -> None:
        """Count bytes that have been written."""
        with self._lock:
            self._done += nbytes
            now = time.monotonic()
            if now - self._shown < _INTERVAL:
                return
            self._shown = now
            rate = self._done / (now - self._start)
            left = max(self._total - self._done, 0) / max(rate, 1)
            text = f"{what} {rate / 1e6:.0f} MB/s, {left:.0f} s left"
            self._progress.move_to(self._done, text)


def _facts(made: Conversion) -> Facts:
    copied = sum(job.is_copy for job in made.jobs)
    return {
        "tensors": sum(len(job.sources) for job in made.jobs),
        "converted": len(made.jobs) - copied,
        "copied": copied,
        "bytes_in": sum(entry.nbytes for job in made.jobs for entry in job.sources.values()),
        "bytes_out": made.nbytes,
        "files": len(made.output.files),
        "warnings": list(made.warnings),
    }


def _listed(jobs: tuple[Job, ...]) -> Facts:
    """Return what a dry run says of the jobs that convert."""
    moved = [one_line(f"{job.name}: {job}") for job in jobs if not job.is_copy]
    more = [f"... and {len(moved) - _LISTED} more"] if len(moved) > _LISTED else []
    return {"would": [*moved[:_LISTED], *more]}


def _seconds(made: Conversion) -> float:
    """Estimate the time from how fast the source is read; a disk writes about as fast."""
    entries = [entry for job in made.jobs for entry in job.sources.values()]
    nbytes = sum(entry.nbytes for entry in entries)
    if not nbytes:
        return 0.0
    largest = max(entries, key=lambda entry: entry.nbytes)
    count = min(largest.nbytes, _SAMPLE)
    start = time.monotonic()
    largest.read(0, count)
    rate = count / max(time.monotonic() - start, 1e-9)
    return round((nbytes + made.nbytes) / rate, 1)


def _rules(options: argparse.Namespace) -> list[Rule]:
    found: list[Rule] = []
    if options.rules is not None:
        with open_file(as_path(options.rules)) as file:
            text = file.read(_MAX_RULES + 1)
        if len(text) > _MAX_RULES:
            msg = f"{options.rules!r} has more than {_MAX_RULES} bytes; give a file of rules"
            raise MemdescError(msg)
        try:
            found = rules_of_toml(text.decode())
        except UnicodeDecodeError as error:
            msg = f"{options.rules!r} is not UTF-8: {error}"
            raise MemdescError(msg) from None
        except MemdescError as error:
            msg = f"{options.rules!r}: {error}"
            raise MemdescError(msg) from None
    return [*found, *map(parse_rule, options.maps)]


COMMAND = Command(
    "convert",
    "Move a checkpoint into other layouts, packings and types.",
    "convert model out --map 'model.layers.*: awq -> gptq(zeros=v2)'",
    _add_arguments,
    _answer,
)
