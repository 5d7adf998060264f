import runpy
import sys
from importlib import import_module
from pathlib import Path

import pytest

import memdesc
from reorder.cli import main
from tests.programs import run_python


def test_packages_that_few_programs_use_are_loaded_at_their_first_use() -> None:
    program = """
import sys
import memdesc, reorder
assert reorder.plan_reorder(memdesc.memory_desc((2, 3), "f32", "nc"), "ba")
lazy = ("memdesc.exchange", "memdesc.record", "memdesc.verbose", "reorder.records.record")
lazy += ("memdesc.names.systems", "memdesc.names.weights", "memdesc.names.similar")
assert not {*lazy, "memdesc.picture"} & {*sys.modules}, {*lazy} & {*sys.modules}
assert memdesc.record.record_desc((2, 32), "q4_0")
assert {*lazy} & {*sys.modules} == {"memdesc.record"}
assert memdesc.parse_layout is memdesc.exchange.parse_layout
assert memdesc.verbose.to_verbose and reorder.records.Record
assert {*lazy} <= {*sys.modules}
"""
    run_python("-c", program)


def test_importing_loads_neither_a_compiler_nor_a_device_nor_the_other_package() -> None:
    script = "import sys, memdesc; print(*sys.modules); print(*dir(memdesc))"
    loaded, listed = map(str.split, run_python("-c", script).stdout.splitlines())
    others = {"numba", "llvmlite", "pyopencl", "reorder", "hypothesis", "pytest"}
    assert not {name.partition(".")[0] for name in loaded} & others
    # dir lists public names and dunder names only, whatever was imported
    for names in (listed, dir(memdesc)):
        assert {name for name in names if not name.startswith("__")} == {*memdesc.__all__}
    assert {"__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"} <= {*listed}
    assert import_module("memdesc.picture") is memdesc.picture


def test_python_m_memdesc_is_the_installed_command_and_returns_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["show", "aB8b", "2x17", "--json"]
    ran = run_python("-m", "memdesc", *arguments)
    assert main(arguments) == 0
    assert ran.stdout == capfd.readouterr().out
    monkeypatch.setattr(sys, "argv", ["memdesc", "show", "nchwx", "2x17"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(Path(memdesc.__file__).with_name("__main__.py")), run_name="__main__")
    assert ended.value.code == 2
    assert "unknown format 'nchwx'" in "".join(capfd.readouterr())
