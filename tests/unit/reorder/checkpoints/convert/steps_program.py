"""Convert in children that end before each of their system calls that change the disk; resume.

Arguments: a folder with `source`, `name` of the output, and `template`, in which the output may be
already. Each child works in a copy of the template. Prints what an uninterrupted child did, a line
of JSON for each call, after all of them have been checked.
"""

import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import reorder
from reorder.checkpoints import writer
from tests.unit.reorder.checkpoints.convert.results import contents

_KILLED = 9
_CALLS = {
    # names, and how many of the first arguments are paths or open files
    "fsync": 1,
    "pwrite": 1,
    "write": 1,
    "ftruncate": 1,
    "posix_fallocate": 1,
    "mkdir": 1,
    "rmdir": 1,
    "unlink": 1,
    "rename": 2,
    "replace": 2,
}
_SMALL = reorder.checkpoints.ConvertOptions(threads=1, max_bytes=2000, resume=True)


class Recorder:
    """Records calls, and ends the process before one of them."""

    def __init__(self, folder: Path, last: int | None) -> None:
        self._folder, self._last = folder.resolve(), last
        self.calls: list[list[str]] = []
        for name, paths in _CALLS.items():
            setattr(os, name, self._recorded(name, getattr(os, name), paths))
        vars(writer)["_exchange"] = self._recorded("exchange", vars(writer)["_exchange"], 2)

    def _recorded(self, name: str, call: Callable[..., Any], paths: int) -> Callable[..., Any]:
        def recorded(*arguments: Any, **options: Any) -> Any:
            folder = options.get("dir_fd")  # of what `shutil.rmtree` removes
            found = [self._path(each, folder) for each in arguments[:paths]]
            if all(found):
                self._record(name, found)
            return call(*arguments, **options)

        return recorded

    def _path(self, given: Any, folder: int | None) -> str:
        """Return a path below the folder; an empty one of what lies elsewhere."""
        open_files = Path("/proc/self/fd")
        if isinstance(given, int):
            full = (open_files / str(given)).readlink()
        else:
            home = Path.cwd() if folder is None else (open_files / str(folder)).readlink()
            full = Path(os.path.normpath(home / os.fsdecode(given)))
        return str(full.relative_to(self._folder)) if full.is_relative_to(self._folder) else ""

    def _record(self, name: str, paths: list[str]) -> None:
        if len(self.calls) == self._last:
            os._exit(_KILLED)
        self.calls.append([name, *paths])


def in_child(work: Callable[[], object]) -> int:
    """Run something in a child; return its exit code."""
    process = os.fork()
    if not process:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - the parent says what that means
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def value_of(target: Path) -> bytes | None:
    """Return all tensors of an output; None where there is none."""
    if not os.path.lexists(target):
        return None
    with reorder.open_checkpoint(target) as found:
        return b"".join(found[name].data.tobytes() for name in found)


class Trial:
    """A conversion that is to end at some call, in a copy of the template."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._work = folder, folder / "work"
        self._target = self._work / name
        self._begin()
        self._old = value_of(self._target)
        # here, so that the children find all that they need imported
        self._run(overwrite=self._old is not None)
        self._new, self._wanted = value_of(self._target), contents(self._work)

    def check(self, last: int | None) -> str:
        """End before a call; returns what is wrong."""
        self._begin()
        code = in_child(lambda: self._recorded(last))
        found = value_of(self._target)
        if code not in (0, _KILLED):
            return "the conversion failed"
        if found not in (self._old, self._new):
            return "what is there is neither the old output nor the new one"
        is_there = found is not None
        if in_child(lambda: self._run(overwrite=is_there)):
            return "it is not resumed"
        after = contents(self._work)
        return "" if after == self._wanted else f"{after.keys() ^ self._wanted.keys()} or others"

    def calls(self) -> list[list[str]]:
        """Return the calls of a conversion that nobody ends."""
        self.check(None)
        found: list[list[str]] = json.loads((self._folder / "calls").read_text())
        return found

    def _begin(self) -> None:
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(self._folder / "template", self._work)

    def _recorded(self, last: int | None) -> None:
        recorder = Recorder(self._work, last)
        self._run(overwrite=self._old is not None)
        (self._folder / "calls").write_text(json.dumps(recorder.calls))

    def _run(self, *, overwrite: bool) -> None:
        settings = _SMALL._replace(overwrite=overwrite)
        reorder.convert(self._folder / "source", self._target, map=["x: f16"], options=settings)


def main(folder: Path, name: str) -> None:
    """End at each call."""
    trial = Trial(folder, name)
    calls = trial.calls()
    for last, call in enumerate(calls):
        if problem := trial.check(last):
            sys.exit(f"ended before call {last}, {call} if nobody ends it: {problem}")
    sys.stdout.write(json.dumps(calls))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
