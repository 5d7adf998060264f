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


def record(folder: Path, last: int | None) -> list[list[str]]:
    """Return the calls in a folder, a list that grows; end the process before one of them."""
    calls, folder, open_files = list[list[str]](), folder.resolve(), Path("/proc/self/fd")

    def path_of(given: Any, home: int | None) -> str:
        """Return a path below the folder; an empty one of what lies elsewhere."""
        if isinstance(given, int):
            full = (open_files / str(given)).readlink()
        else:
            start = Path.cwd() if home is None else (open_files / str(home)).readlink()
            full = Path(os.path.normpath(start / os.fsdecode(given)))
        return str(full.relative_to(folder)) if full.is_relative_to(folder) else ""

    def recorded(name: str, call: Callable[..., Any], count: int) -> Callable[..., Any]:
        def instead(*arguments: Any, **options: Any) -> Any:
            # `shutil.rmtree` removes what is in an open folder
            paths = [path_of(each, options.get("dir_fd")) for each in arguments[:count]]
            if all(paths):
                if len(calls) == last:
                    os._exit(_KILLED)
                calls.append([name, *paths])
            return call(*arguments, **options)

        return instead

    for name, count in _CALLS.items():
        setattr(os, name, recorded(name, getattr(os, name), count))
    vars(writer)["_exchange"] = recorded("exchange", vars(writer)["_exchange"], 2)
    return calls


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
        self._run()
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
        if in_child(self._run):
            return "it is not resumed"
        after = contents(self._work)
        return "" if after == self._wanted else f"{after.keys() ^ self._wanted.keys()} or others"

    def _begin(self) -> None:
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(self._folder / "template", self._work)

    def _recorded(self, last: int | None) -> None:
        calls = record(self._work, last)
        self._run()
        (self._folder / "calls").write_text(json.dumps(calls))

    def _run(self) -> None:
        settings = _SMALL._replace(overwrite=os.path.lexists(self._target))
        reorder.convert(self._folder / "source", self._target, map=["x: f16"], options=settings)


def main(folder: Path, name: str) -> None:
    """End at each call."""
    trial = Trial(folder, name)
    trial.check(None)
    text = (folder / "calls").read_text()
    for last, call in enumerate(json.loads(text)):
        if problem := trial.check(last):
            sys.exit(f"ended before call {last}, {call} if nobody ends it: {problem}")
    sys.stdout.write(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
