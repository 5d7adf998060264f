from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import memdesc
import reorder.opencl
from reorder.cli.main import NAMES

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs"


def test_the_reference_lists_every_public_name() -> None:
    page = (_DOCS / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r":: (?:\w+\.)*(\w+)", page))
    assert {*memdesc.__all__, *reorder.__all__, *reorder.opencl.__all__} <= listed


def test_every_name_of_the_reference_is_imported_as_it_is_written() -> None:
    page = (_DOCS / "api.md").read_text(encoding="utf-8")
    names, module = [], ""
    for directive, name in re.findall(r"^\.\. (\w+):: ([\w.]+)$", page, re.MULTILINE):
        if directive in {"automodule", "currentmodule"}:
            module = name
            names.append(name)
        else:
            names.append(
                name if name.split(".")[0] in {"memdesc", "reorder"} else f"{module}.{name}"
            )
    assert len(names) > 60
    for name in names:
        pkgutil.resolve_name(name)


def test_the_picture_of_the_readme_is_what_the_code_draws() -> None:
    desc = memdesc.memory_desc((1, 5, 2, 3), "f32", "nChw4c")
    assert (_DOCS / "nChw4c.svg").read_text(encoding="utf-8") == f"{desc.show('nchw').svg}\n"
    assert "docs/nChw4c.svg" in (_ROOT / "README.md").read_text(encoding="utf-8")


def test_every_command_has_a_page_and_no_page_is_without_one() -> None:
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (_DOCS / "commands").iterdir()}
    assert sorted(pages) == sorted(NAMES)
    for name, text in pages.items():
        assert text.startswith(f"# memdesc {name}\n")
        assert f"```{{command}} {name}\n" in text


def test_fragments_of_the_changelog_have_a_kind_and_one_sentence() -> None:
    files = [file for file in (_DOCS / "changes").rglob("*") if file.is_file()]
    assert files
    for file in files:
        assert re.fullmatch(r"[\w-]+\.(added|changed|fixed|removed)\.md", file.name)
        text = file.read_text(encoding="utf-8").strip()
        prose, _, _ = text.partition("\n|")  # a table may follow
        assert prose.endswith(".")
        assert "\n\n" not in text


def test_links_between_pages_and_in_the_readme_lead_to_files() -> None:
    for page in [*_DOCS.glob("*.md"), *_DOCS.glob("commands/*.md"), _ROOT / "README.md"]:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, _ = link.partition("#")
            assert link.startswith(("https://", "#")) or (page.parent / path).exists(), (
                f"{page.name}: {link}"
            )


def test_the_packages_that_the_architecture_lists_exist() -> None:
    page = (_DOCS / "architecture.md").read_text(encoding="utf-8")
    folder, listed = "", set()
    for line in page.splitlines():
        if heading := re.match(r"\| packages of `(\w+)` \|", line):
            folder = heading[1]
        elif folder and line.startswith("|"):
            listed |= {f"{folder}/{name}" for name in re.findall(r"`((?:\w+/)+)`", line)}
        else:
            folder = ""
    assert len(listed) > 15
    assert all((_ROOT / name).is_dir() for name in listed)
