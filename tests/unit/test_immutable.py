"""No attribute of a public value can be set or deleted, and each refusal says what to do."""

import ast
import importlib
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import memdesc
import reorder
from memdesc.checked import Checked
from memdesc.index import Index
from tests.programs import run_python

# an open file is not a value, nor is memory on a device, whose events change
_NOT_VALUES = {"Checkpoint", "DeviceMemory"}


def _modules(part: str) -> list[tuple[str, str]]:
    """Return the names and sources of the modules of both packages whose source has a part."""
    found = []
    for package in (memdesc, reorder):
        root = Path(*package.__path__)
        for file in sorted(root.rglob("*.py")):
            if part in (source := file.read_text("utf-8")):
                parts = file.relative_to(root.parent).with_suffix("").parts
                found.append((".".join(parts).removesuffix(".__init__"), source))
    return found


def _values() -> dict[str, type]:
    """Return the public classes: dataclasses, named tuples, and what is Checked."""
    found = {}
    for name, _ in _modules("__all__"):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:  # an optional package is not installed
            continue
        for public in getattr(module, "__all__", ()):
            kind = getattr(module, public)
            if not isinstance(kind, type) or kind.__name__ in _NOT_VALUES:
                continue
            if is_dataclass(kind) or hasattr(kind, "_fields") or issubclass(kind, Checked):
                found[kind.__name__] = kind
    return found


VALUES = {"Index": Index, **_values()}


def _names(kind: type) -> list[str]:
    """Return the names of an instance's attributes, and two that it does not have."""
    named = [each.name for each in fields(kind)] if is_dataclass(kind) else []
    public = [each for each in dir(kind) if not each.startswith("_")]
    return [*named, *public, "dmis", "__class__"]


def test_there_are_values_of_every_kind() -> None:
    assert {"MemoryDesc", "Block", "Index", "Attr", "Memory", "Quantized", "LogReport"} <= {*VALUES}


@pytest.mark.parametrize("kind", VALUES.values(), ids=VALUES.keys())
def test_no_attribute_of_a_public_value_can_be_set_or_deleted(kind: type) -> None:
    # not made by its constructor: what is refused depends on the class alone
    value: Any = tuple.__new__(kind, ()) if issubclass(kind, tuple) else object.__new__(kind)
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    for name in _names(kind):
        for change in (lambda value, name: setattr(value, name, 1), delattr):
            with pytest.raises(AttributeError) as refused:
                change(value, name)
            message = str(refused.value)
            assert message.startswith(f"{article} {kind.__name__} is immutable")
            assert repr(name) in message


def _refusal(value: object, name: str) -> str:
    with pytest.raises(AttributeError) as refused:
        setattr(value, name, 1)
    return str(refused.value)


def test_the_types_of_arguments_can_be_found() -> None:
    for kind in (memdesc.Extra, memdesc.Layout, memdesc.ImageDesc):
        declared = get_type_hints(kind)
        found = get_type_hints(kind.__init__)
        assert found.pop("return") is type(None)
        assert found == {name: declared[name] for name in found}
        assert found


def test_dataclasses_finds_the_fields_of_a_value() -> None:
    script = "import sys, memdesc, reorder.cpu; print('dataclasses' in sys.modules)"
    assert run_python("-c", script).stdout == "False\n"
    found = {each.name: each for each in fields(reorder.Attr)}
    assert reorder.Attr.__match_args__ == tuple(name for name in found if found[name].init)
    assert (found["beta"].default, found["beta"].type) == (0.0, "float")
    assert (found["parameters"].init, found["parameters"].default) == (False, MISSING)
    image = memdesc.image_desc((1, 6, 5, 4), "f16", "tvm_texture")
    assert [each.name for each in fields(image) if not each.compare] == ["name"]
    assert fields(image) == fields(memdesc.ImageDesc)
    # what `copy.replace` calls from Python 3.13 on
    attr: Any = reorder.Attr(beta=0.5)
    assert attr.__replace__(saturate=True) == reorder.Attr(beta=0.5, saturate=True)
    with pytest.raises((TypeError, ValueError), match="parameters is declared with init=False"):
        replace(reorder.Attr(), parameters=())


def test_a_dataclass_can_inherit_from_a_value() -> None:
    @dataclass(init=False, repr=False, eq=False)
    class Noted(memdesc.Extra):  # type: ignore[misc] # for mypy, Extra is a frozen dataclass
        note: str = ""

    assert [each.name for each in fields(Noted)] == [*memdesc.Extra.__match_args__, "note"]
    assert Noted(s8s8_mask=1).masks == {"s8s8": 1}


def test_what_a_value_finds_out_itself_is_one_of_its_attributes() -> None:
    plan = reorder.plan_reorder(memdesc.memory_desc((2, 3), "f32", "ab"), "ba")
    assert _refusal(plan, "boxes").endswith("'boxes' cannot be set; make another ReorderPlan")


def test_an_attribute_that_does_not_exist_is_named() -> None:
    desc = memdesc.memory_desc((2, 3), "f32", "ab")
    assert _refusal(desc, "dmis").endswith("has no attribute 'dmis'")
    assert _refusal(reorder.Attr(), "alpha").endswith("has no attribute 'alpha'")


def test_the_way_to_a_changed_copy_works() -> None:
    desc = memdesc.memory_desc((2, 3), "f32", "ab")
    assert "make another with memory_desc(), with_dtype() or with_extra()" in _refusal(desc, "dims")
    attr = reorder.Attr(beta=0.5)
    assert "dataclasses.replace(value, beta=...)" in _refusal(attr, "beta")
    assert replace(attr, beta=1.0) == reorder.Attr(beta=1.0)

    block = memdesc.Block(0, 1, 0, 4)
    assert "value._replace(stride=...)" in _refusal(block, "stride")
    assert block._replace(stride=8) == memdesc.Block(0, 1, 0, 8)

    memory = reorder.Memory(desc)
    assert "Memory(desc, buffer)" in _refusal(memory, "desc")
    columns = memdesc.memory_desc((2, 3), "f32", "ba")
    assert reorder.Memory(columns, memory.data).desc == columns

    quantized = reorder.quantize(np.ones((2, 3), np.float32), "s8")
    assert "make another Quantized" in _refusal(quantized, "axis")


# what may make a table
_MADE = ast.Dict | ast.DictComp | ast.List | ast.Set | ast.Call | ast.Name


def _tables() -> list[tuple[str, str]]:
    """Return each public name that a module gives a dict, a list or a set: module and name."""
    found = []
    for module, source in _modules(""):
        for node in ast.parse(source).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each.id for each in targets if isinstance(each, ast.Name)]
            found += [
                (module, name)
                for name in names
                if name == name.upper()
                and not name.startswith("_")
                and isinstance(node.value, _MADE)
            ]
    return found


def test_public_tables_cannot_be_changed() -> None:
    tables = [(*at, getattr(importlib.import_module(at[0]), at[1])) for at in _tables()]
    assert len(tables) > 50
    assert not [each for each in tables if isinstance(each[-1], dict | list | set | bytearray)]
