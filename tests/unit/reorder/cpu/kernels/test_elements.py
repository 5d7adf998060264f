"""Element access: which stores are non-temporal."""

from __future__ import annotations

import pytest
from llvmlite import ir

from reorder.cpu.kernels.elements import Elements, Location
from reorder.cpu.kernels.emit import I64, Number
from reorder.cpu.schedule.select import Kernel


@pytest.mark.parametrize("streams", [True, False])
def test_whole_lines_of_kernels_that_stream_are_non_temporal(streams: bool) -> None:
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64]), "emitted")
    builder = ir.IRBuilder(function.append_basic_block())
    elements = Elements(builder, Kernel(32, streams))
    location = Location(Number(builder, function.args[0]), 0)
    elements.store_lines(elements.zeros(8), location)
    assert "!nontemporal" not in str(module)
    elements.store_lines(elements.zeros(16), location)
    assert ("!nontemporal" in str(module)) == streams
