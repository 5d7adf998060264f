"""The whole tool on a module of three functions, with tests that notice some of its faults."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.mutants import mutants_of
from tests.mutation.run import listed_keys

_ROOT = Path(__file__).parents[2]
_MODULE = """
def clip(x):
    return min(x, 9)


def count(n):
    while n > 0:
        n -= 1
    return n
"""
_TESTS = """
from module import clip, count


def test_clip():
    assert clip(3) == 3


def test_count():
    assert count(2) == 0
"""
_LISTED = [
    ["count", "while n > 0:", "while (n >= 0):", "not so: a test notices it"],
    ["clip", "return min(x, 9)", "return min(x, 10)", "no test has a 10"],
    ["clip", "return min(x, 7)", "return min(x, 8)", "the source has no 7"],
]
_PROGRAM = f"""
from pathlib import Path
from tests.mutation import run

run._MORE_SECONDS = 1
target = {{"tests": ["test_module.py"], "equivalent": {_LISTED}}}
# with this seed one of the four runs forever: `n -= 1` is replaced by `pass`
report = run.run_module(Path("module.py"), target, 4, 23)
print([mutant.key.after for mutant in report.survivors])
print([key.after for key in report.stale], [key.after for key in report.dead])
print(report.n_mutants, report.n_run, report.n_equivalent, report.is_sound)
"""


def _read(name: str) -> str:
    return (_ROOT / name).read_text(encoding="utf-8")


def _targets() -> dict[str, Any]:
    return tomllib.loads(_read("tests/mutation/targets.toml"))


def test_listed_modules_and_tests_exist() -> None:
    for module, target in _targets().items():
        for name in (module, *target["tests"]):
            assert (_ROOT / name.split("::")[0]).exists(), name


def test_listed_mutants_are_still_mutants_of_the_source() -> None:
    stale = [
        (module, key)
        for module, target in _targets().items()
        if "equivalent" in target
        for key in {*listed_keys(target)} - {each.key for each in mutants_of(_read(module))}
    ]
    assert not stale


@pytest.mark.campaign
def test_survivors_and_wrong_lists_are_reported_and_a_hang_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "module.py").write_text(_MODULE)
    (tmp_path / "tree" / "test_module.py").write_text(_TESTS)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=tmp_path / "tree",
        env={"PYTHONPATH": f"{_ROOT}:."},
        capture_output=True,
        text=True,
        check=True,
    )
    *_, survivors, wrong, counts = done.stdout.splitlines()
    assert survivors == "['return min(x, 8)', 'n -= 2']"
    assert wrong == "['return min(x, 8)'] ['while (n >= 0):']"
    assert counts == "12 6 1 False"
    assert (tmp_path / "tree" / "module.py").read_text() == _MODULE
