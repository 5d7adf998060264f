"""The contracts of `lint-imports` give every module a place among the layers of its package."""

import tomllib
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_every_package_of_several_modules_has_layers() -> None:
    text = (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    layered = [name for one in contracts if one.get("exhaustive") for name in one["containers"]]
    packages = [
        ".".join(init.parent.relative_to(_ROOT).parts)
        for name in ("memdesc", "reorder")
        for init in (_ROOT / name).rglob("__init__.py")
        if len([*init.parent.glob("*.py"), *init.parent.glob("*/__init__.py")])
        > len(("init", "one"))
    ]
    assert sorted(layered) == sorted(packages)
