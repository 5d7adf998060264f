"""Copy the tree, and run the tests on mutants there: the checkout stays as it is."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run `tests.mutation.run` in a copy of the tree; returns its exit code."""
    with tempfile.TemporaryDirectory(prefix="memdesc-mutation-") as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        for name in ("memdesc", "reorder", "tests", "docs"):
            shutil.copytree(_ROOT / name, tree / name)
        for name in ("pyproject.toml", "README.md"):
            shutil.copy2(_ROOT / name, tree)
        more = {"PYTHONPATH": str(tree), "CI": "true", "HYPOTHESIS_PROFILE": "mutation"}
        command = [sys.executable, "-m", "tests.mutation.run", *sys.argv[1:]]
        return subprocess.run(command, cwd=tree, env=os.environ | more, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
