"""Kernels never outlive their sources: their files carry a hash of all that they depend on."""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import reorder
from memdesc.record import record_desc
from reorder.cpu.decoding.jobs import decoder_at
from reorder.cpu.decoding.pattern import DecodeKernel, place_pattern
from reorder.cpu.runtime import sources
from reorder.cpu.runtime.interpreters import interpreter_at
from reorder.cpu.runtime.stages import stage_at, tile_interpreter_at
from reorder.cpu.schedule.select import Kernel as MoveKernel
from reorder.cpu.schedule.tile_program import CombineTypes, ConvertTypes

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from reorder.cpu.runtime.jit import Kernel

_ROOT = str(Path(reorder.__file__).parents[1])
_RUNTIME = "reorder.cpu.runtime"
# the modules whose functions are compiled, and those that name what emits a kernel
_MODULES = [
    "reorder.cpu.decoding.jobs",
    *(
        f"{_RUNTIME}.{name}"
        for name in ("batch", "fast_call", "interpreters", "pool", "stages", "sums", "worker")
    ),
]


def _copied(folder: Path) -> str:
    for package in ("memdesc", "reorder"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(_ROOT) / package, folder / package, ignore=ignored)
    return str(folder)


def _names(files: list[str], root: str) -> set[str]:
    return {str(Path(file).relative_to(root)) for file in files}


def _module_files(node: ast.Import | ast.ImportFrom) -> set[str]:
    """Return the files that a statement imports from, by Python's own parser."""
    places = []
    if isinstance(node, ast.Import):
        places = [alias.name for alias in node.names]
    else:
        assert node.module is not None
        assert node.level == 0
        submodules = [f"{node.module}.{alias.name}" for alias in node.names]
        found = [each for each in submodules if _path(each)]
        places = found if len(found) == len(submodules) else [*found, node.module]
    return {path for place in places if (path := _path(place))}


def _path(module: str) -> str:
    place = Path(_ROOT).joinpath(*module.split("."))
    if module.partition(".")[0] not in {"memdesc", "reorder"}:
        return ""
    files = [place.with_suffix(".py"), place / "__init__.py"]
    return next((str(file) for file in files if file.is_file()), "")


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@pytest.mark.parametrize("module", _MODULES)
def test_all_that_is_imported_is_covered(module: str) -> None:
    files = sources.files_of(module, _ROOT)
    assert _path(module) in files
    for file in files:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
        tree.body = [node for node in tree.body if not _is_for_types(node)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert _module_files(node) <= {*files}, (file, ast.unparse(node))


def _compiles(name: str) -> Callable[[], object]:
    placed = place_pattern(record_desc((256, 4096), "q4_k"))
    assert placed is not None
    kernel = DecodeKernel(placed.pattern, "f32")
    return {
        "moves": lambda: interpreter_at(MoveKernel(8, streams=True)),
        "conversions": lambda: stage_at(ConvertTypes("bf16", "f32", "f32", streams=True)),
        "arithmetic": lambda: stage_at(CombineTypes("s8", "u8", "f32", streams=True)),
        "records": lambda: decoder_at(kernel),
        "tiles": tile_interpreter_at,
    }[name]


@pytest.mark.parametrize("name", ["moves", "conversions", "arithmetic", "records", "tiles"])
def test_all_code_that_writes_a_kernel_is_covered(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every function of ours that runs while the text of a kernel is made is in a covered file."""
    ran: set[str] = set()
    asked: list[Kernel] = []

    def note(frame: FrameType, _event: str, _argument: object) -> None:
        # what importing a module runs is covered by what it imports
        if frame.f_code.co_name != "<module>":
            ran.add(frame.f_code.co_filename)

    def look(kernel: Kernel) -> int:
        asked.append(kernel)
        return 0

    compiles = _compiles(name)
    for module in ("interpreters", "jit"):
        monkeypatch.setattr(f"{_RUNTIME}.{module}.kernel_at", look)
    decoder_at.cache_clear()
    compiles()
    decoder_at.cache_clear()
    (kernel,) = asked
    previous = sys.getprofile()
    sys.setprofile(note)
    try:
        kernel.text()
    finally:
        sys.setprofile(previous)
    ours = {file for file in ran if file.startswith(f"{_ROOT}/") and "/tests/" not in file}
    covered = {*sources.files_of(kernel.module, _ROOT)}
    assert ours
    assert {file for file in ours if "site-packages" not in file} <= covered


def test_a_change_of_any_source_changes_the_digest(tmp_path: Path) -> None:
    root = _copied(tmp_path)
    module = "reorder.cpu.decoding.jobs"
    assert _names(sources.files_of(module, root), root) == _names(
        sources.files_of(module, _ROOT), _ROOT
    )
    digests = [sources.digest_of(module), sources.digest_of(module, root)]
    assert digests[0] == digests[1]
    for name in (
        "reorder/cpu/tables.py",
        "reorder/cpu/target.py",
        "reorder/cpu/decoding/kernel.py",
        "reorder/cpu/decoding/pattern.py",
        "reorder/cpu/runtime/compiler.py",
        "reorder/values/formats.py",
        "memdesc/record/desc.py",
        "memdesc/dtypes.py",
    ):
        with (tmp_path / name).open("a", encoding="utf-8") as file:
            file.write("#")
        for known in (sources.digest_of, sources._read):  # noqa: SLF001 - what was read before
            known.cache_clear()
        digests.append(sources.digest_of(module, root))
    assert len(set(digests[1:])) == len(digests[1:])


def test_imports_that_only_types_need_do_not_count(tmp_path: Path) -> None:
    package = tmp_path / "reorder"
    package.mkdir()
    text = {
        "__init__": "raise ValueError\n",
        "used": "",
        "later": "from reorder import deeper\n",
        "deeper": "import reorder.deepest\n",
        "deepest": "",
        "names": "A = 1\n",
        "typed": "",
        "of_a_file": (
            "from typing import TYPE_CHECKING\n"
            "from reorder.used import (\n    a,\n    b,\n)\n\n"
            "if TYPE_CHECKING:\n    from reorder.typed import T\n\n    x = 1\n"
            "\n\ndef f():\n    from reorder.later import x  # later\n"
            "    from reorder import names, A\n"
        ),
    }
    for name, content in text.items():
        (package / f"{name}.py").write_text(content, encoding="utf-8")
    found = _names(sources.files_of("reorder.of_a_file", str(tmp_path)), str(tmp_path))
    wanted = {"__init__", "of_a_file", "used", "later", "deeper", "deepest", "names"}
    assert found == {f"reorder/{name}.py" for name in wanted}
