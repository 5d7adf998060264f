"""Micro-kernels as assembly for 64-bit ARM, on any machine.

`assembly(processors)` compiles each of `KERNELS` in a process that takes this machine for a 64-bit
ARM, and returns the instructions of the innermost loop.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from llvmlite import binding, ir

from memdesc.dtypes import BYTE_BITS
from reorder.cpu import target
from reorder.cpu.kernels.convert import _emit_row
from reorder.cpu.kernels.copy import _copy_vectors
from reorder.cpu.kernels.elements import Elements, Location
from reorder.cpu.kernels.interleave import _emit_join, _emit_split
from reorder.cpu.kernels.loop_group import LoopGroup, Transposition
from reorder.cpu.kernels.register_tile import emit_tile, tile_heights, tile_shapes
from reorder.cpu.kernels.rows import Row, vector_lanes
from reorder.cpu.llvm.emit import I64, Number, loop
from reorder.cpu.schedule.select import Kernel
from reorder.cpu.schedule.tile_program import ConvertTable
from reorder.cpu.tables import WORD_NBYTES
from reorder.cpu.target import LINE_BITS, register_bits, step_registers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reorder.cpu.llvm.emit import Builder, Value

# The facts about a machine are read when modules are imported.
_AS_ARM = """
import json, os, platform, sys
os.environ["MEMDESC_MACHINE"] = ""
from llvmlite import binding
platform.machine = lambda: "aarch64"
binding.get_host_cpu_features = binding.FeatureMap
from tests.arm.kernels import compile_all
print(json.dumps(compile_all(sys.argv[1:])))
"""
_TRIPLE = "aarch64-unknown-linux-gnu"


class Loop(NamedTuple):
    """The innermost loop of a micro-kernel."""

    # bytes that one round reads and writes
    nbytes: int
    lines: list[str]

    @property
    def names(self) -> list[str]:
        """The names of its instructions."""
        return [line.split()[0] for line in self.lines]


class _Arguments(NamedTuple):
    """The parameters of each function: two addresses, a count, and a table of offsets."""

    src: Value
    dst: Value
    count: Value
    table: Value


# Emits a kernel, and returns the bytes that one round of its loop reads and writes.
_Emit: TypeAlias = "Callable[[Builder, _Arguments], int]"


def _sides(given: _Arguments) -> tuple[Location, Location]:
    return Location(given.src, 0), Location(given.dst, 0)


def _copy(builder: Builder, given: _Arguments) -> int:
    """Copy by 64 bytes: what others are compared with."""
    elements = Elements(builder, Kernel(8))
    lanes = LINE_BITS // BYTE_BITS
    src, dst = _sides(given)
    with loop(0, given.count, lanes) as i:
        elements.store_vector(elements.load_vector(src + i, lanes), dst + i)
    return 2 * lanes


def _row(builder: Builder, given: _Arguments) -> int:
    elements = Elements(builder, Kernel(8))
    _copy_vectors(elements, *_sides(given), given.count)
    return 2 * register_bits() * step_registers() // BYTE_BITS


def _tile(bits: int) -> _Emit:
    def emit(builder: Builder, given: _Arguments) -> int:
        elements = Elements(builder, Kernel(bits))
        shape = tile_shapes(bits, tile_heights(bits)[0])[0]
        src, dst = _sides(given)
        with loop(0, given.count, shape.width) as column:
            columns = given.table + column * WORD_NBYTES
            first = elements.rebased(src + column)
            emit_tile(elements, first, dst, (given.table, columns), shape)
        return 2 * shape.height * shape.width * bits // BYTE_BITS

    return emit


def _interleave(bits: int, count: int, *, splits: bool) -> _Emit:
    def emit(builder: Builder, given: _Arguments) -> int:
        elements = Elements(builder, Kernel(bits))
        few = LoopGroup(
            given.count.like(count), given.count.like(count), given.count.like(0), given.table
        )
        many = LoopGroup(given.count, given.count, given.count, given.table)
        columns, rows = (few, many) if splits else (many, few)
        move = Transposition(elements, *_sides(given), columns, rows, 0, 0)
        lanes = 128 // bits * (2 if bits > BYTE_BITS else 1)
        if splits:
            _emit_split(move, count, lanes)
        else:
            _emit_join(move, (0, given.count), count, lanes)
        return 2 * count * lanes * bits // BYTE_BITS

    return emit


def _convert(src: str, dst: str) -> _Emit:
    def emit(builder: Builder, given: _Arguments) -> int:
        rows = Row.at(builder, src, _sides(given)[0]), Row.at(builder, dst, _sides(given)[1])
        _emit_row(*rows, ConvertTable(1, given.count, given.count.like(0)), "f32")
        lanes = vector_lanes("f32", 2 * step_registers())[0]
        return sum(lanes * row.elements.bits // BYTE_BITS for row in rows)

    return emit


KERNELS: dict[str, _Emit] = {
    "copy": _copy,
    "short row": _row,
    "tile of 8-bit elements": _tile(8),
    "tile of 16-bit elements": _tile(16),
    "tile of 32-bit elements": _tile(32),
    "tile of 64-bit elements": _tile(64),
    "two rows of 16 bits to pairs": _interleave(16, 2, splits=False),
    "four rows of 8 bits to quads": _interleave(8, 4, splits=False),
    "triples of 8 bits to three rows": _interleave(8, 3, splits=True),
    "f32 to f16": _convert("f32", "f16"),
    "f16 to f32": _convert("f16", "f32"),
    "f32 to bf16": _convert("f32", "bf16"),
    "bf16 to f32": _convert("bf16", "f32"),
    "f32 to s8": _convert("f32", "s8"),
}


def assembly(processors: Sequence[str]) -> dict[str, dict[str, Loop]]:
    """Return the innermost loop of each kernel, by processor (LLVM's name) and kernel."""
    command = [sys.executable, "-c", _AS_ARM, *processors]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {
        processor: {name: Loop(*found) for name, found in kernels.items()}
        for processor, kernels in json.loads(printed).items()
    }


def compile_all(processors: Sequence[str]) -> dict[str, dict[str, Loop]]:
    """Compile all kernels for some processors; the process must take itself for a 64-bit ARM."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    found = {}
    for processor in processors:
        os.environ["NUMBA_CPU_NAME"] = processor
        for fact in (target.processor, target.has_feature, target.register_bits):
            fact.cache_clear()
        machine = binding.Target.from_triple(_TRIPLE).create_target_machine(processor, opt=3)
        found[processor] = {name: _compile(emit, machine) for name, emit in KERNELS.items()}
    return found


def _compile(emit: _Emit, machine: binding.TargetMachine) -> Loop:
    module = ir.Module()
    module.triple = _TRIPLE
    kind = ir.FunctionType(ir.VoidType(), [I64] * len(_Arguments._fields))
    function = ir.Function(module, kind, "kernel")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    nbytes = emit(builder, _Arguments(*(Number(builder, each) for each in function.args)))
    builder.ret_void()
    compiled = binding.parse_assembly(str(module))
    options = binding.create_pipeline_tuning_options(speed_level=3)
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(compiled, passes)
    return Loop(nbytes, _largest_loop(machine.emit_assembly(compiled)))


def _largest_loop(text: str) -> list[str]:
    """Return the instructions of the longest loop without another branch target inside."""
    loops: list[list[str]] = []
    label, body = "", list[str]()
    for line in (each.split("//")[0].strip() for each in text.splitlines()):
        if line.endswith(":"):
            label, body = line[:-1], []
        elif line and not line.startswith("."):
            body.append(line)
            if label and line.split()[-1] == label:
                loops.append(body)
                # what follows is run once, after the loop
                label, body = "", []
    return max(loops, key=len)
