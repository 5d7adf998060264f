"""What must be so before a release: no placeholder, one version, links that work elsewhere."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import memdesc
from tests.release import problems

_ROOT = Path(__file__).parents[2]
_PYPROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_PROJECT, _BUILD = _PYPROJECT["project"], _PYPROJECT["tool"]["hatch"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Give a tree that can be released as v1.2.3."""
    files = {
        "memdesc/__init__.py": '__version__ = "1.2.3"\n',
        "pyproject.toml": '[project.urls]\nHomepage = "https://github.com/someone/memdesc"\n',
        "README.md": "[docs](https://github.com/someone/memdesc/docs)\n",
        ".github/CITATION.cff": "version: 1.2.3\n",
        ".github/SECURITY.md": "https://github.com/someone/memdesc/security\n",
        "reorder/cli/log.py": '_NEXT = "https://github.com/someone/memdesc/docs"\n',
        "docs/changes/1.2.3/all.added.md": "Everything.\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


_PLACEHOLDER = "has the placeholder github.com/OWNER once"
# a file, what is replaced in it, and what is then in the way
_CHANGES: list[tuple[str, str, str, list[str]]] = [
    ("README.md", "", "", []),
    *(
        (name, "someone", "OWNER", [f"{name} {_PLACEHOLDER}"])
        for name in ("pyproject.toml", "README.md", ".github/SECURITY.md", "reorder/cli/log.py")
    ),
    (
        *("memdesc/__init__.py", "1.2.3", "1.2.2"),
        [
            "the tag is v1.2.3, but memdesc/__init__.py has 1.2.2: tag v1.2.2",
            ".github/CITATION.cff has version 1.2.3, not 1.2.2",
            "docs/changes/1.2.2 has no changelog: rename docs/changes/unreleased",
        ],
    ),
    (
        *(".github/CITATION.cff", "1.2.3", "1.2.2"),
        [".github/CITATION.cff has version 1.2.2, not 1.2.3"],
    ),
]


@pytest.mark.parametrize(("name", "before", "after", "wanted"), _CHANGES)
def test_what_is_in_the_way_of_a_release_is_said(
    tree: Path, name: str, before: str, after: str, wanted: list[str]
) -> None:
    file = tree / name
    file.write_text(file.read_text().replace(before, after))
    assert problems(tree, "v1.2.3") == wanted


def test_changes_of_no_version_are_in_the_way(tree: Path) -> None:
    (tree / "docs" / "changes" / "1.2.3").rename(tree / "docs" / "changes" / "unreleased")
    no_version, left = problems(tree, "v1.2.3")
    assert "docs/changes/1.2.3" in no_version
    assert "1 fragments" in left


def test_this_tree_has_the_version_that_the_check_reads() -> None:
    assert not any("tag" in line for line in problems(_ROOT, f"v{memdesc.__version__}"))


@pytest.mark.skipif(not (_ROOT / ".ci").exists(), reason="an sdist has no workflow")
def test_the_workflow_runs_the_jobs_of_the_script() -> None:
    script = (_ROOT / ".ci" / "run").read_text(encoding="utf-8")
    workflow = (_ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    (default,) = re.findall(r"set -- (.+)", script)
    (listed,) = re.findall(r"job: \[(.+)\]", workflow)
    named = re.findall(r"run: \.ci/run ([a-z]+)$", workflow, re.MULTILINE)
    assert "\nquick() {\n  lint\n" in script
    assert {*default.split(), "quick"} - {"lint"} == {*listed.split(", "), *named}


@pytest.mark.skipif(not (_ROOT / ".github").exists(), reason="an sdist has no workflow")
def test_the_classifiers_are_what_the_workflow_runs() -> None:
    workflow = (_ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    (unit,) = re.findall(r"^  unit:\n((?:    .*\n|\n)+)", workflow, re.MULTILINE)
    (pythons,) = re.findall(r"python: \[(.+)\]", unit)
    (systems,) = re.findall(r"system: \[(.+)\]", unit)
    named = {"ubuntu": "POSIX :: Linux", "macos": "MacOS", "windows": "Microsoft :: Windows"}
    ran = {
        f"Programming Language :: Python :: {version}" for version in re.findall(r"[\d.]+", pythons)
    }
    ran |= {f"Operating System :: {named[name.split('-')[0]]}" for name in systems.split(", ")}
    claimed = {
        line
        for line in _PROJECT["classifiers"]
        if re.match(r"Operating System|Programming Language :: Python :: \d", line)
    }
    assert claimed == ran


def test_links_of_the_readme_are_absolute_on_the_package_page() -> None:
    """A package page shows the README without the files around it."""
    text = (_ROOT / "README.md").read_text(encoding="utf-8")
    relative = re.findall(r"\]\(([^)\s]+)", text)
    assert relative
    assert [link for link in relative if not (_ROOT / link.partition("#")[0]).exists()] == []
    for each in _BUILD["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    homepage = _PROJECT["urls"]["Homepage"]
    absolute = [
        f"{homepage}/{'raw' if link.endswith('.svg') else 'blob'}/main/{link}" for link in relative
    ]
    assert re.findall(r"\]\(([^)\s]+)", text) == absolute


def test_all_addresses_begin_with_one() -> None:
    urls = _PROJECT["urls"]
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= urls.keys()
    assert all(url.startswith(urls["Homepage"]) for url in urls.values())


def test_the_oldest_versions_that_are_tested_are_the_lower_bounds() -> None:
    lines = (_ROOT / "tests" / "lowest.txt").read_text(encoding="utf-8").splitlines()
    tested = [Requirement(line) for line in lines if not line.startswith("#")]
    extras = _PROJECT["optional-dependencies"]
    # `peers` and `judges` are what tests compare with: gigabytes that no user of memdesc installs
    groups = [lines for name, lines in extras.items() if name not in {"peers", "judges"}]
    required = [
        Requirement(line) for lines in (_PROJECT["dependencies"], *groups) for line in lines
    ]
    lowest = {each.name: Version(next(iter(each.specifier)).version) for each in tested}
    bounds = {
        each.name: Version(bound.version)
        for each in required
        for bound in each.specifier
        if bound.operator == ">="
    }
    assert bounds == lowest
