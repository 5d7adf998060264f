"""Every module stands in an import contract, so that lint-imports says what it may import."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_CONTRACTS: list[dict[str, Any]] = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]["contracts"]
_PACKAGES = sorted(
    ".".join(file.parent.relative_to(_ROOT).parts)
    for root in ("memdesc", "reorder")
    for file in (_ROOT / root).rglob("__init__.py")
)


def _children(package: str) -> set[str]:
    folder = _ROOT.joinpath(*package.split("."))
    files = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    return files | {file.parent.name for file in folder.glob("*/__init__.py")}


def _layers(package: str) -> set[str]:
    """Return the modules that the exhaustive contract of a package names."""
    found = [c for c in _CONTRACTS if c["type"] == "layers" and c["containers"] == [package]]
    assert len(found) == 1, f"{package} has {len(found)} contracts of layers, not one"
    assert found[0]["exhaustive"]
    names = (name for layer in found[0]["layers"] for name in layer.split("|"))
    return {name.strip() for name in names}


@pytest.mark.parametrize("package", [p for p in _PACKAGES if _children(p)])
def test_the_contract_of_a_package_names_each_of_its_modules(package: str) -> None:
    planned = {name for name in _layers(package) if name.startswith("(")}
    assert {name.strip("()") for name in _layers(package)} >= _children(package)
    assert _layers(package) - planned <= _children(package)


def test_every_contract_is_about_a_package_that_exists() -> None:
    containers = {name for c in _CONTRACTS if c["type"] == "layers" for name in c["containers"]}
    assert containers <= set(_PACKAGES)
