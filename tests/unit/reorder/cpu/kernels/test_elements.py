"""Element access: each width, alone and as vectors, compiled as it is in kernels."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from llvmlite import binding, ir

from reorder.cpu.kernels.elements import Elements, Location
from reorder.cpu.kernels.emit import I64, int64, load_fields, load_int64, loop
from reorder.cpu.kernels.shuffle import pick
from reorder.cpu.schedule.select import Kernel
from reorder.memory.buffers import address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from reorder.cpu.kernels.emit import Builder, Value

_BITS = (4, 8, 16, 32, 64)


def _run(emit: Callable[[Builder, Value, Value], None], *addresses: int) -> None:
    """Compile a function of two addresses, and call it."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = ir.Module()
    kind = ir.FunctionType(ir.VoidType(), [I64, I64])
    function = ir.Function(module, kind, "emitted")
    builder = ir.IRBuilder(function.append_basic_block())
    emit(builder, *function.args)
    builder.ret_void()
    machine = binding.Target.from_default_triple().create_target_machine()
    compiled = binding.parse_assembly(str(module))
    compiled.verify()
    with binding.create_mcjit_compiler(compiled, machine) as engine:
        engine.finalize_object()
        call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
        call(engine.get_function_address("emitted"))(*addresses)


def _unpacked(data: NDArray[Any], bits: int) -> NDArray[Any]:
    if bits == 4:
        return np.stack([data & 15, data >> 4], axis=1).reshape(-1)
    return data.view(f"u{bits // 8}")


@pytest.mark.parametrize("bits", _BITS)
@pytest.mark.parametrize("start", [0, 1, 2])
def test_elements_are_moved_one_by_one_and_others_stay(bits: int, start: int) -> None:
    source = np.random.default_rng(0).integers(0, 256, 64, np.uint8)
    target = np.random.default_rng(1).integers(0, 256, 64, np.uint8)
    wanted = _unpacked(target.copy(), bits)
    wanted[start : start + 5] = _unpacked(source, bits)[1:6]

    def emit(builder: Builder, src: Value, dst: Value) -> None:
        elements = Elements(builder, Kernel(bits))
        with loop(builder, int64(0), int64(5)) as i:
            element = elements.load(Location(src, int64(1)).plus(builder, i))
            elements.store(element, elements.rebased(Location(dst, int64(start))).plus(builder, i))

    _run(emit, address_of(source), address_of(target))
    assert np.array_equal(_unpacked(target, bits), wanted)


@pytest.mark.parametrize("bits", _BITS)
@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_vectors_are_the_elements_in_their_order(bits: int, lanes: int) -> None:
    source = np.random.default_rng(0).integers(0, 256, 192, np.uint8)
    target = np.zeros(192, np.uint8)
    # vectors of 4-bit elements start with a whole byte
    start = 2 if bits == 4 and lanes > 1 else 3
    wanted = _unpacked(target.copy(), bits)
    wanted[start : start + lanes] = _unpacked(source, bits)[start : start + lanes][::-1]

    def emit(builder: Builder, src: Value, dst: Value) -> None:
        elements = Elements(builder, Kernel(bits))
        vector = elements.load_vector(Location(src, int64(start)), lanes)
        reverse = pick(builder, vector, range(lanes - 1, -1, -1))
        elements.store_vector(reverse, Location(dst, int64(start)))

    _run(emit, address_of(source), address_of(target))
    assert np.array_equal(_unpacked(target, bits), wanted)


@pytest.mark.parametrize("streams", [True, False])
def test_whole_lines_of_kernels_that_stream_are_non_temporal(streams: bool) -> None:
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64]), "emitted")
    builder = ir.IRBuilder(function.append_basic_block())
    elements = Elements(builder, Kernel(32, streams))
    location = Location(function.args[0], int64(0))
    elements.store_lines(elements.zeros(8), location)
    assert "!nontemporal" not in str(module)
    elements.store_lines(elements.zeros(16), location)
    assert ("!nontemporal" in str(module)) == streams


def test_records_are_read_by_the_names_of_their_fields() -> None:
    record, found = np.array([3, 4, 5], np.int64), np.zeros(2, np.int64)

    def emit(builder: Builder, src: Value, dst: Value) -> None:
        out = Elements(builder, Kernel(64))
        out.store(load_fields(builder, src, Kernel).streams, Location(dst, int64(0)))
        out.store(load_int64(builder, src, 2), Location(dst, int64(1)))

    _run(emit, address_of(record), address_of(found))
    assert found.tolist() == [4, 5]
