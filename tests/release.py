"""Check that the tree can be released: `python -m tests.release v0.1.0`, as the workflow does.

It needs Python alone. Exit code 1 means that something is in the way; each line says what.
"""

import re
import sys
import tomllib
from pathlib import Path

# what stands for the owner of the repository until there is one
_PLACEHOLDER = "github.com/OWNER"
_SHOWN = ("pyproject.toml", "README.md", ".github", "docs", "memdesc", "reorder")
_TEXTS = {".toml", ".md", ".yml", ".cff", ".py"}


def problems(root: Path, tag: str) -> list[str]:
    """Return what is in the way of a release of a tree under a tag."""
    given = (root / "memdesc" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "(.+)"$', given, re.MULTILINE)
    version = match[1] if match else "unknown"
    found = []
    if tag != f"v{version}":
        found.append(f"the tag is {tag}, but memdesc/__init__.py has {version}: tag v{version}")
    citation = root / ".github" / "CITATION.cff"
    if citation.exists():  # an sdist has none
        cited = re.findall(r"^version: (.+)$", citation.read_text(encoding="utf-8"), re.MULTILINE)
        if cited != [version]:
            has = " and ".join(cited) or "unknown"
            found.append(f".github/CITATION.cff has version {has}, not {version}")
    for file in _shown_files(root):
        count = file.read_text(encoding="utf-8").count(_PLACEHOLDER)
        if count:
            where = file.relative_to(root).as_posix()
            times = "once" if count == 1 else f"{count} times"
            found.append(f"{where} has the placeholder {_PLACEHOLDER} {times}")
    changes = root / "docs" / "changes"
    if not any((changes / version).glob("*.md")):
        found.append(f"docs/changes/{version} has no changelog: rename docs/changes/unreleased")
    left = len([*(changes / "unreleased").glob("*.md")])
    if left:
        found.append(f"docs/changes/unreleased has {left} fragments, which are in no version")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if not project.get("urls"):
        found.append("pyproject.toml has no [project.urls]")
    return found


def _shown_files(root: Path) -> list[Path]:
    """Return the files whose links users see."""
    paths = [root / name for name in _SHOWN]
    inside = [file for path in paths if path.is_dir() for file in path.rglob("*")]
    files = [file for file in (*paths, *inside) if file.is_file() and file.suffix in _TEXTS]
    return sorted(file for file in files if file.name != "releasing.md")


def main(arguments: list[str]) -> int:
    """Print what is in the way; 0 if nothing is."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tests.release TAG\n")
        return 2
    found = problems(Path(__file__).parents[1], arguments[0])
    sys.stdout.writelines(f"{line}\n" for line in found)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
