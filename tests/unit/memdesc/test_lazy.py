"""Names whose modules are loaded at their first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import memdesc
from memdesc.lazy import lazy_attributes

_PROGRAM = """
import sys
import memdesc, reorder
lazy = ("memdesc.exchange.table", "memdesc.record", "memdesc.verbose", "reorder.records.record")
assert not {*lazy} & {*sys.modules}, {*lazy} & {*sys.modules}
assert memdesc.record_desc((2, 32), "q4_0") and {*lazy} & {*sys.modules} == {"memdesc.record"}
assert memdesc.to_notation and memdesc.read_verbose and reorder.Record
assert {*lazy} <= {*sys.modules}
"""


def test_packages_that_few_programs_use_are_not_loaded_with_the_others() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True)


def test_every_public_name_is_there() -> None:
    assert all(getattr(memdesc, name) is not None for name in memdesc.__all__)


def test_a_name_is_loaded_once_and_an_unknown_one_is_refused() -> None:
    package = {"__name__": "package"}
    load = lazy_attributes(package, {"parse_tag": "memdesc.notation"})
    assert load("parse_tag") is memdesc.parse_tag
    assert package["parse_tag"] is memdesc.parse_tag
    with pytest.raises(AttributeError, match="module 'package' has no attribute 'parse'"):
        load("parse")
