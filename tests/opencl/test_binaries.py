"""Built programs are kept in the user's folder; damaged files are built again and replaced."""

import os
import pwd
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pyopencl as cl
import pytest

from reorder.opencl import binaries
from reorder.opencl.binaries import build
from tests.opencl.runtimes import Runtime

# runtimes say what they did
pytestmark = pytest.mark.filterwarnings("ignore::pyopencl.CompilerWarning")

_SOURCE = "__kernel void count(__global int *out) { out[get_global_id(0)] = get_global_id(0); }"


_ROOT = Path(__file__).parents[2]
# each process reorders on every runtime, and says how many programs it built
_PROGRAM = """
import logging, numpy as np, pyopencl as cl, reorder
from reorder import opencl
built = []
handler = logging.Handler()
handler.emit = built.append
logging.getLogger("reorder").addHandler(handler)
logging.getLogger("reorder").setLevel(logging.INFO)
x = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(2, 17, 5, 4)
for device in [d.device for d in opencl.devices() if d.works]:
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    assert (reorder.reorder(x, "nChw16c", queue=queue).get().numpy() == x).all()
print(len(built))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(binaries.CACHE_FOLDER, str(tmp_path))
    return tmp_path / "opencl"


def counted(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> int:
    """Build the program in a new context, run it, and return how often a compiler ran."""
    caplog.clear()
    context = cl.Context([runtime.device.device])
    with caplog.at_level("INFO", "reorder"):
        kernel = cl.Kernel(build((context, context.devices[0]), _SOURCE), "count")
    queue = cl.CommandQueue(context)
    out = np.full(8, -1, np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, out.nbytes)
    kernel.set_arg(0, buffer)
    cl.enqueue_nd_range_kernel(queue, kernel, (8,), None)
    cl.enqueue_copy(queue, out, buffer)
    assert out.tolist() == [*range(8)]
    return len(caplog.records)


def test_a_program_is_built_once_and_found_afterwards(
    runtime: Runtime,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # options that pyopencl adds to a build make another program
    for options, compiled in (("", 1), ("", 0), ("-D OTHER", 1), ("-D OTHER", 0), ("", 0)):
        monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", options)
        assert counted(runtime, caplog) == compiled
    files = [*folder.iterdir()]
    assert len(files) == 2
    assert all(file.stat().st_size > 100 for file in files)
    assert folder.stat().st_mode & 0o77 == 0


def test_damaged_files_are_built_again_and_replaced(
    runtime: Runtime, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(1)
    counted(runtime, caplog)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
    # a file that was renamed, and one that the runtime refuses, whose digest is right
    digest, refused = binaries._digest, b"of a runtime that is not there any more"  # noqa: SLF001 - see above
    of_another = digest(file.with_name("another"), whole[32:]) + whole[32:]
    of_none = digest(file, refused) + refused
    for damaged in (whole[: rng.randrange(len(whole))], flipped, of_another, of_none):
        file.write_bytes(damaged)
        assert [counted(runtime, caplog) for _ in range(2)] == [1, 0]
    assert [*folder.iterdir()] == [file]


def test_programs_are_built_where_nothing_can_be_kept(
    runtime: Runtime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").write_bytes(b"")
    for place in (str(tmp_path / "file"), ""):
        monkeypatch.setenv(binaries.CACHE_FOLDER, place)
        assert counted(runtime, caplog) == counted(runtime, caplog) == 1
    monkeypatch.setenv(binaries.CACHE_FOLDER, str(tmp_path))
    counted(runtime, caplog)
    (file,) = (tmp_path / "opencl").iterdir()
    file.unlink()
    file.mkdir()
    assert counted(runtime, caplog) == 1


def test_the_programs_used_least_recently_make_room(
    runtime: Runtime, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = cl.Context([runtime.device.device])
    sources = [_SOURCE + f"/* {k} */" for k in range(4)]
    for k, source in enumerate(sources[:3]):
        build((context, context.devices[0]), source)
        for file in folder.iterdir():
            os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns - 10**9 * (k + 1)))
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    other = folder / "a file of somebody else"
    other.write_bytes(bytes(10**6))
    build((context, context.devices[0]), sources[0])  # found: it is the latest now
    room = sum(file.stat().st_size for file in files) + 100
    monkeypatch.setattr(binaries, "_MAX_NBYTES", room)
    build((context, context.devices[0]), sources[3])
    left = {*folder.iterdir()}
    assert len(left) == 4
    assert {files[0], other} < left
    assert files[1] not in left
    monkeypatch.setattr(binaries, "_MAX_NBYTES", 0)
    build((context, context.devices[0]), _SOURCE + "/* too large */")
    assert {*folder.iterdir()} == {other}


def test_removing_the_same_files_at_once_does_no_harm(folder: Path) -> None:
    folder.mkdir(parents=True)
    for k in range(200):
        (folder / f"{k:064x}").write_bytes(bytes(100))
    make_room = binaries._make_room  # noqa: SLF001 - what each write calls
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(make_room, [folder] * 4, [1000] * 4)] == [None] * 4
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 1000


def test_without_a_variable_it_is_the_folder_for_caches_if_there_is_a_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(binaries.CACHE_FOLDER, raising=False)
    users = binaries.cache_folder()
    assert users is not None
    assert (
        users
        == Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "memdesc/opencl"
    )

    def lacks(number: int) -> None:
        raise KeyError(number)

    # a relative folder, such as one named `~`, would be made wherever the process is
    monkeypatch.setenv("HOME", "~")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(pwd, "getpwuid", lacks)
    assert binaries.cache_folder() is None


def test_threads_that_build_one_program_leave_one_whole_file(
    runtime: Runtime, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    contexts = [cl.Context([runtime.device.device]) for _ in range(3)]
    barrier = Barrier(len(contexts))

    def build_in(context: cl.Context) -> None:
        barrier.wait()
        build((context, context.devices[0]), _SOURCE)

    with ThreadPoolExecutor(len(contexts)) as pool:
        assert [*pool.map(build_in, contexts)] == [None] * 3
    assert len([*folder.iterdir()]) == 1
    assert counted(runtime, caplog) == 0


@pytest.mark.campaign
def test_processes_that_start_together_share_what_they_build(tmp_path: Path) -> None:
    environment = {**os.environ, binaries.CACHE_FOLDER: str(tmp_path), "PYTHONPATH": str(_ROOT)}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], env=environment, stdout=subprocess.PIPE, text=True
        )

    for _ in range(10):
        together = [start() for _ in range(4)]
        counts = [process.communicate(timeout=300)[0] for process in together]
        assert [process.returncode for process in together] == [0] * 4
        assert max(map(int, counts)) > 0
        later = start()
        assert later.communicate(timeout=300)[0].strip() == "0"
        for file in (tmp_path / "opencl").iterdir():
            assert len(file.name) == 64
            file.unlink()
