"""Where the working folder was deleted, errors say so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_REASON = "the working folder no longer exists; change to one that does"
_CHILD = """
import json, os, sys
os.rmdir(os.getcwd())
import numpy as np, reorder
from memdesc import MemdescError, memory_desc
from reorder.cli import main
found = []
for use in (
    lambda: reorder.save("x.npy", np.zeros(3)),
    lambda: reorder.load("x.npy"),
    lambda: reorder.open_checkpoint("x"),
    lambda: reorder.load(os.path.join(sys.argv[1], "x.npy")),
):
    try:
        use()
    except MemdescError as error:
        found.append(str(error))
sys.path[:0] = [sys.argv[2]]
reorder.reorder(np.zeros((2, 3)), "ba")
try:  # compiles by numba, which imports packages that need a working folder
    src, dst = (memory_desc((2, 3), "f32", tag) for tag in ("ab", "ba"))
    reorder.prepare(reorder.plan_reorder(src, dst))
except MemdescError as error:
    found.append(str(error))
main(["show", "nchw", "1x2x2x2", "--svg", "x.svg"])
print(json.dumps(found))
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps the working folder")
def test_a_deleted_working_folder_is_named(tmp_path: Path) -> None:
    folder, packages = tmp_path / "gone", tmp_path / "packages"
    folder.mkdir()
    packages.mkdir()
    (packages / "coverage.py").write_text("import os\nos.getcwd()\n")  # numba imports it
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path), str(packages)],
        cwd=folder,
        # where nothing is compiled yet
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")},
        capture_output=True,
        text=True,
        check=True,
    )
    saved, loaded, opened, absolute, prepared = json.loads(child.stdout.splitlines()[-1])
    assert saved.endswith(_REASON)
    assert loaded == f"'x.npy' cannot be read: {_REASON}"
    assert opened == f"'x' cannot be read: {_REASON}"
    assert absolute.endswith("No such file or directory")
    assert prepared == _REASON
    (drawn,) = child.stderr.splitlines()
    assert drawn == f"memdesc: 'x.svg' cannot be written: {_REASON}"
