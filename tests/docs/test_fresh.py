"""The examples of each page run in a new process, as a reader runs them.

Other tests run them in one process, where an earlier page may have loaded what a later one lacks.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples import is_runnable

_ROOT = Path(__file__).parents[2]
# what changed tells of names that are gone
_PAGES = [
    page
    for page in sorted([*(_ROOT / "docs").rglob("*.md"), _ROOT / "README.md"])
    if "changes" not in page.parts
]
_WITH_EXAMPLES = [page for page in _PAGES if ">>> " in page.read_text("utf-8")]
# a dotted name of one of the packages, not part of a path, a file or an address, nor imported
_NAME = re.compile(
    r"(?<![\w./-])(?<!import )(?:memdesc|reorder)(?:\.[a-z_A-Z]\w*)+(?![\w/]|\.[a-z])"
)
# such names that are keys of files, or that a command imports
_OTHERS = {"memdesc.NAME", "reorder.cli.main.shell_parser"}
_FIND = """
import sys
from operator import attrgetter
import memdesc, reorder
for name in sys.argv[1:]:
    package, _, rest = name.partition(".")
    try:
        attrgetter(rest)({"memdesc": memdesc, "reorder": reorder}[package])
    except AttributeError as error:
        print(f"{name}: {error}")
    except ModuleNotFoundError:
        pass  # the package of an extra
"""


@pytest.mark.docs
@pytest.mark.parametrize("page", _WITH_EXAMPLES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_in_a_new_process(page: Path) -> None:
    if not is_runnable(page):
        pytest.skip("it needs a device, or the package of an extra")
    ran = subprocess.run(
        [sys.executable, "-m", "doctest", "-o", "ELLIPSIS", str(page)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_name_on_a_page_is_found_after_importing_the_packages() -> None:
    names = {name for page in _PAGES for name in _NAME.findall(page.read_text("utf-8"))}
    assert {"reorder.logs.report", "reorder.opencl.kernel_texts"} <= names
    ran = subprocess.run(
        [sys.executable, "-c", _FIND, *sorted(names - _OTHERS)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == ""
