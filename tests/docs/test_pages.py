import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import memdesc
import reorder.opencl
from reorder.cli.main import NAMES

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs"


def reference() -> list[str]:
    """Return every name of the reference, as it is imported."""
    names, module = [], ""
    for page in sorted((_DOCS / "api").glob("*.md")):
        for directive, name in re.findall(
            r"^\.\. (\w+):: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE
        ):
            if directive in {"automodule", "currentmodule"}:
                module = name
            else:
                names.append(name if "." in name else f"{module}.{name}")
    return names


def resolved(name: str) -> Any:
    """Return a name of the reference; `reorder.reorder` is the function."""
    module, _, last = name.rpartition(".")
    return getattr(pkgutil.resolve_name(module), last)


def test_the_reference_lists_every_public_name() -> None:
    listed = {name.rpartition(".")[2] for name in reference()}
    modules = {"opencl"}  # it has a page of its own
    assert {*memdesc.__all__, *reorder.__all__, *reorder.opencl.__all__} - modules <= listed


def test_every_name_of_the_reference_is_listed_once_and_exists() -> None:
    names = reference()
    assert len(names) > 100
    assert len(names) == len(set(names))
    for name in names:
        resolved(name)


def test_every_public_name_has_an_example_and_its_parameters() -> None:
    for name in reference():
        value = resolved(name)
        if not callable(value):
            continue
        text = inspect.getdoc(value) or ""
        assert ">>> " in text, name
        if isinstance(value, type) and issubclass(value, Exception):
            continue
        if inspect.signature(value).parameters:
            assert "Parameters\n---" in text or "Attributes\n---" in text, name


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


def _links(page: Path) -> list[str]:
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    return re.findall(r"\]\(([^)\s]+)\)", text)


def test_links_between_pages_lead_to_files() -> None:
    for page in [*_DOCS.glob("*.md"), *_DOCS.glob("commands/*.md")]:
        for link in _links(page):
            path, _, _ = link.partition("#")
            assert link.startswith(("https://", "#")) or (page.parent / path).exists(), (
                f"{page.name}: {link}"
            )


def test_links_of_the_readme_lead_to_files() -> None:
    for link in _links(_ROOT / "README.md"):
        assert (_ROOT / link.partition("#")[0]).exists(), link


def test_the_packages_and_files_that_the_architecture_names_exist() -> None:
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
    # and the files that it says to read, or to add a row to
    listed |= set(re.findall(r"`((?:memdesc|reorder|tests|docs)/[\w/.]+)`", page))
    assert not [name for name in sorted(listed) if not (_ROOT / name).exists()]


def test_files_that_the_architecture_names_alone_are_in_a_folder_beside_them() -> None:
    page = (_DOCS / "architecture.md").read_text(encoding="utf-8")
    found = 0
    for point in re.split(r"^\* ", page, flags=re.MULTILINE)[1:]:
        folders = {_ROOT}
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", point):
            places = [folder / name for folder in folders if (folder / name).exists()]
            assert places, name
            folders |= {folder for place in places for folder in (place, *place.parents)}
            found += 1
    assert found > 30
