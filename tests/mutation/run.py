"""Run the tests of modules on their mutants; works on the tree it is in, which is a copy."""

import argparse
import os
import random
import resource
import signal
import sys
import tomllib
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple, NoReturn

import pytest

from tests.mutation.mutants import Key, Mutant, mutants_of

# Memory limit of a process that runs tests: a mutant may allocate an array of any size.
_MAX_NBYTES = 8 << 30
# Time limits: this multiple of the unchanged run, plus this many seconds. There is one of CPU time,
# which other load does not affect, and one of wall time, for tests that wait.
_TIMES_AS_LONG, _MORE_SECONDS = 3, 5
_CLOCK_TIMES_AS_LONG, _MORE_CLOCK_SECONDS = 8, 30
_TRY_SECONDS = 0.01
_NO_TESTS = 5


class TestsFailError(Exception):
    """The tests of a module do not pass before anything is changed."""


class _Limit(NamedTuple):
    cpu_seconds: int
    clock_seconds: float


class Report(NamedTuple):
    """What became of the mutants of a module.

    `stale` are the listed ones that the source does not have any more, `dead` those that a test
    notices.
    """

    n_mutants: int
    n_run: int
    n_equivalent: int
    survivors: list[Mutant]
    stale: list[Key]
    dead: list[Key]
    seconds: float

    @property
    def is_sound(self) -> bool:
        """Whether every mutant is killed or listed."""
        return not (self.survivors or self.stale or self.dead)


def run_module(file: Path, target: dict[str, Any], count: int, seed: int) -> Report:
    """Run the tests of one module on `count` of its mutants, and on all that are listed.

    Raises
    ------
    TestsFailError
        If the tests do not pass on the unchanged source.
    """
    start = monotonic()
    source = file.read_text(encoding="utf-8")
    mutants = {mutant.key: mutant for mutant in mutants_of(source)}
    listed = listed_keys(target)
    drawn = random.Random(f"{seed} {file.name}").sample(list(mutants), min(count, len(mutants)))
    chosen = [key for key in mutants if key in {*drawn, *listed}]
    limit = _baseline(file, target["tests"])
    survivors, dead = [], []
    try:
        for key in chosen:
            file.write_text(mutants[key].text, encoding="utf-8")
            is_killed = _run_tests(target["tests"], limit) != 0
            if is_killed and key in listed:
                dead.append(key)
            if not is_killed and key not in listed:
                survivors.append(mutants[key])
                _say(f"  {file}:{mutants[key].line}: {_shown(key)}")
    finally:
        file.write_text(source, encoding="utf-8")
    # else something outside of the source may have made them fail
    _check_passes(file, target["tests"])
    return Report(
        n_mutants=len(mutants),
        n_run=len(chosen),
        n_equivalent=len({*listed} & {*mutants}) - len(dead),
        survivors=survivors,
        stale=[key for key in listed if key not in mutants],
        dead=dead,
        seconds=monotonic() - start,
    )


def listed_keys(target: dict[str, Any]) -> list[Key]:
    """Return the mutants that the list says no test can notice."""
    return [
        Key(within, before, after, *nth or (1,))
        for within, before, after, _, *nth in target.get("equivalent", [])
    ]


def _baseline(file: Path, tests: list[str]) -> _Limit:
    """Return the time that tests may take, by what they take on the unchanged source."""
    # the first run compiles kernels and writes compiled modules, which the others read
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for _ in range(2):
        start, used = monotonic(), _cpu_seconds()
        _check_passes(file, tests)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()
    return _Limit(
        int((_cpu_seconds() - used) * _TIMES_AS_LONG) + _MORE_SECONDS,
        (monotonic() - start) * _CLOCK_TIMES_AS_LONG + _MORE_CLOCK_SECONDS,
    )


def _check_passes(file: Path, tests: list[str]) -> None:
    if _run_tests(tests, None) != 0:
        msg = f"{' '.join(tests)} fail on the unchanged {file}:\n{_log().read_text()}"
        raise TestsFailError(msg)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run_tests(tests: list[str], limit: _Limit | None) -> int:
    """Run tests in a child, which has pytest and what tests use already; returns its exit code."""
    child = os.fork()
    if not child:
        _become_pytest(tests, limit)
    end = monotonic() + (limit.clock_seconds if limit else float("inf"))
    try:
        while not (done := os.waitpid(child, os.WNOHANG))[0] and monotonic() < end:
            sleep(_TRY_SECONDS)
    finally:
        # with the processes that tests have started
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    _, status = done if done[0] else os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == _NO_TESTS:
        msg = f"there are no tests in {' '.join(tests)}"
        raise TestsFailError(msg)
    return code


def _become_pytest(tests: list[str], limit: _Limit | None) -> NoReturn:
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (_MAX_NBYTES, _MAX_NBYTES))
        if limit:
            resource.setrlimit(resource.RLIMIT_CPU, (limit.cpu_seconds, limit.cpu_seconds))
        sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
        log = os.open(_log(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        folder = f"--basetemp={_log().parent / 'mutation_tmp'}"
        options = ["-x", "-q", "--tb=short", "--assert=plain", "-p", "no:cacheprovider", folder]
        code = pytest.main([*options, *tests])
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _log() -> Path:
    return Path.cwd().parent / "mutation.log"


def _shown(key: Key) -> str:
    which = f" (number {key.nth})" if key.nth > 1 else ""
    return f"in {key.function or 'the module'}: {key.before}{which} -> {key.after}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the modules that the command line names, and print what became of their mutants."""
    targets = tomllib.loads(Path(__file__).with_name("targets.toml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("module", nargs="*", help="such as memdesc/layout.py; all by default")
    parser.add_argument("--count", type=int, default=25, help="mutants of each module (25)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    given = parser.parse_args()
    if unknown := sorted({*given.module} - {*targets}):
        parser.error(f"{', '.join(unknown)}: not in targets.toml, which has {', '.join(targets)}")
    is_sound = True
    for name in given.module or targets:
        report = run_module(Path(name), targets[name], given.count, given.seed)
        n_killed = report.n_run - report.n_equivalent - len(report.survivors)
        _say(
            f"{name}: {report.n_run} of {report.n_mutants} mutants, {n_killed} killed, "
            f"{report.n_equivalent} equivalent, {len(report.survivors)} survive; "
            f"{report.seconds:.0f} s"
        )
        for key in report.stale:
            _say(f"  listed, but not in the source: {_shown(key)}")
        for key in report.dead:
            _say(f"  listed as equivalent, but a test notices it: {_shown(key)}")
        is_sound = is_sound and report.is_sound
    return not is_sound


if __name__ == "__main__":
    for name in ("hypothesis.extra.numpy", "ml_dtypes", "numba"):
        import_module(name)  # tests need it; so it need not be imported for each mutant
    sys.exit(main())
